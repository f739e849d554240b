//! Connections for reads. Point reads have one for each worker thread, so that many are on their way at once and none waits for a free one.
//! Lists have others, each to itself: whatever stands in the pipeline behind one that takes seconds would take as long.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Error, Row};

use super::dial::Dial;
use super::fault::{Trouble, fault, trouble};
use super::limits::Limits;
use super::session::{Params, Session};
use super::statements::Sql;
use crate::contract::StoreError;

static THREADS: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// Which of all threads this is.
    static THREAD: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed));
}

/// A place for a connection, which is made when it is first wanted and again when it broke.
#[derive(Debug, Default)]
struct Slot {
    session: Mutex<Option<Arc<Session>>>,
    dialing: tokio::sync::Mutex<()>,
}

impl Slot {
    fn open(&self) -> Option<Arc<Session>> {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.as_ref().filter(|session| !session.is_closed()).map(Arc::clone)
    }

    fn put(&self, session: Arc<Session>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    /// Ends this connection. One that was made since then stays: many reads find the same one broken.
    fn end(&self, broken: &Arc<Session>) {
        broken.abort();
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if session.as_ref().is_some_and(|session| Arc::ptr_eq(session, broken)) {
            *session = None;
        }
    }
}

/// Places that are given to one read at a time.
#[derive(Debug)]
struct Turns {
    free: Semaphore,
    /// Which places are free.
    places: Mutex<Vec<usize>>,
}

/// All connections for reads of one kind.
#[derive(Debug)]
pub(super) struct Readers {
    dial: Arc<Dial>,
    slots: Vec<Slot>,
    /// None: each thread's reads share a connection.
    turns: Option<Turns>,
}

/// A place that a read has.
struct Taken<'a> {
    slot: &'a Slot,
    /// Where it goes back to; none: others have it, too.
    back: Option<(&'a Turns, usize, SemaphorePermit<'a>)>,
    /// What is asked over it now.
    under_way: Option<Arc<Session>>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Some((turns, place, permit)) = self.back.take() else { return };
        // Nobody waits for the answer any more; whoever has the place next would.
        if let Some(session) = self.under_way.take() {
            self.slot.end(&session);
        }
        turns.places.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        drop(permit);
    }
}

fn slots(count: usize) -> Vec<Slot> {
    (0..count.max(1)).map(|_| Slot::default()).collect()
}

fn silent() -> StoreError {
    StoreError::Unavailable("the database does not answer".to_owned())
}

impl Readers {
    /// For point reads: so many connections, shared by threads.
    pub(super) fn new(dial: Arc<Dial>, count: usize) -> Self {
        Self { dial, slots: slots(count), turns: None }
    }

    /// For lists: so many at once, each on a connection of its own.
    pub(super) fn in_turns(dial: Arc<Dial>, count: usize) -> Self {
        let slots = slots(count);
        let turns = Turns { free: Semaphore::new(slots.len()), places: Mutex::new((0..slots.len()).collect()) };
        Self { dial, slots, turns: Some(turns) }
    }

    pub(super) fn limits(&self) -> Limits {
        self.dial.limits()
    }

    async fn place(&self, deadline: Instant) -> Result<Taken<'_>, StoreError> {
        let Some(turns) = &self.turns else {
            let slot = &self.slots[THREAD.with(Cell::get) % self.slots.len()];
            return Ok(Taken { slot, back: None, under_way: None });
        };
        let crowded = || StoreError::Unavailable("too many lists are asked for at once".to_owned());
        let permit = timeout_at(deadline, turns.free.acquire()).await.map_err(|_| crowded())?.map_err(|_| crowded())?;
        let place = turns.places.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or_else(crowded)?;
        Ok(Taken { slot: &self.slots[place], back: Some((turns, place, permit)), under_way: None })
    }

    /// The connection of a place. One to a server that was left behind ends, with what is read over it.
    fn open(&self, slot: &Slot) -> Option<Arc<Session>> {
        let session = slot.open()?;
        let is_good = self.dial.is_in_office(&session);
        if !is_good {
            slot.end(&session);
        }
        is_good.then_some(session)
    }

    async fn session(&self, slot: &Slot) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = self.open(slot) {
            return Ok(session);
        }
        let _one_at_a_time = slot.dialing.lock().await;
        if let Some(session) = self.open(slot) {
            return Ok(session);
        }
        let session = Arc::new(self.dial.reading().await?);
        slot.put(Arc::clone(&session));
        Ok(session)
    }

    /// Reads on a connection; once more on a new one if that one turns out to be broken.
    pub(super) async fn read<T, F>(&self, ask: impl Fn(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = Instant::now() + self.limits().read();
        let mut taken = self.place(deadline).await?;
        let slot = taken.slot;
        let mut tries = 0;
        loop {
            tries += 1;
            let session = timeout_at(deadline, self.session(slot)).await.map_err(|_| silent())??;
            taken.under_way = Some(Arc::clone(&session));
            let answer = timeout_at(deadline, ask(Arc::clone(&session))).await;
            taken.under_way = None;
            match answer {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(error)) if trouble(&error) == Trouble::Lost => {
                    slot.end(&session);
                    if tries == 2 {
                        return Err(fault(error));
                    }
                }
                Ok(Err(error)) => return Err(fault(error)),
                Err(_) => {
                    // Whatever waits behind it on the same connection waits in vain, too.
                    slot.end(&session);
                    return Err(silent());
                }
            }
        }
    }

    /// The rows of one statement.
    pub(super) async fn rows(&self, sql: Sql, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        // Boxed: every future that waits for a read would be large with it, also where the store is another one.
        Box::pin(self.read(|session| async move { session.run(sql, params).await })).await
    }
}
