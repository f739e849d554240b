//! Which database, and how it is opened.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use countersign_store::sqlite::{MoveMark, SqliteOptions, SqliteStore};
use countersign_store::{AnyStore, PostgresOptions, PostgresStore, SchemaState, StoreError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};

use super::timeline;
use crate::chance::Chance;
use crate::config::Config;
use crate::datadir::DataDir;
use crate::small_file;

/// Names this run of the machine; it changes with each boot.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// The kind of database that the settings name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database<'c> {
    /// A file in the data folder.
    Sqlite,
    /// The address of a database that many nodes share.
    Postgres(&'c str),
}

impl<'c> Database<'c> {
    /// What the settings name; a URL of an unknown kind must not be ignored in silence.
    pub fn of(config: &'c Config) -> anyhow::Result<Self> {
        match config.database_url.get() {
            None => Ok(Self::Sqlite),
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => Ok(Self::Postgres(url)),
            Some(_) => bail!(
                "database_url names a kind of database that is not known: postgres://... is, or leave it out to use SQLite in the data folder"
            ),
        }
    }
}

/// What measurements and tests open a store with, in the place of what is shipped.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    /// The most batches that the writer takes at once.
    pub(crate) group_max: Option<usize>,
    /// The unit of PostgreSQL's limits of time.
    pub(crate) second: Option<Duration>,
}

/// Brings the schema of the database up to this program's, and opens it to be served. Makes it where there is none.
pub async fn open_store(config: &Config, data: &DataDir) -> anyhow::Result<AnyStore> {
    open_store_with(config, data, Opening::default()).await
}

/// The same for a command: what only a start may set right, since the log tells of it, stays as it is.
pub async fn open_store_unserved(config: &Config, data: &DataDir) -> anyhow::Result<AnyStore> {
    open_as(config, data, Opening::default(), false).await
}

/// To be served, in another way, for measurements and tests.
pub(crate) async fn open_store_with(config: &Config, data: &DataDir, opening: Opening) -> anyhow::Result<AnyStore> {
    open_as(config, data, opening, true).await
}

async fn open_as(config: &Config, data: &DataDir, opening: Opening, is_served: bool) -> anyhow::Result<AnyStore> {
    let Opening { group_max, second } = opening;
    match Database::of(config)? {
        Database::Sqlite => open_sqlite(config, data, group_max, is_served),
        Database::Postgres(url) => {
            let mut options = postgres_options(config, url)?;
            options.group_max = group_max.unwrap_or(options.group_max);
            options.second = second.unwrap_or(options.second);
            PostgresStore::open(options).await.map(AnyStore::Postgres).map_err(postgres_cannot_be_used)
        }
    }
}

/// Where the schema of the database stands, without changing it.
pub async fn schema_state(config: &Config, data: &DataDir) -> anyhow::Result<SchemaState> {
    match Database::of(config)? {
        Database::Sqlite => {
            let path = data.database();
            SqliteStore::schema_state(&path).with_context(|| cannot_be_used(&path))
        }
        Database::Postgres(url) => {
            PostgresStore::schema_state(&postgres_options(config, url)?).await.map_err(postgres_cannot_be_used)
        }
    }
}

/// Why the database in a data folder is not to be served: its deployment was moved away.
pub fn moved_away(data: &DataDir) -> anyhow::Result<Option<String>> {
    let folder = data.path().display();
    let path = data.database();
    let mark = SqliteStore::move_mark(&path).with_context(|| cannot_be_used(&path))?;
    Ok(mark.map(|mark| match mark {
        MoveMark::Done(place) => format!(
            "{folder} was moved to {place}: serve that with --database-url; --serve-moved serves the old copy in the folder all the same, \
             and what either of the two acknowledges from then on the other does not have"
        ),
        MoveMark::Begun(place) => format!(
            "a move of {folder} to {place} was begun and is not finished: run the same `countersign move` again, \
             or end it and serve the folder with --serve-moved"
        ),
        MoveMark::Ending(place) => format!(
            "a move of {folder} to {place} was cut off at its end: that database may be complete, and served. Run the same `countersign move` again, \
             which settles it; only where that database is gone for good, serve the folder with --serve-moved"
        ),
    }))
}

/// The same for a command other than `serve`, which says what to do with the new place instead.
pub fn moved_to(data: &DataDir, place: &str, instead: &str) -> String {
    let folder = data.path().display();
    format!(
        "{folder} was moved to {place}: {instead}, with --database-url; where the old copy is served all the same, set serve_moved"
    )
}

/// Refuses to upgrade the copy that a move has left behind: whoever asks means the deployment, which is elsewhere.
pub fn demand_not_moved(config: &Config, data: &DataDir) -> anyhow::Result<()> {
    let path = data.database();
    match SqliteStore::move_mark(&path).with_context(|| cannot_be_used(&path))? {
        Some(MoveMark::Done(place)) if !config.serve_moved => bail!(moved_to(data, &place, "upgrade that")),
        _ => Ok(()),
    }
}

