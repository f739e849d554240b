//! Connections that wait for their next attempt, and what is known of endpoints that keep or close theirs.
//!
//! Whoever closes a connection behind an answer and does not say so takes with it the request that meets that: nobody can tell whether it was read.
//! So a connection is used again only where the endpoint has been seen to keep one, and no more where it has closed one under a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use tokio::time::Instant;

/// Kept connections of one address: several applications may have theirs at the same one.
const PER_LANE_MAX: usize = 64;
/// The same while nobody knows whether the endpoint keeps them: a few are enough to find out.
const PER_NEW_LANE_MAX: usize = 4;
/// Kept connections in all.
pub const IDLE_TOTAL_MAX: usize = 512;
/// Addresses of which something is known, beyond those that have connections.
const LANES_MAX: usize = 16_384;
/// Between two looks for those that waited too long.
const SWEEP_PAUSE: Duration = Duration::from_millis(500);
/// An endpoint whose connection is still there after so long keeps them.
const SEEN_KEPT: Duration = Duration::from_millis(500);
/// So long no connection is kept of an endpoint that has closed one under a request.
const DISTRUST: Duration = Duration::from_secs(3_600);
/// Unless so many went well since the last time: then the two have met by chance.
const WENT_WELL_MIN: u32 = 100;

/// What makes a kept connection fit an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct IdleKey {
    pub(super) is_https: bool,
    pub(super) host: Arc<str>,
    pub(super) address: SocketAddr,
}

/// Whether an endpoint keeps its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Trust {
    /// Nobody knows.
    #[default]
    New,
    /// It does; so many requests went well over one that was used before, since one was lost.
    Keeps { went_well: u32 },
    /// It has closed one under a request; until then none is kept.
    Closes { until: Instant },
}

/// A connection that waits, since then and until then.
#[derive(Debug)]
struct Idle<C> {
    connection: C,
    since: Instant,
    until: Instant,
}

#[derive(Debug)]
struct Lane<C> {
    waiting: Vec<Idle<C>>,
    trust: Trust,
}

/// A connection that is taken for a request.
#[derive(Debug)]
pub(super) struct Taken<C> {
    pub(super) connection: C,
    /// Whether it is to show that its endpoint keeps connections: [`IdleConnections::seen_kept`], where it is still there.
    pub(super) is_trial: bool,
}

/// All that wait.
#[derive(Debug)]
pub(super) struct IdleConnections<C> {
    lanes: HashMap<IdleKey, Lane<C>>,
    /// In all.
    count: usize,
    /// When they were last looked through.
    swept_at: Option<Instant>,
}

impl<C> Default for IdleConnections<C> {
    fn default() -> Self {
        Self { lanes: HashMap::default(), count: 0, swept_at: None }
    }
}

impl<C> IdleConnections<C> {
    /// One to this address, if one may be used again.
    pub(super) fn take(&mut self, key: &IdleKey, now: Instant) -> Option<Taken<C>> {
        let lane = self.lanes.get_mut(key)?;
        let is_trial = match lane.trust {
            Trust::New => true,
            Trust::Keeps { .. } => false,
            Trust::Closes { .. } => return None,
        };
        loop {
            // The oldest one shows most, the newest one is there most likely.
            let has_waited = |idle: &Idle<C>| now.saturating_duration_since(idle.since) >= SEEN_KEPT;
            let found =
                if is_trial { lane.waiting.iter().position(has_waited) } else { lane.waiting.len().checked_sub(1) };
            let idle = lane.waiting.remove(found?);
            self.count -= 1;
            if now < idle.until {
                return Some(Taken { connection: idle.connection, is_trial });
            }
        }
    }

    /// The endpoint keeps its connections: it has said so, or one that waited is still there.
    pub(super) fn seen_kept(&mut self, key: &IdleKey) {
        if let Some(lane) = self.lanes.get_mut(key).filter(|lane| lane.trust == Trust::New) {
            lane.trust = Trust::Keeps { went_well: 0 };
        }
    }

