//! Which server is in office, as far as this process has seen: the one that takes the deployment's writes.
//!
//! A standby that is promoted begins a new timeline. Who answers on an older one of the same cluster was left behind: it can commit nothing that counts, but it
//! goes on answering reads with what was there at that moment, for ever and without an error.
//!
//! Invariant: once a connection has met a newer timeline, none is made to an older one, and those that were there before are used no more.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio_postgres::{Client, SimpleQueryMessage, SimpleQueryRow};

/// The cluster, and the timeline that the server writes on: the first eight digits of the name of its log's file.
const WHO: &str = "SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint
                   FROM pg_control_system() WHERE NOT pg_is_in_recovery()";

/// What is said where a server answers that must not be used any more.
pub(super) const LEFT_BEHIND: &str =
    "another server of it has taken over from the one that answers, or that one does not say who it is";

/// Which server it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Office {
    /// What PostgreSQL calls its system identifier: `initdb` makes it, and each copy of the cluster has it.
    pub cluster: String,
    /// A promotion begins a new one, and so does a recovery to a point in time.
    pub timeline: u64,
}

impl Office {
    /// Asks a server who it is; none where it does not say: not every service that speaks PostgreSQL's protocol does.
    pub(super) async fn of(client: &Client) -> Option<Self> {
        let row = one_row(client, WHO).await?;
        Some(Self { cluster: row.get(0)?.to_owned(), timeline: row.get(1)?.parse().ok()? })
    }

    /// Whether the server of this office took over from the server of the other office.
    fn is_after(&self, other: &Self) -> bool {
        self.cluster == other.cluster && self.timeline > other.timeline
    }
}

/// The first row of an answer, if there is one.
pub(super) async fn one_row(client: &Client, query: &str) -> Option<SimpleQueryRow> {
    let said = client.simple_query(query).await.ok()?;
    said.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

/// The server that was in office when a process before this one served, as a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedOffice {
    /// Which it was.
    pub office: Office,
    /// The file that says so. Without it, nobody knows.
    pub noted_in: PathBuf,
}

impl NotedOffice {
    /// What is said of a server that was left behind before this process began.
    fn refuses(&self, found: &Office) -> String {
        let file = self.noted_in.display();
        format!(
            "the server is on timeline {}, and another one took over from it: this node has served with timeline {} of the same cluster ({file} says so). \
             Start that one, or name it in the address; where all nodes are to go back to the older one on purpose, remove {file} on each",
            found.timeline, self.office.timeline
        )
    }
}

/// The server in office.
#[derive(Debug)]
pub(super) struct Incumbent {
    seen: Mutex<Option<Office>>,
    /// The one before this process.
    served: Option<NotedOffice>,
    /// Grows by one with each server.
    term: AtomicU64,
    terms: watch::Sender<u64>,
}

impl Incumbent {
    pub(super) fn new(served: Option<NotedOffice>) -> Self {
        Self { seen: Mutex::new(None), served, term: AtomicU64::new(0), terms: watch::Sender::new(0) }
    }

    /// The term that a connection to this server belongs to. An error, in words: another server has taken over from this one, or this server does not
    /// say who it is and a server met before did.
    pub(super) fn meets(&self, office: Option<Office>) -> Result<u64, String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let term = self.term.load(Ordering::Acquire);
        let left_behind = || LEFT_BEHIND.to_owned();
        let Some(office) = office else { return if seen.is_none() { Ok(term) } else { Err(left_behind()) } };
        if let Some(served) = self.served.as_ref().filter(|served| served.office.is_after(&office)) {
            return Err(served.refuses(&office));
        }
        match &*seen {
            Some(known) if *known == office => return Ok(term),
            Some(known) if known.is_after(&office) => return Err(left_behind()),
            Some(_) => tracing::warn!(
                "Another server of the database has taken over: what was connected to the one before is connected anew"
            ),
            None => {}
        }
        *seen = Some(office);
        self.term.store(term + 1, Ordering::Release);
        self.terms.send_replace(term + 1);
        Ok(term + 1)
    }

    /// Which server is in office, if a server was met that says who it is.
    pub(super) fn in_office(&self) -> Option<Office> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hears when another one takes over.
    pub(super) fn terms(&self) -> watch::Receiver<u64> {
        self.terms.subscribe()
    }

    /// All connections that are there are given up, as if another server had taken over.
    pub(super) fn give_up(&self) {
        let _seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let term = self.term.fetch_add(1, Ordering::AcqRel) + 1;
        self.terms.send_replace(term);
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
        let incumbent = Incumbent::new(None);
        let office = |cluster: &str, timeline| Some(Office { cluster: cluster.to_owned(), timeline });
        let unknown = incumbent.meets(None).expect("nobody says that it is not");
        assert!(incumbent.is_in_office(unknown));
        let first = incumbent.meets(office("a", 1)).expect("the first");
        assert!(!incumbent.is_in_office(unknown), "nobody knows where that goes");
        assert_eq!(incumbent.meets(office("a", 1)), Ok(first));
        assert_eq!(incumbent.meets(None), Err(LEFT_BEHIND.to_owned()), "one that has said it once can say it again");
        let second = incumbent.meets(office("a", 3)).expect("a newer one");
        assert!(incumbent.is_in_office(second) && !incumbent.is_in_office(first));
        assert!(incumbent.meets(office("a", 1)).is_err() && incumbent.meets(office("a", 2)).is_err());
        let other = incumbent.meets(office("b", 1)).expect("a cluster that was put in its place");
        assert!(!incumbent.is_in_office(second) && incumbent.is_in_office(other));
    }

    #[test]
    fn who_was_left_behind_before_this_process_began_is_refused_and_another_cluster_is_not() {
        let office = |cluster: &str, timeline| Office { cluster: cluster.to_owned(), timeline };
        let served = NotedOffice { office: office("a", 3), noted_in: PathBuf::from("data/database.timeline") };
        let incumbent = Incumbent::new(Some(served));
        let why = incumbent.meets(Some(office("a", 2))).expect_err("it was left behind");
        assert!(why.contains("on timeline 2") && why.contains("timeline 3 of the same cluster"), "{why}");
        assert!(why.contains("remove data/database.timeline on each"), "{why}");
        assert_eq!(incumbent.in_office(), None);
        let same = incumbent.meets(Some(office("a", 3))).expect("the same");
        assert_eq!(incumbent.in_office(), Some(office("a", 3)));
        let recovered = incumbent.meets(Some(office("a", 4))).expect("a recovery begins a newer timeline");
        assert!(
            recovered > same && incumbent.meets(Some(office("b", 1))).is_ok(),
            "a cluster that was put in its place"
        );
        assert!(incumbent.meets(Some(office("a", 2))).is_err(), "as ever");
    }
}