/// How the database in a data folder is opened.
pub fn sqlite_options(chance: &Chance) -> SqliteOptions {
    let mut window_key = [0; 16];
    chance.fill(&mut window_key);
    SqliteOptions::new(window_key, boot_id(chance))
}

fn open_sqlite(config: &Config, data: &DataDir, group_max: Option<usize>, is_served: bool) -> anyhow::Result<AnyStore> {
    let path = data.database();
    if let Some(why) = moved_away(data)? {
        ensure!(config.serve_moved, why);
        SqliteStore::take_back(&path)?;
        tracing::warn!("Served all the same, as told: {why}");
    }
    let mut options = sqlite_options(&Chance::default());
    options.group_max = group_max.unwrap_or(options.group_max);
    options.mends_journal = is_served;
    SqliteStore::open(&path, options).map(AnyStore::Sqlite).with_context(|| cannot_be_used(&path))
}

/// What is said of a database before its cause.
pub fn cannot_be_used(path: &Path) -> String {
    format!("the database {} cannot be used", path.display())
}

/// The same of a PostgreSQL database, with its cause.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub fn postgres_cannot_be_used(error: StoreError) -> anyhow::Error {
    anyhow!("the PostgreSQL database cannot be used: {}", cause(&error))
}

/// Why a store cannot be used, without saying that it cannot.
pub fn cause(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable(why) => why.clone(),
        StoreError::Corrupt { .. } | StoreError::Unfit(_) => error.to_string(),
    }
}

/// How a PostgreSQL database is reached and used.
pub fn postgres_options(config: &Config, url: &str) -> anyhow::Result<PostgresOptions> {
    let chance = Chance::default();
    let (mut window_key, mut node) = ([0; 16], [0; 16]);
    chance.fill(&mut window_key);
    chance.fill(&mut node);
    let mut options = PostgresOptions::new(url, window_key, node);
    options.group_by_tenant = config.group_by_tenant;
    options.served = timeline::served(&DataDir::named(&config.data))?;
    if config.worker_threads > 0 {
        options.readers = config.worker_threads;
    } else if let Ok(cores) = std::thread::available_parallelism() {
        options.readers = cores.get();
    }
    if options.demands_tls() {
        options.tls = Some(authorities(config)?);
    }
    Ok(options)
}

/// Whose certificates a database server may show: the system's authorities and those of `database_ca_file`.
fn authorities(config: &Config) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(file) = config.database_ca_file.get() {
        let unusable = || format!("database_ca_file {} holds no certificate that can be used", file.display());
        let unread = || format!("database_ca_file {} cannot be read", file.display());
        let pem = small_file::read(file).with_context(unread)?;
        let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().with_context(unread)?;
        ensure!(!certificates.is_empty(), unusable());
        for certificate in certificates {
            roots.add(certificate).with_context(unusable)?;
        }
    }
    ensure!(
        !roots.is_empty(),
        "sslmode=require, but this machine has no certificate authorities: name a database_ca_file"
    );
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .context("TLS to the database cannot be set up")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(tls))
}

/// Where the system does not name its boots, every start counts as one: that is safe, and costs some seconds of 503.
fn boot_id(chance: &Chance) -> String {
    named_boot(Path::new(BOOT_ID_FILE)).unwrap_or_else(|| chance.hex(16))
}

fn named_boot(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok().map(|id| id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// What follows where this process cannot see the name of the machine's boot; none where it can. Only SQLite needs it.
pub fn nameless_boot(config: &Config) -> Option<String> {
    matches!(Database::of(config), Ok(Database::Sqlite)).then(|| nameless(Path::new(BOOT_ID_FILE))).flatten()
}

fn nameless(file: &Path) -> Option<String> {
    named_boot(file).is_none().then(|| {
        format!(
            "{} cannot be read: each kill of the process counts as a crash of the machine, and requests are answered 503 \
             for some seconds after it (systemd: no ProcSubset=pid)",
            file.display()
        )
    })
}

/// Writes what the store still holds, and lets go of its files. Waits for its threads.
pub fn close_store(store: &AnyStore) -> anyhow::Result<()> {
    match store {
        AnyStore::Sqlite(sqlite) => sqlite.close().context("the database could not be closed in order"),
        // What was acknowledged is in the database; its connections end with the store.
        AnyStore::Postgres(_) | AnyStore::Model(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_without_a_name_is_told_and_one_with_a_name_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("boot_id");
        assert!(nameless(&file).is_some_and(|told| told.contains("boot_id") && told.contains("503")));
        std::fs::write(&file, "\n").expect("written");
        assert!(nameless(&file).is_some());
        std::fs::write(&file, "0f-1\n").expect("written");
        assert_eq!((nameless(&file), named_boot(&file).as_deref()), (None, Some("0f-1")));
    }
}
