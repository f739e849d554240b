//! The journal of settled nonces: append-only files beside the database, written but not synced before the answer.
//!
//! What the kernel has been given survives a kill of this process; only a reboot of the machine can lose it, and the replay
//! mark ([`super::nonces`]) covers that.
//!
//! Invariant: a file that an earlier process wrote is never appended to, so every record begins at a multiple of its length.

use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher13;

use crate::window::ClaimHash;

/// Claim hash, timestamp, checksum.
const RECORD_LEN: usize = 32;
/// A new file is begun after so many bytes: 131,072 records.
const SEGMENT_BYTES_MAX: u64 = 4 * 1024 * 1024;
const PREFIX: &str = "nonces-";
const SUFFIX: &str = ".journal";
/// How often the log says that the journal cannot be written: each request that is signed tries it.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// What a damaged file is called while it is written anew.
const MENDED: &str = "mended";
/// Nobody else's business, as the database.
pub(super) const FILE_MODE: u32 = 0o600;

/// What becomes of the records that are written together.
#[derive(Debug, Default)]
struct Ticket(AtomicU8);

const WRITTEN: u8 = 1;
const FAILED: u8 = 2;

impl Ticket {
    fn outcome(&self) -> Option<bool> {
        match self.0.load(Ordering::Acquire) {
            WRITTEN => Some(true),
            FAILED => Some(false),
            _ => None,
        }
    }
}

/// Records that wait for the next write.
#[derive(Debug, Default)]
struct UnwrittenRecords {
    bytes: Vec<u8>,
    newest: i64,
    ticket: Arc<Ticket>,
}

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    /// The largest timestamp in it.
    newest: i64,
}

#[derive(Debug)]
struct Current {
    file: File,
    segment: Segment,
    len: u64,
}

#[derive(Debug)]
struct Files {
    current: Option<Current>,
    older: Vec<Segment>,
    next_number: u64,
    closed: bool,
    /// When the log last said that it cannot be written.
    said_at: Option<Instant>,
    #[cfg(test)]
    writes: u64,
}

/// The journal of one database.
pub(super) struct Journal {
    dir: PathBuf,
    key: [u8; 16],
    waiting: Mutex<UnwrittenRecords>,
    files: Mutex<Files>,
    damaged: Vec<Damaged>,
}

/// A file that an earlier process wrote whole, and that is not whole any more.
#[derive(Debug)]
pub(super) struct Damaged {
    pub(super) path: PathBuf,
    /// Records in it that cannot be read.
    pub(super) records: u64,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Journal {
    /// Opens the journal in `dir`, hands every readable record to `recall`, and removes files with nothing after `horizon`.
    pub(super) fn open(
        dir: &Path,
        key: [u8; 16],
        horizon: i64,
        mut recall: impl FnMut(ClaimHash, i64),
    ) -> io::Result<Self> {
        let (mut older, mut damaged) = (Vec::new(), Vec::new());
        let mut next_number = 1;
        for entry in fs::read_dir(dir).map_err(named(dir))? {
            let path = entry.map_err(named(dir))?.path();
            let Some(number) = number_of(&path).filter(|_| path.is_file()) else { continue };
            next_number = next_number.max(number + 1);
            let mut newest = i64::MIN;
            let records = read_segment(&path, &key, |hash, stamped_at| {
                newest = newest.max(stamped_at);
                recall(hash, stamped_at);
            })
            .map_err(named(&path))?;
            if records > 0 {
                damaged.push(Damaged { path: path.clone(), records });
            }
            // A damaged one is the only witness until what follows from it is noted.
            if newest > horizon || records > 0 {
                older.push(Segment { path, newest });
            } else {
                fs::remove_file(&path).map_err(named(&path))?;
            }
        }
        let files = Files {
            current: None,
            older,
            next_number,
            closed: false,
            said_at: None,
            #[cfg(test)]
            writes: 0,
        };
        Ok(Self { dir: dir.to_owned(), key, waiting: Mutex::default(), files: Mutex::new(files), damaged })
    }

    /// Files of which something is lost, though the kernel had been given it: a kill leaves half a record at the end of a file at the most.
    pub(super) fn damaged(&self) -> &[Damaged] {
        &self.damaged
    }

    /// Writes damaged files anew, with what can be read of them, so that the next start does not find them damaged again.
    pub(super) fn mend(&self) -> io::Result<()> {
        for Damaged { path, .. } in &self.damaged {
            let mut good = Vec::new();
            read_segment(path, &self.key, |hash, stamped_at| good.extend(record(&self.key, hash, stamped_at)))?;
            let mended = path.with_extension(MENDED);
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&mended)?;
            file.write_all(&good)?;
            file.sync_all()?;
            fs::rename(&mended, path)?;
        }
        File::open(&self.dir)?.sync_all()
    }

