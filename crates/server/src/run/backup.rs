//! A backup: one file that holds a deployment as it was at one moment, with a checksum, and the way back from it.
//!
//! The file is a SQLite database of the deployment's schema, whatever it is kept in, and behind it one line: the trailer, JSON that says how
//! long the database is and what its SHA-256 is, and the SHA-256 of that JSON. It never holds the master key.
//!
//! Invariant: nothing has the name that was asked for before it is whole and on stable storage: neither a backup nor a restored database.
//! Invariant: a restored deployment sends nothing until it is told to (`delivery_held`), and refuses what was stamped before it was complete.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufReader, ErrorKind, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use aws_lc_rs::digest;
use countersign_domain::time::rfc3339;
use countersign_store::sqlite::MoveMark;
use countersign_store::{SqliteStore, StoreError, backup};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::database::moved_to;
use super::{Database, cannot_be_used, demand_deployment, deployment_settings, folder, postgres_options};
use crate::app::sealed;
use crate::chance::hex;
use crate::clock::Clock;
use crate::config::Config;
use crate::datadir::DataDir;
use crate::whole_file::{beside, give_name, still_has_name, sync_folder_of};

mod noted;
mod restoring;
pub mod series;
mod source;
#[cfg(test)]
mod tests;

pub use noted::note;
pub(super) use noted::watch as watch_note;
pub use restoring::{Restored, restore, restoring_in};
use source::Source;

/// The form of backups that this program writes: the last line has a sum of its own.
const FORMAT: u32 = 2;
/// The form before, which it reads, too: without that sum.
const FORMAT_WITHOUT_SUM: u32 = 1;
const MAGIC: &str = "countersign-backup ";
/// Longest trailer.
const TRAILER_BYTES_MAX: u64 = 4096;
/// As much of a fault as is kept, so that the trailer has its length.
const BROKEN_CHARS_MAX: usize = 300;
/// As many ids of keys. A deployment has two at a time.
const OTHER_KEYS_MAX: usize = 20;
const FILE_MODE: u32 = 0o600;
const CHUNK_BYTES: usize = 256 * 1024;

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
    /// Further ids, where a re-wrap was not finished: something in it is sealed under these still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_master_key_ids: Vec<String>,
    /// Why a restore refuses it: the deployment was damaged when it was taken. None: it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Bytes of the database before this line.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: String,
}

/// Copies the deployment into a new file, while servers run on it.
pub async fn take(config: &Config, to: &Path) -> anyhow::Result<Trailer> {
    refuse_moved(config)?;
    let data = match Database::of(config)? {
        Database::Sqlite => folder(config)?,
        Database::Postgres(_) => DataDir::named(&config.data),
    };
    demand_deployment(config, &data).await?;
    let _name = NameLock::take(to)?;
    ensure!(!to.exists(), "{} is there already: name a new file", to.display());
    let unfinished = beside(to, "unfinished")?;
    let outcome = write(config, &data, to, &unfinished).await;
    if outcome.is_err() {
        remove(&unfinished);
    }
    outcome
}

async fn write(config: &Config, data: &DataDir, to: &Path, unfinished: &Path) -> anyhow::Result<Trailer> {
    let taken_at = rfc3339(Clock::System.now());
    remove(unfinished);
    let unwritable = || format!("{} cannot be written", unfinished.display());
    let made = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(unfinished);
    drop(made.with_context(unwritable)?);
    let store = match Database::of(config)? {
        Database::Sqlite => {
            let from = data.database();
            let uncopied = || format!("{} cannot be copied into {}", from.display(), unfinished.display());
            SqliteStore::copy(&from, unfinished).with_context(uncopied)?;
            "sqlite"
        }
        Database::Postgres(url) => {
            let uncopied = || format!("the database cannot be copied into {}", unfinished.display());
            match backup::of_postgres(&postgres_options(config, url)?, unfinished).await {
                // It may be the file that takes no more.
                Err(error @ StoreError::Unavailable(_)) => return Err(error).with_context(uncopied),
                copied => copied?,
            }
            "postgres"
        }
    };
    let setting = |name: &str| SqliteStore::peek(unfinished, name);
    let master_key_id = setting(deployment_settings::MASTER_KEY_ID)?.unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let trailer = Trailer {
        format: FORMAT,
        taken_at,
        version,
        store: store.to_owned(),
        other_master_key_ids: other_keys(unfinished, &master_key_id)?,
        broken: broken(unfinished)?,
        master_key_id,
        bytes: 0,
        sha256: String::new(),
    };
    let trailer = end(unfinished, trailer).with_context(unwritable)?;
    give_name(unfinished, to).with_context(|| format!("{} cannot be made", to.display()))?;
    sync_folder_of(to).with_context(|| format!("the folder of {} cannot be written", to.display()))?;
    Ok(trailer)
}

