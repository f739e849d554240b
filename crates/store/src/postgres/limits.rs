//! How long anything may take, all in one unit: a second. Tests make it shorter.

use std::time::Duration;

/// The limits of one store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    unit: Duration,
}

impl Limits {
    pub(super) const fn of(unit: Duration) -> Self {
        Self { unit }
    }

    /// Making a connection to one host: from the first packet to a session that is set up. And preparing its statements.
    pub(super) fn connect(self) -> Duration {
        self.unit * 3
    }

    /// A server's wait for one lock of another transaction.
    pub(super) fn lock(self) -> Duration {
        self.unit * 4
    }

    /// A server's wait for the next statement of an open transaction. Less than [`Limits::fate`], so that a transaction whose commit
    /// was lost on the way has ended by the time its fate is given up.
    pub(super) fn idle(self) -> Duration {
        self.unit * 3
    }

    /// What one statement of a read may take on the server, and the read as a whole.
    pub(super) fn statement(self) -> Duration {
        self.unit * 4
    }

    /// How often a server that works on a read looks whether its connection is still there.
    pub(super) fn gone(self) -> Duration {
        self.unit / 4
    }

    pub(super) fn read(self) -> Duration {
        self.unit * 5
    }

    /// The first round trip of a transaction: it may wait for locks, not for standbys.
    pub(super) fn look(self) -> Duration {
        self.unit * 5
    }

    /// A round trip with a commit: it may wait for a synchronous standby.
    pub(super) fn commit(self) -> Duration {
        self.unit * 10
    }

    /// What nodes ask and tell each other now and then.
    pub(super) fn call(self) -> Duration {
        self.unit * 2
    }

    /// Looking for the fate of a commit that nobody answered.
    pub(super) fn fate(self) -> Duration {
        self.unit * 5
    }

    /// A change that has waited longer when its turn comes is answered without a try.
    pub(super) fn age(self) -> Duration {
        self.unit * 4
    }

    /// A writer that is at one piece of work for longer makes the store not ready.
    pub(super) fn work(self) -> Duration {
        self.unit * 8
    }

    /// How long a writer that gave up on a connection makes no other to the same host, unless that one ends: it may have been lost on the way, by a proxy or
    /// with the process behind it, and the host be well.
    pub(super) fn retry(self) -> Duration {
        self.unit
    }

    /// The same once it gave up on the one that it made then, too: it is the host that keeps commits waiting. Doubled with each.
    pub(super) fn shun(self) -> Duration {
        self.unit * 30
    }
}
