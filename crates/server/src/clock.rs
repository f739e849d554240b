//! The one place that reads the wall clock.
//!
//! Nodes that share a database decide by its time: each measures how it stands to the database's clock and carries that time on by its own
//! monotonic clock. So a wall clock that is set, or runs wrong, moves no decision; a node whose wall clock is off says so and is not ready.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_domain::time::{CLOCKS_APART_MS_MAX, UnixMillis};
use countersign_store::batch::TimeSource;

/// Measurements that took longer than this tell too little.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(500);
/// Measurements that are remembered; the one with the shortest round trip counts.
const SAMPLES: usize = 8;
/// Two measurements that are farther apart than their round trips allow, and this, were made of clocks that moved, in ms.
const DRIFT_MS_MAX: i64 = 10;

/// Where the time comes from: the machine, a database that nodes share, or a test.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's wall clock.
    System,
    /// The time of a shared database.
    Shared(Arc<SharedTime>),
    /// A clock that only moves when it is told to.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `at` until it is moved.
    pub fn manual(at: UnixMillis) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(at.0)))
    }

    /// The time of a shared database, not measured yet: the machine's until then.
    pub fn shared() -> Self {
        Self::Shared(Arc::new(SharedTime::new()))
    }

    /// The instant of every decision.
    pub fn now(&self) -> UnixMillis {
        match self {
            Self::System => UnixMillis(wall_ms()),
            Self::Shared(time) => time.now(),
            Self::Manual(at) => UnixMillis(at.load(Ordering::SeqCst)),
        }
    }

    /// Itself, for who has to look at the time later.
    pub fn source(&self) -> TimeSource {
        let clock = self.clone();
        let now = move || clock.now();
        match self {
            Self::Shared(_) => TimeSource::of_the_database(now),
            Self::System | Self::Manual(_) => TimeSource::new(now),
        }
    }

    /// Moves a manual clock; the others stay as they are.
    pub fn advance_ms(&self, ms: i64) {
        match self {
            Self::System | Self::Shared(_) => {}
            Self::Manual(at) => {
                at.fetch_add(ms, Ordering::SeqCst);
            }
        }
    }

    /// How far the machine's clock is ahead of the time that decides, in ms; none where there is nothing to compare, or not yet.
    pub fn ahead_ms(&self) -> Option<i64> {
        match self {
            Self::System | Self::Manual(_) => None,
            Self::Shared(time) => time.ahead_ms(),
        }
    }

    /// Why a node with this clock must not serve; none: it may.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::System | Self::Manual(_) => None,
            Self::Shared(time) => match time.ahead_ms() {
                None => Some("the database's time is not known yet".to_owned()),
                Some(ahead) => skewed(ahead),
            },
        }
    }
}

/// What is wrong with a clock that is so far ahead, in ms; none if it is near enough.
pub fn skewed(ahead_ms: i64) -> Option<String> {
    let (off, way) = (ahead_ms.saturating_abs(), if ahead_ms > 0 { "ahead of" } else { "behind" });
    (off > CLOCKS_APART_MS_MAX).then(|| {
        format!("the clock of this machine is {off} ms {way} the database's; set it right, and keep it so by NTP")
    })
}

/// One comparison of the two clocks.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The database's time when our monotonic clock stood at 0, in ms.
    origin_ms: i64,
    /// How far that may be off, in ms.
    doubt_ms: i64,
}

/// The time of a shared database, as this node knows it.
#[derive(Debug)]
pub struct SharedTime {
    began: Instant,
    /// The database's time at `began`, in ms.
    origin_ms: AtomicI64,
    is_measured: AtomicBool,
    samples: Mutex<VecDeque<Sample>>,
}

