//! The one thread that writes: it takes all batches that wait, commits them together, and only then answers each.
//!
//! Invariant: nobody is answered before the commit that carries their batch is on stable storage, not even with a conflict: the row they
//! lost against may be of the same commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::answers::{Answer, GroupAnswer, Others, PATIENCE, PendingAnswer, answer};
use super::apply::{Applier, Stop};
use super::checkpoint::LogSize;
use super::fault::{fault, may_be_done};
use super::faults::{Fault, Faults};
use super::heads::Marks;
use super::lost_sync::LostSync;
use super::nonces::Nonces;
use super::presence::Presence;
use super::purge::delete_nonces;
use super::statements::{Kept, Sql};
use crate::batch::{Batch, Committed};
use crate::chain::ChainKey;
use crate::contract::{CommitError, StoreError};
use crate::work_clock::WorkClock;

/// What the writer is asked to do.
#[derive(Debug)]
pub(super) enum Task {
    /// A caller's batch.
    Commit(Batch, Marks),
    /// Makes the replay mark durable.
    RaiseMark(i64),
    /// Makes the purge horizon durable.
    RaiseHorizon(i64),
    /// Deletes what lies at or before the horizon of so many old nonces at the most.
    DeleteNonces(u32),
}

impl Task {
    /// A batch, with the marks of its audit lines.
    pub(super) fn commit(batch: Batch, key: &OnceLock<ChainKey>) -> Self {
        let marks = Marks::of(&batch, key);
        Self::Commit(batch, marks)
    }
}

/// What was done.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) committed: Committed,
    /// Whether there may be more old nonces to delete.
    pub(super) more_nonces: bool,
}

#[derive(Debug)]
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) answer: oneshot::Sender<GroupAnswer>,
}

#[derive(Debug)]
pub(super) enum Message {
    Job(Job),
    /// Several, for one transaction.
    Jobs(Vec<Job>),
    /// Finish what came before this, then end.
    Stop,
}

/// What the writer shares with the rest of the store.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) nonces: Arc<Nonces>,
    /// Grows with each commit, before it is answered.
    pub(super) commits: Arc<AtomicU64>,
    /// Held while a transaction is open; the checkpointer takes it to empty the log.
    pub(super) gate: Arc<Mutex<()>>,
    pub(super) log: Arc<LogSize>,
    pub(super) checkpoint: SyncSender<()>,
    pub(super) group_max: usize,
    pub(super) work: Arc<WorkClock>,
    pub(super) presence: Arc<Presence>,
    pub(super) lost_sync: Arc<LostSync>,
    /// What lines of the audit log are linked with.
    pub(super) chain: Arc<OnceLock<ChainKey>>,
}

/// Why a transaction failed.
struct Failure {
    error: rusqlite::Error,
    stage: Stage,
}

/// How far a transaction had come.
enum Stage {
    /// It could not begin: no batch is to blame, and each by itself would wait as long for the file.
    Begin,
    Batches,
    /// What each batch would have been answered.
    Commit(Vec<Answer>),
}

