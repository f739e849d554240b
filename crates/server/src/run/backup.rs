//! A backup: one file that holds a deployment as it was at one moment, with a checksum, and the way back from it.
//!
//! The file is a SQLite database of the deployment's schema, whatever it is kept in, and behind it one line of JSON: the trailer, which says how
//! long the database is and what its SHA-256 is. It never holds the master key.
//!
//! Invariant: nothing has the name that was asked for before it is whole and on stable storage: neither a backup nor a restored database.
//! Invariant: a restored deployment sends nothing until it is told to (`delivery_held`), and refuses what was stamped before it was complete.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use aws_lc_rs::digest;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::moving::{self, Move, ROWS_PER_PORTION};
use countersign_store::sqlite::Revival;
use countersign_store::{SqliteStore, backup};
use serde::{Deserialize, Serialize};

use super::{Database, fixed, postgres_options, sqlite_options};
use crate::app::delivery::DELIVERY_HELD;
use crate::chance::{Chance, hex};
use crate::clock::Clock;
use crate::config::Config;
use crate::datadir::DataDir;
use crate::keys;

/// When a deployment was restored, and from the backup of which moment.
const RESTORED_AT: &str = "restored_at";
const RESTORED_FROM: &str = "restored_from";

/// The form of backups that this program writes; it reads this one and no other.
const FORMAT: u32 = 1;
const MAGIC: &str = "countersign-backup ";
/// Longest trailer.
const TRAILER_BYTES_MAX: u64 = 4096;
const FILE_MODE: u32 = 0o600;
const CHUNK_BYTES: usize = 256 * 1024;
/// The end of a restore comes this much after the moment that it is reckoned from, at the most.
const END_MARGIN_MS: i64 = 1_000;

/// What a backup says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trailer {
    /// The form of the file.
    pub format: u32,
    /// When it was begun, RFC 3339.
    pub taken_at: String,
    /// The program that wrote it.
    pub version: String,
    /// What the deployment is kept in: `sqlite` or `postgres`.
    pub store: String,
    /// The id of the master key that its secrets are sealed under. The key itself is not in the file.
    pub master_key_id: String,
    /// Bytes of the database before this line.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: String,
}

/// Where a restored deployment is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// What it was restored from.
    pub trailer: Trailer,
    /// Host and database, where it is one; else it is in the folder.
    pub place: Option<String>,
    /// What is stamped by then is refused.
    pub refused_through: UnixMillis,
    /// Whether the master key is there.
    pub has_key: bool,
}

/// Copies the deployment into a new file, while servers run on it.
pub async fn take(config: &Config, to: &Path) -> anyhow::Result<Trailer> {
    ensure!(!to.exists(), "{} is there already: name a new file", to.display());
    let unfinished = beside(to, "unfinished")?;
    let outcome = write(config, to, &unfinished).await;
    if outcome.is_err() {
        remove(&unfinished);
    }
    outcome
}

async fn write(config: &Config, to: &Path, unfinished: &Path) -> anyhow::Result<Trailer> {
    let taken_at = rfc3339(Clock::System.now());
    remove(unfinished);
    let unwritable = || format!("{} cannot be written", unfinished.display());
    let made = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(unfinished);
    drop(made.with_context(unwritable)?);
    let store = match Database::of(config)? {
        Database::Sqlite => {
            let from = DataDir::open(&config.data)?.database();
            ensure!(from.exists(), "{} is not there: name the data folder with --data", from.display());
            SqliteStore::copy(&from, unfinished)?;
            "sqlite"
        }
        Database::Postgres(url) => {
            backup::of_postgres(&postgres_options(config, url)?, unfinished).await?;
            "postgres"
        }
    };
    let setting = |name: &str| SqliteStore::peek(unfinished, name);
    ensure!(setting(fixed::INITIALISED_AT)?.is_some(), "there is no deployment here: it was never initialised");
    let master_key_id = setting(fixed::MASTER_KEY_ID)?.unwrap_or_default();
    let mut file = OpenOptions::new().read(true).write(true).open(unfinished).with_context(unwritable)?;
    let bytes = file.metadata()?.len();
    let sha256 = sum(&mut BufReader::new(&file), bytes, |_| Ok(())).with_context(unwritable)?;
    let trailer = Trailer {
        format: FORMAT,
        taken_at,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: store.to_owned(),
        master_key_id,
        bytes,
        sha256,
    };
    file.seek(SeekFrom::End(0)).with_context(unwritable)?;
    let line = format!("\n{MAGIC}{}\n", serde_json::to_string(&trailer)?);
    file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).with_context(unwritable)?;
    // A link, not a rename: it never replaces a file that is there.
    std::fs::hard_link(unfinished, to).with_context(|| format!("{} cannot be made", to.display()))?;
    std::fs::remove_file(unfinished).with_context(unwritable)?;
    sync_folder(to)?;
    Ok(trailer)
}

