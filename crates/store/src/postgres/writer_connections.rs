//! The connections of one writer: the one it uses, and those it gave up on while the database still owed them an answer.
//!
//! Invariant: where a host keeps a writer waiting (its standby is away, it stands still), the connections that this writer leaves behind
//! there are few: another is made when the last one has ended, or soon after the first, and from then on after a time that doubles with each.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::dial::Dial;
use super::fault::{Failure, Trouble};
use super::limits::Limits;
use super::session::Session;
use super::statements::Sql;
use crate::contract::StoreError;

/// A connection that was given up on. Its transaction, if the server still has one, ends before the server lets go of it.
#[derive(Debug)]
struct Owing {
    host: usize,
    since: Instant,
    connection: JoinHandle<()>,
}

/// One writer's way to the database.
#[derive(Debug)]
pub(super) struct WriterConnections {
    dial: Arc<Dial>,
    /// Prepared with each connection.
    statements: &'static [Sql],
    kept: Option<Session>,
    owing: Vec<Owing>,
    /// Connections that were made.
    made: u64,
}

impl WriterConnections {
    pub(super) const fn new(dial: Arc<Dial>, statements: &'static [Sql]) -> Self {
        Self { dial, statements, kept: None, owing: Vec::new(), made: 0 }
    }

    /// Which of its connections this one is.
    pub(super) const fn made(&self) -> u64 {
        self.made
    }

    pub(super) fn limits(&self) -> Limits {
        self.dial.limits()
    }

    /// The store's word for a failure, once it is known that nothing was done. Notes that the disk is full where that is why.
    pub(super) fn refusal(&self, failure: &Failure) -> StoreError {
        self.dial.room().heed(failure);
        failure.refusal()
    }

    /// The kept connection, or a new one. No open transaction is on it.
    pub(super) async fn open(&mut self) -> Result<Session, Failure> {
        let kept = self.kept.take().filter(|session| !session.is_closed());
        if let Some(session) = kept.filter(|session| self.dial.is_in_office(session)) {
            return Ok(session);
        }
        let shunned = self.shunned();
        let session = self.dial.session_elsewhere(&shunned).await?;
        self.made += 1;
        match timeout(self.limits().connect(), session.prepare(self.statements)).await {
            Ok(Ok(())) => Ok(session),
            Ok(Err(error)) => Err(Failure::new(&error)),
            Err(_) => {
                self.give_up(session);
                Err(Failure::silent())
            }
        }
    }

    /// Keeps a connection that has answered a commit. What was given up on at its host before was lost on the way, and is not waited for: commits do not wait
    /// there. (A proxy may lose connections without a word; each would make the next pause twice as long.)
    pub(super) fn proved(&mut self, session: Session) {
        let host = session.host();
        self.owing.retain(|owing| {
            if owing.host == host {
                owing.connection.abort();
            }
            owing.host != host
        });
        self.keep(session);
    }

    /// Keeps a connection for the next time. No open transaction may be on it.
    pub(super) fn keep(&mut self, session: Session) {
        self.kept = Some(session);
    }

    /// Leaves a connection that owes an answer.
    pub(super) fn give_up(&mut self, session: Session) {
        let host = session.host();
        self.owing.push(Owing { host, since: Instant::now(), connection: session.into_connection() });
    }

    /// What becomes of the connection after a transaction that failed and was ended by its own `COMMIT`.
    pub(super) fn after(&mut self, session: Session, failure: &Failure) {
        match failure.trouble {
            Trouble::Lost => {}
            Trouble::Silent => self.give_up(session),
            // The commit behind a failed statement has rolled back.
            Trouble::Again | Trouble::Away | Trouble::Unfit => self.keep(session),
        }
    }

    /// Ends an open transaction without doing anything, and keeps the connection if it is still good.
    pub(super) async fn roll_back(&mut self, session: Session) {
        match timeout(self.limits().connect(), session.word("ROLLBACK")).await {
            Ok(Ok(_)) => self.keep(session),
            Ok(Err(_)) => {}
            Err(_) => self.give_up(session),
        }
    }

    /// Hosts that are not asked now.
    fn shunned(&mut self) -> Vec<usize> {
        self.owing.retain(|owing| !owing.connection.is_finished());
        let shun = |owing: &&Owing| owing.since.elapsed() < self.patience(owing.host);
        self.owing.iter().filter(shun).map(|owing| owing.host).collect()
    }

    fn patience(&self, host: usize) -> Duration {
        let there = self.owing.iter().filter(|owing| owing.host == host).count();
        match there.checked_sub(2).map(u32::try_from) {
            None => self.limits().retry(),
            Some(doublings) => {
                let times = doublings.ok().and_then(|doublings| 1_u32.checked_shl(doublings)).unwrap_or(u32::MAX);
                self.limits().shun().saturating_mul(times)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Database;

    #[tokio::test]
    async fn what_was_given_up_on_is_not_waited_for_once_its_host_has_answered_a_commit() {
        let database = Database::new().await;
        let dial = Arc::new(Dial::new(&database.url(), None).expect("an address"));
        let mut connections = WriterConnections::new(dial.clone(), &[]);
        let limits = connections.limits();
        for (lost, patience) in [(1, limits.retry()), (2, limits.shun()), (3, limits.shun() * 2)] {
            let session = dial.session_elsewhere(&[]).await.expect("a server");
            // It owes an answer when it is given up on, and would for longer than this test takes.
            let asked = session.client().batch_execute("SELECT pg_sleep(600)");
            assert!(timeout(Duration::from_millis(20), asked).await.is_err(), "it sleeps");
            connections.give_up(session);
            assert_eq!((connections.patience(0), connections.shunned()), (patience, vec![0; lost]));
        }
        // That one is there says nothing yet; that it has answered a commit does.
        connections.keep(dial.session_elsewhere(&[]).await.expect("a server"));
        assert_eq!(connections.shunned().len(), 3);
        let session = connections.open().await.expect("it was kept");
        connections.proved(session);
        assert_eq!((connections.owing.len(), connections.shunned()), (0, Vec::new()));
        assert!(connections.kept.is_some());
    }
}
