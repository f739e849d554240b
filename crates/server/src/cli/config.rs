//! `config`: what is set, and by whom.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use serde_json::{Map, json};

use super::SettingsArgs;
use crate::config::{Config, DEFAULTS, Setting};
use crate::keys;

/// Where notes begin beside a setting.
const NOTE_COLUMN: usize = 48;

/// Flags of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Those of `serve`.
    #[command(flatten)]
    settings: SettingsArgs,
    /// Only what a file, a variable or a flag has set
    #[arg(long)]
    changed: bool,
    /// Print one JSON object: the value of each setting, and who set it
    #[arg(long)]
    json: bool,
    /// Print every setting as it is shipped, with its meaning: a settings file to begin with
    #[arg(long, exclusive = true)]
    shipped: bool,
}

/// Prints the settings. What `serve` would refuse is refused with its sentence.
pub fn config(args: &ConfigArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    if args.shipped {
        super::say(DEFAULTS)?;
        return Ok(ExitCode::SUCCESS);
    }
    let layers = args.settings.layers(environment)?;
    let settings = layers.settings().into_iter().filter(|setting| !args.changed || setting.set_by.is_some()).collect();
    let config = Config::of_server(layers, environment)?;
    keys::examine_environment(&config)?;
    super::say(&if args.json { object(settings)? } else { file(&settings) })?;
    Ok(ExitCode::SUCCESS)
}

/// A settings file that says the same, without secrets.
fn file(settings: &[Setting]) -> String {
    if settings.is_empty() {
        return "# Everything is as it is shipped.\n".to_owned();
    }
    let (mut text, mut section) = (String::new(), "");
    for Setting { name, value, set_by } in settings {
        let (of, inner) = name.split_once('.').unwrap_or(("", name));
        if of != section {
            section = of;
            let _ = writeln!(text, "\n[{section}]");
        }
        let line =
            value.as_ref().map_or_else(|| format!("# {inner} is set and not shown"), |v| format!("{inner} = {v}"));
        let _ = match set_by {
            Some(set_by) => writeln!(text, "{line:<NOTE_COLUMN$} # {set_by}"),
            None => writeln!(text, "{line}"),
        };
    }
    text
}