/// The name of a file that is not whole yet.
fn beside(file: &Path, what: &str) -> anyhow::Result<PathBuf> {
    let name = file.file_name().ok_or_else(|| anyhow!("{} names no file", file.display()))?;
    let mut name = name.to_owned();
    name.push(format!(".{what}"));
    Ok(file.with_file_name(name))
}

/// Removes a database that was not finished, with what SQLite may have left beside it.
fn remove(database: &Path) {
    for end in ["", "-journal", "-wal", "-shm"] {
        let mut name = database.as_os_str().to_owned();
        name.push(end);
        // It need not be there.
        let _ = std::fs::remove_file(name);
    }
}

fn sync_folder(of: &Path) -> anyhow::Result<()> {
    let folder = of.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .with_context(|| format!("{} cannot be written", folder.display()))
}

/// SHA-256 of the next bytes, in hexadecimal; each chunk is handed on, too.
fn sum(
    from: &mut impl Read,
    bytes: u64,
    mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> std::io::Result<String> {
    let mut context = digest::Context::new(&digest::SHA256);
    let (mut left, mut chunk) = (bytes, vec![0; CHUNK_BYTES]);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        let read = from.read(&mut chunk[..most])?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        context.update(&chunk[..read]);
        take(&chunk[..read])?;
        left -= read as u64;
    }
    Ok(hex(context.finish().as_ref()))
}