    /// A request that went over a used connection was answered.
    pub(super) fn went_well(&mut self, key: &IdleKey) {
        if let Some(Lane { trust: Trust::Keeps { went_well }, .. }) = self.lanes.get_mut(key) {
            *went_well = went_well.saturating_add(1);
        }
    }

    /// A used connection was closed under a request. Those that wait beside it are as old, and are closed as well.
    pub(super) fn lost(&mut self, key: &IdleKey, now: Instant) {
        let lane = self.lane(key);
        lane.trust = match lane.trust {
            Trust::Keeps { went_well: WENT_WELL_MIN.. } => Trust::Keeps { went_well: 0 },
            Trust::New | Trust::Keeps { .. } | Trust::Closes { .. } => Trust::Closes { until: now + DISTRUST },
        };
        let closed = std::mem::take(&mut lane.waiting).len();
        self.count -= closed;
    }

    /// Lets one wait for so long. It is closed where there is no room, or where its endpoint does not keep connections.
    pub(super) fn put(&mut self, key: &IdleKey, connection: C, now: Instant, time: Duration) {
        if self.count >= IDLE_TOTAL_MAX {
            return;
        }
        let lane = self.lane(key);
        let most = match lane.trust {
            Trust::New => PER_NEW_LANE_MAX,
            Trust::Keeps { .. } => PER_LANE_MAX,
            Trust::Closes { until } if now < until => return,
            Trust::Closes { .. } => {
                lane.trust = Trust::New;
                PER_NEW_LANE_MAX
            }
        };
        if lane.waiting.len() < most {
            lane.waiting.push(Idle { connection, since: now, until: now + time });
            self.count += 1;
        }
    }

    fn lane(&mut self, key: &IdleKey) -> &mut Lane<C> {
        // Most are there, and only a new one needs a key of its own.
        if !self.lanes.contains_key(key) {
            self.lanes.insert(key.clone(), Lane { waiting: Vec::new(), trust: Trust::New });
        }
        self.lanes.get_mut(key).expect("it was put there just now")
    }