fn object(settings: Vec<Setting>) -> anyhow::Result<String> {
    let one = |Setting { name, value, set_by }| {
        let hidden = value.is_none();
        let mut shown = json!({ "value": serde_json::to_value(value)?, "set_by": set_by });
        if hidden {
            shown["hidden"] = true.into();
        }
        anyhow::Ok((name, shown))
    };
    let members: Map<_, _> =
        settings.into_iter().map(one).collect::<Result<_, _>>().context("a setting has no form")?;
    Ok(format!("{}\n", serde_json::Value::Object(members)))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(words: &[&str]) -> ConfigArgs {
        let words = ["countersign", "config"].iter().chain(words);
        match Cli::try_parse_from(words).expect("these are words of it").command {
            Command::Config(args) => args,
            other => panic!("{other:?}"),
        }
    }

    fn shown(args: &ConfigArgs, environment: &BTreeMap<String, String>) -> Vec<Setting> {
        args.settings.layers(environment).expect("they are settings").settings()
    }

    #[test]
    fn what_is_printed_is_a_settings_file_that_says_the_same() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("countersign.toml");
        let text =
            "callback_ports = [443, 8443]\nrate_limit_per_s = 7\n[limits]\nconnections = 9\nstop_delay = \"5s\"\n";
        std::fs::write(&path, text).expect("it can be written");
        let environment = [
            ("COUNTERSIGN_CONFIG", path.to_str().expect("UTF-8")),
            ("COUNTERSIGN_RATE_LIMIT_PER_S", "8"),
            ("COUNTERSIGN_CALLBACK_SCHEDULE", "1s,2s"),
            ("COUNTERSIGN_RETENTION__EVENTS", "off"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let args = args(&["--listen", "127.0.0.1:1", "--allow-private-callbacks"]);
        let settings = shown(&args, &environment);
        let printed = file(&settings);

        let again = folder.path().join("printed.toml");
        std::fs::write(&again, &printed).expect("it can be written");
        let wanted = args.settings.load(&environment).expect("they are good");
        let wanted = Config { named_file: Some(again.clone()), ..wanted };
        assert_eq!(Config::load(Some(&again), &BTreeMap::new(), &[]).expect("it is a settings file"), wanted);
        let set: Vec<_> = settings.iter().filter_map(|s| Some((s.name.as_str(), s.set_by.as_deref()?))).collect();
        let file = path.to_str().expect("UTF-8");
        assert_eq!(
            set,
            [
                ("listen", "--listen"),
                ("rate_limit_per_s", "COUNTERSIGN_RATE_LIMIT_PER_S"),
                ("callback_schedule", "COUNTERSIGN_CALLBACK_SCHEDULE"),
                ("callback_ports", file),
                ("allow_private_callbacks", "--allow-private-callbacks"),
                ("limits.connections", file),
                ("limits.stop_delay", file),
                ("retention.events", "COUNTERSIGN_RETENTION__EVENTS"),
            ]
        );
        assert!(printed.contains(&format!("connections = 9{} # {file}\n", " ".repeat(NOTE_COLUMN - 15))), "{printed}");
        assert!(printed.contains("\nbehind_proxy = false\n"), "{printed}");
    }

    #[test]
    fn all_settings_are_printed_and_as_shipped_nobody_has_set_them() {
        let settings = shown(&args(&[]), &BTreeMap::new());
        let values = settings.iter().filter(|setting| setting.value.is_some() && setting.set_by.is_none()).count();
        let shipped: toml::Table = DEFAULTS.parse().expect("it is TOML");
        let count = shipped.values().map(|value| value.as_table().map_or(1, toml::Table::len)).sum::<usize>();
        assert_eq!((values, settings.len()), (count, count));
        assert_eq!(file(&[]), "# Everything is as it is shipped.\n");
    }

    #[test]
    fn secrets_are_not_printed() {
        let environment = [
            ("COUNTERSIGN_MASTER_KEY", "11".repeat(32)),
            ("COUNTERSIGN_MASTER_KEY_PREVIOUS", "22".repeat(32)),
            ("COUNTERSIGN_CALLBACK_PROXY_CREDENTIALS", "cs:letmein".to_owned()),
            ("COUNTERSIGN_CALLBACK_PROXY", "http://127.0.0.1:3128".to_owned()),
            ("COUNTERSIGN_DATABASE_URL", "postgres://cs:letmein@db/cs?password=letmein&sslmode=require".to_owned()),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).into();
        let settings = shown(&args(&[]), &environment);
        let printed = [file(&settings), object(settings.clone()).expect("it has a form"), format!("{settings:?}")];
        for text in &printed {
            for secret in ["1111", "2222", "letmein"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
        assert!(printed[0].contains("# master_key is set and not shown"), "{}", printed[0]);
        assert!(
            printed[0].contains("postgres://cs:PASSWORD@db/cs?password=PASSWORD&sslmode=require"),
            "{}",
            printed[0]
        );
        let object: serde_json::Value = serde_json::from_str(&printed[1]).expect("one JSON object");
        let wanted = json!({ "value": null, "set_by": "COUNTERSIGN_MASTER_KEY", "hidden": true });
        assert_eq!(object["master_key"], wanted);
        assert_eq!(object["limits.connections"], json!({ "value": 4096, "set_by": null }));
        // The flag takes the key of the environment back: nobody has set it then.
        let flagged = shown(&args(&["--master-key", "F"]), &environment);
        let key = flagged.iter().find(|setting| setting.name == "master_key").expect("it is there");
        assert_eq!((key.value.as_ref().and_then(toml::Value::as_str), key.set_by.as_deref()), (Some(""), None));
    }

    #[test]
    fn what_serve_refuses_is_refused() {
        let environment = BTreeMap::from([("COUNTERSIGN_DISPATCH_LEASE".to_owned(), "0s".to_owned())]);
        let said = config(&args(&[]), &environment).expect_err("it is refused").to_string();
        assert_eq!(said, "dispatch_lease must be from 1s to 1m (set by COUNTERSIGN_DISPATCH_LEASE)");
        for (variable, key) in [("COUNTERSIGN_MASTER_KEY", "canary"), ("COUNTERSIGN_MASTER_KEY_PREVIOUS", "00")] {
            let environment = BTreeMap::from([(variable.to_owned(), key.to_owned())]);
            let said = config(&args(&[]), &environment).expect_err("it is refused").to_string();
            assert!(said.starts_with(&format!("{variable} does not hold a master key: 64 hex")), "{said}");
            assert!(!said.contains("canary"), "{said}");
        }
    }
}