    /// Writes a record, together with whatever else is being settled at this moment. Answers when the kernel has it.
    pub(super) async fn append(&self, hash: ClaimHash, stamped_at: i64) -> io::Result<()> {
        let ticket = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.bytes.extend_from_slice(&record(&self.key, hash, stamped_at));
            waiting.newest = waiting.newest.max(stamped_at);
            Arc::clone(&waiting.ticket)
        };
        // Others that are ready to run settle now, and the first to come back writes for all.
        tokio::task::yield_now().await;
        if ticket.outcome().or_else(|| self.write_waiting(&ticket)).unwrap_or(false) {
            Ok(())
        } else {
            Err(io::Error::other("the nonce journal cannot be written"))
        }
    }

    fn write_waiting(&self, ticket: &Ticket) -> Option<bool> {
        let mut files = self.files();
        // Whoever held the files before may have written ours.
        if let Some(outcome) = ticket.outcome() {
            return Some(outcome);
        }
        let batch = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let outcome = files.write(&self.dir, &batch);
        if let Err(error) = &outcome
            && files.said_at.is_none_or(|at| at.elapsed() >= SAID_EVERY)
        {
            files.said_at = Some(Instant::now());
            tracing::error!(%error, "The nonce journal cannot be written");
        }
        batch.ticket.0.store(if outcome.is_ok() { WRITTEN } else { FAILED }, Ordering::Release);
        ticket.outcome()
    }

    /// Begins a file where none is begun.
    pub(super) fn begin(&self) -> io::Result<()> {
        let mut files = self.files();
        if files.current.is_none() && !files.closed {
            files.current = Some(files.begin(&self.dir)?);
        }
        Ok(())
    }

    /// Removes files whose every record is at or before `horizon`, but for one that is only begun. What cannot be removed is tried again the next time.
    pub(super) fn forget(&self, horizon: i64) -> io::Result<()> {
        let gone = {
            let mut files = self.files();
            if let Some(current) = files.current.take_if(|current| current.len > 0 && current.segment.newest <= horizon)
            {
                files.older.push(current.segment);
            }
            let (gone, kept) = std::mem::take(&mut files.older).into_iter().partition(|s| s.newest <= horizon);
            files.older = kept;
            gone
        };
        // Whoever settles a nonce meanwhile does not wait for the file system.
        let (mut left, mut outcome) = (Vec::new(), Ok(()));
        for segment in gone {
            match fs::remove_file(&segment.path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    outcome = Err(named(&segment.path)(error));
                    left.push(segment);
                }
            }
        }
        self.files().older.append(&mut left);
        outcome
    }

    /// Takes no more records and puts all files on stable storage.
    pub(super) fn close(&self) -> io::Result<()> {
        let mut files = self.files();
        files.closed = true;
        if let Some(current) = files.current.take() {
            files.older.push(current.segment);
        }
        for segment in &files.older {
            File::open(&segment.path)?.sync_all()?;
        }
        File::open(&self.dir)?.sync_all()
    }

    /// Takes no more records.
    pub(super) fn stop(&self) {
        self.files().closed = true;
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn write(&mut self, dir: &Path, batch: &UnwrittenRecords) -> io::Result<()> {
        if self.closed {
            return Err(io::Error::other("the store is closed"));
        }
        if let Some(full) = self.current.take_if(|current| current.len >= SEGMENT_BYTES_MAX) {
            self.older.push(full.segment);
        }
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin(dir)?,
        };
        if let Err(error) = current.file.write_all(&batch.bytes) {
            // Nothing of a refused write may be read back, and nothing may follow half a record: cut it off, begin a new file.
            if let Err(error) = current.file.set_len(current.len) {
                tracing::error!(%error, "The nonce journal cannot be cut back: some nonces may be refused after a restart");
            }
            self.older.push(current.segment);
            return Err(error);
        }
        #[cfg(test)]
        {
            self.writes += 1;
        }
        current.len += batch.bytes.len() as u64;
        current.segment.newest = current.segment.newest.max(batch.newest);
        self.current = Some(current);
        Ok(())
    }

    fn begin(&mut self, dir: &Path) -> io::Result<Current> {
        let path = dir.join(format!("{PREFIX}{:012}{SUFFIX}", self.next_number));
        let file =
            OpenOptions::new().append(true).create_new(true).mode(FILE_MODE).open(&path).map_err(named(&path))?;
        self.next_number += 1;
        Ok(Current { file, segment: Segment { path, newest: i64::MIN }, len: 0 })
    }
}

