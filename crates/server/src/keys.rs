//! Where master keys come from: the environment, a file, a command, the data folder.
//!
//! Invariant: what a command prints is read as a key or forgotten. It is in no message.

use std::io::Read as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::config::Config;
use crate::datadir::{self, DataDir, DataRefused, MasterKey};
use crate::vault::Vault;

/// More than a key has, with what may stand around it.
const PRINTED_BYTES_MAX: u64 = 1024;
/// How often a command that has printed is asked whether it has ended.
const END_LOOK: Duration = Duration::from_millis(5);

const KEY_VARIABLE: &str = "COUNTERSIGN_MASTER_KEY";
const PREVIOUS_KEY_VARIABLE: &str = "COUNTERSIGN_MASTER_KEY_PREVIOUS";

/// Whether what the environment itself gives for a key is one. Opens no file and runs no command.
pub fn examine_environment(config: &Config) -> Result<(), DataRefused> {
    for (text, variable) in
        [(config.master_key.get(), KEY_VARIABLE), (config.master_key_previous.get(), PREVIOUS_KEY_VARIABLE)]
    {
        text.map(|text| datadir::parse_key(text.expose(), variable)).transpose()?;
    }
    Ok(())
}

/// The master key that the settings name: the environment's, else the named file's, else the command's, else the data folder's.
pub fn master_key(config: &Config, data: &DataDir) -> Result<MasterKey, DataRefused> {
    match (config.master_key.get(), config.master_key_file.get()) {
        (Some(text), _) => datadir::parse_key(text.expose(), KEY_VARIABLE),
        (None, Some(file)) => datadir::read_key(file, config.credentials.as_deref()),
        (None, None) if !config.master_key_command.is_empty() => {
            printed("master_key_command", &config.master_key_command, config.master_key_command_timeout.0)
        }
        (None, None) => datadir::read_key(&data.master_key(), None),
    }
}

/// Where the master key comes from, for people: what [`master_key`] reads.
pub fn source(config: &Config, data: &DataDir) -> String {
    match (config.master_key.get(), config.master_key_file.get()) {
        (Some(_), _) => "in the environment, COUNTERSIGN_MASTER_KEY".to_owned(),
        (None, Some(file)) => format!("in {}, closed to others", file.display()),
        (None, None) => match config.master_key_command.first() {
            Some(program) => format!("printed by master_key_command, {program}"),
            None => format!("in {}, closed to others", data.master_key().display()),
        },
    }
}

/// Whether the settings name a master key, so that none is made.
pub fn is_named(config: &Config) -> bool {
    config.master_key.get().is_some() || config.master_key_file.get().is_some() || !config.master_key_command.is_empty()
}

