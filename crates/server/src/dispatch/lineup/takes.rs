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
    /// One: it may be what the endpoint answers.
    One,
    /// As many as the pace allows.
    Portion,
}

impl Lineup {
    /// How many more may be made pending, where so many that are due may still wait for their turn.
    pub(in crate::dispatch) fn takes(&self, application: ApplicationNo, few: usize, now: UnixMillis) -> Takes {
        let Some(place) = self.places.get(&application) else { return Takes::Portion };
        let tries_alone = !place.has_work() && place.in_flight() == 0;
        match (place.health.breaker(now), place.health.is_resent_in_vain()) {
            (BreakerState::Closed, true) if place.health.may_have_another(now) => Takes::One,
            (BreakerState::Closed, false) if place.has_at_most(few) => Takes::Portion,
            (BreakerState::HalfOpen, _) if tries_alone => Takes::One,
            (BreakerState::Closed | BreakerState::Open { .. } | BreakerState::HalfOpen, _) => Takes::Nothing,
        }
    }

    /// Another one that is sent again was made pending.
    pub(in crate::dispatch) fn has_another(&mut self, application: ApplicationNo, now: UnixMillis) {
        if let Some(place) = self.places.get_mut(&application) {
            place.health.has_another(now);
        }
    }

    /// Whether an endpoint is asked for nothing but to find out whether it answers: its breaker is not closed, or what was sent again lately has come to
    /// nothing.
    pub(in crate::dispatch) fn is_tried(&self, application: ApplicationNo) -> bool {
        let place = self.places.get(&application);
        place.is_some_and(|place| place.health.is_open() || place.health.is_resent_in_vain())
    }

    /// Whether the breaker of an endpoint is not closed.
    pub(in crate::dispatch) fn is_open(&self, application: ApplicationNo) -> bool {
        self.places.get(&application).is_some_and(|place| place.health.is_open())
    }

    /// Whether an endpoint has been left alone for long, and nobody was there whenever it was tried.
    pub(in crate::dispatch) fn is_away(&self, application: ApplicationNo, now: UnixMillis) -> bool {
        self.places.get(&application).is_some_and(|place| place.health.is_away(now))
    }
}
