//! Which server is in office, as far as this process has seen: the one that takes the deployment's writes.
//!
//! A standby that is promoted begins a new timeline. Who answers on an older one of the same cluster was left behind: it can commit nothing that counts, but it
//! goes on answering reads with what was there at that moment, for ever and without an error.
//!
//! Invariant: once a connection has met a newer timeline, none is made to an older one, and those that were there before are used no more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio_postgres::{Client, SimpleQueryMessage};

/// The cluster, and the timeline that the server writes on: the first eight digits of the name of its log's file.
const WHO: &str = "SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint
                   FROM pg_control_system() WHERE NOT pg_is_in_recovery()";

/// Which server it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Office {
    cluster: String,
    timeline: u64,
}

impl Office {
    /// Asks a server who it is; none where it does not say: not every service that speaks PostgreSQL's protocol does.
    pub(super) async fn of(client: &Client) -> Option<Self> {
        let said = client.simple_query(WHO).await.ok()?;
        let row = said.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        })?;
        Some(Self { cluster: row.get(0)?.to_owned(), timeline: row.get(1)?.parse().ok()? })
    }
}

/// The server in office.
#[derive(Debug)]
pub(super) struct Incumbent {
    seen: Mutex<Option<Office>>,
    /// Grows by one with each server.
    term: AtomicU64,
    terms: watch::Sender<u64>,
}

impl Incumbent {
    pub(super) fn new() -> Self {
        Self { seen: Mutex::new(None), term: AtomicU64::new(0), terms: watch::Sender::new(0) }
    }

    /// The term that a connection to this server belongs to; none: another one has taken over from it, or it does not say who it is and one that was met before
    /// did.
    pub(super) fn meets(&self, office: Option<Office>) -> Option<u64> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let term = self.term.load(Ordering::Acquire);
        let Some(office) = office else { return seen.is_none().then_some(term) };
        match &*seen {
            Some(known) if *known == office => return Some(term),
            Some(known) if known.cluster == office.cluster && known.timeline > office.timeline => return None,
            Some(_) => tracing::warn!(
                "Another server of the database has taken over: what was connected to the one before is connected anew"
            ),
            None => {}
        }
        *seen = Some(office);
        self.term.store(term + 1, Ordering::Release);
        self.terms.send_replace(term + 1);
        Some(term + 1)
    }

    /// Whether a connection of that term goes to the server in office.
    pub(super) fn is_in_office(&self, term: u64) -> bool {
        self.term.load(Ordering::Acquire) == term
    }

    /// Waits until another server than that of the term is in office.
    pub(super) async fn ends(&self, term: u64) {
        // The sender lives as long as this does.
        let _ = self.terms.subscribe().wait_for(|now| *now != term).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_left_behind_is_met_no_more_and_what_was_connected_to_it_is_over() {
        let incumbent = Incumbent::new();
        let office = |cluster: &str, timeline| Some(Office { cluster: cluster.to_owned(), timeline });
        let unknown = incumbent.meets(None).expect("nobody says that it is not");
        assert!(incumbent.is_in_office(unknown));
        let first = incumbent.meets(office("a", 1)).expect("the first");
        assert!(!incumbent.is_in_office(unknown), "nobody knows where that goes");
        assert_eq!(incumbent.meets(office("a", 1)), Some(first));
        assert_eq!(incumbent.meets(None), None, "one that has said it once can say it again");
        let second = incumbent.meets(office("a", 3)).expect("a newer one");
        assert!(incumbent.is_in_office(second) && !incumbent.is_in_office(first));
        assert_eq!((incumbent.meets(office("a", 1)), incumbent.meets(office("a", 2))), (None, None));
        let other = incumbent.meets(office("b", 1)).expect("a cluster that was put in its place");
        assert!(!incumbent.is_in_office(second) && incumbent.is_in_office(other));
    }
}
