//! Connections that wait for their next attempt, and what is known of endpoints that keep or close theirs.
//!
//! Whoever closes a connection behind an answer and does not say so takes with it the request that meets that: nobody can tell whether it was read.
//! So a connection is used again only where the endpoint has said that it keeps them or been seen to keep one, and no more where it has closed one under a request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use tokio::time::Instant;

/// Kept connections of one address: several applications may have theirs at the same one.
const PER_ENDPOINT_MAX: usize = 64;
/// The same while nobody knows whether the endpoint keeps them: a few are enough to find out.
const PER_NEW_ENDPOINT_MAX: usize = 4;
/// Kept connections in all.
pub const IDLE_TOTAL_MAX: usize = 512;
/// Addresses of which something is known, beyond those that have connections.
const ENDPOINTS_MAX: usize = 16_384;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// Nobody knows.
    New,
    /// It does; so many requests went well over one that was used before, since one was lost, and when that was.
    Keeps { went_well: u32, lost_at: Option<Instant> },
    /// It has closed one under a request; until then none is kept.
    Closes { until: Instant },
}

/// It keeps them, as far as is known by now.
const KEEPS: Trust = Trust::Keeps { went_well: 0, lost_at: None };

/// What an answer showed of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    /// Whether it was used before.
    pub(super) was_used: bool,
    /// How long it may wait.
    pub(super) time: Duration,
    /// Whether its endpoint has said that it keeps it.
    pub(super) is_said: bool,
}

/// A connection that waits, since then and until then.
#[derive(Debug)]
struct Idle<C> {
    connection: C,
    since: Instant,
    until: Instant,
}

/// What is kept of one endpoint.
#[derive(Debug)]
struct Kept<C> {
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
    by_endpoint: HashMap<IdleKey, Kept<C>>,
    /// In all.
    count: usize,
    /// At most.
    most: usize,
    /// When they were last looked through.
    swept_at: Option<Instant>,
}

impl<C> IdleConnections<C> {
    /// So many at most, in all.
    pub(super) fn of(most: usize) -> Self {
        Self { by_endpoint: HashMap::default(), count: 0, most, swept_at: None }
    }

    /// All that wait, to be closed; what is known of endpoints stays.
    #[must_use]
    pub(super) fn take_all(&mut self) -> Vec<C> {
        // Asked for again and again while files lack: endpoints may be many.
        if std::mem::take(&mut self.count) == 0 {
            return Vec::new();
        }
        self.by_endpoint.values_mut().flat_map(|kept| kept.waiting.drain(..)).map(|idle| idle.connection).collect()
    }

    /// One to this address, if one may be used again.
    pub(super) fn take(&mut self, key: &IdleKey, now: Instant) -> Option<Taken<C>> {
        let kept = self.by_endpoint.get_mut(key)?;
        let is_trial = match kept.trust {
            Trust::New => true,
            Trust::Keeps { .. } => false,
            Trust::Closes { .. } => return None,
        };
        // Those that are beyond their time stay for the sweep, which closes them without a lock.
        let is_in_time = |idle: &Idle<C>| now < idle.until;
        let has_waited = |idle: &Idle<C>| now.saturating_duration_since(idle.since) >= SEEN_KEPT;
        // The oldest one shows most, the newest one is there most likely.
        let at = if is_trial {
            kept.waiting.iter().position(|idle| is_in_time(idle) && has_waited(idle))?
        } else {
            kept.waiting.iter().rposition(is_in_time)?
        };
        self.count -= 1;
        Some(Taken { connection: kept.waiting.remove(at).connection, is_trial })
    }

    /// The endpoint keeps its connections: one that waited is still there.
    pub(super) fn seen_kept(&mut self, key: &IdleKey) {
        if let Some(kept) = self.by_endpoint.get_mut(key).filter(|kept| kept.trust == Trust::New) {
            kept.trust = KEEPS;
        }
    }

