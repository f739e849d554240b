//! `doctor`: what `serve` checks at its start, without starting, and with a line for each.

mod backups;
mod postgres;
mod safety;
mod tokens;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{anyhow, ensure};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::{AnyStore, SchemaState, SqliteStore, Store as _, StoreError};

use super::SettingsArgs;
use crate::app::{delivery, forgotten_nonces, master_key};
use crate::config::Config;
use crate::datadir::{self, DataDir, DataRefused};
use crate::dispatch::route::Route;
use crate::run::Database;
use crate::run::deployment_settings::Settings;
use crate::vault::Vault;
use crate::{clock, keys, listen, run};

/// Faults of the database that are named: whoever has so many restores a backup.
const FAULTS_NAMED_MAX: usize = 20;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// The lines so far.
#[derive(Debug, Default)]
struct Findings(Vec<(Verdict, &'static str, String)>);

impl Findings {
    fn note(&mut self, verdict: Verdict, about: &'static str, text: impl Into<String>) {
        // A line each: what others say may have several.
        let text: String = text.into();
        self.0.push((verdict, about, text.split_whitespace().collect::<Vec<_>>().join(" ")));
    }

    /// Notes a failure behind which there is nothing to look at.
    fn fail<T>(&mut self, about: &'static str, text: impl Into<String>) -> Option<T> {
        self.note(Verdict::Fail, about, text);
        None
    }

    fn take<T>(&mut self, about: &'static str, outcome: anyhow::Result<(T, String)>) -> Option<T> {
        match outcome {
            Ok((value, text)) => {
                self.note(Verdict::Ok, about, text);
                Some(value)
            }
            Err(error) => {
                self.note(Verdict::Fail, about, format!("{error:#}"));
                None
            }
        }
    }

    fn failed(&self) -> usize {
        self.0.iter().filter(|(verdict, _, _)| *verdict == Verdict::Fail).count()
    }

    fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (verdict, about, found)| {
            let verdict = match verdict {
                Verdict::Ok => "ok  ",
                Verdict::Warn => "warn",
                Verdict::Fail => "fail",
            };
            let _ = writeln!(text, "{verdict}  {about:<12} {found}");
            text
        })
    }
}

/// Checks everything and prints a line for each; exit code 1 if one of them fails.
pub fn doctor(args: &SettingsArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    // Looking makes files as well, such as those beside a database: at its size limit the process goes on and says so.
    let _outlives = super::small_runtime()?;
    let mut findings = Findings::default();
    let config = findings.take(
        "settings",
        args.load(environment).map(|c| (c, "every name is known, every value is good".to_owned())).map_err(Into::into),
    );
    if let Some(config) = config {
        examine(&config, &mut findings)?;
    }
    super::say(&findings.text())?;
    let failed = findings.failed();
    ensure!(failed == 0, "{failed} of {} checks failed: mend what their lines say", findings.0.len());
    Ok(ExitCode::SUCCESS)
}

fn examine(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    safety::examine(config, findings);
    if let Some(told) = run::nameless_boot(config) {
        findings.note(Verdict::Warn, "boot", told);
    }
    let (mut is_served, mut database_time) = (None, None);
    if let Some(data) = examine_folder(config, findings) {
        is_served = data.is_locked().ok();
        let key = keys::vault(config, &data).map(|vault| {
            let also =
                vault.previous_id().map_or(String::new(), |id| format!("; the one before it ({id}) is there too"));
            let said = format!("{}, {}{also}", vault.key_id(), keys::source(config, &data));
            (vault, said)
        });
        let key = match key {
            // Where nothing was made yet, no key is missing: what is said of the database says what to do.
            Err(DataRefused::NoKey(_)) if super::small_runtime()?.block_on(run::is_bare(config, &data)) => None,
            key => findings.take("master key", key.map_err(Into::into)),
        };
        database_time = examine_database(config, &data, key.as_ref(), findings)?;
        backups::examine(&data, clock::Clock::System.now(), findings);
    }
    for (setting, address) in config.listeners() {
        let about = match setting {
            "operator_listen" => "operators",
            "health_listen" => "health",
            other => other,
        };
        examine_address(about, address, is_served, findings);
    }
    examine_tls(config, database_time.unwrap_or_else(|| clock::Clock::System.now()), findings);
    findings.take("way out", run::way_out(config).map(|route| ((), described(&route))));
    let roots = run::callback_roots(config)
        .map(|roots| (roots, format!("{roots} certificate authorities for https callbacks")));
    if findings.take("roots", roots) == Some(0) {
        findings.note(
            Verdict::Warn,
            "roots",
            "without one no https callback can be delivered (Debian: ca-certificates)",
        );
    }
    Ok(())
}