/// What a backup says of itself.
pub fn read_trailer(file: &Path) -> anyhow::Result<Trailer> {
    let none = || format!("{} is no backup of Countersign, or its end is missing", file.display());
    let mut from = File::open(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let length = from.metadata()?.len();
    from.seek(SeekFrom::Start(length.saturating_sub(TRAILER_BYTES_MAX)))?;
    let mut end = Vec::new();
    from.take(TRAILER_BYTES_MAX).read_to_end(&mut end)?;
    let start = format!("\n{MAGIC}");
    let at = end.windows(start.len()).rposition(|window| window == start.as_bytes()).with_context(none)?;
    let line = &end[at + start.len()..];
    let trailer: Trailer = serde_json::from_slice(line).with_context(none)?;
    ensure!(
        trailer.format == FORMAT,
        "{} is a backup of form {}, this program reads form {FORMAT}: use the program that wrote it ({})",
        file.display(),
        trailer.format,
        trailer.version
    );
    let whole = trailer.bytes + (end.len() - at) as u64 == length && line.ends_with(b"\n");
    ensure!(whole, "{} has not the length that it says", file.display());
    Ok(trailer)
}

/// Makes a deployment of a backup, in an empty folder or database. Everything is verified before it counts.
pub async fn restore(config: &Config, from: &Path) -> anyhow::Result<Restored> {
    let trailer = read_trailer(from)?;
    let database = Database::of(config)?;
    let data = DataDir::create(&config.data)?;
    let _lock = data.lock()?;
    let has_key = may_restore(config, &data, &trailer)?;
    let folder = data.path().join("restoring");
    let copy = folder.join("countersign.db");
    let tolerance_ms = config.timestamp_tolerance_ms;
    let horizon = |now: UnixMillis| UnixMillis(now.0 + tolerance_ms + END_MARGIN_MS);
    // A restore into a database that was cut off goes on with the copy that it was made from.
    let goes_on = database != Database::Sqlite && SqliteStore::move_mark(&copy)?.is_some();
    if !goes_on {
        unpack(from, &trailer, &folder, &copy)?;
    }
    let now = Clock::System.now();
    let settings =
        [(DELIVERY_HELD, rfc3339(now)), (RESTORED_AT, rfc3339(now)), (RESTORED_FROM, trailer.taken_at.clone())];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let revive = |now: UnixMillis| SqliteStore::revive(&copy, &Revival { settings: &settings, horizon: horizon(now) });
    let (place, refused_through) = match database {
        Database::Sqlite => {
            let now = Clock::System.now();
            revive(now)?;
            let unwritable = || format!("{} cannot be written", data.database().display());
            File::open(&copy).and_then(|file| file.sync_all()).with_context(unwritable)?;
            std::fs::rename(&copy, data.database()).with_context(unwritable)?;
            sync_folder(&data.database())?;
            (None, horizon(now))
        }
        Database::Postgres(url) => {
            if !goes_on {
                revive(now)?;
            }
            let chance = Chance::default();
            let mut id = [0; 16];
            chance.fill(&mut id);
            let order = Move {
                from: copy.clone(),
                sqlite: sqlite_options(&chance),
                to: postgres_options(config, url)?,
                id,
                now,
                rows_per_portion: ROWS_PER_PORTION,
                refuse_ahead_ms: Some(tolerance_ms + END_MARGIN_MS),
            };
            let report = moving::run(order, |_| {}).await?;
            (Some(report.place), report.horizon.unwrap_or_else(|| horizon(now)))
        }
    };
    std::fs::remove_dir_all(&folder).with_context(|| format!("{} cannot be removed", folder.display()))?;
    Ok(Restored { trailer, place, refused_through, has_key })
}

/// Refuses a folder that holds anything but a master key and what an earlier, unfinished restore left; and a key that is not the backup's.
/// Whether there is a key.
fn may_restore(config: &Config, data: &DataDir, trailer: &Trailer) -> anyhow::Result<bool> {
    let folder = data.path();
    let entries = std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    for entry in entries {
        let name = entry?.file_name();
        let may_stay = ["master.key", "lock", "restoring", "node.id"].iter().any(|known| name == **known);
        ensure!(
            may_stay,
            "{} is not empty ({} is in it): restore into a folder of its own, with at most a master.key in it",
            folder.display(),
            name.to_string_lossy()
        );
    }
    if !keys::is_named(config) && !data.master_key().exists() {
        return Ok(false);
    }
    let vault = keys::vault(config, data)?;
    ensure!(
        vault.knows(&trailer.master_key_id),
        "this is not the master key of the backup (key id {}, wanted {}): bring the right one, or restore without one",
        vault.key_id(),
        trailer.master_key_id
    );
    Ok(true)
}

/// Copies the database out of the backup, and sees that it is what was written and hangs together.
fn unpack(from: &Path, trailer: &Trailer, folder: &Path, copy: &Path) -> anyhow::Result<()> {
    let unwritable = || format!("{} cannot be written", copy.display());
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(unwritable)?;
    }
    DirBuilder::new().mode(0o700).create(folder).with_context(unwritable)?;
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(copy).with_context(unwritable)?;
    let mut to = BufWriter::new(file);
    let mut source = BufReader::new(File::open(from).with_context(|| format!("{} cannot be read", from.display()))?);
    let found = sum(&mut source, trailer.bytes, |chunk| to.write_all(chunk)).with_context(unwritable)?;
    to.flush().with_context(unwritable)?;
    drop(to);
    let broken = |folder: &Path| {
        // What is not to be trusted is not left behind.
        let _ = std::fs::remove_dir_all(folder);
    };
    if found != trailer.sha256 {
        broken(folder);
        bail!("{} is not what was written: its SHA-256 is {found}, and should be {}", from.display(), trailer.sha256);
    }
    let faults = SqliteStore::faults(copy)?;
    if let Some(fault) = faults.first() {
        broken(folder);
        bail!("{} was broken when it was taken: {fault}", from.display());
    }
    Ok(())
}