    /// A used connection that was taken at that moment was closed under a request. Gives those that wait beside it, which are as old: they are to be
    /// closed as well.
    #[must_use]
    pub(super) fn lost(&mut self, key: &IdleKey, taken_at: Instant, now: Instant) -> Vec<C> {
        let kept = self.of_endpoint(key);
        kept.trust = match kept.trust {
            // It ended together with one that was lost before, as all do of an endpoint that is started anew.
            kept @ Trust::Keeps { lost_at: Some(lost_at), .. } if taken_at <= lost_at => kept,
            Trust::Keeps { went_well: WENT_WELL_MIN.., .. } => Trust::Keeps { went_well: 0, lost_at: Some(now) },
            Trust::New | Trust::Keeps { .. } | Trust::Closes { .. } => Trust::Closes { until: now + DISTRUST },
        };
        let closed = std::mem::take(&mut kept.waiting);
        self.count -= closed.len();
        closed.into_iter().map(|idle| idle.connection).collect()
    }

    /// Lets one wait whose request was answered. Given back, to be closed, where there is no room, or where its endpoint does not keep connections.
    #[must_use]
    pub(super) fn put(&mut self, key: &IdleKey, connection: C, now: Instant, answered: Answered) -> Option<C> {
        let is_full = self.count >= self.most;
        let kept = self.of_endpoint(key);
        kept.trust = match kept.trust {
            Trust::Closes { until } if now < until => return Some(connection),
            Trust::New | Trust::Closes { .. } => {
                if answered.is_said {
                    KEEPS
                } else {
                    Trust::New
                }
            }
            Trust::Keeps { went_well, lost_at } => {
                Trust::Keeps { went_well: went_well.saturating_add(u32::from(answered.was_used)), lost_at }
            }
        };
        let most = if kept.trust == Trust::New { PER_NEW_ENDPOINT_MAX } else { PER_ENDPOINT_MAX };
        let mut idle = Idle { connection, since: now, until: now + answered.time };
        if is_full || kept.waiting.len() >= most {
            // One that is beyond its time, and that no sweep has come to yet, keeps nobody out.
            if let Some(over) = kept.waiting.iter_mut().find(|waiting| now >= waiting.until) {
                std::mem::swap(over, &mut idle);
            }
            return Some(idle.connection);
        }
        kept.waiting.push(idle);
        self.count += 1;
        None
    }

    fn of_endpoint(&mut self, key: &IdleKey) -> &mut Kept<C> {
        // Most are there, and only a new one needs a key of its own.
        if !self.by_endpoint.contains_key(key) {
            self.by_endpoint.insert(key.clone(), Kept { waiting: Vec::new(), trust: Trust::New });
        }
        self.by_endpoint.get_mut(key).expect("it was put there just now")
    }

    /// Gives those that waited too long, or that `is_closed` says are gone: they are to be closed. Most calls find that it is too early to look. None is
    /// used again beyond its time, closed or not ([`IdleConnections::take`]).
    #[must_use]
    pub(super) fn sweep(&mut self, now: Instant, is_closed: impl Fn(&C) -> bool) -> Vec<C> {
        let mut over = Vec::new();
        if self.swept_at.is_some_and(|at| now < at + SWEEP_PAUSE) {
            return over;
        }
        self.swept_at = Some(now);
        for kept in self.by_endpoint.values_mut() {
            let ended = kept.waiting.extract_if(.., |idle| now >= idle.until || is_closed(&idle.connection));
            over.extend(ended.map(|idle| idle.connection));
        }
        self.count -= over.len();
        let has_ended = |trust| matches!(trust, Trust::Closes { until } if until <= now);
        self.forget_others(|trust| trust != Trust::New && !has_ended(trust));
        // Who closes under requests is remembered for longer than who does not, of whom the next trial tells as much.
        if self.by_endpoint.len() > ENDPOINTS_MAX {
            self.forget_others(|trust| matches!(trust, Trust::Closes { .. }));
        }
        if self.by_endpoint.len() > ENDPOINTS_MAX {
            self.forget_others(|_| false);
        }
        over
    }

