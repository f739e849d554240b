//! The way back from a backup: into a folder, or by a move into a database.
//!
//! Invariant: a restore that is refused before it has begun leaves nothing: the database is looked at before anything is unpacked for it.
//! Invariant: a restore goes on with the copy that an earlier one left only if that was made from the same backup. A copy has its name once all of it
//! is on stable storage, so that what was cut off while it was unpacked is nothing to go on with.
//! Invariant: whatever is stamped before the restored database can be served, and for the tolerance after it, is refused there; and whatever the
//! backup knows to have been accepted. The tolerance is the widest of this command's settings and of what is noted in the backup.

use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::moving::{self, Move, MoveError, ROWS_PER_PORTION};
use countersign_store::sqlite::{MoveMark, Revival};
use countersign_store::{PostgresOptions, PostgresStore, SqliteStore, StoreError};

use super::source::Source;
use super::{Trailer, other_keys};
use crate::app::delivery::DELIVERY_HELD;
use crate::app::noted_tolerance::{self, TOLERANCE_NOTED};
use crate::app::restored::{RESTORED_AT, RESTORED_FROM};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::Config;
use crate::datadir::{BACKUP, DataDir, TIMELINE};
use crate::keys;
use crate::run::{Database, cause, postgres_cannot_be_used, postgres_options, sqlite_options};
use crate::vault::Vault;
use crate::whole_file::{UnfinishedFile, sync_folder_of};

/// Where a restore works, in the data folder, and in that the database and the trailer of the backup it is from.
const FOLDER: &str = "restoring";
const COPY: &str = "countersign.db";
const OF: &str = "of.json";
/// The end of a restore comes this much after the moment that it is reckoned from. Where it comes later, it is reckoned again with twice as much.
const END_MARGIN_MS: i64 = 1_000;
/// How often it is reckoned.
const END_TRIES_MAX: u32 = 10;

/// Where a restore into a folder works.
pub fn restoring_in(data: &DataDir) -> PathBuf {
    data.path().join(FOLDER)
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
    /// Whether callbacks wait to be released. Not where an earlier run of the same restore was cut off at its end and they were since.
    pub is_held: bool,
    /// Whether the master key is there.
    pub has_key: bool,
    /// The ids of further master keys that something is sealed under still: a re-wrap is not finished.
    pub other_keys: Vec<String>,
}

/// Makes a deployment of a backup, in an empty folder or database. Everything is verified before it counts. `from` may name standard input (`-`).
pub async fn restore(config: &Config, from: &Path) -> anyhow::Result<Restored> {
    let from = Source::open(from)?;
    let trailer = from.trailer()?;
    DataDir::make_for(&config.data, async |data| Box::pin(restore_into(config, data, &from, trailer)).await).await
}

async fn restore_into(config: &Config, data: &DataDir, from: &Source, trailer: Trailer) -> anyhow::Result<Restored> {
    let database = Database::of(config)?;
    let vault = may_restore(config, data, &trailer)?;
    let work = Work::in_folder(data);
    // A restore into a database that was cut off goes on with the copy that it was made from.
    let goes_on = database != Database::Sqlite && work.goes_on(&trailer)?;
    if let Database::Postgres(url) = database
        && !goes_on
    {
        may_begin_in(&postgres_options(config, url)?, &trailer).await?;
    }
    let ready = work.make_ready(config, from, &trailer, vault.as_ref(), goes_on);
    if ready.is_err() && !goes_on {
        work.discard();
    }
    let Ready { other_keys, tolerance_ms, now } =
        ready.map_err(|error| if goes_on { work.unless_damaged(error) } else { error })?;
    // Of a deployment that was in this folder before.
    data.forget_chain_key()?;
    data.forget_backup()?;
    let (place, refused_through, is_held) = match database {
        Database::Sqlite => {
            let horizon = give_name(&work.copy, &data.database(), tolerance_ms, &mut || Clock::System.now())?;
            (None, horizon, true)
        }
        Database::Postgres(url) => {
            let chance = Chance::default();
            let mut id = [0; 16];
            chance.fill(&mut id);
            let to = postgres_options(config, url)?;
            let order = Move {
                from: work.copy.clone(),
                sqlite: sqlite_options(&chance),
                to: to.clone(),
                id,
                now,
                rows_per_portion: ROWS_PER_PORTION,
                refuse_ahead_ms: Some(tolerance_ms + END_MARGIN_MS),
            };
            let report = match moving::run(order, |_| {}).await {
                Ok(report) => report,
                Err(error) => {
                    let told = work.explained(error, &to, &trailer).await;
                    if !goes_on && matches!(SqliteStore::move_mark(&work.copy), Ok(None)) {
                        // Nothing was begun that could go on with it.
                        work.discard();
                    }
                    return Err(told);
                }
            };
            // Nothing is left to be done but to remove the folder, so this need not be known.
            let held = PostgresStore::peek(&to, &[DELIVERY_HELD]).await.unwrap_or_default();
            let is_released = matches!(held.as_slice(), [Some(since)] if since.is_empty());
            let horizon = report.horizon.unwrap_or(UnixMillis(now.0 + tolerance_ms + END_MARGIN_MS));
            (Some(report.place), horizon, !is_released)
        }
    };
    let left =
        || format!("all is restored, and only {} cannot be removed: remove it, and serve", work.folder.display());
    std::fs::remove_dir_all(&work.folder).with_context(left)?;
    Ok(Restored { trailer, place, refused_through, is_held, has_key: vault.is_some(), other_keys })
}

