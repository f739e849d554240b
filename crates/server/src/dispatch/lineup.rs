//! Which callback goes next: bookkeeping in memory, without IO and without a clock.
//!
//! Invariant: an event that is ready or in flight here is not taken a second time: a read leaves it out, and one that is handed over was found by
//! none. A caller lands what has ended *before* it reads what is owed, so that a row read before an attempt was recorded can never begin that
//! attempt again.
//!
//! Who waits for whom:
//! - An application waits for its own attempts: it has so many at once as its endpoint stands ([`Health`]).
//! - Applications of a class share permits ([`Class`]): endpoints that fail, or that nothing is known of, leave a part to those that work.
//!   Within a class merchants take turns, and of a merchant its applications. The last permits of a class are for merchants that have nothing
//!   under way ([`Room`]).
//! - An attempt that takes long gives its permit back and counts as slow; only so many may be slow. So a neighbour that hangs takes room
//!   for a moment, and no more.
//! - First attempts and repeated ones of an application take turns, so a backlog of failures does not delay what is new.

use std::cmp::Reverse;

use countersign_domain::delivery::Outcome;
use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::lanes::{Lane, LaneSet};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::{EventRow, Portion};
use foldhash::{HashMap, HashSet};

use super::flight::Flight;
use super::health::{BreakerState, Class, Sign};
use super::permits::{Held, Permits, Room};
use super::place_in_lineup::{Allows, Considered, EndpointView, PORTION_MIN, Place, Stands};
use super::queue::Queue;
use super::timetable::Timetable;

mod lanes;
mod reads;
mod rests;
mod takes;

pub(super) use super::permits::Bounds;
pub(super) use reads::Unread;
pub(super) use takes::Takes;

use reads::Reads;

/// Bytes of events that wait for their turn; beyond it each application has one ready.
const READY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Applications that are remembered though they have nothing to do.
const IDLE_PLACES_MAX: usize = 65_536;
/// Attempts that may be answered and wait to be recorded, in all.
const UNRECORDED_MAX: usize = 256;
/// Events that others are known to wait for.
const AWAITED_MAX: usize = 65_536;

/// What to do next.
#[derive(Debug)]
pub(super) enum Next {
    /// Begin this attempt. And whether it is by its endpoint that it begins no sooner.
    Begin(Box<EventRow>, Waited),
    /// Read what is pending, and offer it.
    Read(Portion),
}

/// What an event that is due has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// For us, if at all.
    ForUs,
    /// For its endpoint, which fails or recovers.
    ForEndpoint,
}

/// The breaker of an endpoint has turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// It fails, and is left alone until then; then one attempt goes.
    Opened { until: UnixMillis },
    /// Attempts go again.
    Closed,
}

/// Events that are ready, in flight or left alone, and when to look for more.
#[derive(Debug)]
pub(super) struct Lineup {
    permits: Permits,
    per_application: usize,
    timetable: Timetable,
    places: HashMap<ApplicationNo, Place>,
    queues: [Queue; 3],
    /// Applications whose rows are to be read next.
    reading: Vec<(TenantNo, ApplicationNo)>,
    reads: Reads,
    ready_bytes: usize,
    /// Events that others of their application wait for, in all places.
    awaited: usize,
    open: usize,
    /// Attempts that are answered and not recorded.
    unrecorded: usize,
}