    /// Closes all that wait.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Closes those that waited too long, or that `is_closed` says are gone. Most calls find that it is too early to look. None is used again
    /// beyond its time, closed or not ([`IdleConnections::take`]).
    pub(super) fn sweep(&mut self, now: Instant, is_closed: impl Fn(&C) -> bool) {
        if self.swept_at.is_some_and(|at| now < at + SWEEP_PAUSE) {
            return;
        }
        self.swept_at = Some(now);
        let Self { lanes, count, .. } = self;
        let is_crowded = lanes.len() > LANES_MAX;
        lanes.retain(|_, lane| {
            let before = lane.waiting.len();
            lane.waiting.retain(|idle| now < idle.until && !is_closed(&idle.connection));
            *count -= before - lane.waiting.len();
            let is_known = lane.trust != Trust::New && !is_crowded;
            is_known || !lane.waiting.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(1_500);

    fn key(port: u16) -> IdleKey {
        IdleKey { is_https: true, host: "h".into(), address: SocketAddr::from(([203, 0, 113, 1], port)) }
    }

    fn taken(idle: &mut IdleConnections<u32>, now: Instant) -> Option<(u32, bool)> {
        idle.take(&key(1), now).map(|taken| (taken.connection, taken.is_trial))
    }

    #[test]
    fn a_connection_of_a_new_endpoint_is_used_again_once_it_has_waited() {
        let (mut idle, begin) = (IdleConnections::default(), Instant::now());
        idle.put(&key(1), 1, begin, TIME);
        idle.put(&key(1), 2, begin + SEEN_KEPT / 2, TIME);
        assert_eq!(taken(&mut idle, begin + SEEN_KEPT / 2), None, "it may be closed at any moment");
        assert_eq!(taken(&mut idle, begin + SEEN_KEPT), Some((1, true)));
        assert_eq!(taken(&mut idle, begin + SEEN_KEPT), None);
        idle.seen_kept(&key(1));
        assert_eq!(taken(&mut idle, begin + SEEN_KEPT), Some((2, false)), "at once, from now on");
        idle.put(&key(1), 3, begin, TIME);
        idle.put(&key(1), 4, begin, TIME);
        assert_eq!(taken(&mut idle, begin), Some((4, false)), "the newest");
        assert_eq!(taken(&mut idle, begin + TIME), None, "beyond its time");
        assert_eq!(idle.count, 0);
    }

    #[test]
    fn an_endpoint_that_closes_under_a_request_keeps_none_for_an_hour() {
        let (mut idle, begin) = (IdleConnections::default(), Instant::now());
        for number in 0..3 {
            idle.put(&key(1), number, begin, TIME);
        }
        idle.seen_kept(&key(1));
        idle.put(&key(2), 9, begin, TIME);
        assert!(taken(&mut idle, begin).is_some());
        for _ in 1..WENT_WELL_MIN {
            idle.went_well(&key(1));
        }
        idle.lost(&key(1), begin);
        assert_eq!(
            (taken(&mut idle, begin), idle.count),
            (None, 1),
            "nor those beside it; another address has its own"
        );
        idle.put(&key(1), 5, begin + DISTRUST - TIME, TIME);
        idle.seen_kept(&key(1));
        assert_eq!((taken(&mut idle, begin + DISTRUST), idle.count), (None, 1), "whatever it says");
        idle.put(&key(1), 6, begin + DISTRUST, TIME);
        assert_eq!(taken(&mut idle, begin + DISTRUST), None, "it is new again");
        assert_eq!(taken(&mut idle, begin + DISTRUST + SEEN_KEPT), Some((6, true)));
    }

    #[test]
    fn one_that_is_lost_among_very_many_changes_nothing() {
        let (mut idle, begin) = (IdleConnections::default(), Instant::now());
        idle.put(&key(1), 1, begin, TIME);
        idle.seen_kept(&key(1));
        for _ in 0..WENT_WELL_MIN {
            idle.went_well(&key(1));
        }
        idle.lost(&key(1), begin);
        idle.put(&key(1), 2, begin, TIME);
        assert_eq!(taken(&mut idle, begin), Some((2, false)));
        idle.lost(&key(1), begin);
        idle.put(&key(1), 3, begin, TIME);
        assert_eq!(taken(&mut idle, begin), None, "twice in a row");
    }

    #[test]
    fn what_waits_has_bounds_and_an_end() {
        let (mut idle, begin) = (IdleConnections::default(), Instant::now());
        for number in 0..100 {
            idle.put(&key(1), number, begin, TIME);
        }
        assert_eq!(idle.count, PER_NEW_LANE_MAX);
        idle.seen_kept(&key(1));
        for number in 0..100 {
            idle.put(&key(1), number, begin, TIME);
        }
        assert_eq!(idle.count, PER_LANE_MAX);
        for port in 2..1_000 {
            idle.put(&key(port), 0, begin, TIME);
        }
        assert_eq!(idle.count, IDLE_TOTAL_MAX);
        idle.sweep(begin, |number| *number == 59);
        assert_eq!(idle.count, IDLE_TOTAL_MAX - 1);
        idle.sweep(begin + SWEEP_PAUSE / 2, |_| true);
        assert_eq!(idle.count, IDLE_TOTAL_MAX - 1, "it was looked just now");
        idle.sweep(begin + TIME, |_| false);
        assert_eq!((idle.count, idle.lanes.len()), (0, 1), "what is known of an endpoint stays");
        for port in 2..=u16::try_from(LANES_MAX + 1).expect("a port") {
            idle.lost(&key(port), begin);
        }
        idle.sweep(begin + TIME + SWEEP_PAUSE, |_| false);
        assert_eq!(idle.lanes.len(), 0, "unless it is of too many");
    }
}