/// Refuses a database that this restore cannot begin in, before anything is unpacked for it.
async fn may_begin_in(to: &PostgresOptions, trailer: &Trailer) -> anyhow::Result<()> {
    let Err(refused) = PostgresStore::refuse_filled(to).await else { return Ok(()) };
    match there_already(to, trailer).await {
        Some(at) => bail!(whole_already(&at)),
        None => Err(postgres_cannot_be_used(refused)),
    }
}

/// When this backup was restored into the database; none where that holds anything else, or not the whole of it.
async fn there_already(to: &PostgresOptions, trailer: &Trailer) -> Option<String> {
    let found = PostgresStore::peek(to, &[RESTORED_FROM, RESTORED_AT]).await.ok()?;
    let [Some(from), Some(at)] = found.as_slice() else { return None };
    let is_whole = *from == trailer.taken_at && PostgresStore::refuse_unfinished(to).await.is_ok();
    is_whole.then(|| at.clone())
}

fn whole_already(at: &str) -> String {
    format!(
        "this backup was restored into the database already, at {at}, and is there whole: if that restore was cut off at its very end, \
         nothing is missing, serve it; to restore it once more, name an empty database"
    )
}

/// Gives a database that is whole its name, once it refuses what is stamped by now and for the tolerance after it. The instant of it.
///
/// Writing may take any time. What it takes is measured, and the horizon is reckoned anew where it was too early; nobody serves the folder
/// meanwhile, since the caller holds its lock.
pub(super) fn give_name(
    copy: &Path,
    database: &Path,
    tolerance_ms: i64,
    now: &mut impl FnMut() -> UnixMillis,
) -> anyhow::Result<UnixMillis> {
    let unwritable = || format!("{} cannot be written", database.display());
    let sync = || File::open(copy).and_then(|file| file.sync_all()).with_context(unwritable);
    // The large part, before anything is reckoned.
    sync()?;
    for tries in 0..END_TRIES_MAX {
        let margin_ms = END_MARGIN_MS << tries;
        let end = now().plus_ms(margin_ms);
        let horizon = SqliteStore::refuse_through(copy, end.plus_ms(tolerance_ms))?;
        sync()?;
        if now() > end {
            continue;
        }
        std::fs::rename(copy, database).with_context(unwritable)?;
        sync_folder_of(database).with_context(unwritable)?;
        if now() <= end {
            return Ok(horizon);
        }
        std::fs::rename(database, copy).with_context(unwritable)?;
    }
    bail!(
        "{} is written too slowly: the last row took minutes; run the restore again on a disk that answers",
        database.display()
    )
}

/// What is known of a copy that can be given its name, or be moved.
#[derive(Debug)]
pub(super) struct Ready {
    other_keys: Vec<String>,
    tolerance_ms: i64,
    now: UnixMillis,
}

/// What a restore works on until the end.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) folder: PathBuf,
    pub(super) copy: PathBuf,
    of: PathBuf,
}

impl Work {
    pub(super) fn in_folder(data: &DataDir) -> Self {
        let folder = restoring_in(data);
        Self { copy: folder.join(COPY), of: folder.join(OF), folder }
    }

