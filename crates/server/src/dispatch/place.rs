//! What the line-up knows of one application.

use std::collections::VecDeque;
use std::collections::vec_deque::Drain;
use std::iter::Chain;

use countersign_domain::delivery::Outcome;
use countersign_domain::ids::{EventNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::EventRow;

use super::health::{BreakerState, Class, Health, May, Pace};

/// Rows that are read of an application at first, beyond those in memory, and where much is waiting.
pub(super) const PORTION_MIN: usize = 32;
const PORTION_MAX: usize = 128;
/// So many times what an endpoint may have at once may be answered and wait to be recorded. They come again after a crash.
const UNRECORDED_TIMES: usize = 3;
/// Rows of at most so many bytes, on average, are read in larger portions.
const ROW_BYTES_SMALL: usize = 4 * 1024;

/// Where an application stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// Nowhere: it has nothing to do, or rests.
    Out,
    /// In the queue of this class; an entry in another one is void.
    Queued(Class),
    /// Its rows are being read.
    Reads,
    /// It has as many attempts in flight as it may.
    AtLimit,
}

/// What can be done for an application whose turn it is.
#[derive(Debug)]
pub(super) enum Considered {
    Begin(Box<EventRow>),
    Read,
    Rests(UnixMillis),
    AtLimit,
    Idle,
}

/// What an endpoint may have at the most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allows {
    /// Attempts at once.
    pub(super) at_once: usize,
    /// Attempts in a second; none: as many as there are.
    pub(super) per_s: Option<u32>,
}

/// How an endpoint stands at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// Its breaker.
    pub breaker: BreakerState,
    /// Attempts at once that may be under way now.
    pub at_once: usize,
    /// The same where it does not fail.
    pub at_once_max: usize,
    /// Attempts that are under way.
    pub in_flight: usize,
    /// The last attempt that this node remembers: when it was recorded, and what came of it.
    pub last: Option<(UnixMillis, Outcome)>,
}

/// First attempts, and repeated ones.
#[derive(Debug, Default)]
struct Kind {
    ready: VecDeque<EventRow>,
    /// The store may have more that are due.
    has_more: bool,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) tenant: TenantNo,
    pub(super) stands: Stands,
    pub(super) health: Health,
    pace: Pace,
    kinds: [Kind; 2],
    /// Whether the next attempt is a repeated one, where there are both.
    repeats_next: bool,
    in_flight: Vec<EventNo>,
    /// Events whose attempts the endpoint has answered, and that are not recorded.
    unrecorded: Vec<EventNo>,
    /// Events that are left alone though they are due, and until when.
    parked: Vec<(EventNo, UnixMillis)>,
    rests_until: Option<UnixMillis>,
    /// Rows that are read of it next, beyond those in memory.
    portion: usize,
    /// Where its callbacks go, as a number.
    url: Option<u64>,
    /// Its ClientId, as soon as it is known.
    pub(super) client_id: Box<str>,
    /// The last attempt that was recorded, and when that was.
    pub(super) last: Option<(UnixMillis, Outcome)>,
}

impl Place {
    pub(super) fn new(tenant: TenantNo, most: usize) -> Self {
        Self {
            tenant,
            stands: Stands::Out,
            health: Health::new(most),
            pace: Pace::default(),
            kinds: Default::default(),
            repeats_next: false,
            in_flight: Vec::new(),
            unrecorded: Vec::new(),
            parked: Vec::new(),
            rests_until: None,
            portion: PORTION_MIN,
            url: None,
            client_id: Box::default(),
            last: None,
        }
    }

    /// Its turn: what can be done.
    pub(super) fn consider(&mut self, now: UnixMillis) -> Considered {
        if let Some(until) = self.rests_until.filter(|until| now < *until) {
            return Considered::Rests(until);
        }
        self.rests_until = None;
        match self.health.may(self.in_flight.len(), now) {
            May::Begin => {}
            May::WhenLanded => return Considered::AtLimit,
            May::At(until) => return Considered::Rests(until),
        }
        if self.unrecorded.len() >= UNRECORDED_TIMES * self.health.most() {
            return Considered::AtLimit;
        }
        if let Some(until) = self.pace.wait(now) {
            return Considered::Rests(until);
        }
        let [first, again] = &mut self.kinds;
        // What is new does not wait behind what has failed: it is read even where there are repeats to go.
        if first.ready.is_empty() && (first.has_more || (again.ready.is_empty() && again.has_more)) {
            return Considered::Read;
        }
        let repeats = first.ready.is_empty() || (self.repeats_next && !again.ready.is_empty());
        let Some(event) = (if repeats { again } else { first }).ready.pop_front() else { return Considered::Idle };
        self.repeats_next = !repeats;
        self.in_flight.push(event.no);
        self.health.begins();
        self.pace.begins(now);
        Considered::Begin(Box::new(event))
    }

    /// Events of it in memory, which are owed as long as they are not recorded.
    pub(super) fn known(&self) -> impl Iterator<Item = EventNo> {
        let ready = self.kinds.iter().flat_map(|kind| kind.ready.iter().map(|event| event.no));
        let parked = self.parked.iter().map(|(event, _)| *event);
        ready.chain(self.in_flight.iter().copied()).chain(self.unrecorded.iter().copied()).chain(parked)
    }

