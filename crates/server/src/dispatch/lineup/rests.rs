//! What is left alone though it is due, what waits for another event, and what is forgotten of either meanwhile.

use countersign_domain::ids::{ApplicationNo, EventNo};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::UnreadableEvent;

use super::{AWAITED_MAX, Flight, Lineup, bytes_of};

/// Events of an application that may be left alone while more of it is read past those that cannot be read back.
const LEFT_OUT_MAX: usize = 1_024;

impl Lineup {
    /// Leaves an event alone until an instant, though it is due.
    pub(in crate::dispatch) fn park(&mut self, flight: &Flight, until: UnixMillis) {
        if let Some(place) = self.places.get_mut(&flight.application) {
            place.park(flight.event, until);
        }
        self.note(flight.tenant, flight.application, until);
        self.land(flight);
    }

    /// Leaves an event alone that somebody else has moved. Where it is read as it was before, as from a server that another one has taken over from, it would be
    /// sent again and again, each time for nothing.
    pub(in crate::dispatch) fn rest_moved(&mut self, flight: &Flight, until: UnixMillis) {
        self.place(flight.tenant, flight.application).park(flight.event, until);
        self.note(flight.tenant, flight.application, until);
    }

    /// Leaves an event alone that cannot be read back, and has what is behind it looked for. An application with too many of them rests as
    /// a whole.
    pub(in crate::dispatch) fn leave_out(&mut self, one: &UnreadableEvent, until: UnixMillis, now: UnixMillis) {
        let place = self.place(one.tenant, one.application);
        place.park(one.event, until);
        if place.parked() >= LEFT_OUT_MAX {
            place.rest(until);
        }
        self.note(one.tenant, one.application, now);
    }

    /// Leaves a whole application alone until an instant; what was ready of it is read again then.
    pub(in crate::dispatch) fn park_application(&mut self, flight: &Flight, until: UnixMillis) {
        self.drop_ready(flight.application);
        if let Some(place) = self.places.get_mut(&flight.application) {
            place.rest(until);
        }
        self.note(flight.tenant, flight.application, until);
        self.land(flight);
    }

    /// An event waits for another one in the store: when that one is over, there is something to read.
    pub(in crate::dispatch) fn waits(&mut self, flight: &Flight, behind: EventNo, now: UnixMillis) {
        let room = AWAITED_MAX - self.awaited;
        let place = self.places.get_mut(&flight.application);
        self.awaited += place.map_or(0, |place| place.awaits_too([behind], room));
        // The other one may have ended in between; then this one is due.
        self.note(flight.tenant, flight.application, now);
        self.land(flight);
    }

    /// Takes note that an event is over: whether others are known to wait for it.
    pub(super) fn is_awaited_no_more(&mut self, flight: &Flight) -> bool {
        let was = self.places.get_mut(&flight.application).is_some_and(|place| place.awaits_no_more(flight.event));
        self.awaited -= usize::from(was);
        was
    }

    /// An application that was left alone as a whole is looked at now.
    pub(in crate::dispatch) fn rouse(&mut self, application: ApplicationNo, now: UnixMillis) {
        let Some(place) = self.places.get_mut(&application) else { return };
        if place.wake() {
            let tenant = place.tenant;
            self.note(tenant, application, now);
        }
    }

    /// Forgets what was ready of an application; attempts in flight go on.
    pub(in crate::dispatch) fn drop_ready(&mut self, application: ApplicationNo) {
        if let Some(place) = self.places.get_mut(&application) {
            for event in place.drop_ready() {
                self.ready_bytes = self.ready_bytes.saturating_sub(bytes_of(&event));
            }
        }
    }

    /// Nothing more of an application is expected, until it is noted again.
    pub(in crate::dispatch) fn give_up(&mut self, application: ApplicationNo) {
        if let Some(place) = self.places.get_mut(&application) {
            place.expect_nothing();
        }
    }
}
