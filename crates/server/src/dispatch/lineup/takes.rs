//! How much of what is sent again an endpoint takes by now.

use countersign_domain::ids::ApplicationNo;
use countersign_domain::time::UnixMillis;

use super::Lineup;
use crate::dispatch::health::{BreakerState, PAUSE_MS_MAX, TRIED_IN_VAIN_MS};

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
        let may_try = place.health.may_be_tried_by_hand(now);
        match place.health.breaker(now) {
            BreakerState::Closed if place.health.is_resent_in_vain() && tries_alone && may_try => Takes::One,
            BreakerState::Closed if !place.health.is_resent_in_vain() && place.has_at_most(few) => Takes::Portion,
            BreakerState::HalfOpen if tries_alone => Takes::One,
            BreakerState::Closed | BreakerState::Open { .. } | BreakerState::HalfOpen => Takes::Nothing,
        }
    }

    /// Whether an attempt at what is sent again by hand, that is under way, is to find out how its endpoint stands: then that it fails says nothing of its
    /// event, which is due again after so many ms.
    pub(in crate::dispatch) fn tries_again_after(&self, application: ApplicationNo) -> Option<i64> {
        let place = self.places.get(&application)?;
        let tries_alone = place.in_flight() == 1 && !place.has_work();
        match (place.health.is_open(), place.health.is_resent_in_vain() && tries_alone) {
            (true, _) => Some(PAUSE_MS_MAX),
            (false, true) => Some(TRIED_IN_VAIN_MS),
            (false, false) => None,
        }
    }

    /// Whether the breaker of an endpoint is not closed.
    pub(in crate::dispatch) fn is_open(&self, application: ApplicationNo) -> bool {
        self.places.get(&application).is_some_and(|place| place.health.is_open())
    }
}
