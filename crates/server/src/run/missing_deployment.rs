//! The refusals of commands that find no deployment, or none any more. They print commands that can be run as they stand.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use countersign_store::PostgresStore;
use countersign_store::postgres::Elsewhere;

use super::backup::restoring_in;
use super::before_upgrade;
use super::database::{postgres_cannot_be_used, schema_state};
use super::deployment_settings::INITIALISED_AT;
use super::{Database, postgres_options};
use crate::config::{Config, without_password};
use crate::datadir::{DataDir, DataRefused};
use crate::keys;

/// The command as it is to be typed for this deployment: its settings file, its folder, its database and its master key, where they are not those
/// that are taken without being named. A password is not in it.
pub fn command(name: &str, config: &Config) -> String {
    let mut command = format!("countersign {name}");
    if let Some(file) = &config.named_file {
        command.push_str(" --config ");
        command.push_str(&quoted(&file.display().to_string()));
    }
    command.push_str(" --data ");
    command.push_str(&quoted(&config.data.display().to_string()));
    if let Some(url) = config.database_url.get() {
        command.push_str(" --database-url ");
        command.push_str(&quoted(&without_password(url)));
    }
    if let Some(file) = config.master_key_file.get() {
        command.push_str(" --master-key ");
        command.push_str(&quoted(&file.display().to_string()));
    }
    command
}

/// How a shell takes it for one word.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-:@=+%,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Where a deployment is meant to be: its database, or the folder that has it.
pub fn place(config: &Config) -> String {
    config.database_url.get().map_or_else(|| config.data.display().to_string(), |url| without_password(url))
}

/// What is said of a database without a deployment.
pub fn no_deployment(config: &Config) -> String {
    let (place, init) = (place(config), command("init", config));
    match config.database_url.get() {
        None => format!("the database in {place} is not initialised: run `{init}`"),
        Some(_) => format!(
            "the database {place} holds no deployment of Countersign: name another one with --database-url, or make a deployment in it with `{init}`"
        ),
    }
}

/// What is said of a database without our tables: where they are, if another schema of it has them.
pub async fn nothing_there(config: &Config) -> String {
    if let Ok(Database::Postgres(url)) = Database::of(config)
        && let Ok(options) = postgres_options(config, url)
        && let Ok(Some(elsewhere)) = PostgresStore::elsewhere(&options).await
    {
        return misled(&elsewhere);
    }
    no_deployment(config)
}

/// What is said where the deployment is in another schema than the one that is looked into.
pub fn misled(elsewhere: &Elsewhere) -> String {
    let Elsewhere { schema: there, may_use, role, here } = elsewhere;
    if !may_use {
        return format!(
            "a deployment is in the schema {there}, which the search_path names and the role {role} may not use: whoever owns that schema runs \
             `GRANT USAGE ON SCHEMA {there} TO {role}`, unless another database or role is meant"
        );
    }
    let here =
        here.as_ref().map_or("no schema that is there".to_owned(), |here| format!("the schema {here}, where none is"));
    format!(
        "a deployment is in the schema {there}, and the search_path of this role or address leads to {here}: put \
         {there} first in that search_path, unless you mean to make another deployment with `countersign init`"
    )
}

/// The data folder, which must be there.
pub fn folder(config: &Config) -> anyhow::Result<DataDir> {
    found(config, "", || format!("name the right one with --data, or make it with `{}`", command("init", config)))
}

/// The same for a command that looks for the master key there, unless its settings name another place.
pub fn key_folder(config: &Config) -> anyhow::Result<DataDir> {
    if keys::is_named(config) {
        return folder(config);
    }
    let what = format!(" with the master key of the deployment in {}", place(config));
    found(config, &what, || "name the folder with --data, or the key with --master-key".to_owned())
}

fn found(config: &Config, what: &str, advice: impl FnOnce() -> String) -> anyhow::Result<DataDir> {
    DataDir::open(&config.data).map_err(|error| match error {
        DataRefused::NoFolder(path) => anyhow!("there is no data folder {}{what}: {}", path.display(), advice()),
        error => error.into(),
    })
}

/// Refuses a folder without its SQLite database. Nothing is made in it.
pub fn demand_database(config: &Config, data: &DataDir) -> anyhow::Result<()> {
    refuse_what_was_lost(data)?;
    let path = data.database();
    if size_of(&path)?.is_some() {
        return Ok(());
    }
    refuse_half_restored(data)?;
    let folder = data.path().display();
    ensure!(
        !data.master_key().exists(),
        "{folder} has a master key but no database: where its database is PostgreSQL, name it with --database-url, or the settings file that does \
         with --config; where this is its beginning, run `{}`; where its database was lost, restore a backup with `countersign restore FILE --data DIR`",
        command("init", config)
    );
    bail!("there is no deployment in {folder}: make one with `{}`", command("init", config));
}

/// Refuses where there is no deployment. Asked before a master key is, and before anything is made or opened.
pub async fn demand_deployment(config: &Config, data: &DataDir) -> anyhow::Result<()> {
    if Database::of(config)? == Database::Sqlite {
        demand_database(config, data)?;
    }
    match presence(config, data).await? {
        Presence::Nothing => {
            refuse_half_restored(data)?;
            bail!(nothing_there(config).await)
        }
        Presence::Tables => {
            // A copy that was begun has its settings soon after its tables.
            if let Database::Postgres(url) = Database::of(config)? {
                let unfinished = PostgresStore::refuse_unfinished(&postgres_options(config, url)?).await;
                unfinished.map_err(postgres_cannot_be_used)?;
                // Somebody has made the tables since that restore was cut off.
                refuse_half_restored(data)?;
            }
            bail!(no_deployment(config))
        }
        Presence::Deployment => Ok(()),
    }
}

