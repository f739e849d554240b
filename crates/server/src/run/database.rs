//! Which database, and how it is opened.

use anyhow::{Context as _, bail};
use countersign_store::AnyStore;
use countersign_store::sqlite::{SqliteOptions, SqliteStore};

use crate::chance::Chance;
use crate::config::Config;
use crate::datadir::DataDir;

/// Names this run of the machine; it changes with each boot.
const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// PostgreSQL belongs to a later version; a URL must not be ignored in silence.
pub fn refuse_other_databases(config: &Config) -> anyhow::Result<()> {
    match config.database_url.get() {
        None => Ok(()),
        Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            bail!("PostgreSQL is not supported yet: leave database_url empty to use SQLite in the data folder")
        }
        Some(_) => bail!(
            "database_url names a kind of database that is not known: leave it empty to use SQLite in the data folder"
        ),
    }
}

/// Brings the schema of the data folder's database up to this program's, and opens it. Makes it where there is none.
pub fn open_store(data: &DataDir) -> anyhow::Result<AnyStore> {
    open_store_with(data, None)
}

/// The same with another size of the writer's groups, for measurements.
pub fn open_store_with(data: &DataDir, group_max: Option<usize>) -> anyhow::Result<AnyStore> {
    let path = data.database();
    let chance = Chance::default();
    let mut window_key = [0; 16];
    chance.fill(&mut window_key);
    let mut options = SqliteOptions::new(window_key, boot_id(&chance));
    options.group_max = group_max.unwrap_or(options.group_max);
    SqliteStore::open(&path, options)
        .map(AnyStore::Sqlite)
        .with_context(|| format!("the database {} cannot be used", path.display()))
}

/// Where the system does not name its boots, every start counts as one: that is safe, and costs some seconds of 503 for reads.
fn boot_id(chance: &Chance) -> String {
    match std::fs::read_to_string(BOOT_ID_FILE) {
        Ok(id) if !id.trim().is_empty() => id.trim().to_owned(),
        Ok(_) | Err(_) => chance.hex(16),
    }
}

/// Writes what the store still holds, and lets go of its files. Waits for its threads.
pub fn close_store(store: &AnyStore) -> anyhow::Result<()> {
    match store {
        AnyStore::Sqlite(sqlite) => sqlite.close().context("the database could not be closed in order"),
        AnyStore::Model(_) => Ok(()),
    }
}