/// How callbacks leave this machine.
fn described(route: &Route) -> String {
    let proxy = route.proxy.as_ref().map_or("callbacks go out directly".to_owned(), |proxy| {
        format!("callbacks go through the proxy {proxy}, which was not asked")
    });
    let sources: Vec<String> = route.sources.addresses().map(|address| address.to_string()).collect();
    if sources.is_empty() { proxy } else { format!("{proxy}, from {}", sources.join(" and ")) }
}

fn examine_folder(config: &Config, findings: &mut Findings) -> Option<DataDir> {
    let opened = run::folder(config).and_then(|data| Ok(data.mode().map(|mode| (data, mode))?));
    match opened {
        Ok((data, mode)) if !datadir::is_open_to_others(mode) => {
            let text = format!("{} (mode {mode:03o})", data.path().display());
            let found = data.takes_files().map(|()| ((), text)).map_err(anyhow::Error::from);
            findings.take(
                "data folder",
                found.map_err(|error| {
                    anyhow!(
                        "{error:#}: a server makes files there, so give its user the right to, and see that the disk has room"
                    )
                }),
            );
            Some(data)
        }
        Ok((data, mode)) => {
            let path = data.path().display();
            let is_everybody = datadir::is_open_to_everybody(mode);
            findings.note(
                if is_everybody { Verdict::Fail } else { Verdict::Warn },
                "data folder",
                format!("{path} may be entered by others (mode {mode:03o}): run `chmod 700 {path}`"),
            );
            Some(data)
        }
        Err(error) => {
            findings.note(Verdict::Fail, "data folder", format!("{error:#}"));
            None
        }
    }
}

/// What the database's time is, where it has one.
fn examine_database(
    config: &Config,
    data: &DataDir,
    key: Option<&Vault>,
    findings: &mut Findings,
) -> anyhow::Result<Option<UnixMillis>> {
    match Database::of(config) {
        Ok(Database::Sqlite) => {}
        Ok(Database::Postgres(url)) => return postgres::examine(config, url, data, key, findings),
        Err(error) => {
            findings.note(Verdict::Fail, "database", error.to_string());
            return Ok(None);
        }
    }
    let path = data.database();
    if let Err(error) = run::demand_database(config, data) {
        findings.note(Verdict::Fail, "database", format!("{error:#}"));
        return Ok(None);
    }
    let _lock = match data.lock() {
        Ok(lock) => lock,
        Err(DataRefused::Locked(_)) => {
            findings.note(
                Verdict::Warn,
                "database",
                "another process, a server or a command, has this folder, so its database is not looked into",
            );
            return Ok(None);
        }
        Err(error) => {
            findings.note(Verdict::Fail, "database", format!("{:#}", anyhow::Error::from(error)));
            return Ok(None);
        }
    };
    let schema = examine_file(config, &path, findings);
    if schema == Schema::Unusable {
        return Ok(None);
    }
    match run::moved_away(data) {
        Ok(None) => {}
        Ok(Some(why)) => {
            // Opening it would take it back.
            findings.note(if config.serve_moved { Verdict::Warn } else { Verdict::Fail }, "database", why);
            return Ok(None);
        }
        Err(error) => {
            findings.note(Verdict::Fail, "database", format!("{error:#}"));
            return Ok(None);
        }
    }
    Ok(super::small_runtime()?.block_on(examine_deployment(schema, config, data, key, findings)))
}

/// Compares what belongs to the data of a database that opening would change.
async fn examine_older(config: &Config, data: &DataDir, key: &Vault, findings: &mut Findings) {
    let compared = run::before_upgrade::compare(config, data, key).await;
    let text = "master key, rule settings and the audit log's key are those that were seen here";
    findings.take("deployment", compared.map(|()| ((), text.to_owned())));
}

async fn examine_secrets(key: &Vault, store: &AnyStore, now: UnixMillis, findings: &mut Findings) {
    let looked = async {
        let names = master_key::unreadable(key, store, now, FAULTS_NAMED_MAX).await?;
        Ok((names, master_key::missing(key, store).await?))
    };
    let none = looked.await.and_then(|(names, missing)| {
        ensure!(
            names.is_empty(),
            "these do not open, so their rows were changed or are damaged: {}{}; rotate and revoke each, or restore a backup",
            names.join(", "),
            if names.len() < FAULTS_NAMED_MAX { "" } else { ", and perhaps more" }
        );
        Ok(((), match missing {
            None => "each one in force opens".to_owned(),
            Some(key_id) => format!("each one in force opens, but for what is sealed under {key_id}, which is not here"),
        }))
    });
    findings.take("secrets", none);
}

