//! How a group is answered: the writer wakes one of those who wait, and he tells the others.
//!
//! To wake somebody from the writer's thread takes a system call and, on a busy core, two changes of thread. A task that tells another one of
//! the same runtime needs neither. So a commit costs one wake-up, however many share it.
//!
//! Invariant: nobody waits for long because another one is not polled. Whoever was woken tells the others when he is polled or dropped; whom
//! he has not told after [`PATIENCE`] without a next group, or when the next group is done, the writer tells itself.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::nonces::Nonces;
use super::writer::{Done, Job, Task, gone};
use crate::contract::CommitError;

/// How long the one who was woken may take to tell the others.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);

pub(super) type Answer = Result<Done, CommitError>;

/// An answer, and with the first one of a group the others that he tells.
#[derive(Debug)]
pub(super) struct GroupAnswer {
    answer: Answer,
    others: Option<Others>,
}

/// Where an answer comes.
#[derive(Debug)]
pub(super) struct PendingAnswer(oneshot::Receiver<GroupAnswer>);

impl PendingAnswer {
    /// For a new job: where its answer goes, and where it comes.
    pub(super) fn new() -> (oneshot::Sender<GroupAnswer>, Self) {
        let (answer, waiting) = oneshot::channel();
        (answer, Self(waiting))
    }

    /// Waits for it; `Unavailable` where the writer ends before.
    pub(super) async fn answer(self) -> Answer {
        match self.0.await {
            Ok(GroupAnswer { answer, others }) => {
                drop(others);
                answer
            }
            Err(_) => Err(gone().into()),
        }
    }
}

/// Jobs that are done and whose callers have not been answered yet. Dropping the last copy of this answers them.
#[derive(Clone, Debug)]
pub(super) struct Others {
    left: Arc<Mutex<Vec<(Job, Answer)>>>,
    nonces: Arc<Nonces>,
}

impl Drop for Others {
    fn drop(&mut self) {
        let left = std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner));
        for (job, answer) in left {
            answer_one(&self.nonces, job, answer, None);
        }
    }
}

/// Answers a group. What this gives is to be dropped when those who were to tell the others had their time.
pub(super) fn answer(nonces: &Arc<Nonces>, jobs: impl Iterator<Item = (Job, Answer)>) -> Option<Others> {
    let mut jobs = jobs;
    let (first, answer) = jobs.next()?;
    let left: Vec<_> = jobs.collect();
    if left.is_empty() {
        answer_one(nonces, first, answer, None);
        return None;
    }
    let others = Others { left: Arc::new(Mutex::new(left)), nonces: Arc::clone(nonces) };
    answer_one(nonces, first, answer, Some(others.clone()));
    Some(others)
}

/// Of one whose caller went away nobody else gives back what was not used.
fn answer_one(nonces: &Nonces, job: Job, answer: Answer, others: Option<Others>) {
    let Err(unheard) = job.answer.send(GroupAnswer { answer, others }) else { return };
    if let (Task::Commit(batch, _), Err(CommitError::Conflict(_) | CommitError::Store(_))) =
        (&job.task, &unheard.answer)
    {
        for claim in batch.claims() {
            nonces.release(claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use countersign_domain::ids::{ApplicationNo, TenantNo};
    use countersign_domain::time::UnixMillis;

    use super::*;
    use crate::batch::{Batch, Committed, Conflict, Write};
    use crate::contract::{ClaimKey, Claimed, StoreError};
    use crate::sqlite::{SqliteOptions, SqliteStore};

    fn nonces() -> Arc<Nonces> {
        let dir = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(&dir.path().join("db"), SqliteOptions::new([1; 16], "boot")).expect("opens");
        Arc::clone(&store.nonces)
    }

    fn done(answer: oneshot::Sender<GroupAnswer>) -> (Job, Answer) {
        let done = Done { committed: Committed::default(), more_nonces: false };
        (Job { task: Task::commit(Batch(Vec::new()), &OnceLock::new()), answer }, Ok(done))
    }

    fn group() -> ([PendingAnswer; 3], Option<Others>) {
        let [first, second, third] = [PendingAnswer::new(), PendingAnswer::new(), PendingAnswer::new()];
        let others = answer(&nonces(), [first.0, second.0, third.0].into_iter().map(done));
        ([first.1, second.1, third.1], others)
    }

    fn is_told(waiting: &mut PendingAnswer) -> bool {
        waiting.0.try_recv().is_ok()
    }

    #[tokio::test]
    async fn the_first_one_is_woken_and_tells_the_others() {
        let ([first, mut second, mut third], others) = group();
        assert!(!is_told(&mut second) && !is_told(&mut third), "nobody has told them");
        assert!(first.answer().await.is_ok());
        assert!(is_told(&mut second) && is_told(&mut third));
        drop(others);
    }

    #[test]
    fn one_who_went_away_before_he_was_answered_leaves_nobody_waiting() {
        let ((first, gone), (second, mut stays)) = (PendingAnswer::new(), PendingAnswer::new());
        drop(gone);
        let others = answer(&nonces(), [first, second].into_iter().map(done));
        assert!(is_told(&mut stays));
        drop(others);
    }

    #[test]
    fn of_one_who_went_away_what_was_not_used_is_given_back() {
        let (nonces, stamped_at) = (nonces(), UnixMillis(5));
        let claim = |text: &str| ClaimKey {
            tenant: TenantNo(1),
            application: ApplicationNo(1),
            nonce: text.to_owned(),
            stamped_at,
        };
        for (text, why, after) in [
            ("refused", CommitError::Conflict(Conflict::NonceUsed), Claimed::Fresh),
            ("failed", CommitError::Store(StoreError::Unavailable(String::new())), Claimed::Fresh),
            ("unknown", CommitError::Unknown, Claimed::Used),
        ] {
            assert_eq!(nonces.reserve(&claim(text)), Claimed::Fresh);
            let (answer, gone) = PendingAnswer::new();
            drop(gone);
            let batch = Batch(vec![Write::ClaimNonce(claim(text))]);
            let job = Job { task: Task::commit(batch, &OnceLock::new()), answer };
            drop(super::answer(&nonces, [(job, Err(why))].into_iter()));
            assert_eq!(nonces.reserve(&claim(text)), after, "{text}");
        }
    }

    #[test]
    fn one_who_goes_away_with_his_answer_leaves_nobody_waiting() {
        let ([first, mut second, mut third], others) = group();
        drop(first);
        assert!(is_told(&mut second) && is_told(&mut third));
        drop(others);
    }

    #[test]
    fn one_who_is_never_polled_keeps_nobody_waiting_once_the_writer_tells() {
        let ([mut first, mut second, mut third], others) = group();
        assert!(!is_told(&mut second));
        drop(others);
        assert!(is_told(&mut second) && is_told(&mut third));
        assert!(is_told(&mut first), "his own answer waits for him");
    }
}