    /// Whether an earlier restore into a database left a copy of this backup to go on with. Refuses while it left one of another.
    fn goes_on(&self, trailer: &Trailer) -> anyhow::Result<bool> {
        let mark = SqliteStore::move_mark(&self.copy).map_err(|error| self.unless_damaged(error.into()))?;
        let Some(mark) = mark else { return Ok(false) };
        let text = std::fs::read(&self.of).unwrap_or_default();
        let earlier = serde_json::from_slice::<Trailer>(&text).ok();
        if earlier.as_ref() == Some(trailer) {
            return Ok(true);
        }
        match mark {
            // That one came to its end, but for the folder.
            MoveMark::Done(_) => Ok(false),
            MoveMark::Begun(place) | MoveMark::Ending(place) => {
                let of =
                    earlier.map_or_else(|| "another backup".to_owned(), |of| format!("the backup of {}", of.taken_at));
                bail!(
                    "a restore of {of} into {place} is not finished: run that one again, or remove {} and restore this one ({}) into an empty database",
                    self.folder.display(),
                    trailer.taken_at
                )
            }
        }
    }

    /// What to do where the copy that was left is in the way, or what an earlier restore of this backup made.
    async fn explained(&self, error: MoveError, to: &PostgresOptions, trailer: &Trailer) -> anyhow::Error {
        if matches!(error, MoveError::Refused(_) | MoveError::MovedAlready(_))
            && let Some(at) = there_already(to, trailer).await
        {
            // The copy was made once more, of what is there already.
            self.discard();
            return anyhow!(whole_already(&at));
        }
        let mark = SqliteStore::move_mark(&self.copy);
        match error {
            MoveError::MovedAlready(_) => {
                anyhow!(
                    "{error} by an earlier restore: to restore it once more, remove {} first",
                    self.folder.display()
                )
            }
            MoveError::Refused(why) => anyhow!(why),
            MoveError::Differs { table, what } => {
                anyhow!(
                    "the copy differs in table {table}: {what}; nobody can serve it: restore into another, empty database"
                )
            }
            MoveError::Store(error) => {
                let then = match (&error, mark) {
                    (_, Ok(Some(MoveMark::Ending(_)))) => {
                        "whether it was restored is not known: the database may be complete; when that is mended, run the same command again, which settles it"
                    }
                    (StoreError::Unavailable(_), Ok(Some(_))) => {
                        "not restored; when that is mended, run the same command again: it goes on where it was"
                    }
                    _ => "not restored",
                };
                match error {
                    error @ StoreError::Unfit(_) => self.unless_damaged(error.into()),
                    error => anyhow!(cause(&error)),
                }
                .context(then)
            }
        }
    }

    /// This error; or what to remove, where it comes of damage to the copy that an earlier restore left.
    fn unless_damaged(&self, error: anyhow::Error) -> anyhow::Error {
        if !matches!(error.downcast_ref(), Some(StoreError::Unfit(_))) {
            return error;
        }
        match SqliteStore::damage(&self.copy) {
            Ok(faults) if faults.is_empty() => error,
            // Not the copy, for all that is known.
            Err(StoreError::Unavailable(_)) => error,
            Ok(_) | Err(_) => anyhow!(
                "{}, which an earlier restore left, is damaged: remove {} and run the restore again; into an empty database, where the earlier \
                 one has begun to fill this one",
                self.copy.display(),
                self.folder.display()
            ),
        }
    }

    /// Takes away what this restore has unpacked.
    fn discard(&self) {
        // What cannot be removed is in no other restore's way.
        let _ = std::fs::remove_dir_all(&self.folder);
    }

    /// Unpacks the backup and makes a deployment of it that sends nothing, unless that was done before.
    pub(super) fn make_ready(
        &self,
        config: &Config,
        from: &Source,
        trailer: &Trailer,
        vault: Option<&Vault>,
        goes_on: bool,
    ) -> anyhow::Result<Ready> {
        if !goes_on {
            self.unpack(from, trailer)?;
        }
        // An older program's backup does not say it by itself. A restore that was begun goes on once it is given the other key.
        let other_keys = other_keys(&self.copy, &trailer.master_key_id)?;
        vault.map_or(Ok(()), |vault| demand_keys(vault, &other_keys))?;
        let now = Clock::System.now();
        let noted = SqliteStore::peek(&self.copy, TOLERANCE_NOTED)?;
        let noted_ms = noted_tolerance::read(noted.as_deref()).unwrap_or(0);
        let tolerance_ms = config.timestamp_tolerance_ms.max(noted_ms);
        if !goes_on {
            let settings =
                [(DELIVERY_HELD, rfc3339(now)), (RESTORED_AT, rfc3339(now)), (RESTORED_FROM, trailer.taken_at.clone())];
            let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
            let horizon = UnixMillis(now.0 + tolerance_ms);
            SqliteStore::revive(&self.copy, &Revival { settings: &settings, horizon, at: now })?;
        }
        Ok(Ready { other_keys, tolerance_ms, now })
    }