/// Opens the database and compares what belongs to its data; one whose schema is behind is looked at without opening it. What its time is, where it
/// has one: what a server does by it is judged by it here, too.
async fn examine_deployment(
    schema: Schema,
    config: &Config,
    data: &DataDir,
    key: Option<&Vault>,
    findings: &mut Findings,
) -> Option<UnixMillis> {
    if schema != Schema::Unusable
        && let Err(none) = run::demand_deployment(config, data).await
    {
        return findings.fail("deployment", format!("{none:#}"));
    }
    match (schema, key) {
        (Schema::Current, _) => {}
        (Schema::Behind, Some(key)) => {
            examine_older(config, data, key, findings).await;
            return None;
        }
        (Schema::Behind, None) | (Schema::Unusable, _) => return None,
    }
    let opened = run::open_store_unserved(config, data).await.map(|store| (store, "it opens".to_owned()));
    let store = findings.take("database", opened)?;
    let told = match store.database_time().await {
        Ok(told) => told,
        Err(error) => return findings.fail("database", run::cause(&error)),
    };
    let now = told.unwrap_or_else(|| clock::Clock::System.now());
    if let Some(key) = key {
        let compared = run::deployment_settings::compare(config, key, &store).await;
        findings
            .take("deployment", compared.map(|()| ((), "master key and rule settings are those of `init`".to_owned())));
        // A key that is not the deployment's opens nothing, and that is said by now.
        if run::deployment_settings::compare_key(config, key, &Settings::Of(&store)).await.is_ok() {
            let chain = run::chain::examine(data, key, &Settings::Of(&store)).await;
            let said = |chain: run::chain::Examined| {
                let seen = if chain.was_seen {
                    "is the one that was seen here"
                } else {
                    "was not seen here before: nothing to compare it with"
                };
                ((), format!("its chain's key ({}) {seen}", chain.fingerprint))
            };
            findings.take("audit log", chain.map(said));
            examine_secrets(key, &store, now, findings).await;
        }
    }
    match delivery::held_since(&store).await {
        Ok(None) => {}
        Ok(Some(since)) => findings.note(
            Verdict::Warn,
            "delivery",
            format!("callbacks are held since {since}, when this deployment was restored: `countersign delivery release` lets them go"),
        ),
        Err(error) => findings.note(Verdict::Fail, "delivery", error.to_string()),
    }
    tokens::examine(&store, now, findings).await;
    postgres::examine_nodes(config, &store, findings).await;
    examine_clock(&store, findings).await;
    examine_journal(&store, findings);
    if let Some(why) = forgotten_nonces::trouble(&store, now, config.timestamp_tolerance_ms) {
        findings.note(Verdict::Fail, "nonces", why);
    }
    if let Err(error) = run::close_store(&store) {
        findings.note(Verdict::Fail, "database", format!("{error:#}"));
    }
    told
}

/// Says which journals of nonces are damaged. They stay so: the start that writes them anew tells of it in the log.
fn examine_journal(store: &AnyStore, findings: &mut Findings) {
    let AnyStore::Sqlite(store) = store else { return };
    for (file, records) in store.damaged_journals() {
        let text = format!(
            "{} is damaged: {records} of its records cannot be read, so that nobody knows which nonces they were of; look at the disk. The next \
             start answers 503 to requests that are stamped up to {}, and writes the file anew (docs/RUNBOOK.md, A damaged nonce journal)",
            file.display(),
            rfc3339(store.unknowable_through())
        );
        findings.note(Verdict::Warn, "nonces", text);
    }
}

/// Compares the clocks where nodes share a database.
async fn examine_clock(store: &AnyStore, findings: &mut Findings) {
    let (verdict, text) = match run::clock_ahead_ms(store).await {
        Ok(None) => return,
        Ok(Some(ahead_ms)) => match clock::skewed(ahead_ms) {
            None => (Verdict::Ok, format!("within {} ms of the database's", ahead_ms.abs().max(1))),
            Some(why) => (Verdict::Fail, format!("{why}; until then this node would not be ready")),
        },
        Err(error) => (Verdict::Fail, format!("{error:#}")),
    };
    findings.note(verdict, "clock", text);
}

/// What the schema of a database lets `serve` do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Schema {
    Current,
    /// Bring it up to date first.
    Behind,
    /// Nothing.
    Unusable,
}