    /// Rows that a read of it asks for beyond those in memory.
    pub(super) const fn portion(&self) -> usize {
        self.portion
    }

    /// A read has found so many bytes in so many rows. Whoever had nothing left and has more than was read is read in larger portions, so
    /// that a row costs less; but not where its rows are large.
    pub(super) fn has_read(&mut self, rows: usize, bytes: usize, wants_more: bool) {
        let may_grow = wants_more && bytes <= rows.saturating_mul(ROW_BYTES_SMALL);
        self.portion = if may_grow { (self.portion * 2).min(PORTION_MAX) } else { PORTION_MIN };
    }

    pub(super) fn park(&mut self, event: EventNo, until: UnixMillis) {
        self.parked.push((event, until));
    }

    /// How many are left alone.
    pub(super) const fn parked(&self) -> usize {
        self.parked.len()
    }

    /// When the first one of those that are left alone may go.
    pub(super) fn parked_until(&self) -> Option<UnixMillis> {
        self.parked.iter().map(|(_, until)| *until).min()
    }

    /// What was to be left alone until now may go.
    pub(super) fn unpark(&mut self, now: UnixMillis) {
        self.parked.retain(|(_, until)| now < *until);
    }

    /// Nothing is left alone any more.
    pub(super) fn unpark_all(&mut self) {
        self.parked.clear();
    }

    /// Events of it that wait for their turn only.
    #[cfg(test)]
    pub(super) fn ready(&self) -> usize {
        self.kinds.iter().map(|kind| kind.ready.len()).sum()
    }

    pub(super) fn has_ready(&self, repeated: usize) -> bool {
        !self.kinds[repeated].ready.is_empty()
    }

    /// How many are ready of each kind.
    pub(super) fn ready_of_each(&self) -> [usize; 2] {
        self.kinds.each_ref().map(|kind| kind.ready.len())
    }

    /// Takes a due event, which is not in memory.
    pub(super) fn take(&mut self, row: EventRow, repeated: usize) {
        self.kinds[repeated].ready.push_back(row);
    }

    /// Whether an event that is not in memory may go without being read: a first attempt, where nothing waits to be read, neither first attempts nor
    /// repeated ones, and what the application allows is known.
    pub(super) fn is_next(&self, event: &EventRow) -> bool {
        let is_first = event.attempts == 0 && event.due_at.is_some() && event.behind.is_none();
        let is_known = self.url.is_some() && self.rests_until.is_none();
        let waits = self.kinds.iter().any(|kind| kind.has_more) || self.kinds[0].ready.len() >= PORTION_MIN;
        is_first && is_known && !waits
    }

    /// The store may have more of both kinds.
    pub(super) fn expect_more(&mut self) {
        self.expect([true; 2]);
    }

    pub(super) fn expect_nothing(&mut self) {
        self.expect([false; 2]);
    }

    pub(super) fn expect(&mut self, has_more: [bool; 2]) {
        for (kind, has_more) in self.kinds.iter_mut().zip(has_more) {
            kind.has_more = has_more;
        }
    }

    /// Whether a turn is of use.
    pub(super) fn has_work(&self) -> bool {
        self.kinds.iter().any(|kind| kind.has_more || !kind.ready.is_empty())
    }

    /// Whether nothing of it is in memory, or on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.stands == Stands::Out && self.in_flight.is_empty() && self.unrecorded.is_empty() && !self.has_work()
    }

    /// Whether a new one would be the same.
    pub(super) fn is_forgettable(&self) -> bool {
        self.is_idle()
            && self.health.is_unknown()
            && self.rests_until.is_none()
            && self.parked.is_empty()
            && self.last.is_none()
    }

    /// The endpoint has answered; what came of it is still to be recorded.
    pub(super) fn answered(&mut self, event: EventNo) {
        self.in_flight.retain(|e| *e != event);
        self.unrecorded.push(event);
    }

    /// Whether the endpoint has answered an attempt that is not recorded.
    pub(super) fn is_unrecorded(&self, event: EventNo) -> bool {
        self.unrecorded.contains(&event)
    }

    pub(super) fn landed(&mut self, event: EventNo) {
        self.in_flight.retain(|e| *e != event);
        self.unrecorded.retain(|e| *e != event);
    }

    pub(super) const fn rest(&mut self, until: UnixMillis) {
        self.rests_until = Some(until);
    }

    /// It rests no longer: whether it did.
    pub(super) const fn wake(&mut self) -> bool {
        self.rests_until.take().is_some()
    }

    /// Takes out what is ready; the store still has it. Whoever drops it notes when to look again, or gives up.
    pub(super) fn drop_ready(&mut self) -> Chain<Drain<'_, EventRow>, Drain<'_, EventRow>> {
        let [first, again] = &mut self.kinds;
        first.ready.drain(..).chain(again.ready.drain(..))
    }

    /// Attempts of it that are under way.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What is known of another URL is not known of this one.
    pub(super) fn knows(&mut self, client_id: &str, url: u64, allows: Allows) {
        if *self.client_id != *client_id {
            self.client_id = client_id.into();
        }
        if self.url.replace(url).is_some_and(|before| before != url) {
            (self.health, self.last) = (Health::new(allows.at_once), None);
        }
        self.health.allow(allows.at_once);
        self.pace.set(allows.per_s);
    }
}