impl SharedTime {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            origin_ms: AtomicI64::new(wall_ms()),
            is_measured: AtomicBool::new(false),
            samples: Mutex::default(),
        }
    }

    fn now(&self) -> UnixMillis {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> UnixMillis {
        UnixMillis(self.origin_ms.load(Ordering::Acquire) + ms_of(now.saturating_duration_since(self.began)))
    }

    fn ahead_ms(&self) -> Option<i64> {
        let (now, wall_ms) = (Instant::now(), wall_ms());
        self.ahead_at(now, wall_ms)
    }

    /// The same where the machine's clock says that at an instant.
    fn ahead_at(&self, now: Instant, wall_ms: i64) -> Option<i64> {
        self.is_measured.load(Ordering::Acquire).then(|| wall_ms - self.at(now).0)
    }

    /// Takes note of what the database said: asked at `asked`, answered after `round_trip`.
    pub fn measured(&self, asked: Instant, said: UnixMillis, round_trip: Duration) {
        if round_trip > ROUND_TRIP_MAX {
            return;
        }
        let half = round_trip / 2;
        let middle = asked.saturating_duration_since(self.began) + half;
        let sample = Sample { origin_ms: said.0 - ms_of(middle), doubt_ms: ms_of(half) + 1 };
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let agrees =
            |old: &Sample| (old.origin_ms - sample.origin_ms).abs() <= old.doubt_ms + sample.doubt_ms + DRIFT_MS_MAX;
        // A clock that was moved makes what was measured before worthless.
        samples.retain(agrees);
        samples.push_front(sample);
        samples.truncate(SAMPLES);
        let best = samples.iter().min_by_key(|sample| sample.doubt_ms).map_or(sample.origin_ms, |best| best.origin_ms);
        self.origin_ms.store(best, Ordering::Release);
        self.is_measured.store(true, Ordering::Release);
    }
}

/// A time in ms; for the log, too, where a number wider than 64 bits would come out as a text.
pub(crate) fn ms_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(2);

    /// What the machine's clock says at the beginning. Both are told: this thread may stand still between two looks.
    const WALL_MS: i64 = 1_790_003_600_000;

    fn off_by(time: &SharedTime, ms: i64, round_trip: Duration) {
        time.measured(time.began, UnixMillis(WALL_MS + ms + ms_of(round_trip / 2)), round_trip);
    }

    fn ahead(time: &SharedTime) -> i64 {
        time.ahead_at(time.began, WALL_MS).expect("it was measured")
    }

    #[test]
    fn the_databases_time_decides_and_a_clock_that_is_off_is_told() {
        let clock = Clock::shared();
        let Clock::Shared(time) = &clock else { panic!("it is shared") };
        assert!(clock.trouble().is_some_and(|why| why.contains("not known yet")));
        off_by(time, 0, TRIP);
        assert!(skewed(ahead(time)).is_none() && ahead(time) == 0);
        off_by(time, 3_000, TRIP);
        assert!(skewed(ahead(time)).is_some() && ahead(time) == -3_000);
        let an_hour_off = |ms| time.measured(Instant::now(), UnixMillis(wall_ms() + ms), TRIP);
        an_hour_off(3_600_000);
        assert!(clock.trouble().is_some_and(|why| why.contains("behind the database's")));
        an_hour_off(-3_600_000);
        assert!(clock.trouble().is_some_and(|why| why.contains("ahead of the database's")));
    }

    #[test]
    fn of_measurements_that_agree_the_quickest_counts_and_slow_ones_do_not() {
        let clock = Clock::shared();
        let Clock::Shared(time) = &clock else { panic!("it is shared") };
        off_by(time, 5_000, TRIP);
        let quickest = time.origin_ms.load(Ordering::Acquire);
        off_by(time, 5_100, Duration::from_millis(400));
        assert_eq!(time.origin_ms.load(Ordering::Acquire), quickest, "a slower one that does not contradict");
        off_by(time, 9_000, Duration::from_millis(501));
        assert_eq!(time.origin_ms.load(Ordering::Acquire), quickest, "one that took too long");
        for _ in 0..SAMPLES {
            off_by(time, 5_100, Duration::from_millis(400));
        }
        assert_ne!(time.origin_ms.load(Ordering::Acquire), quickest, "it is forgotten after a while");
    }
}