/// The first of what a restore would refuse. A backup that is broken is better than none, so it is one, and says so.
fn broken(copy: &Path) -> anyhow::Result<Option<String>> {
    let faults = match SqliteStore::lasting_faults(copy) {
        Err(StoreError::Unfit(why)) => vec![why],
        faults => faults.with_context(|| format!("{} cannot be read", copy.display()))?,
    };
    let Some(first) = faults.first() else { return Ok(None) };
    let first: String = first.chars().take(BROKEN_CHARS_MAX).collect();
    Ok(Some(match faults.len() {
        1 => first,
        count => format!("{first}, and {} more faults", count - 1),
    }))
}

/// The ids of master keys other than this one that something in a copy is sealed under, as while a re-wrap is not finished.
fn other_keys(copy: &Path, master_key_id: &str) -> anyhow::Result<Vec<String>> {
    let mut ids = SqliteStore::secrets_under(copy)?;
    for own in sealed::ALL {
        let stored = SqliteStore::peek(copy, own.setting)?;
        // One that cannot be read is sealed under nothing: who serves it says so.
        ids.extend(stored.as_deref().and_then(|stored| own.key_id(stored).ok()).map(str::to_owned));
    }
    ids.retain(|id| id != master_key_id);
    ids.sort_unstable();
    ids.dedup();
    ids.truncate(OTHER_KEYS_MAX);
    Ok(ids)
}

/// Puts the trailer behind a database that is whole, and everything on stable storage.
fn end(database: &Path, of_it: Trailer) -> anyhow::Result<Trailer> {
    let mut file = OpenOptions::new().read(true).write(true).open(database)?;
    let bytes = file.metadata()?.len();
    let sha256 = sum(&mut BufReader::new(&file), bytes, |_| Ok(()))?;
    let trailer = Trailer { bytes, sha256, ..of_it };
    file.seek(SeekFrom::End(0))?;
    let said = serde_json::to_string(&trailer)?;
    file.write_all(format!("\n{MAGIC}{said} {}\n", sum_of(said.as_bytes())).as_bytes())?;
    file.sync_all()?;
    Ok(trailer)
}

/// The copy that a move has left behind is not what is served: its backups would look like the deployment's.
fn refuse_moved(config: &Config) -> anyhow::Result<()> {
    if Database::of(config)? != Database::Sqlite || config.serve_moved {
        return Ok(());
    }
    let data = folder(config)?;
    let folder = data.path().display();
    match SqliteStore::move_mark(&data.database()).with_context(|| cannot_be_used(&data.database()))? {
        None => Ok(()),
        Some(MoveMark::Done(place)) => bail!(moved_to(&data, &place, "back that up")),
        Some(MoveMark::Begun(place)) => bail!(
            "a move of {folder} to {place} was begun and is not finished: finish it and back up what it was moved to, or end it \
             by serving the folder with --serve-moved"
        ),
        Some(MoveMark::Ending(place)) => bail!(
            "a move of {folder} to {place} was cut off at its end: that database may be complete, and served. Run the same `countersign move` again, \
             which settles it, and back up what it was moved to; only where that database is gone for good, serve the folder with --serve-moved"
        ),
    }
}

/// The name of a backup is this process's until this is dropped: another one to the same name would write into the same unfinished file.
#[derive(Debug)]
struct NameLock {
    path: PathBuf,
    _file: File,
}

impl NameLock {
    fn take(to: &Path) -> anyhow::Result<Self> {
        let path = beside(to, "lock")?;
        let unusable = || format!("{} cannot be locked", path.display());
        loop {
            let cannot_be_made = || format!("{} cannot be made", to.display());
            let file = open_lock(&path)
                .with_context(|| if path.symlink_metadata().is_ok() { unusable() } else { cannot_be_made() })?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    bail!("another backup to {} is under way: wait for it, or name another file", to.display())
                }
                Err(TryLockError::Error(error)) => return Err(error).with_context(unusable),
            }
            // Whoever had it before may have removed the file after it was opened here: then this lock keeps nobody out.
            if still_has_name(&file, &path) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

/// Opens a file that is there to be locked, or makes it.
fn open_lock(path: &Path) -> std::io::Result<File> {
    // What stands in its place and leads elsewhere would have root make a file there.
    let no_link = OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().create(true).truncate(false).write(true).mode(FILE_MODE).custom_flags(no_link).open(path)
}

impl Drop for NameLock {
    fn drop(&mut self) {
        // While it is locked still. One that stays is taken by the next.
        let _ = std::fs::remove_file(&self.path);
    }
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

fn sum_of(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

/// The two parts of a backup's last line: what it says, and the sum of that, where it has one.
fn parts(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    const SUM_CHARS: usize = 64;
    let line = line.trim_ascii_end();
    let at = line.len().saturating_sub(SUM_CHARS);
    match line.split_at(at) {
        (said, sum) if said.ends_with(b"} ") => (said.trim_ascii_end(), Some(sum)),
        _ => (line, None),
    }
}

/// What a backup says of itself.
pub fn read_trailer(file: &Path) -> anyhow::Result<Trailer> {
    Source::open(file)?.trailer()
}