/// The key that it takes the place of, where the settings name one.
fn previous(config: &Config) -> Result<Option<MasterKey>, DataRefused> {
    match (config.master_key_previous.get(), config.master_key_previous_file.get()) {
        (Some(text), _) => datadir::parse_key(text.expose(), PREVIOUS_KEY_VARIABLE).map(Some),
        (None, Some(file)) => match datadir::read_key(file, config.credentials.as_deref()) {
            Err(DataRefused::NoKey(file)) => Err(DataRefused::NoPreviousKey(file)),
            read => read.map(Some),
        },
        (None, None) if !config.master_key_previous_command.is_empty() => {
            let argv = &config.master_key_previous_command;
            printed("master_key_previous_command", argv, config.master_key_command_timeout.0).map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// Both keys, ready for use.
pub fn vault(config: &Config, data: &DataDir) -> Result<Vault, DataRefused> {
    let vault = Vault::new(&master_key(config, data)?);
    Ok(match previous(config)? {
        Some(previous) => vault.with_previous(&previous),
        None => vault,
    })
}

/// The key that a command prints.
fn printed(setting: &'static str, argv: &[String], time_max: Duration) -> Result<MasterKey, DataRefused> {
    let (program, arguments) = argv.split_first().map_or(("", &[][..]), |(program, rest)| (program.as_str(), rest));
    let refused = |what: String| DataRefused::Command { setting, program: program.to_owned(), what };
    let deadline = Instant::now() + time_max;
    let started = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It may say anything there, the key too.
        .stderr(Stdio::null())
        .spawn();
    let mut child = started.map_err(|error| refused(format!("cannot be started: {error}")))?;
    let late = || refused(format!("did not print a key within {} s", time_max.as_secs_f32()));
    let (sender, receiver) = sync_channel(1);
    if let Some(out) = child.stdout.take() {
        thread::spawn(move || {
            let mut text = Zeroizing::new(String::with_capacity(2048));
            let read = out.take(PRINTED_BYTES_MAX).read_to_string(&mut text);
            // Nobody waits any more: what was read is wiped.
            drop(sender.send(read.map(|_| text)));
        });
    }
    let text = match receiver.recv_timeout(time_max) {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => {
            end(&mut child);
            return Err(refused(format!("printed what cannot be read: {}", error.kind())));
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            end(&mut child);
            return Err(late());
        }
    };
    let status = ended(&mut child, deadline).ok_or_else(late)?;
    if !status.success() {
        return Err(refused(format!("failed: {status}")));
    }
    datadir::parse_key(&text, &format!("what {setting} {program} printed"))
}

/// Waits for the end of a command that has closed its output; kills it at the deadline.
fn ended(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            end(child);
            return None;
        }
        thread::park_timeout(END_LOOK);
    }
}

fn end(child: &mut Child) {
    // It may have ended just now.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chance::Chance;
    use crate::config::Optional;

    fn run(script: &str, time_max: Duration) -> Result<MasterKey, String> {
        let argv = ["/bin/sh", "-c", script].map(str::to_owned);
        printed("master_key_command", &argv, time_max).map_err(|error| error.to_string())
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_file_of_the_key_before_that_is_not_there_is_told_as_that_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let gone = folder.path().join("old.key");
        let config = Config { master_key_previous_file: Optional(Some(gone.clone())), ..Config::default() };
        let refused = previous(&config).expect_err("it is not there").to_string();
        assert!(
            refused.contains("the master key before") && refused.contains("`master_key_previous_file`"),
            "{refused}"
        );
        datadir::make_key(&gone, &Chance::default()).expect("is made");
        assert!(previous(&config).expect("is read").is_some());
    }

    #[test]
    fn a_command_that_prints_a_key_gives_it() {
        let key = run(&format!("echo {}", "ab".repeat(32)), LONG).expect("it prints one");
        assert_eq!(*key, [0xab; 32]);
    }

    #[test]
    fn a_command_that_prints_none_or_fails_is_refused_without_what_it_printed() {
        for (script, says) in [
            ("echo deadbeef; echo deadbeef >&2", "does not hold a master key"),
            (&format!("echo {}; exit 3", "cd".repeat(32)), "failed: exit status: 3"),
            ("head -c 100000 /dev/zero | tr '\\0' 'e'", "failed"),
            ("printf '\\377'", "cannot be read"),
        ] {
            let refused = run(script, LONG).expect_err("it is refused");
            assert!(refused.contains(says), "{script}: {refused}");
            assert!(
                !refused.contains("deadbeef") && !refused.contains("cdcd") && !refused.contains("eeee"),
                "{refused}"
            );
        }
        let nothing = printed("master_key_command", &["/no/such/program".to_owned()], LONG).expect_err("refused");
        assert!(nothing.to_string().contains("cannot be started"), "{nothing}");
    }

    #[test]
    fn a_command_that_takes_too_long_is_ended() {
        for script in ["exec /bin/sleep 60", "exec >&-; exec /bin/sleep 60"] {
            let refused = run(script, Duration::from_millis(200)).expect_err("it is refused");
            assert!(refused.contains("within 0.2 s") || refused.contains("does not hold"), "{refused}");
        }
    }
}
