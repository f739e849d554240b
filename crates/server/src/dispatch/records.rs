//! Records of attempts wait a moment for each other, so that many share a commit, whose sync costs the same for one as for many.
//!
//! Whoever comes first leads: it waits until every attempt under way has come, too, or [`LINGER`] has passed, and hands over what is there.
//! Nobody is told that it is done before his own record is durable. A leader that is cut off leaves nobody waiting: the others are told to ask
//! again. It may have handed their records over before; then the guard of `RecordAttempt`, which holds once, says that they are there.

use std::mem::take;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_store::batch::Committed;
use countersign_store::{AnyStore, Batch, CommitError, Store, StoreError};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

/// How long a record waits for others, where attempts are under way whose records may come.
const LINGER: Duration = Duration::from_millis(2);
/// So many wait for no more.
const FULL: usize = 256;

type Answer = Result<Committed, CommitError>;

/// Where records go.
pub(super) trait Book: Sync {
    /// Each by itself, in their order.
    fn commit_each(&self, batches: Vec<Batch>) -> impl Future<Output = Vec<Answer>> + Send;
}

impl Book for AnyStore {
    fn commit_each(&self, batches: Vec<Batch>) -> impl Future<Output = Vec<Answer>> + Send {
        Store::commit_each(self, batches)
    }
}

/// Records that wait to be handed over.
#[derive(Debug, Default)]
pub(super) struct Records {
    /// Attempts whose record has not come.
    under_way: AtomicUsize,
    waiting: Mutex<Vec<(Batch, oneshot::Sender<Answer>)>>,
    /// Nothing more is to come, or there are enough.
    enough: Notify,
}

/// An attempt whose record may come.
#[derive(Debug)]
pub(super) struct UnderWay<'a>(&'a Records);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.enough.notify_waiters();
        }
    }
}

/// Whoever hands over what waits. When it goes away before, what waits is dropped, and so answered.
struct Leader<'a> {
    records: &'a Records,
    is_done: bool,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            drop(take(&mut *self.records.waiting()));
        }
    }
}

impl Records {
    fn waiting(&self) -> MutexGuard<'_, Vec<(Batch, oneshot::Sender<Answer>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until what this gives is dropped, others wait for its record for a moment.
    pub(super) fn attempt_begins(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(self)
    }

    /// Commits, with others if there are any.
    pub(super) async fn commit(&self, book: &impl Book, batch: Batch, under_way: Option<UnderWay<'_>>) -> Answer {
        let (answer, waiting) = oneshot::channel();
        let count = {
            let mut records = self.waiting();
            records.push((batch, answer));
            records.len()
        };
        drop(under_way);
        if count == FULL {
            self.enough.notify_waiters();
        }
        if count == 1 {
            self.lead(book).await;
        }
        waiting.await.unwrap_or_else(|_| Err(StoreError::Unavailable("who led a group has ended".to_owned()).into()))
    }

    async fn lead(&self, book: &impl Book) {
        let mut leader = Leader { records: self, is_done: false };
        let mut enough = pin!(self.enough.notified());
        enough.as_mut().enable();
        if self.under_way.load(Ordering::Acquire) > 0 {
            timeout(LINGER, enough).await.ok();
        }
        let together = take(&mut *self.waiting());
        // From here on another one leads.
        leader.is_done = true;
        let (batches, answers): (Vec<_>, Vec<_>) = together.into_iter().unzip();
        for (to, answer) in answers.into_iter().zip(book.commit_each(batches).await) {
            // Whoever went away needs no answer.
            to.send(answer).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::Poll;

    use tokio::task::{JoinSet, yield_now};

    use super::*;

    /// Notes how many came at once.
    #[derive(Default)]
    struct Counted(Mutex<Vec<usize>>);

    impl Book for Counted {
        async fn commit_each(&self, batches: Vec<Batch>) -> Vec<Answer> {
            self.0.lock().expect("nobody panicked").push(batches.len());
            yield_now().await;
            batches.iter().map(|_| Ok(Committed::default())).collect()
        }
    }

    impl Counted {
        fn groups(&self) -> Vec<usize> {
            self.0.lock().expect("nobody panicked").clone()
        }
    }

    fn batch() -> Batch {
        Batch(Vec::new())
    }

    async fn poll_once<F: Future>(mut of: Pin<&mut F>) {
        poll_fn(|cx| {
            drop(of.as_mut().poll(cx));
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn one_alone_waits_for_nobody() {
        let (records, book) = (Records::default(), Counted::default());
        let mut only = pin!(records.commit(&book, batch(), Some(records.attempt_begins())));
        poll_once(only.as_mut()).await;
        assert_eq!(book.groups(), [1]);
        assert!(only.await.is_ok());
    }

    #[tokio::test]
    async fn those_whose_attempts_are_under_way_share_a_commit_and_wait_for_nobody_else() {
        let (records, book) = (Records::default(), Counted::default());
        let [first, second, third] = [(); 3].map(|()| records.attempt_begins());
        let mut first = pin!(records.commit(&book, batch(), Some(first)));
        let mut second = pin!(records.commit(&book, batch(), Some(second)));
        poll_once(first.as_mut()).await;
        poll_once(second.as_mut()).await;
        assert!(book.groups().is_empty(), "a third may come");
        // It leaves no record.
        drop(third);
        poll_once(first.as_mut()).await;
        assert_eq!(book.groups(), [2]);
        let (first, second) = tokio::join!(first, second);
        assert!(first.is_ok() && second.is_ok());
    }

    #[tokio::test]
    async fn an_attempt_that_hangs_holds_a_record_up_for_a_moment_only() {
        let (records, book) = (Records::default(), Counted::default());
        let [first, hangs] = [(); 2].map(|()| records.attempt_begins());
        assert!(records.commit(&book, batch(), Some(first)).await.is_ok());
        let second = records.attempt_begins();
        assert!(records.commit(&book, batch(), Some(second)).await.is_ok());
        assert_eq!(book.groups(), [1, 1]);
        drop(hangs);
    }

    #[tokio::test]
    async fn there_are_enough_at_a_bound() {
        let (records, book) = (Arc::new(Records::default()), Arc::new(Counted::default()));
        let _hangs = records.attempt_begins();
        let mut all = JoinSet::new();
        for _ in 0..FULL {
            let (records, book) = (records.clone(), book.clone());
            all.spawn(async move { records.commit(&*book, batch(), None).await.is_ok() });
        }
        assert!(all.join_all().await.into_iter().all(|done| done));
        assert_eq!(book.groups(), [FULL]);
    }

    #[tokio::test]
    async fn a_leader_that_is_cut_off_leaves_nobody_waiting() {
        let (records, book) = (Records::default(), Counted::default());
        let _hangs = records.attempt_begins();
        let mut leader = Box::pin(records.commit(&book, batch(), None));
        poll_once(leader.as_mut()).await;
        let mut follower = pin!(records.commit(&book, batch(), None));
        poll_once(follower.as_mut()).await;
        drop(leader);
        let told = follower.await;
        assert!(matches!(told, Err(CommitError::Store(StoreError::Unavailable(_)))), "{told:?}");
        assert!(records.commit(&book, batch(), None).await.is_ok(), "the next one leads");
        assert_eq!(book.groups(), [1]);
    }
}