impl Lineup {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            permits: Permits::new(bounds),
            per_application: bounds.per_application,
            timetable: Timetable::default(),
            places: HashMap::default(),
            queues: Default::default(),
            reading: Vec::new(),
            reads: Reads::default(),
            ready_bytes: 0,
            awaited: 0,
            open: 0,
            unrecorded: 0,
        }
    }

    /// Attempts that are under way.
    pub(super) fn under_way(&self) -> usize {
        self.permits.flights()
    }

    /// Attempts in flight: under way, or answered and not recorded.
    pub(super) fn flights(&self) -> usize {
        self.under_way() + self.unrecorded
    }

    /// Endpoints whose breaker is not closed.
    pub(super) const fn open_endpoints(&self) -> usize {
        self.open
    }

    /// An application may have something due then.
    pub(super) fn note(&mut self, tenant: TenantNo, application: ApplicationNo, at: UnixMillis) {
        self.timetable.note(tenant, application, at);
    }

    /// What to do next, if anything can be done now. What begins is in flight until it has landed.
    pub(super) fn next(&mut self, now: UnixMillis) -> Option<Next> {
        while let Some((tenant, application)) = self.timetable.take(now) {
            self.place(tenant, application).expect_more();
            self.line_up(application);
        }
        self.permits.age(now);
        for class in Class::ALL {
            while self.reading.len() < self.reads.reach && self.unrecorded < UNRECORDED_MAX {
                let (permits, queue) = (&self.permits, &mut self.queues[class as usize]);
                let first = match permits.room(class) {
                    Room::None => None,
                    Room::ForIdle => queue.pop_idle(|of| permits.is_idle(of, class)),
                    Room::ForAll => queue.pop(|of| permits.has_room_of(of)),
                };
                let Some(application) = first else { break };
                if self.places.get(&application).is_none_or(|place| place.stands != Stands::Queued(class)) {
                    continue;
                }
                if let Some((event, waited)) = self.consider(application, now) {
                    return Some(Next::Begin(event, waited));
                }
            }
        }
        self.portion(now).map(Next::Read)
    }

    /// What is known of an application, from here on.
    fn place(&mut self, tenant: TenantNo, application: ApplicationNo) -> &mut Place {
        let most = self.per_application;
        self.places.entry(application).or_insert_with(|| Place::new(tenant, most))
    }

    /// An application whose turn it is: its next event, or where it stands from here on.
    fn consider(&mut self, application: ApplicationNo, now: UnixMillis) -> Option<(Box<EventRow>, Waited)> {
        let place = self.places.get_mut(&application)?;
        place.stands = Stands::Out;
        match place.consider(now) {
            Considered::Rests(until) => self.timetable.note(place.tenant, application, until),
            Considered::AtLimit => place.stands = Stands::AtLimit,
            Considered::Idle => self.leave(application),
            Considered::Read => {
                place.stands = Stands::Reads;
                self.reading.push((place.tenant, application));
            }
            Considered::Begin(event) => {
                let held = Held { class: place.health.class(), tenant: place.tenant, event: event.no };
                let is_kept = event.due_at.is_some_and(|due_at| place.health.has_kept_waiting(due_at, now));
                self.ready_bytes = self.ready_bytes.saturating_sub(bytes_of(&event));
                self.permits.take(held, now);
                self.line_up(application);
                return Some((event, if is_kept { Waited::ForEndpoint } else { Waited::ForUs }));
            }
        }
        None
    }

    /// Puts an application into the queue of its class, unless it is in one, or has nothing to do there.
    fn line_up(&mut self, application: ApplicationNo) {
        let Some(place) = self.places.get_mut(&application) else { return };
        let class = place.health.class();
        match place.stands {
            Stands::Reads => {}
            Stands::Queued(queued) if queued == class => {}
            Stands::Out | Stands::AtLimit | Stands::Queued(_) if place.has_work() => {
                place.stands = Stands::Queued(class);
                self.queues[class as usize].push(place.tenant, application, self.permits.is_idle(place.tenant, class));
            }
            Stands::Out | Stands::AtLimit | Stands::Queued(_) => self.leave(application),
        }
    }

    /// Nothing to do: it is forgotten, unless something is worth knowing of it.
    fn leave(&mut self, application: ApplicationNo) {
        let is_crowded = self.places.len() > IDLE_PLACES_MAX;
        let Some(place) = self.places.get_mut(&application) else { return };
        place.stands = Stands::Out;
        if place.is_idle() && (is_crowded || place.is_lost || place.is_forgettable()) {
            if place.health.is_open() {
                self.open = self.open.saturating_sub(1);
            }
            self.places.remove(&application);
        }
    }

    /// What a read found: for each of these applications its rows, first attempts first, at most `limit` of each kind.
    pub(super) fn offer(
        &mut self,
        asked: &[(TenantNo, ApplicationNo)],
        rows: Vec<EventRow>,
        limit: u32,
        now: UnixMillis,
    ) {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        self.was_read(asked, &rows);
        let mut rows = rows.into_iter().peekable();
        for (tenant, application) in asked {
            let mut counts = [0_usize; 2];
            let Some(place) = self.places.get_mut(application) else { continue };
            place.stands = Stands::Out;
            place.expect_nothing();
            let (mut cut, ready, mut read) = ([false; 2], place.ready_of_each(), 0);
            let mut later = place.parked_until();
            let mut named = HashSet::default();
            while let Some(row) = rows.next_if(|row| row.application == *application) {
                let repeated = usize::from(row.attempts > 0);
                counts[repeated] += 1;
                let bytes = bytes_of(&row);
                read += bytes;
                let Some(due_at) = row.due_at else { continue };
                if let Some(behind) = row.behind {
                    named.insert(behind);
                }
                if due_at > now {
                    later = later.into_iter().chain([due_at]).min();
                    continue;
                }
                cut[repeated] |= counts[repeated] >= limit;
                // Of what there is enough is read again when that has gone.
                let is_filled = place.has_ready(repeated) && self.ready_bytes + bytes > READY_BYTES_MAX;
                if is_filled || ready[repeated] >= PORTION_MIN {
                    cut[repeated] = true;
                } else {
                    place.take(row, repeated);
                    self.ready_bytes += bytes;
                }
            }
            // Where there is more than was read, that may wait for those that are known.
            let is_whole = counts.iter().all(|count| *count < limit);
            self.awaited -= if is_whole { place.awaits_only(&named) } else { 0 };
            self.awaited += place.awaits_too(named, AWAITED_MAX - self.awaited);
            place.expect(cut);
            let wants_more = cut.iter().zip(ready).any(|(cut, ready)| *cut && ready == 0);
            place.has_read(counts.iter().sum(), read, wants_more);
            if let Some(later) = later {
                self.timetable.note(*tenant, *application, later);
            }
            self.line_up(*application);
        }
    }

    /// An event that was written just now, and that no read has found, goes without being read where it is the next one: of an application that
    /// is known and of which nothing else waits to be read. False: it is to be read.
    pub(super) fn take_new(&mut self, event: EventRow) -> bool {
        let (application, bytes) = (event.application, bytes_of(&event));
        let is_filled = self.ready_bytes + bytes > READY_BYTES_MAX;
        let Some(place) = self.places.get_mut(&application) else { return false };
        if is_filled || !place.is_next(&event) {
            return false;
        }
        place.take(event, 0);
        self.ready_bytes += bytes;
        self.line_up(application);
        true
    }

    /// The endpoint has taken a callback: another one may go while this one is recorded. Whether that has turned a breaker, and whose.
    pub(super) fn answered(&mut self, flight: &Flight, now: UnixMillis) -> Option<(Box<str>, Turned)> {
        let turned = self.fares(flight, Sign::Good, None, now);
        self.give_back(flight);
        if let Some(place) = self.places.get_mut(&flight.application) {
            place.answered(flight.event);
            self.unrecorded += 1;
        }
        self.line_up(flight.application);
        turned
    }

    fn is_unrecorded(&self, flight: &Flight) -> bool {
        self.places.get(&flight.application).is_some_and(|place| place.is_unrecorded(flight.event))
    }

    fn give_back(&mut self, flight: &Flight) {
        self.permits.give_back(flight.event);
        for class in Class::ALL {
            if self.permits.is_idle(flight.tenant, class) {
                self.queues[class as usize].has_become_idle(flight.tenant);
            }
        }
    }

    /// An attempt has ended, or was given up; what it has shown of its endpoint is known by now.
    pub(super) fn land(&mut self, flight: &Flight) {
        if self.is_unrecorded(flight) {
            self.unrecorded -= 1;
        } else {
            self.give_back(flight);
        }
        let Some(place) = self.places.get_mut(&flight.application) else { return };
        place.landed(flight.event);
        self.line_up(flight.application);
    }

    /// An attempt was made and is recorded: whether it has turned a breaker, and whose. `next`: when its event is due again; none: it is over or held.
    pub(super) fn made(
        &mut self,
        flight: &Flight,
        sign: Sign,
        next: Option<UnixMillis>,
        now: UnixMillis,
    ) -> Option<(Box<str>, Turned)> {
        // What was answered has had its say.
        let turned = if self.is_unrecorded(flight) { None } else { self.fares(flight, sign, next, now) };
        // Who waits for it does so until it is over, not until its next attempt.
        let is_awaited = next.is_none() && self.is_awaited_no_more(flight);
        if let Some(at) = next.or(is_awaited.then_some(now)) {
            self.note(flight.tenant, flight.application, at);
        }
        self.land(flight);
        turned
    }

    /// What an attempt says of its endpoint: whether it has turned the breaker, and whose.
    fn fares(
        &mut self,
        flight: &Flight,
        sign: Sign,
        next: Option<UnixMillis>,
        now: UnixMillis,
    ) -> Option<(Box<str>, Turned)> {
        let mut turned = None;
        if let Some(place) = self.places.get_mut(&flight.application)
            && !place.is_elsewhere(flight.event)
        {
            let was_open = place.health.is_open();
            let waiting = place.has_work();
            // That what somebody sends again by hand fails says nothing of the endpoint, unless it is the one attempt that decides. That it is taken
            // does: else a redelivery to an endpoint that was mended would go out one at a time.
            let counts = !flight.by_hand || was_open || sign == Sign::Good;
            let is_overdue = place.goes_overdue(flight.event);
            match sign {
                Sign::Bad | Sign::None if is_overdue => {}
                Sign::Ill if is_overdue => place.health.is_there(),
                sign if counts => place.health.ended(sign, now, next, waiting),
                sign => place.health.resent(sign),
            }
            turned = match (was_open, place.health.breaker(now)) {
                (false, BreakerState::Open { until }) => Some(Turned::Opened { until }),
                // Where its event is due by now, the pause is over as soon as it begins.
                (false, BreakerState::HalfOpen) => Some(Turned::Opened { until: now }),
                (true, BreakerState::Closed) => Some(Turned::Closed),
                (false, BreakerState::Closed) | (true, BreakerState::Open { .. } | BreakerState::HalfOpen) => None,
            };
            match turned {
                Some(Turned::Opened { .. }) => self.open += 1,
                Some(Turned::Closed) => self.open = self.open.saturating_sub(1),
                None => {}
            }
        }
        turned.map(|turned| (self.client_id(flight.application), turned))
    }

    /// An attempt was recorded then, and has not landed: what came of it.
    pub(super) fn came(&mut self, flight: &Flight, at: UnixMillis, outcome: Outcome) {
        if let Some(place) = self.places.get_mut(&flight.application)
            && !place.is_elsewhere(flight.event)
        {
            place.last = Some((at, outcome));
        }
    }

    /// What the application allows, and where its callbacks go: another URL is another endpoint. What rested for what is no longer so has
    /// its turn. Whether the breaker was open, and that of the other endpoint is not.
    pub(super) fn knows(&mut self, application: ApplicationNo, client_id: &str, url: u64, allows: Allows) -> bool {
        let Some(place) = self.places.get_mut(&application) else { return false };
        let was_open = place.health.is_open();
        place.knows(client_id, url, allows);
        let is_closed = was_open && !place.health.is_open();
        if is_closed {
            self.open = self.open.saturating_sub(1);
        }
        self.line_up(application);
        is_closed
    }

    /// ClientIds of those that something is remembered of and that are asked for.
    pub(super) fn remembered(&self, asked: impl Fn(&str) -> bool) -> Vec<Box<str>> {
        self.places.values().filter(|place| asked(&place.client_id)).map(|place| place.client_id.clone()).collect()
    }

    /// The ClientId of an application that something is remembered of.
    fn client_id(&self, application: ApplicationNo) -> Box<str> {
        self.places.get(&application).map_or_else(Box::default, |place| place.client_id.clone())
    }

    /// How an endpoint stands; none where nothing is remembered of it.
    pub(super) fn view(&self, application: ApplicationNo, now: UnixMillis) -> Option<EndpointView> {
        let place = self.places.get(&application)?;
        let (at_once, at_once_max) = place.health.at_once(now);
        let (breaker, in_flight) = (place.health.breaker(now), place.in_flight());
        Some(EndpointView { breaker, at_once, at_once_max, in_flight, last: place.last })
    }

    /// Endpoints in these lanes that did not take what they got last: those whose breaker is not closed first, then those tried last. How many are left off.
    pub(super) fn failing(
        &self,
        lanes: LaneSet,
        now: UnixMillis,
        most: usize,
    ) -> (Vec<(Box<str>, EndpointView)>, usize) {
        let fails = |place: &Place| place.last.is_some_and(|(_, outcome)| outcome != Outcome::Delivered);
        let of_all = self.places.iter().filter(|(of, place)| lanes.contains(Lane::of(**of)) && fails(place));
        let rank = |place: &Place| (place.health.is_open(), place.last.map(|(at, _)| at));
        let mut found: Vec<_> = of_all.map(|(of, place)| (Reverse(rank(place)), *of)).collect();
        found.sort_unstable();
        let seen = found.iter().take(most).filter_map(|(_, of)| Some((self.client_id(*of), self.view(*of, now)?)));
        (seen.collect(), found.len().saturating_sub(most))
    }

    /// When something may begin without anybody ringing and nothing landing.
    pub(super) fn first_at(&self) -> Option<UnixMillis> {
        let waits = self.queues.iter().any(|queue| !queue.is_empty());
        let aged = self.permits.first_aged_at().filter(|_| waits);
        self.timetable.first().into_iter().chain(aged).min()
    }

    /// Events of an application that wait for their turn only.
    #[cfg(test)]
    pub(super) fn ready_of(&self, application: ApplicationNo) -> usize {
        self.places.get(&application).map_or(0, Place::ready)
    }
}

/// What an event takes in memory, roughly.
fn bytes_of(event: &EventRow) -> usize {
    size_of::<EventRow>() + event.data.len() + event.body.len() + event.biz_id.len()
}

#[cfg(test)]
#[path = "lineup_tests.rs"]
mod tests;