/// Writes until it is told to stop or everybody who could ask is gone.
pub(super) fn run(conn: &Connection, shared: &Shared, messages: &Receiver<Message>) {
    let mut applier = Applier::new(Kept::new(conn), &shared.nonces, Arc::clone(&shared.chain));
    let mut jobs = Vec::with_capacity(shared.group_max);
    let mut untold: Option<Others> = None;
    loop {
        let first = match &untold {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => messages.recv_timeout(PATIENCE),
        };
        let mut next = match first {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => {
                untold = None;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let mut stop = false;
        while let Some(message) = next.take() {
            match message {
                Message::Job(job) => jobs.push(job),
                Message::Jobs(several) => jobs.extend(several),
                Message::Stop => {
                    stop = true;
                    break;
                }
            }
            if jobs.len() < shared.group_max {
                next = messages.try_recv().ok();
            }
        }
        // Who was to tell those of the group before has the time that this one takes. To tell them now would be a system call for each, and
        // on one core nobody else has run since.
        let before = untold.take();
        untold = group(&mut applier, shared, &mut jobs);
        shared.work.end();
        drop(before);
        if stop {
            return;
        }
    }
}

/// Does the jobs in one transaction or, where that fails, each in its own. Gives those who do not know yet.
fn group(applier: &mut Applier<'_>, shared: &Shared, jobs: &mut Vec<Job>) -> Option<Others> {
    if jobs.is_empty() {
        return None;
    }
    shared.work.begin();
    if let Err(gone) = shared.presence.check().and_then(|()| shared.lost_sync.check()) {
        return answer(&shared.nonces, jobs.drain(..).map(|job| (job, Err(CommitError::Store(gone.clone())))));
    }
    match together(applier, shared, jobs) {
        Ok(answers) => answer(&shared.nonces, jobs.drain(..).zip(answers)),
        Err(Failure { error, stage: Stage::Commit(answers) }) if may_be_done(&error) => {
            tracing::error!(%error, batches = jobs.len(), "A commit failed in a way that leaves its fate open");
            bury(applier.kept.conn(), shared);
            // Not each alone: one that failed then would be taken for not done, though the commit of all of them may still be in the log.
            let told = answers.into_iter().map(|answer| Err(in_doubt(answer.is_ok(), &error)));
            answer(&shared.nonces, jobs.drain(..).zip(told))
        }
        Err(failure) if jobs.len() == 1 => {
            let failed = jobs.pop().map(|job| (job, Err(CommitError::Store(fault(failure.error)))));
            answer(&shared.nonces, failed.into_iter())
        }
        Err(Failure { error, stage: Stage::Begin }) => {
            tracing::debug!(%error, batches = jobs.len(), "a group of batches could not begin");
            let why = fault(error);
            answer(&shared.nonces, jobs.drain(..).map(|job| (job, Err(CommitError::Store(why.clone())))))
        }
        Err(failure) => {
            // Whoever is refused tells it; on a full disk this happens a hundred times in a second.
            tracing::debug!(error = %failure.error, batches = jobs.len(), "a group of batches failed; each runs alone now");
            for job in jobs.drain(..) {
                group(applier, shared, &mut vec![job]);
            }
            None
        }
    }
}

/// Writes over what a commit that failed has left in the log: until then it is found there by the next start of a process that dies, after readers
/// were told that nothing was done. What the disk has of it, should the machine crash, nobody knows. Where even its own frame cannot be written, or
/// the head of a log that begins anew cannot be synced, it stays until the next change.
fn bury(conn: &Connection, shared: &Shared) {
    let _gate = shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
    // Its sync may fail as the one before did; what counts is that its frame takes the place of the other's first one. A value that stays as it is
    // would leave its page clean.
    let nothing = "BEGIN IMMEDIATE; INSERT INTO setting (name, value) VALUES ('of_nobody', ''); DELETE FROM setting WHERE name = 'of_nobody'; COMMIT";
    if let Err(error) = conn.execute_batch(nothing) {
        tracing::debug!(%error, "The change that writes over what a commit has left in the log failed, at its sync or before");
        if !conn.is_autocommit() {
            conn.execute_batch("ROLLBACK").ok();
        }
    }
}

/// What the owner of a batch is told when nobody knows how its commit ended. Of one that was refused nothing was done in any case; but what
/// refused it may be of the same commit, so that is not told.
fn in_doubt(was_done: bool, error: &rusqlite::Error) -> CommitError {
    if was_done { CommitError::Unknown } else { CommitError::Store(StoreError::Unavailable(error.to_string())) }
}

fn together(applier: &mut Applier<'_>, shared: &Shared, jobs: &[Job]) -> Result<Vec<Answer>, Failure> {
    let gate = shared.gate.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = transaction(applier, &shared.lost_sync.faults, jobs);
    match outcome {
        Ok(answers) => {
            applier.committed();
            shared.commits.fetch_add(1, Ordering::Release);
            for (job, answer) in jobs.iter().zip(&answers) {
                if answer.is_ok() {
                    publish(&job.task, &shared.nonces);
                }
            }
            drop(gate);
            if shared.log.wants_checkpoint() {
                // Full: the checkpointer has been told already.
                shared.checkpoint.try_send(()).ok();
            }
            Ok(answers)
        }
        Err(failure) => {
            let conn = applier.kept.conn();
            if !conn.is_autocommit()
                && let Err(error) = conn.execute_batch("ROLLBACK")
            {
                tracing::error!(%error, "A transaction could not be rolled back");
            }
            applier.rolled_back();
            Err(failure)
        }
    }
}

fn transaction(applier: &mut Applier<'_>, faults: &Faults, jobs: &[Job]) -> Result<Vec<Answer>, Failure> {
    assert!(!faults.has(Fault::Panic), "told to");
    let at_batches = |error| Failure { error, stage: Stage::Batches };
    applier.kept.run(Sql::Begin, []).map_err(|error| Failure { error, stage: Stage::Begin })?;
    let mut answers = Vec::with_capacity(jobs.len());
    for job in jobs {
        match task(applier, &job.task) {
            Ok(done) => answers.push(Ok(done)),
            Err(Stop::Refused(why)) => answers.push(Err(why)),
            Err(Stop::Broken(error)) => return Err(at_batches(error)),
        }
    }
    applier.heads.save(&mut applier.kept).map_err(at_batches)?;
    if faults.has(Fault::LostCommit) {
        let lost = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
        return Err(Failure { error: rusqlite::Error::SqliteFailure(lost, None), stage: Stage::Commit(answers) });
    }
    match applier.kept.run(Sql::Commit, []) {
        Ok(_) => Ok(answers),
        Err(error) => Err(Failure { error, stage: Stage::Commit(answers) }),
    }
}

fn task(applier: &mut Applier<'_>, task: &Task) -> Result<Done, Stop> {
    match task {
        Task::Commit(batch, marks) => Ok(Done { committed: applier.batch(batch, marks)?, more_nonces: false }),
        Task::RaiseMark(mark) => {
            applier.kept.run(Sql::RaiseMark, [mark])?;
            Ok(Done::default())
        }
        Task::RaiseHorizon(horizon) => {
            applier.kept.run(Sql::RaiseHorizon, [horizon])?;
            Ok(Done::default())
        }
        Task::DeleteNonces(count_max) => delete_nonces(applier, *count_max),
    }
}

/// What is durable now may be relied on.
fn publish(task: &Task, nonces: &Nonces) {
    match task {
        Task::RaiseMark(mark) => nonces.mark_raised(*mark),
        Task::RaiseHorizon(horizon) => nonces.horizon_raised(*horizon),
        Task::Commit(..) | Task::DeleteNonces(_) => {}
    }
}

/// Sends a job without waiting. A full queue and a writer that is gone are `Unavailable` at once.
pub(super) fn send(queue: &SyncSender<Message>, task: Task) -> Result<PendingAnswer, StoreError> {
    let (answer, waiting) = PendingAnswer::new();
    queue.try_send(Message::Job(Job { task, answer })).map_err(|error| unsent(&error))?;
    Ok(waiting)
}

/// Sends those tasks that may go as one message, without waiting: whose answer will come, and what is said of the others.
pub(super) fn send_each(
    queue: &SyncSender<Message>,
    tasks: impl Iterator<Item = Result<Task, CommitError>>,
) -> Vec<Result<PendingAnswer, CommitError>> {
    let mut jobs = Vec::new();
    let sent = tasks.map(|task| {
        let (answer, waiting) = PendingAnswer::new();
        jobs.push(Job { task: task?, answer });
        Ok(waiting)
    });
    let mut sent: Vec<_> = sent.collect();
    if let Err(error) = queue.try_send(Message::Jobs(jobs)) {
        for waiting in sent.iter_mut().filter(|sent| sent.is_ok()) {
            *waiting = Err(unsent(&error).into());
        }
    }
    sent
}

fn unsent<T>(error: &TrySendError<T>) -> StoreError {
    match error {
        TrySendError::Full(_) => StoreError::Unavailable("too many changes are waiting".to_owned()),
        TrySendError::Disconnected(_) => gone(),
    }
}

/// The writer ended before it answered. It answers right after each commit, so what it did not answer was rolled back.
pub(super) fn gone() -> StoreError {
    StoreError::Unavailable("the writer has ended".to_owned())
}

#[cfg(test)]
mod tests {
    use countersign_domain::ids::{ApplicationNo, TenantNo};
    use countersign_domain::time::UnixMillis;

    use super::*;
    use crate::batch::Write;
    use crate::contract::{ClaimKey, NewAnswer, Store};
    use crate::sqlite::{SqliteOptions, SqliteStore};

    fn setting(name: &str) -> Batch {
        Batch(vec![Write::PutSetting { name: name.to_owned(), value: "v".to_owned() }])
    }

    /// One that the same batch refuses when it comes a second time.
    fn remembering() -> Batch {
        let answer = crate::contract::IdempotencyRow {
            scope: "s".to_owned(),
            key: "k".to_owned(),
            body_digest: [0; 32],
            status: 200,
            answer: String::new(),
            created_at: UnixMillis(1),
        };
        Batch(vec![Write::RememberAnswer(Box::new(NewAnswer { row: answer, ended_before: UnixMillis(i64::MIN) }))])
    }

    fn claiming() -> Batch {
        let (tenant, application) = (TenantNo(1), ApplicationNo(1));
        let claim = ClaimKey { tenant, application, nonce: "n".to_owned(), stamped_at: UnixMillis(1) };
        let mut batch = remembering();
        batch.0.push(Write::ClaimNonce(claim));
        batch
    }

    #[tokio::test]
    async fn a_writer_that_panics_leaves_everybody_with_unavailable_and_nobody_waiting() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let store = SqliteStore::open(&path, SqliteOptions::new([1; 16], "boot")).expect("opens");
        store.lost_sync.faults.begin(Fault::Panic);
        let before = send(&store.queue, Task::Commit(setting("before"), Marks::default())).expect("is queued");
        let beside = send(&store.queue, Task::Commit(setting("beside"), Marks::default()));
        assert!(before.answer().await.is_err());
        if let Ok(beside) = beside {
            assert!(beside.answer().await.is_err());
        }
        // The queue closes when the thread has unwound; until then a batch is queued and dropped unanswered.
        let refused = store.commit(setting("after")).await;
        assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
        while store.writer_alive.strong_count() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(matches!(store.ping().await, Err(StoreError::Unavailable(_))));
        let refused = store.purge_nonces(UnixMillis(1)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))));
        assert!(store.close().is_ok(), "nothing to put in order");
        drop(store);
        let store = SqliteStore::open(&path, SqliteOptions::new([1; 16], "boot")).expect("opens again");
        assert_eq!(store.setting("beside").await.expect("reads"), None);
    }

    #[tokio::test]
    async fn a_batch_that_breaks_its_group_breaks_nobody_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let store = SqliteStore::open(&path, SqliteOptions::new([1; 16], "boot")).expect("opens");
        // Holds the writer back in its first transaction, so that what comes then is one group.
        let other = Connection::open(&path).expect("opens");
        other.execute_batch("BEGIN IMMEDIATE").expect("locks");
        let first = send(&store.queue, Task::Commit(setting("first"), Marks::default())).expect("is queued");
        let twice = remembering();
        let claiming = claiming();
        let a = send(&store.queue, Task::Commit(claiming, Marks::default())).expect("is queued");
        let broken = send(
            &store.queue,
            Task::Commit(Batch(vec![Write::InsertSecret(Box::new(secret_of_nobody()))]), Marks::default()),
        )
        .expect("is queued");
        let b = send(&store.queue, Task::Commit(twice, Marks::default())).expect("is queued");
        other.execute_batch("ROLLBACK").expect("unlocks");
        assert!(first.answer().await.is_ok());
        assert!(a.answer().await.is_ok());
        assert!(matches!(broken.answer().await, Err(CommitError::Store(StoreError::Unfit(_)))));
        assert!(matches!(b.answer().await, Err(CommitError::Conflict(_))));
        assert_eq!(store.setting("first").await.expect("reads").as_deref(), Some("v"));
    }

    #[tokio::test]
    async fn a_group_that_cannot_begin_waits_for_the_file_once_and_not_for_each() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let options = SqliteOptions { busy_ms: 200, ..SqliteOptions::new([1; 16], "boot") };
        let store = SqliteStore::open(&path, options).expect("opens");
        let other = Connection::open(&path).expect("opens");
        other.execute_batch("BEGIN IMMEDIATE").expect("locks");
        let jobs = ["a", "b", "c"].map(|name| Ok(Task::Commit(setting(name), Marks::default())));
        let mut sent = send_each(&store.queue, jobs.into_iter()).into_iter();
        let mut next = async || sent.next().expect("three").expect("is queued").answer().await;
        let first = next().await;
        other.execute_batch("ROLLBACK").expect("unlocks");
        for answer in [first, next().await, next().await] {
            assert!(matches!(answer, Err(CommitError::Store(StoreError::Unavailable(_)))), "{answer:?}");
        }
        for name in ["a", "b", "c"] {
            assert_eq!(store.setting(name).await.expect("reads"), None);
        }
    }

    #[tokio::test]
    async fn a_group_whose_commit_is_in_doubt_is_in_doubt_for_all_of_it_that_was_not_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(&dir.path().join("db"), SqliteOptions::new([1; 16], "boot")).expect("opens");
        let commit = |name| Task::Commit(setting(name), Marks::default());
        store.lost_sync.faults.begin(Fault::LostCommit);
        let twice = [remembering(), claiming()].map(|batch| Task::Commit(batch, Marks::default()));
        let jobs = [commit("a")].into_iter().chain(twice).chain([commit("b")]);
        let mut answers = Vec::new();
        for sent in send_each(&store.queue, jobs.map(Ok)) {
            answers.push(sent.expect("is queued").answer().await);
        }
        store.lost_sync.faults.end();
        let refused = answers.remove(2);
        assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
        for answer in answers {
            assert!(matches!(answer, Err(CommitError::Unknown)), "{answer:?}");
        }
        store.commit(setting("c")).await.expect("the next one is well");
        assert_eq!(store.setting("a").await.expect("reads"), None);
    }

    fn secret_of_nobody() -> crate::contract::SecretRow {
        crate::testing::rows::secret("sec", ApplicationNo(404))
    }
}
