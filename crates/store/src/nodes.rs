//! What nodes that share a store tell each other: who is alive, who delivers what, what has changed.

use std::fmt;

use countersign_domain::lanes::{Fence, Lane, LaneSet};
use countersign_domain::time::UnixMillis;

/// A node: 16 random bytes that stay the same from one start to the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeId(pub [u8; 16]);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::read::hex(&self.0))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It has just started: whatever its id still holds was its predecessor's, who is dead, and is free at once.
    Begins,
    /// It runs.
    Runs,
    /// It is told to stop and goes on holding what something is in flight in. It takes nothing more and has no share any more, so that others take the
    /// rest; they still see it, since it may still act.
    Leaves,
    /// It ends: it takes nothing more and is not seen any more.
    Ends,
}

/// A node as it says who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Its own id.
    pub node: NodeId,
    /// A name for people: where its merchants call.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// The id of the master key that it was started with.
    pub key_id: String,
    /// Its settings that have to be the same on all nodes: a text that is equal where they are.
    pub settings: String,
}

impl Who {
    /// Of a store that has one node, which tells nobody.
    pub const NOBODY: Self = Self {
        node: NodeId([0; 16]),
        name: String::new(),
        version: String::new(),
        key_id: String::new(),
        settings: String::new(),
    };
}

/// A node as others see it. One that ended in order is not seen any more; one that was killed is, for a day or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Who it is. Version, key and settings are empty of a program from before they were said.
    pub who: Who,
    /// When it started, by the database's clock.
    pub started_at: UnixMillis,
    /// When its heart beat last, by the database's clock.
    pub seen_at: UnixMillis,
    /// Whether that is not longer ago than a lease.
    pub is_alive: bool,
    /// How far its clock was ahead of the database's then, in ms; none while that was not known.
    pub clock_ahead_ms: Option<i64>,
    /// Lanes that it delivers for, of 64.
    pub lanes: i64,
}

/// A node's heartbeat: what it holds, what it gives back, what it wants.
#[derive(Clone, Debug)]
pub struct Tend {
    /// Who.
    pub who: Who,
    /// Where in its life.
    pub stage: Stage,
    /// What the last heartbeat said of how this process was seen; none before the first one has been answered.
    pub seen: Option<Seen>,
    /// The most lanes that it wants; its fair share is a limit too.
    pub wants: u32,
    /// What it holds and goes on holding.
    pub held: Vec<(Lane, Fence)>,
    /// What it lets go: nothing of these lanes is in flight there.
    pub give_back: Vec<(Lane, Fence)>,
    /// How long what it holds is its own without another heartbeat, in ms.
    pub lease_ms: i64,
    /// How far its clock is ahead of the database's, in ms; none while it is not known.
    pub clock_ahead_ms: Option<i64>,
}

/// What a heartbeat found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tended {
    /// What the node holds from now on, by lane. What it named and is not here is not its own any more.
    pub held: Vec<(Lane, Fence)>,
    /// Nodes that were seen within the lease and do not leave, this one among them.
    pub nodes_alive: u32,
    /// Nodes among `nodes_alive` that have noted other settings than this node. A node that has noted no settings is not listed.
    pub others: Vec<Other>,
    /// How this process was seen, for its next heartbeat. None: another one has begun under its node's id since and is alive, as where a data folder was
    /// copied; it has the lanes, and nothing was noted of this one.
    pub seen: Option<Seen>,
}

/// How a process was seen, by the database's clock.
///
/// A node that was not seen for a lease counts as dead, and others take its lanes. But a database that was away for as long has seen nobody: the first
/// one to reach it again would take everything, and all would forget what they know of their endpoints. So a process that has just begun, or was
/// itself not seen for more than three fifths of a lease, waits before it takes anything from other nodes; those that live renew what is theirs meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When it began under its node's id.
    pub begun_at: UnixMillis,
    /// When it was seen last.
    pub at: UnixMillis,
    /// From when on it may take lanes of nodes that are not seen.
    pub takes_from: UnixMillis,
}

/// A node finds within so many ms that the database is back, however short the lease is: it tries each second.
const BACK_WITHIN_MS: i64 = 5_000;

impl Seen {
    /// By a store that has one node.
    const ALONE: Self = Self { begun_at: UnixMillis(0), at: UnixMillis(0), takes_from: UnixMillis(0) };

    /// Seen now, after this.
    pub(crate) fn after(before: Option<Self>, begun_at: UnixMillis, at: UnixMillis, lease_ms: i64) -> Self {
        let waited = at.plus_ms(lease_ms.max(BACK_WITHIN_MS));
        let takes_from = match before {
            Some(before) if at <= before.takes_by(lease_ms) => before.takes_from,
            Some(_) | None => waited,
        };
        // A later one is of a clock that was ahead.
        let takes_from = if takes_from > waited { at } else { takes_from };
        Self { begun_at, at, takes_from }
    }

