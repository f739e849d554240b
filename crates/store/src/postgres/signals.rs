//! What nodes call out to each other: NOTIFY and LISTEN.
//!
//! Nothing depends on it: it makes a node look sooner than it would have. So a call that is lost, doubled or late is no harm.
//! Invariant: nobody notifies inside a transaction that writes: PostgreSQL lets such commits follow each other, one at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use countersign_domain::lanes::LaneSet;
use tokio::sync::{Notify, broadcast};
use tokio::time::{sleep, timeout};
use tokio_postgres::Notification;

use super::dial::Dial;
use super::session::Params;
use super::statements::Sql;
use super::writer_connections::WriterConnections;
use crate::nodes::Signal;

/// The channel of due events: the payload is a set of lanes in hexadecimal.
const DUE: &str = "countersign_due";
/// The channel of changed applications; nothing in it.
const DIRECTORY: &str = "countersign_directory";
/// What a node listens to.
const LISTEN: &str = "LISTEN countersign_due; LISTEN countersign_directory";

/// At most one call in this time; what comes meanwhile goes with the next.
const BREATH: Duration = Duration::from_millis(5);
/// How long to leave the database alone when it is away.
const BACKOFF: Duration = Duration::from_millis(250);
/// Signals kept for a receiver that is slow; then it is told that it lags.
pub(super) const KEPT: usize = 64;

/// Gathers what is to be called out, and calls it.
#[derive(Debug, Default)]
pub(super) struct Herald {
    lanes: AtomicU64,
    directory: AtomicBool,
    rung: Notify,
}

impl Herald {
    /// Events of these lanes may be due.
    pub(super) fn due(&self, lanes: LaneSet) {
        self.lanes.fetch_or(lanes.0, Ordering::AcqRel);
        self.rung.notify_one();
    }

    /// An application or a secret has changed.
    pub(super) fn directory(&self) {
        self.directory.store(true, Ordering::Release);
        self.rung.notify_one();
    }

    /// Calls until it is cut off.
    pub(super) async fn run(self: Arc<Self>, dial: Arc<Dial>) {
        let mut connections = WriterConnections::new(dial, &[Sql::CallOut]);
        loop {
            self.rung.notified().await;
            let lanes = LaneSet(self.lanes.swap(0, Ordering::AcqRel));
            let directory = self.directory.swap(false, Ordering::AcqRel);
            if call(&mut connections, lanes, directory).await {
                sleep(BREATH).await;
                continue;
            }
            // Whoever is meant looks by himself after a while; this is only sooner.
            self.lanes.fetch_or(lanes.0, Ordering::AcqRel);
            self.directory.fetch_or(directory, Ordering::AcqRel);
            sleep(BACKOFF).await;
            self.rung.notify_one();
        }
    }
}

/// Whether it was called out.
async fn call(connections: &mut WriterConnections, lanes: LaneSet, directory: bool) -> bool {
    let Ok(session) = connections.open().await else { return false };
    let payload = format!("{:016x}", lanes.0);
    let calls: [(bool, Params<'_>); 2] =
        [(!lanes.is_empty(), &[&DUE, &payload.as_str()]), (directory, &[&DIRECTORY, &""])];
    for (_, call) in calls.into_iter().filter(|(wanted, _)| *wanted) {
        match timeout(connections.limits().call(), session.run(Sql::CallOut, call)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) => return false,
            // It is a commit, too: it may wait for a standby that is away.
            Err(_) => {
                connections.give_up(session);
                return false;
            }
        }
    }
    connections.keep(session);
    true
}

fn signal(heard: &Notification) -> Option<Signal> {
    match heard.channel() {
        DUE => u64::from_str_radix(heard.payload(), 16).ok().map(|lanes| Signal::Due(LaneSet(lanes))),
        DIRECTORY => Some(Signal::Directory),
        _ => None,
    }
}

/// Listens until it is cut off. After each connection that it makes everybody is told to look: something may have been missed.
pub(super) async fn listen(dial: Arc<Dial>, to: broadcast::Sender<Signal>) {
    let tell = |signal| {
        // Nobody may be listening at the moment.
        drop(to.send(signal));
    };
    loop {
        let hear = |heard: Option<Notification>| {
            let missed = [Some(Signal::Due(LaneSet::ALL)), Some(Signal::Directory)];
            heard.map_or(missed, |heard| [signal(&heard), None]).into_iter().flatten().for_each(tell);
        };
        let why = dial.listen(LISTEN, hear).await;
        tracing::debug!(why, "What other nodes say is not heard at the moment");
        sleep(BACKOFF).await;
    }
}
