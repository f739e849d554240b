//! Who is on a listener, and who gives up a place when all are taken.
//!
//! Without this some sixteen addresses that connect and say nothing keep everybody else out for as long as a head may take, and come back. Whoever
//! asks for something is never cut off for another.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::address_limit::SAID_EVERY;
use super::connection_state::{ConnectionState, HOLDERS};
use crate::repeated_warning::SharedWarning;

/// Connections that were closed to make room for others.
pub const EVICTED: &str = "countersign_connections_evicted_total";
/// Whoever is there for less is given the time to ask.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// So many leave at once: looking through all has its price.
const LEAVE_AT_ONCE: usize = 16;
/// How often it is looked who may leave while nobody goes.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct Crowd {
    places: Arc<Semaphore>,
    most: usize,
    grace: Duration,
    present: Mutex<Vec<Present>>,
    said: SharedWarning,
}

#[derive(Debug)]
struct Present {
    state: Weak<ConnectionState>,
    leave: Arc<Notify>,
}

/// How a connection hears that it has to leave.
#[derive(Debug)]
pub(super) struct Told {
    state: Weak<ConnectionState>,
    leave: Arc<Notify>,
}

impl Told {
    /// Waits for it. What was asked since then is answered first.
    pub(super) async fn to_leave(&self) {
        loop {
            self.leave.notified().await;
            if is_idle(&self.state) {
                return;
            }
        }
    }
}

/// Whether no request is under way, and no answer on its way out.
fn is_idle(state: &Weak<ConnectionState>) -> bool {
    state.strong_count() <= HOLDERS && state.upgrade().is_none_or(|state| !state.waits_to_write())
}

impl Crowd {
    /// So many places.
    pub(super) fn new(most: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            most,
            grace: GRACE,
            present: Mutex::default(),
            said: SharedWarning::default(),
        }
    }

    /// The next place. Where all are taken, somebody who asks for nothing gives one up.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(place) = self.places.clone().try_acquire_owned() {
                return Some(place);
            }
            self.make_room(Instant::now());
            if let Ok(place) = tokio::time::timeout(LOOK_EVERY, self.places.clone().acquire_owned()).await {
                return place.ok();
            }
        }
    }

    /// One more connection.
    pub(super) fn join(&self, state: &Arc<ConnectionState>) -> Told {
        let (state, leave) = (Arc::downgrade(state), Arc::new(Notify::new()));
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if present.len() >= self.most.saturating_mul(2) {
            present.retain(|one| one.state.strong_count() > 0);
        }
        present.push(Present { state: state.clone(), leave: leave.clone() });
        Told { state, leave }
    }

    /// Tells some connections to leave: the oldest connections that never asked for anything, or, where there are none, the connections that have
    /// asked for nothing for the longest time.
    fn make_room(&self, now: Instant) {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.retain(|one| one.state.strong_count() > 0);
        let seen = |one: &'_ Present| one.state.upgrade().map(|state| (state.asked() == 0, state.quiet_since()));
        let mut quiet: Vec<(bool, Instant, &Present)> =
            present.iter().filter_map(|one| seen(one).map(|(is_silent, since)| (is_silent, since, one))).collect();
        quiet.sort_by_key(|(_, since, _)| *since);
        // Where some are silent, the others wait until those have been so for long enough.
        let is_any_silent = quiet.iter().any(|(is_silent, ..)| *is_silent);
        let leaving = quiet.iter().filter(|(is_silent, since, one)| {
            (*is_silent || !is_any_silent) && now.saturating_duration_since(*since) >= self.grace && is_idle(&one.state)
        });
        let mut left = 0;
        for (.., one) in leaving.take(LEAVE_AT_ONCE) {
            one.leave.notify_one();
            left += 1;
        }
        if left == 0 {
            return;
        }
        metrics::counter!(EVICTED).increment(left);
        if self.said.due(SAID_EVERY).is_some() {
            let most = self.most;
            tracing::warn!(
                "All {most} connections of a listener are taken: those that ask for nothing are closed to make room"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    const MINUTE_MS: u64 = 60_000;

    /// Whether it has been told to.
    async fn leaves(told: &Told) -> bool {
        tokio::time::timeout(Duration::ZERO, told.to_leave()).await.is_ok()
    }

    #[tokio::test]
    async fn who_never_asked_leaves_first_then_who_asks_for_nothing_now_and_nobody_else() {
        let crowd = Crowd::new(3);
        let came = Instant::now();
        let [busy, idle, silent] = std::array::from_fn(|_| Arc::new(ConnectionState::default()));
        let [at_work, at_rest, mute] = [&busy, &idle, &silent].map(|state| crowd.join(state));
        for state in [&busy, &idle] {
            state.asks();
        }
        let _under_way: Vec<_> = (0..HOLDERS).map(|_| busy.clone()).collect();

        crowd.make_room(came);
        assert!(!leaves(&mute).await && !leaves(&at_rest).await, "both have just come");
        let later = Instant::now() + GRACE;
        crowd.make_room(later);
        assert!(leaves(&mute).await && !leaves(&at_rest).await, "silence comes first");
        drop(silent);
        crowd.make_room(later);
        assert!(leaves(&at_rest).await);
        drop(idle);
        crowd.make_room(later);
        assert!(!leaves(&at_work).await, "it waits for an answer");
    }

    #[tokio::test]
    async fn of_those_that_have_asked_the_ones_that_have_been_quiet_for_longest_leave_at_the_first_look() {
        let crowd = Crowd::new(100);
        let all: Vec<_> = (0..LEAVE_AT_ONCE + 2).map(|_| Arc::new(ConnectionState::default())).collect();
        let told: Vec<_> = all.iter().map(|state| crowd.join(state)).collect();
        for state in &all {
            state.asks();
        }
        // Whoever came first has asked last, and one just now. Minutes lie between them: they did not come in one instant.
        for (no, state) in (0..).zip(&all) {
            state.asked_at_ms.store((100 - no) * MINUTE_MS, Ordering::Relaxed);
        }
        all[1].asked_at_ms.store(300 * MINUTE_MS, Ordering::Relaxed);
        crowd.make_room(Instant::now() + Duration::from_millis(200 * MINUTE_MS));
        assert!(!leaves(&told[0]).await && !leaves(&told[1]).await);
        for told in &told[2..] {
            assert!(leaves(told).await);
        }
    }

    #[tokio::test]
    async fn who_asks_just_then_stays() {
        let crowd = Crowd::new(1);
        let state = Arc::new(ConnectionState::default());
        let told = crowd.join(&state);
        crowd.make_room(Instant::now() + GRACE);
        let _under_way: Vec<_> = (0..HOLDERS).map(|_| state.clone()).collect();
        assert!(!leaves(&told).await);
    }
}
