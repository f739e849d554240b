//! Which callback goes next: bookkeeping in memory, without IO and without a clock.
//!
//! Invariant: an event that is ready or in flight here is not taken a second time. A caller lands what has ended *before* it
//! reads what is due, so that a row read before an attempt was recorded can never begin that attempt again.
//! Applications take turns, and none has more than its share in flight: a hung endpoint keeps its own events waiting only.

use std::collections::{HashMap, HashSet, VecDeque};

use countersign_domain::ids::{ApplicationNo, EventNo};
use countersign_domain::lanes::{Lane, LaneSet};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::EventRow;

/// How much may be in memory and in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Attempts at once.
    pub(super) in_flight: usize,
    /// Attempts at once of one application.
    pub(super) per_application: usize,
    /// Events kept ready for one application.
    pub(super) ready_per_application: usize,
}

/// What became of an offered event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// It waits for its turn.
    Ready,
    /// It is ready or in flight already.
    Known,
    /// It waits for something else than its turn; ask again later.
    Parked,
    /// Its application has enough waiting: offer it again when some have left.
    Full,
}

/// An attempt in flight, or just ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) event: EventNo,
    pub(super) application: ApplicationNo,
    pub(super) biz_id: String,
}

impl Flight {
    pub(super) fn of(event: &EventRow) -> Self {
        Self { event: event.no, application: event.application, biz_id: event.biz_id.clone() }
    }
}

/// An event in flight.
#[derive(Debug)]
struct Flying {
    event: EventNo,
    biz_id: String,
    /// Another one of the same bizId has landed since this one began: what it waits for may be over.
    neighbour_landed: bool,
}

#[derive(Debug)]
struct Parked {
    until: UnixMillis,
    application: ApplicationNo,
    biz_id: String,
}

/// Events that are ready, in flight or parked.
#[derive(Debug)]
pub(super) struct Lineup {
    bounds: Bounds,
    /// Every event that is ready or in flight.
    taken: HashSet<EventNo>,
    ready: HashMap<ApplicationNo, VecDeque<EventRow>>,
    /// Applications with ready events, the next one first.
    turns: VecDeque<ApplicationNo>,
    in_flight: HashMap<ApplicationNo, Vec<Flying>>,
    flights: usize,
    parked: HashMap<EventNo, Parked>,
    parked_applications: HashMap<ApplicationNo, UnixMillis>,
}