fn number_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// A record that is cut off at the end is passed over. Answers how many whole ones are not as they were written.
fn read_segment(path: &Path, key: &[u8; 16], mut found: impl FnMut(ClaimHash, i64)) -> io::Result<u64> {
    let mut bad = 0;
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    for chunk in bytes.chunks_exact(RECORD_LEN) {
        let (mut hash, mut stamp) = ([0; 16], [0; 8]);
        hash.copy_from_slice(&chunk[..16]);
        stamp.copy_from_slice(&chunk[16..24]);
        let (hash, stamped_at) = (ClaimHash::from_bytes(hash), i64::from_le_bytes(stamp));
        if record(key, hash, stamped_at) == *chunk {
            found(hash, stamped_at);
        } else {
            bad += 1;
        }
    }
    Ok(bad)
}

/// What the system said, with the file of which it said so.
fn named(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn record(key: &[u8; 16], hash: ClaimHash, stamped_at: i64) -> [u8; RECORD_LEN] {
    let mut record = [0; RECORD_LEN];
    record[..16].copy_from_slice(&hash.to_bytes());
    record[16..24].copy_from_slice(&stamped_at.to_le_bytes());
    let mut sum = SipHasher13::new_with_key(key);
    sum.write(&record[..24]);
    record[24..].copy_from_slice(&sum.finish().to_le_bytes());
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = [7; 16];

    fn hash(of: u8) -> ClaimHash {
        ClaimHash::from_bytes([of; 16])
    }

    fn read_back(dir: &Path, horizon: i64) -> (Journal, Vec<(ClaimHash, i64)>) {
        let mut seen = Vec::new();
        let journal = Journal::open(dir, KEY, horizon, |h, at| seen.push((h, at))).expect("opens");
        seen.sort_by_key(|(_, at)| *at);
        (journal, seen)
    }

    fn segments(dir: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).expect("reads");
        entries.map(|e| e.expect("reads").path()).filter(|p| number_of(p).is_some()).collect()
    }

    #[test]
    fn what_cannot_be_read_is_told_by_its_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join(format!("{PREFIX}1{SUFFIX}"));
        // Reading its first byte is an error for every user.
        std::os::unix::fs::symlink("/proc/self/mem", &file).expect("made");
        let refused = Journal::open(dir.path(), KEY, 0, |_, _| {}).expect_err("it cannot be read").to_string();
        assert!(refused.starts_with(&format!("{}: ", file.display())), "{refused}");
        let none = dir.path().join("none");
        let refused = Journal::open(&none, KEY, 0, |_, _| {}).expect_err("it is not there").to_string();
        assert!(refused.starts_with(&format!("{}: No such file", none.display())), "{refused}");
    }

    #[tokio::test]
    async fn what_was_appended_is_read_back_and_a_torn_tail_is_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, seen) = read_back(dir.path(), 0);
        assert!(seen.is_empty());
        journal.append(hash(1), 10).await.expect("writes");
        journal.append(hash(2), 20).await.expect("writes");
        let path = segments(dir.path()).remove(0);
        let len = fs::metadata(&path).expect("is there").len();
        assert_eq!(len, 2 * RECORD_LEN as u64);
        OpenOptions::new().write(true).open(&path).expect("opens").set_len(len - 1).expect("cuts");
        let (again, seen) = read_back(dir.path(), 0);
        assert_eq!(seen, [(hash(1), 10)]);
        assert!(again.damaged().is_empty(), "half a record is what a kill may leave");
        again.append(hash(3), 30).await.expect("writes");
        assert_eq!(read_back(dir.path(), 0).1, [(hash(1), 10), (hash(3), 30)]);
    }

    #[tokio::test]
    async fn a_record_that_is_spoiled_hides_none_after_it_and_is_told_until_the_file_is_mended() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, _) = read_back(dir.path(), 0);
        for n in 1..=3 {
            journal.append(hash(n), i64::from(n)).await.expect("writes");
        }
        let path = segments(dir.path()).remove(0);
        let mut bytes = fs::read(&path).expect("reads");
        bytes[RECORD_LEN..2 * RECORD_LEN].fill(0);
        fs::write(&path, bytes).expect("writes");
        // After the horizon too: what is lost may be stamped later.
        for horizon in [0, 100] {
            let (spoiled, _) = read_back(dir.path(), horizon);
            let damaged: Vec<_> = spoiled.damaged().iter().map(|found| (&found.path, found.records)).collect();
            assert_eq!(damaged, [(&path, 1)]);
        }
        let (spoiled, seen) = read_back(dir.path(), 0);
        assert_eq!(seen, [(hash(1), 1), (hash(3), 3)]);
        spoiled.mend().expect("mends");
        let (mended, seen) = read_back(dir.path(), 0);
        assert_eq!(seen, [(hash(1), 1), (hash(3), 3)]);
        assert!(mended.damaged().is_empty());
        assert_eq!(segments(dir.path()), [path]);
    }

    #[tokio::test]
    async fn many_settled_at_once_are_one_write() {
        let dir = tempfile::tempdir().expect("a folder");
        let journal = Arc::new(read_back(dir.path(), 0).0);
        let tasks: Vec<_> = (1..=50u8)
            .map(|n| {
                let journal = Arc::clone(&journal);
                tokio::spawn(async move { journal.append(hash(n), i64::from(n)).await })
            })
            .collect();
        for task in tasks {
            task.await.expect("ends").expect("writes");
        }
        assert_eq!(journal.files().writes, 1);
        assert_eq!(read_back(dir.path(), 0).1.len(), 50);
    }

    #[tokio::test]
    async fn files_wholly_before_the_horizon_are_removed_and_others_are_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, _) = read_back(dir.path(), 0);
        journal.append(hash(1), 10).await.expect("writes");
        journal.append(hash(2), 20).await.expect("writes");
        journal.forget(19).expect("removes");
        assert_eq!(segments(dir.path()).len(), 1);
        journal.forget(20).expect("removes");
        assert!(segments(dir.path()).is_empty());
        journal.append(hash(3), 30).await.expect("writes");
        assert_eq!(segments(dir.path()).len(), 1);
        read_back(dir.path(), 30);
        assert!(segments(dir.path()).is_empty(), "opening removes them too");
    }

    #[tokio::test]
    async fn a_file_that_is_only_begun_stays_until_it_is_written_to_or_the_next_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, _) = read_back(dir.path(), 0);
        journal.begin().expect("begins");
        let begun = segments(dir.path());
        journal.begin().expect("is begun");
        journal.forget(i64::MAX).expect("removes nothing");
        assert_eq!((begun.len(), segments(dir.path())), (1, begun.clone()));
        journal.append(hash(1), 10).await.expect("writes");
        assert_eq!(segments(dir.path()), begun);
        journal.forget(10).expect("removes");
        journal.begin().expect("begins");
        let (_, seen) = read_back(dir.path(), 0);
        assert!(seen.is_empty() && segments(dir.path()).is_empty(), "nothing is in it");
        journal.stop();
        journal.begin().expect("nothing is begun by a store that is closed");
        assert!(segments(dir.path()).is_empty());
    }

    #[tokio::test]
    async fn a_journal_that_cannot_be_written_says_so() {
        let dir = tempfile::tempdir().expect("a folder");
        let (journal, _) = read_back(dir.path(), 0);
        let taken = dir.path().join(format!("{PREFIX}{:012}{SUFFIX}", 1));
        fs::create_dir(&taken).expect("made");
        assert!(journal.append(hash(1), 10).await.is_err());
        let refused = journal.begin().expect_err("it is taken").to_string();
        assert!(refused.starts_with(&format!("{}: ", taken.display())), "{refused}");
        fs::remove_dir(&taken).expect("removed");
        journal.append(hash(1), 10).await.expect("writes again");
        assert_eq!(read_back(dir.path(), 0).1, [(hash(1), 10)]);
    }
}
