//! Connections for reads: one for each worker thread, so that many reads are on their way at once and none waits for a free one.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Error, Row};

use super::fault::{Trouble, fault, trouble};
use super::limits::Limits;
use super::session::{Dial, Params, Session};
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

/// All connections for reads.
#[derive(Debug)]
pub(super) struct Readers {
    dial: Arc<Dial>,
    slots: Vec<Slot>,
}

impl Readers {
    pub(super) fn new(dial: Arc<Dial>, count: usize) -> Self {
        Self { dial, slots: (0..count.max(1)).map(|_| Slot::default()).collect() }
    }

    pub(super) fn limits(&self) -> Limits {
        self.dial.limits()
    }

    fn slot(&self) -> &Slot {
        &self.slots[THREAD.with(Cell::get) % self.slots.len()]
    }

    async fn session(&self, slot: &Slot) -> Result<Arc<Session>, StoreError> {
        if let Some(session) = slot.open() {
            return Ok(session);
        }
        let _one_at_a_time = slot.dialing.lock().await;
        if let Some(session) = slot.open() {
            return Ok(session);
        }
        let session = Arc::new(self.dial.reading().await?);
        slot.put(Arc::clone(&session));
        Ok(session)
    }

    /// Reads on a connection of this thread; once more on a new one if that one turns out to be broken.
    pub(super) async fn read<T, F>(&self, ask: impl Fn(Arc<Session>) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let slot = self.slot();
        let deadline = Instant::now() + self.limits().read();
        let silent = || StoreError::Unavailable("the database does not answer".to_owned());
        let mut tries = 0;
        loop {
            tries += 1;
            let session = timeout_at(deadline, self.session(slot)).await.map_err(|_| silent())??;
            match timeout_at(deadline, ask(Arc::clone(&session))).await {
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