/// What is in a database, as far as a look tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// None of our tables.
    Nothing,
    /// Our tables alone.
    Tables,
    /// A deployment.
    Deployment,
}

/// Looks into the database without changing it. A SQLite file that is not there holds nothing.
pub async fn presence(config: &Config, data: &DataDir) -> anyhow::Result<Presence> {
    if schema_state(config, data).await?.applied == 0 {
        return Ok(Presence::Nothing);
    }
    let at = before_upgrade::peek(config, data, &[INITIALISED_AT]).await?;
    Ok(if at.iter().any(Option::is_some) { Presence::Deployment } else { Presence::Tables })
}

/// Whether there is no deployment, and none was ever served from the folder: no key is missing then.
pub async fn is_bare(config: &Config, data: &DataDir) -> bool {
    let is_served_from =
        matches!(Database::of(config), Ok(Database::Sqlite)) && !matches!(data.chain_key_seen(), Ok(None));
    let found = presence(config, data).await;
    !is_served_from && matches!(found, Ok(Presence::Nothing | Presence::Tables))
}

/// Refuses a folder in which a deployment was served from a SQLite database that is not there any more, or of which nothing is left.
pub fn refuse_what_was_lost(data: &DataDir) -> anyhow::Result<()> {
    let path = data.database();
    // The first start notes the audit log's chain there, and nothing takes that away.
    if size_of(&path)?.is_none_or(|size| size == 0) && data.chain_key_seen()?.is_some() {
        bail!(
            "the database {} is gone, or empty: a deployment was served from this folder. Bring the file back, or restore a backup into an empty \
             folder with `countersign restore FILE --data DIR`; where its database is PostgreSQL, name it with --database-url",
            path.display()
        );
    }
    Ok(())
}

/// Refuses a folder in which a restore has begun and not ended.
pub fn refuse_half_restored(data: &DataDir) -> anyhow::Result<()> {
    let half = restoring_in(data);
    ensure!(
        !half.exists(),
        "a restore into {} was cut off, or is under way yet: where none runs, run it again with the same settings, `countersign restore FILE`, \
         or remove {} to begin anew",
        data.path().display(),
        half.display()
    );
    Ok(())
}

/// In bytes; none where there is no such file.
fn size_of(path: &Path) -> anyhow::Result<Option<u64>> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(found.len())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => bail!("the database {} cannot be looked at: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config::Optional;

    #[test]
    fn a_command_is_whole_and_has_no_password() {
        let mut config = Config { data: PathBuf::from("d"), ..Config::default() };
        assert_eq!(command("init", &config), "countersign init --data d");
        config.data = PathBuf::from("a b");
        config.master_key_file = Optional(Some(PathBuf::from("it's")));
        assert_eq!(command("serve", &config), r"countersign serve --data 'a b' --master-key 'it'\''s'");
        config.named_file = Some(PathBuf::from("a.toml"));
        assert!(command("serve", &config).starts_with("countersign serve --config a.toml --data 'a b'"));
        for (url, printed) in [
            ("postgres://u:p:w@h:1/d", "postgres://u:PASSWORD@h:1/d"),
            (
                "postgres://u:p@w@h1:1,h2:2/d?sslmode=require&password=pw",
                "'postgres://u:PASSWORD@h1:1,h2:2/d?sslmode=require&password=PASSWORD'",
            ),
            ("postgres://u:p/w?x@h/d?sslmode=require", "'postgres://u:PASSWORD@h/d?sslmode=require'"),
            ("postgres://u:p@w/x@h/d", "postgres://u:PASSWORD@h/d"),
            ("postgres://u:1@2@3/4?5#6@h:1/d?sslmode=disable", "'postgres://u:PASSWORD@h:1/d?sslmode=disable'"),
            ("postgres://u:p?a=b@h/d", "postgres://u:PASSWORD@..."),
            ("postgres://u@h/d?password=p@w", "postgres://u:PASSWORD@..."),
            ("postgres://h/d?password=p@w", "postgres://h:PASSWORD@..."),
            ("postgres://u:pw/d", "postgres://u:PASSWORD"),
            ("postgres://[::1]:1,h:2/d", "'postgres://[::1]:1,h:2/d'"),
            (
                "postgres://h/d?pass%77ord=pw&connect_timeout=2",
                "'postgres://h/d?pass%77ord=PASSWORD&connect_timeout=2'",
            ),
            (
                "postgres://u:p@h/d?options=-csearch_path%3Dcs&unknown=pw",
                "'postgres://u:PASSWORD@h/d?options=-csearch_path%3Dcs&unknown=PASSWORD'",
            ),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("postgres://h/d", "postgres://h/d"),
            ("postgresql:///d?host=/run/pg", "'postgresql:///d?host=/run/pg'"),
        ] {
            let config =
                Config { data: PathBuf::from("d"), database_url: Optional(Some(url.to_owned())), ..Config::default() };
            assert_eq!(command("serve", &config), format!("countersign serve --data d --database-url {printed}"));
        }
    }
}