impl Lineup {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            taken: HashSet::new(),
            ready: HashMap::new(),
            turns: VecDeque::new(),
            in_flight: HashMap::new(),
            flights: 0,
            parked: HashMap::new(),
            parked_applications: HashMap::new(),
        }
    }

    /// Attempts in flight.
    pub(super) const fn flights(&self) -> usize {
        self.flights
    }

    /// Whether no further attempt may begin.
    pub(super) const fn is_full(&self) -> bool {
        self.flights >= self.bounds.in_flight
    }

    /// Events of an application that wait for their turn only.
    pub(super) fn ready_of(&self, application: ApplicationNo) -> usize {
        self.ready.get(&application).map_or(0, VecDeque::len)
    }

    /// Whether every attempt that may begin now has an event ready.
    pub(super) fn has_enough(&self) -> bool {
        let free = self.bounds.in_flight.saturating_sub(self.flights);
        let startable = self.ready.iter().map(|(application, waiting)| {
            let flights = self.in_flight.get(application).map_or(0, Vec::len);
            waiting.len().min(self.bounds.per_application.saturating_sub(flights))
        });
        startable.sum::<usize>() >= free
    }

    /// Takes a due event, unless it is known, parked or one too many.
    pub(super) fn offer(&mut self, event: EventRow, now: UnixMillis) -> Offer {
        if self.taken.contains(&event.no) {
            return Offer::Known;
        }
        if self.is_parked(&event, now) {
            return Offer::Parked;
        }
        let waiting = self.ready.entry(event.application).or_default();
        if waiting.len() >= self.bounds.ready_per_application {
            return Offer::Full;
        }
        if waiting.is_empty() {
            self.turns.push_back(event.application);
        }
        self.taken.insert(event.no);
        waiting.push_back(event);
        Offer::Ready
    }

    fn is_parked(&mut self, event: &EventRow, now: UnixMillis) -> bool {
        if self.parked_applications.get(&event.application).is_some_and(|until| now < *until) {
            return true;
        }
        match self.parked.get(&event.no) {
            Some(parked) if now < parked.until => true,
            Some(_) => {
                self.parked.remove(&event.no);
                false
            }
            None => false,
        }
    }

    /// The next event whose application may have one more attempt. It counts as in flight until it has landed.
    pub(super) fn next(&mut self) -> Option<EventRow> {
        if self.is_full() {
            return None;
        }
        for _ in 0..self.turns.len() {
            let application = self.turns.pop_front()?;
            let flights = self.in_flight.get(&application).map_or(0, Vec::len);
            if flights >= self.bounds.per_application {
                self.turns.push_back(application);
                continue;
            }
            let Some(event) = self.ready.get_mut(&application).and_then(VecDeque::pop_front) else { continue };
            if self.ready.get(&application).is_some_and(VecDeque::is_empty) {
                self.ready.remove(&application);
            } else {
                self.turns.push_back(application);
            }
            let flying = Flying { event: event.no, biz_id: event.biz_id.clone(), neighbour_landed: false };
            self.in_flight.entry(application).or_default().push(flying);
            self.flights += 1;
            return Some(event);
        }
        None
    }

    /// An attempt has ended and is recorded, or was given up. Events that waited for it are free again: true if there were any.
    pub(super) fn land(&mut self, flight: &Flight) -> bool {
        self.release(flight);
        for flying in self.in_flight.get_mut(&flight.application).into_iter().flatten() {
            flying.neighbour_landed |= flying.biz_id == flight.biz_id;
        }
        let before = self.parked.len();
        self.parked.retain(|_, p| p.application != flight.application || p.biz_id != flight.biz_id);
        self.parked.len() < before
    }

    /// Leaves an event alone until an instant, or until another one of the same bizId lands. It is not in flight any more.
    /// True if such a one has landed already: the event is free at once.
    pub(super) fn park(&mut self, flight: &Flight, until: UnixMillis) -> bool {
        let was = self.release(flight);
        if was.is_some_and(|f| f.neighbour_landed) {
            return true;
        }
        let parked = Parked { until, application: flight.application, biz_id: flight.biz_id.clone() };
        self.parked.insert(flight.event, parked);
        false
    }

    fn release(&mut self, flight: &Flight) -> Option<Flying> {
        let flying = self.in_flight.get_mut(&flight.application)?;
        let place = flying.iter().position(|f| f.event == flight.event)?;
        let was = flying.swap_remove(place);
        if flying.is_empty() {
            self.in_flight.remove(&flight.application);
        }
        self.taken.remove(&flight.event);
        self.flights -= 1;
        Some(was)
    }

    /// Leaves a whole application alone until an instant; what was ready of it is read again later.
    pub(super) fn park_application(&mut self, application: ApplicationNo, until: UnixMillis) {
        self.parked_applications.insert(application, until);
        self.drop_ready(application);
    }

    /// Forgets what was ready of an application; attempts in flight go on.
    pub(super) fn drop_ready(&mut self, application: ApplicationNo) {
        for event in self.ready.remove(&application).unwrap_or_default() {
            self.taken.remove(&event.no);
        }
        self.turns.retain(|a| *a != application);
    }

    /// Forgets what is ready or parked in other lanes than these; attempts in flight go on.
    pub(super) fn keep_lanes(&mut self, lanes: LaneSet) {
        let others: Vec<ApplicationNo> =
            self.ready.keys().filter(|application| !lanes.contains(Lane::of(**application))).copied().collect();
        for application in others {
            self.drop_ready(application);
        }
        self.parked.retain(|_, parked| lanes.contains(Lane::of(parked.application)));
        self.parked_applications.retain(|application, _| lanes.contains(Lane::of(*application)));
    }

    /// When the first parked event is free again. Forgets those that are.
    pub(super) fn first_unparked_at(&mut self, now: UnixMillis) -> Option<UnixMillis> {
        self.parked.retain(|_, p| now < p.until);
        self.parked_applications.retain(|_, until| now < *until);
        self.parked.values().map(|p| p.until).chain(self.parked_applications.values().copied()).min()
    }
}

#[cfg(test)]
#[path = "lineup_tests.rs"]
mod tests;