    /// Forgets endpoints without connections, but for those whose trust is to be kept.
    fn forget_others(&mut self, is_kept: impl Fn(Trust) -> bool) {
        self.by_endpoint.retain(|_, kept| !kept.waiting.is_empty() || is_kept(kept.trust));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITS: Duration = Duration::from_millis(1_500);
    const TIME: Answered = Answered { was_used: false, time: WAITS, is_said: false };
    const USED: Answered = Answered { was_used: true, ..TIME };
    const SAID: Answered = Answered { is_said: true, ..TIME };

    fn key(port: u16) -> IdleKey {
        IdleKey { is_https: true, host: "h".into(), address: SocketAddr::from(([203, 0, 113, 1], port)) }
    }

    fn taken(idle: &mut IdleConnections<u32>, now: Instant) -> Option<(u32, bool)> {
        idle.take(&key(1), now).map(|taken| (taken.connection, taken.is_trial))
    }

    #[test]
    fn a_connection_of_a_new_endpoint_is_used_again_once_it_has_waited() {
        let (mut idle, begin) = (IdleConnections::of(IDLE_TOTAL_MAX), Instant::now());
        let _refused = idle.put(&key(1), 1, begin, TIME);
        let _refused = idle.put(&key(1), 2, begin + SEEN_KEPT / 2, TIME);
        assert_eq!(taken(&mut idle, begin + SEEN_KEPT / 2), None, "it may be closed at any moment");
        assert_eq!(taken(&mut idle, begin + SEEN_KEPT), Some((1, true)));
        assert_eq!(taken(&mut idle, begin + SEEN_KEPT), None);
        idle.seen_kept(&key(1));
        assert_eq!(taken(&mut idle, begin + SEEN_KEPT), Some((2, false)), "at once, from now on");
        let _refused = idle.put(&key(1), 3, begin, TIME);
        let _refused = idle.put(&key(1), 4, begin, TIME);
        assert_eq!(taken(&mut idle, begin), Some((4, false)), "the newest");
        assert_eq!(taken(&mut idle, begin + WAITS), None, "beyond its time");
        assert_eq!((idle.sweep(begin + WAITS, |_| false), idle.count), (vec![3], 0));
    }

    #[test]
    fn an_endpoint_that_closes_under_a_request_keeps_none_for_an_hour() {
        let (mut idle, begin) = (IdleConnections::of(IDLE_TOTAL_MAX), Instant::now());
        for number in 0..3 {
            let _refused = idle.put(&key(1), number, begin, TIME);
        }
        idle.seen_kept(&key(1));
        let _refused = idle.put(&key(2), 9, begin, TIME);
        assert_eq!(taken(&mut idle, begin), Some((2, false)));
        for _ in 1..WENT_WELL_MIN {
            let _refused = idle.put(&key(1), 8, begin, USED);
            assert_eq!(taken(&mut idle, begin), Some((8, false)));
        }
        assert_eq!(idle.lost(&key(1), begin, begin), [0, 1], "those beside it are closed as well");
        assert_eq!((taken(&mut idle, begin), idle.count), (None, 1), "another address has its own");
        assert_eq!(idle.put(&key(1), 5, begin + DISTRUST - WAITS, SAID), Some(5), "whatever it says");
        assert_eq!(idle.put(&key(1), 6, begin + DISTRUST, TIME), None);
        assert_eq!(taken(&mut idle, begin + DISTRUST), None, "it is new again");
        assert_eq!(taken(&mut idle, begin + DISTRUST + SEEN_KEPT), Some((6, true)));
    }

    #[test]
    fn one_that_is_lost_among_very_many_changes_nothing() {
        let (mut idle, begin) = (IdleConnections::of(IDLE_TOTAL_MAX), Instant::now());
        let _refused = idle.put(&key(1), 1, begin, SAID);
        assert_eq!(taken(&mut idle, begin), Some((1, false)), "at once, by its word");
        for _ in 0..WENT_WELL_MIN {
            let _refused = idle.put(&key(1), 1, begin, USED);
            assert!(taken(&mut idle, begin).is_some());
        }
        let later = begin + Duration::from_millis(1);
        for _ in 0..8 {
            // All that were under way when the endpoint was started anew.
            assert_eq!(idle.lost(&key(1), begin, later).len(), 0);
        }
        let _refused = idle.put(&key(1), 2, later, TIME);
        assert_eq!(taken(&mut idle, later), Some((2, false)));
        assert_eq!(idle.lost(&key(1), later + SEEN_KEPT, later + SEEN_KEPT).len(), 0);
        assert_eq!(idle.put(&key(1), 3, later + SEEN_KEPT, TIME), Some(3), "twice in a row");
    }

    #[test]
    fn what_is_beyond_its_time_keeps_nobody_out() {
        let (mut idle, begin) = (IdleConnections::of(IDLE_TOTAL_MAX), Instant::now());
        for number in 0..4 {
            assert_eq!(idle.put(&key(1), number, begin, TIME), None);
        }
        assert_eq!(idle.put(&key(1), 4, begin, TIME), Some(4), "a few are enough");
        assert_eq!(idle.put(&key(1), 5, begin + WAITS, TIME), Some(0), "the first makes room");
        assert_eq!((idle.count, taken(&mut idle, begin + WAITS + SEEN_KEPT)), (4, Some((5, true))));
    }

    #[test]
    fn where_all_are_taken_the_bound_and_what_is_known_stay() {
        let (mut idle, begin) = (IdleConnections::of(3), Instant::now());
        let _none = idle.lost(&key(9), begin, begin);
        for round in 0..2 {
            for port in 1..=4 {
                let refused = idle.put(&key(port), port, begin, TIME);
                assert_eq!(refused, (port == 4).then_some(4), "round {round}");
            }
            let mut all = idle.take_all();
            all.sort_unstable();
            assert_eq!((all, idle.count, idle.take_all().len()), (vec![1, 2, 3], 0, 0));
        }
        assert_eq!(idle.put(&key(9), 9, begin, TIME), Some(9), "it closes connections under requests");
    }

    #[test]
    fn what_waits_has_bounds_and_an_end() {
        let (mut idle, begin) = (IdleConnections::of(IDLE_TOTAL_MAX), Instant::now());
        for number in 0..100 {
            let _refused = idle.put(&key(1), number, begin, TIME);
        }
        assert_eq!(idle.count, PER_NEW_ENDPOINT_MAX);
        idle.seen_kept(&key(1));
        for number in 0..100 {
            let _refused = idle.put(&key(1), number, begin, TIME);
        }
        assert_eq!(idle.count, PER_ENDPOINT_MAX);
        for port in 2..1_000 {
            let _refused = idle.put(&key(port), 0, begin, TIME);
        }
        assert_eq!(idle.count, IDLE_TOTAL_MAX);
        assert_eq!(idle.sweep(begin, |number| *number == 59), [59]);
        assert_eq!(idle.count, IDLE_TOTAL_MAX - 1);
        assert_eq!(idle.sweep(begin + SWEEP_PAUSE / 2, |_| true).len(), 0, "it was looked just now");
        assert_eq!(idle.sweep(begin + WAITS, |_| false).len(), IDLE_TOTAL_MAX - 1);
        assert_eq!((idle.count, idle.by_endpoint.len()), (0, 1), "what is known of an endpoint stays");
        let most = u16::try_from(ENDPOINTS_MAX).expect("a port");
        for port in 2..=most + 1 {
            let _none = idle.lost(&key(port), begin, begin);
        }
        let _none = idle.sweep(begin + WAITS + SWEEP_PAUSE, |_| false);
        assert_eq!(
            idle.by_endpoint.len(),
            ENDPOINTS_MAX,
            "of too many those that keep their connections are forgotten first"
        );
        let _none = idle.lost(&key(1), begin, begin);
        let _none = idle.sweep(begin + WAITS + SWEEP_PAUSE * 2, |_| false);
        assert_eq!(idle.by_endpoint.len(), 0, "then all");
        let _none = idle.lost(&key(1), begin, begin);
        let _none = idle.sweep(begin + DISTRUST, |_| false);
        assert_eq!(idle.by_endpoint.len(), 0, "and what has ended");
    }
}