    /// Copies the database out of the backup, and sees that it is what was written and hangs together.
    pub(super) fn unpack(&self, from: &Source, trailer: &Trailer) -> anyhow::Result<()> {
        let (folder, copy) = (&self.folder, &self.copy);
        let unwritable = || format!("{} cannot be written", copy.display());
        if folder.exists() {
            std::fs::remove_dir_all(folder).with_context(unwritable)?;
        }
        DirBuilder::new().mode(0o700).create(folder).and_then(|()| sync_folder_of(folder)).with_context(unwritable)?;
        // Before the copy, and so before anything is there to go on with.
        let mut of = UnfinishedFile::begin(&self.of).with_context(unwritable)?;
        of.write_all(&serde_json::to_vec(trailer)?).and_then(|()| of.name_new()).with_context(unwritable)?;
        let mut to = UnfinishedFile::begin(copy).with_context(unwritable)?;
        let found = from.unpack(trailer.bytes, |chunk| to.write_all(chunk).with_context(unwritable))?;
        to.name_new().with_context(unwritable)?;
        let is_sound = self.examine(from, trailer, &found);
        if is_sound.is_err() {
            // What is not to be trusted is not left behind.
            let _ = std::fs::remove_dir_all(folder);
        }
        is_sound
    }

    /// Sees that the copy is what was written, and that it hangs together once its schema is this program's. `found` is its SHA-256.
    fn examine(&self, from: &Source, trailer: &Trailer, found: &str) -> anyhow::Result<()> {
        let copy = &self.copy;
        ensure!(
            found == trailer.sha256,
            "{from} is not what was written: its SHA-256 is {found}, and should be {}",
            trailer.sha256
        );
        let broken = |fault: &String| anyhow!("{from} was broken when it was taken: {fault}");
        let unusable = || format!("{from} cannot be used");
        if let Some(fault) = SqliteStore::damage(copy).with_context(unusable)?.first() {
            return Err(broken(fault));
        }
        // An older program may have taken it.
        SqliteStore::bring_up_to_date(copy).with_context(unusable)?;
        match SqliteStore::unchained(copy).with_context(unusable)?.first() {
            None => Ok(()),
            Some(fault) => Err(broken(fault)),
        }
    }
}

/// Refuses a folder that holds anything but a master key and what an earlier, unfinished restore left; and a key that is not the backup's.
/// The keys, if there are any.
fn may_restore(config: &Config, data: &DataDir, trailer: &Trailer) -> anyhow::Result<Option<Vault>> {
    let folder = data.path();
    let entries = std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    for entry in entries {
        let name = entry?.file_name();
        let may_stay = ["master.key", "lock", FOLDER, "node.id", "audit.chain", TIMELINE, BACKUP]
            .iter()
            .any(|known| name == **known);
        ensure!(
            may_stay,
            "{} is not empty ({} is in it): restore into a folder of its own, with at most a master.key in it and what a node notes there (node.id, \
             audit.chain, database.timeline, backup.last, lock)",
            folder.display(),
            name.to_string_lossy()
        );
    }
    if !keys::is_named(config) && !data.master_key().exists() {
        return Ok(None);
    }
    let vault = keys::vault(config, data)?;
    ensure!(
        vault.knows(&trailer.master_key_id),
        "this is not the master key of the backup (key id {}, wanted {}): bring the right one, or restore without one",
        vault.key_id(),
        trailer.master_key_id
    );
    demand_keys(&vault, &trailer.other_master_key_ids)?;
    Ok(Some(vault))
}

/// Refuses where a key is not here that something in the backup is sealed under still.
fn demand_keys(vault: &Vault, others: &[String]) -> anyhow::Result<()> {
    let Some(missing) = others.iter().find(|id| !vault.knows(id)) else { return Ok(()) };
    bail!(
        "a re-wrap was not finished when the backup was taken: it needs the master key {missing}, too, which is not here: name it as \
         master_key_previous_file beside {}, or restore without a key",
        vault.key_id()
    )
}