/// Looks at the file without changing it.
fn examine_file(config: &Config, path: &Path, findings: &mut Findings) -> Schema {
    let state =
        SqliteStore::schema_state(path).map_err(|error| anyhow::Error::from(error).context(run::cannot_be_used(path)));
    let schema = examine_schema(config, state, findings);
    let faults = match schema {
        Schema::Current => SqliteStore::faults(path),
        Schema::Behind => SqliteStore::damage(path),
        Schema::Unusable => return schema,
    };
    let faults = match faults {
        Ok(faults) => faults,
        Err(StoreError::Unfit(_)) => vec!["it cannot be read to its end".to_owned()],
        Err(error @ (StoreError::Unavailable(_) | StoreError::Corrupt { .. })) => {
            findings.note(Verdict::Fail, "database", format!("{}: {error}", run::cannot_be_used(path)));
            return Schema::Unusable;
        }
    };
    let file = path.display();
    for fault in faults.iter().take(FAULTS_NAMED_MAX) {
        findings.note(
            Verdict::Fail,
            "database",
            format!("{file} is damaged: {fault}; restore a backup. `serve` may start with it and fail later"),
        );
    }
    if faults.len() > FAULTS_NAMED_MAX {
        let more = faults.len() - FAULTS_NAMED_MAX;
        findings.note(Verdict::Fail, "database", format!("{file} has {more} more faults at the least"));
    }
    if faults.is_empty() { schema } else { Schema::Unusable }
}

/// Where the schema stands.
fn examine_schema(config: &Config, state: anyhow::Result<SchemaState>, findings: &mut Findings) -> Schema {
    let Some(state) = findings.take("schema", state.map(|s| (s.clone(), format!("step {} of {}", s.applied, s.known))))
    else {
        return Schema::Unusable;
    };
    if state.applied == 0 {
        let text = format!("the database is empty: run `{}`", run::command("init", config));
        findings.note(Verdict::Fail, "database", text);
        return Schema::Unusable;
    }
    match state.applied.cmp(&state.known) {
        Ordering::Equal => Schema::Current,
        Ordering::Less => {
            findings.note(
                Verdict::Warn,
                "schema",
                "behind this program: `countersign migrate` or the next start brings it up to date",
            );
            Schema::Behind
        }
        Ordering::Greater => {
            findings.note(Verdict::Fail, "schema", "made by a newer program: use that one");
            Schema::Unusable
        }
    }
}

/// `is_served`: whether a server runs on the data folder, where that is known.
fn examine_address(about: &'static str, address: SocketAddr, is_served: Option<bool>, findings: &mut Findings) {
    match TcpListener::bind(address) {
        Ok(_) => findings.note(Verdict::Ok, about, format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && is_served == Some(false) => {
            findings.note(Verdict::Fail, about, format!("{address} is in use by another program"));
        }
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            findings.note(Verdict::Warn, about, format!("{address} is in use, perhaps by a running server"));
        }
        Err(error) => findings.note(Verdict::Fail, about, listen::cannot_listen(address, &error)),
    }
}

fn examine_tls(config: &Config, now: UnixMillis, findings: &mut Findings) {
    match (config.tls.cert.get(), config.tls.key.get()) {
        (Some(cert), Some(key)) => {
            let fits = listen::tls::Certificate::read(cert, key)
                .map(|read| (read, "certificate and key fit together".to_owned()));
            // No failure: `serve` starts with it, since clocks may be wrong and a proxy may not ask for dates.
            let dates = findings.take("tls", fits.map_err(Into::into)).map(|read| read.dates());
            if let Some(concern) = dates.and_then(|dates| dates.concern(now)) {
                findings.note(Verdict::Warn, "tls", format!("the certificate {concern}"));
            }
            if let Ok(mode) = datadir::mode_of(key)
                && datadir::is_open_to_others(mode)
            {
                findings.note(
                    Verdict::Warn,
                    "tls",
                    format!("the key {} may be read by others (mode {mode:03o})", key.display()),
                );
            }
        }
        (None, _) | (_, None) if config.behind_proxy => findings.note(Verdict::Ok, "tls", "left to the proxy in front"),
        (None, _) | (_, None) => findings.note(Verdict::Ok, "tls", "none: loopback addresses only"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_has_its_line_and_failures_are_counted() {
        let mut findings = Findings::default();
        findings.note(Verdict::Ok, "a", "x");
        findings.note(Verdict::Warn, "b", "y\n  of the database");
        assert_eq!(findings.failed(), 0);
        findings.note(Verdict::Fail, "c", "z");
        assert_eq!(findings.failed(), 1);
        assert_eq!(
            findings.text(),
            "ok    a            x\nwarn  b            y of the database\nfail  c            z\n"
        );
    }
}
