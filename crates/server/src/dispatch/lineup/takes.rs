//! How much of what is sent again an endpoint takes by now.

use countersign_domain::ids::ApplicationNo;
use countersign_domain::time::UnixMillis;

use super::Lineup;
use crate::dispatch::health::BreakerState;

/// How many more events of an application may be made pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dispatch) enum Takes {
    /// None: what is due has not gone yet, or the endpoint is left alone.
    Nothing,
    /// One: the endpoint may be tried, or what was sent again lately was sent in vain, and nothing else is due that could try it.
    One,
    /// As many as the pace allows.
    Portion,
}

impl Lineup {
    /// How many more may be made pending, where so many that are due may still wait for their turn.
    pub(in crate::dispatch) fn takes(&self, application: ApplicationNo, few: usize, now: UnixMillis) -> Takes {
        let Some(place) = self.places.get(&application) else { return Takes::Portion };
        let tries_alone = !place.has_work() && place.in_flight() == 0;
        match place.health.breaker(now) {
            BreakerState::Closed if place.health.is_resent_in_vain() && tries_alone => Takes::One,
            BreakerState::Closed if !place.health.is_resent_in_vain() && place.has_at_most(few) => Takes::Portion,
            BreakerState::HalfOpen if tries_alone => Takes::One,
            BreakerState::Closed | BreakerState::Open { .. } | BreakerState::HalfOpen => Takes::Nothing,
        }
    }

    /// Whether the breaker of an endpoint is not closed.
    pub(in crate::dispatch) fn is_open(&self, application: ApplicationNo) -> bool {
        self.places.get(&application).is_some_and(|place| place.health.is_open())
    }
}