    /// Until when the next heartbeat may take lanes of nodes that are not seen: one that comes later comes behind a gap. The last heartbeat of a node
    /// which was there for as long is a fifth of a lease older at most, and so its lease has not run out before.
    ///
    /// While it waits behind a gap as it is, the next gap is a whole lease: where each heartbeat is late, as by a slow commit, a dead node's lanes are
    /// taken all the same, if later. The price: if the database is away once more meanwhile, for less than that, what others have may be taken.
    pub(crate) fn takes_by(self, lease_ms: i64) -> UnixMillis {
        let waits = self.takes_from > self.at;
        self.at.plus_ms(if waits { lease_ms } else { lease_ms / 5 * 3 })
    }
}

/// A node that is alive and has noted other settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its id.
    pub node: NodeId,
    /// Where its merchants call.
    pub name: String,
    /// What it has noted.
    pub settings: String,
}

impl Tended {
    /// What a store says that has one node: every lane is its own, under the first term, until it ends.
    pub(crate) fn alone(tend: &Tend) -> Self {
        let all = Lane::all().map(|lane| (lane, Fence(0)));
        let (held, nodes_alive) = match tend.stage {
            Stage::Begins | Stage::Runs => (all.collect(), 1),
            Stage::Leaves | Stage::Ends => (Vec::new(), 0),
        };
        Self { held, nodes_alive, others: Vec::new(), seen: tend.seen.or(Some(Seen::ALONE)) }
    }
}

/// So many changes of the directory are named. An answer with more could take longer than its time, again and again, as ever more would be asked for.
pub const DIRECTORY_CHANGES_MAX: usize = 10_000;

/// What has changed in the directory: the applications and their secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryChanges {
    /// Which connection of this process said so. Behind another one there may be another server, which took over without the last commits of the
    /// one before and has counted others under the same numbers.
    pub connection: u64,
    /// How many changes there have been; what to ask with next time.
    pub revision: i64,
    /// `client_id` of each application that has changed since, in no order; none where these are too many to name.
    pub client_ids: Vec<String>,
    /// Whether more than [`DIRECTORY_CHANGES_MAX`] have changed: whoever keeps any of them forgets all.
    pub are_too_many: bool,
    /// Whether whoever lists the nodes sees the one that asked.
    pub is_listed: bool,
}

impl DirectoryChanges {
    /// Where no other node can change anything.
    pub(crate) const NONE: Self =
        Self { connection: 0, revision: 0, client_ids: Vec::new(), are_too_many: false, is_listed: true };
}

/// What another node has said. It says "look", never what is to be seen: it may come twice, late or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Events of these lanes may be due.
    Due(LaneSet),
    /// An application or a secret has changed.
    Directory,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE_MS: i64 = 5_000;

    /// Of heartbeats at these times, those that may take lanes of nodes that are not seen.
    fn taking(beats: impl IntoIterator<Item = i64>, lease_ms: i64) -> Vec<i64> {
        let mut seen: Option<Seen> = None;
        let mut taking = Vec::new();
        for at in beats.into_iter().map(UnixMillis) {
            if seen.is_some_and(|seen| (seen.takes_from..=seen.takes_by(lease_ms)).contains(&at)) {
                taking.push(at.0);
            }
            seen = Some(Seen::after(seen, UnixMillis(0), at, lease_ms));
        }
        taking
    }

    #[test]
    fn who_has_begun_takes_nothing_for_a_lease_and_nor_does_who_was_not_seen() {
        let beats = [0, 1_000, 4_000, 5_000, 6_000, 9_000, 12_001, 13_000, 17_000, 17_001, 18_000];
        assert_eq!(taking(beats, LEASE_MS), [5_000, 6_000, 9_000, 17_001, 18_000]);
        let away_again = [0, 60_000, 61_000, 66_001, 67_000, 70_000, 71_001];
        assert_eq!(taking(away_again, LEASE_MS), [71_001], "it was away once more meanwhile");
        let for_less_than_a_lease = [0, 60_000, 61_000, 65_900];
        assert_eq!(taking(for_less_than_a_lease, LEASE_MS), [65_900], "that may as well be a late heartbeat");
        let by_short_leases = (0..60).map(|beat| beat * 200);
        assert_eq!(taking(by_short_leases, 1_000)[0], 5_000, "nobody comes back within one second");
    }

    #[test]
    fn who_is_always_late_takes_all_the_same() {
        for pause in [3_001, 4_000, 4_999, 5_000] {
            let taken = taking((0..12).map(|beat| beat * pause), LEASE_MS);
            assert!(taken.len() >= 3, "each {pause} ms: {taken:?}");
        }
    }

    #[test]
    fn a_clock_that_was_ahead_makes_nobody_wait() {
        let ahead = Seen::after(None, UnixMillis(0), UnixMillis(3_600_000), LEASE_MS);
        let back = Seen::after(Some(ahead), UnixMillis(0), UnixMillis(1_000), LEASE_MS);
        assert_eq!((back.takes_from, back.takes_by(LEASE_MS)), (UnixMillis(1_000), UnixMillis(4_000)));
    }
}
