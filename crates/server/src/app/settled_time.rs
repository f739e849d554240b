//! The time by which things are forgotten for good: that of a clock which has stood right, as far as is known, for some minutes.
//!
//! A clock that is ahead for a while would else forget what is still needed, and to set it back brings nothing back.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_domain::time::UnixMillis;

/// How long a clock that is put forward has to stay so before anything is forgotten by it.
pub const STOOD_FOR: Duration = Duration::from_secs(600);
/// Looks that are closer together than this count as one look, so that few looks are kept.
const LOOKS_APART: Duration = Duration::from_secs(1);

/// How the clock stood against the monotonic one, of late.
#[derive(Debug)]
pub struct SettledTime {
    began: Instant,
    looks: Mutex<VecDeque<Look>>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    /// What the clock would have shown when the monotonic one stood at `began`, in ms.
    origin_ms: i64,
}

impl SettledTime {
    /// A first look.
    pub fn new(at: Instant, shown: UnixMillis) -> Self {
        let first = Look { at, origin_ms: shown.0 };
        Self { began: at, looks: Mutex::new(VecDeque::from([first])) }
    }

    /// Believes a clock that moves only when it is told to: the clock counts as having stood as it shows for [`STOOD_FOR`].
    pub fn believe(&self, at: Instant, shown: UnixMillis) {
        let Some(long_ago) = at.checked_sub(STOOD_FOR) else { return };
        let origin_ms = shown.0.saturating_sub(self.passed_ms(at));
        let looks = [long_ago, at].map(|at| Look { at, origin_ms });
        *self.looks.lock().unwrap_or_else(PoisonError::into_inner) = VecDeque::from(looks);
    }

    fn passed_ms(&self, at: Instant) -> i64 {
        i64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(i64::MAX)
    }

    /// Notes what the clock shows, and gives the earliest time that it can be by what it has shown within [`STOOD_FOR`]; none before it has been
    /// looked at for so long.
    pub fn look(&self, at: Instant, shown: UnixMillis) -> Option<UnixMillis> {
        let passed_ms = self.passed_ms(at);
        let origin_ms = shown.0.saturating_sub(passed_ms);
        let age = |look: &Look| at.saturating_duration_since(look.at);
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        match looks.back_mut() {
            Some(last) if age(last) < LOOKS_APART => last.origin_ms = last.origin_ms.min(origin_ms),
            Some(_) | None => looks.push_back(Look { at, origin_ms }),
        }
        // The last look before that span stays: nobody knows of a later one how long the clock had stood so.
        while looks.get(1).is_some_and(|second| age(second) >= STOOD_FOR) {
            looks.pop_front();
        }
        looks.front().filter(|first| age(first) >= STOOD_FOR)?;
        let least = looks.iter().map(|look| look.origin_ms).min()?;
        Some(UnixMillis(least.saturating_add(passed_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_767_225_600_000;
    const YEAR_MS: i64 = 366 * 86_400_000;

    /// A clock that is looked at so many seconds after the start, and is ahead by so much.
    struct Watched {
        began: Instant,
        time: SettledTime,
    }

    impl Watched {
        fn new(ahead_ms: i64) -> Self {
            let began = Instant::now();
            Self { began, time: SettledTime::new(began, UnixMillis(START + ahead_ms)) }
        }

        /// How far ahead of the right one the time is that is given.
        fn look(&self, second: u64, ahead_ms: i64) -> Option<i64> {
            let right = START + i64::try_from(second).expect("small") * 1_000;
            let at = self.began + Duration::from_secs(second);
            self.time.look(at, UnixMillis(right + ahead_ms)).map(|given| given.0 - right)
        }
    }

    #[test]
    fn nothing_is_given_before_the_clock_was_looked_at_for_long_enough() {
        let clock = Watched::new(0);
        for second in (5..600).step_by(5) {
            assert_eq!(clock.look(second, 0), None, "{second}");
        }
        assert_eq!(clock.look(600, 0), Some(0));
        assert_eq!(clock.look(100_000, 0), Some(0));
    }

    #[test]
    fn a_clock_that_is_ahead_for_a_while_counts_for_nothing() {
        let clock = Watched::new(0);
        for second in (5..1_200).step_by(5) {
            clock.look(second, 0);
        }
        for second in (1_200..1_800).step_by(5) {
            assert_eq!(clock.look(second, YEAR_MS), Some(0), "{second}");
        }
        assert_eq!(clock.look(1_805, 0), Some(0));
        let begun_ahead = Watched::new(YEAR_MS);
        begun_ahead.look(5, YEAR_MS);
        begun_ahead.look(10, 0);
        assert_eq!(begun_ahead.look(600, YEAR_MS), Some(0));
    }

    #[test]
    fn a_clock_that_stays_ahead_is_believed_in_the_end_and_one_that_is_put_back_at_once() {
        let clock = Watched::new(0);
        clock.look(600, 0);
        clock.look(605, YEAR_MS);
        assert_eq!(clock.look(1_200, YEAR_MS), Some(0));
        assert_eq!(clock.look(1_205, YEAR_MS), Some(YEAR_MS));
        assert_eq!(clock.look(1_210, -7_000), Some(-7_000));
    }

    #[test]
    fn a_clock_that_is_believed_counts_at_once_and_not_when_it_is_put_forward_then() {
        let clock = Watched::new(0);
        let at = clock.began + Duration::from_secs(5);
        clock.time.believe(at, UnixMillis(START + 5_000 + YEAR_MS));
        assert_eq!(clock.look(5, YEAR_MS), Some(YEAR_MS));
        assert_eq!(clock.look(7, 2 * YEAR_MS), Some(YEAR_MS));
        assert_eq!(clock.look(9, 0), Some(0));
    }

    #[test]
    fn one_look_after_a_long_silence_does_not_tell_how_long_the_clock_has_stood_so() {
        let clock = Watched::new(0);
        assert_eq!(clock.look(5_000, YEAR_MS), Some(0));
        assert_eq!(clock.look(5_599, YEAR_MS), Some(0));
        assert_eq!(clock.look(5_600, YEAR_MS), Some(YEAR_MS));
    }

    #[test]
    fn however_often_it_is_looked_at_few_looks_are_kept_and_the_earliest_of_them_counts() {
        let clock = Watched::new(0);
        for ms in (0..2_000_000_i64).step_by(100) {
            let at = clock.began + Duration::from_millis(ms.unsigned_abs());
            clock.time.look(at, UnixMillis(START + ms - i64::from(ms == 1_999_900)));
        }
        assert!(clock.time.looks.lock().expect("nobody broke it").len() <= 602);
        assert_eq!(clock.look(2_000, 0), Some(-1));
    }
}
