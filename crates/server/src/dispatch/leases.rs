//! The lanes that this node delivers for, and until when: bookkeeping in memory, without IO.
//!
//! Invariant: an attempt begins only under a lease that has not run out by the monotonic clock, counted from before the heartbeat that gave
//! it was sent. So it ends here no later than the database gives the lane to somebody else, and a process that was stopped begins nothing
//! when it wakes up.

use std::cmp::Reverse;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use countersign_domain::lanes::{Fence, LANES, Lane, LaneSet, fair_share};
use countersign_store::nodes::Tended;
use tokio::time::Instant;

/// A lane that this node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Term {
    fence: Fence,
    /// When it ends unless it is renewed; none: never.
    until: Option<Instant>,
    /// When this node took it.
    taken: Instant,
    /// It is to be given back: nothing more begins, and it goes when the last attempt has landed.
    leaves: bool,
}

impl Term {
    fn is_open(&self, now: Instant) -> bool {
        !self.leaves && self.until.is_none_or(|until| now < until)
    }
}

/// The terms of the lanes that the last heartbeat found to be this node's, whether they have lapsed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms([Option<Fence>; LANES as usize]);

impl Terms {
    /// No lane at all.
    pub(super) const NONE: Self = Self([None; LANES as usize]);

    /// The term of a lane; none: it is another node's.
    pub(super) fn of(&self, lane: Lane) -> Option<Fence> {
        self.0[at(lane)]
    }

    /// The lanes.
    pub(super) fn lanes(&self) -> LaneSet {
        Lane::all().filter(|lane| self.of(*lane).is_some()).collect()
    }

    /// Lanes that were this node's before, too, under another term: another node may have had them in between.
    pub(super) fn taken_again_since(&self, before: &Self) -> LaneSet {
        // As before each pass but a few.
        if self == before {
            return LaneSet::NONE;
        }
        let was_lost =
            |lane: &Lane| self.of(*lane).is_some() && before.of(*lane).is_some_and(|term| self.of(*lane) != Some(term));
        Lane::all().filter(was_lost).collect()
    }
}

/// What a heartbeat says of the lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) held: Vec<(Lane, Fence)>,
    pub(super) give_back: Vec<(Lane, Fence)>,
}

/// A portion that is under way in a lane; the lane is not given back meanwhile.
#[must_use]
pub(super) struct HeldLane<'a> {
    leases: &'a Leases,
    lane: Lane,
}

impl Drop for HeldLane<'_> {
    fn drop(&mut self) {
        self.leases.land(self.lane);
    }
}

#[derive(Debug)]
struct Book {
    terms: [Option<Term>; LANES as usize],
    /// Attempts that have begun in each lane and not landed, whatever their term.
    in_flight: [usize; LANES as usize],
    /// This node ends: each lane leaves, whatever a heartbeat takes yet.
    all_leave: bool,
}

/// All lanes that this node holds.
#[derive(Debug)]
pub(super) struct Leases(Mutex<Book>);

impl Leases {
    /// Every lane, for ever: nobody else delivers.
    pub(super) fn alone() -> Self {
        Self::each(Some(Term { fence: Fence(0), until: None, taken: Instant::now(), leaves: false }))
    }

    /// None yet.
    pub(super) const fn none() -> Self {
        Self::each(None)
    }

    const fn each(term: Option<Term>) -> Self {
        Self(Mutex::new(Book { terms: [term; LANES as usize], in_flight: [0; LANES as usize], all_leave: false }))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lanes in which attempts may begin.
    pub(super) fn open(&self, now: Instant) -> LaneSet {
        let terms = self.book().terms;
        Lane::all().filter(|lane| terms[at(*lane)].is_some_and(|term| term.is_open(now))).collect()
    }

    /// The same, and the terms of all lanes of this node at that moment.
    pub(super) fn open_under(&self, now: Instant) -> (LaneSet, Terms) {
        let terms = self.book().terms;
        let open = Lane::all().filter(|lane| terms[at(*lane)].is_some_and(|term| term.is_open(now))).collect();
        (open, Terms(terms.map(|term| term.map(|term| term.fence))))
    }

    /// Begins an attempt in this lane, where that may be: the term under which. It counts as in flight until it has landed.
    pub(super) fn begin(&self, lane: Lane, now: Instant) -> Option<Fence> {
        self.begin_if(lane, now, |_| true)
    }

    /// The same of an event that was found under this term: under another one another node may have delivered it meanwhile.
    pub(super) fn begin_under(&self, lane: Lane, found: Option<Fence>, now: Instant) -> Option<Fence> {
        self.begin_if(lane, now, |fence| Some(fence) == found)
    }

    fn begin_if(&self, lane: Lane, now: Instant, may: impl FnOnce(Fence) -> bool) -> Option<Fence> {
        let mut book = self.book();
        let term = book.terms[at(lane)].filter(|term| term.is_open(now) && may(term.fence))?;
        book.in_flight[at(lane)] += 1;
        Some(term.fence)
    }

    /// As [`begin`](Self::begin), of a portion of other work: it has landed once what is given back with the term is dropped.
    pub(super) fn hold(&self, lane: Lane, now: Instant) -> Option<(Fence, HeldLane<'_>)> {
        let fence = self.begin(lane, now)?;
        Some((fence, HeldLane { leases: self, lane }))
    }

    /// An attempt that has begun in this lane has landed.
    pub(super) fn land(&self, lane: Lane) {
        let mut book = self.book();
        book.in_flight[at(lane)] = book.in_flight[at(lane)].saturating_sub(1);
    }

    /// Whether this term has neither run out nor ended.
    pub(super) fn holds(&self, lane: Lane, fence: Fence, now: Instant) -> bool {
        self.book().terms[at(lane)]
            .is_some_and(|term| term.fence == fence && term.until.is_none_or(|until| now < until))
    }

    /// Another node has taken this lane: its term is over, whatever our clock says.
    pub(super) fn lose(&self, lane: Lane, fence: Fence) {
        let term = &mut self.book().terms[at(lane)];
        *term = term.filter(|term| term.fence != fence);
    }

    /// Nothing begins any more, and each lane is given back once nothing is in flight in it.
    pub(super) fn leave(&self) {
        let mut book = self.book();
        book.all_leave = true;
        book.terms.iter_mut().flatten().for_each(|term| term.leaves = true);
    }

    /// Whatever was in flight is so no more: each lane may be given back. Results that the database has taken in and not judged go by their fences.
    pub(super) fn cut_off(&self) {
        self.book().in_flight = [0; LANES as usize];
    }

    /// Whether this node ends.
    pub(super) fn all_leave(&self) -> bool {
        self.book().all_leave
    }

    /// What the next heartbeat says: lanes that leave are given back once nothing is in flight in them.
    pub(super) fn word(&self) -> Word {
        let book = self.book();
        let mut word = Word::default();
        for lane in Lane::all() {
            if let Some(term) = book.terms[at(lane)] {
                let goes = term.leaves && book.in_flight[at(lane)] == 0;
                if goes { &mut word.give_back } else { &mut word.held }.push((lane, term.fence));
            }
        }
        word
    }

    /// Takes note of what a heartbeat that was sent at `sent` found. What is more than the fair share leaves: first what nothing is in flight in, which
    /// can go at once; of that first what was taken last, of whose endpoints this node knows least; from the last lane on.
    pub(super) fn tended(&self, tended: &Tended, sent: Instant, lease: Duration) {
        let mut book = self.book();
        let Book { terms, in_flight, all_leave } = &mut *book;
        let before = std::mem::replace(terms, [None; LANES as usize]);
        for (lane, fence) in &tended.held {
            let same = before[at(*lane)].filter(|term| term.fence == *fence);
            let leaves = *all_leave || same.is_some_and(|term| term.leaves);
            let taken = same.map_or(sent, |term| term.taken);
            terms[at(*lane)] = Some(Term { fence: *fence, until: Some(sent + lease), taken, leaves });
        }
        let mut staying: Vec<(bool, Reverse<Instant>, Reverse<usize>)> = Vec::with_capacity(terms.len());
        for (lane, term) in terms.iter().enumerate() {
            if let Some(term) = term.filter(|term| !term.leaves) {
                staying.push((in_flight[lane] > 0, Reverse(term.taken), Reverse(lane)));
            }
        }
        staying.sort_unstable();
        let share = usize::try_from(fair_share(tended.nodes_alive)).unwrap_or(usize::MAX);
        let surplus = staying.len().saturating_sub(share);
        for (_, _, Reverse(lane)) in staying.into_iter().take(surplus) {
            if let Some(term) = &mut terms[lane] {
                term.leaves = true;
            }
        }
    }
}

fn at(lane: Lane) -> usize {
    usize::from(lane.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);

    fn lane(number: u8) -> Lane {
        Lane::new(number).expect("a lane")
    }

    fn tended(lanes: std::ops::Range<u8>, fence: i64, nodes_alive: u32) -> Tended {
        Tended {
            held: lanes.map(|number| (lane(number), Fence(fence))).collect(),
            nodes_alive,
            others: Vec::new(),
            seen: None,
        }
    }

    #[test]
    fn a_lease_ends_by_the_time_it_was_asked_for_and_is_renewed_by_the_next() {
        let leases = Leases::none();
        let sent = Instant::now();
        assert!(leases.open(sent).is_empty() && leases.begin(lane(3), sent).is_none());
        leases.tended(&tended(0..64, 1, 1), sent, LEASE);
        assert_eq!(leases.open(sent), LaneSet::ALL);
        assert_eq!(leases.begin(lane(3), sent + LEASE - Duration::from_millis(1)), Some(Fence(1)));
        assert!(leases.begin(lane(3), sent + LEASE).is_none() && leases.open(sent + LEASE).is_empty());
        assert!(!leases.holds(lane(3), Fence(1), sent + LEASE));
        assert_eq!(
            leases.open_under(Instant::now()).1.lanes(),
            LaneSet::ALL,
            "nobody has said that they are another node's"
        );
        leases.tended(&tended(0..64, 1, 1), sent + LEASE, LEASE);
        assert!(leases.holds(lane(3), Fence(1), sent + LEASE));
        assert!(!leases.holds(lane(3), Fence(2), sent + LEASE), "another term");
    }

    #[test]
    fn what_another_node_took_is_lost_and_under_its_own_next_term_no_older_one_holds() {
        let leases = Leases::none();
        let now = Instant::now();
        leases.tended(&tended(0..64, 1, 1), now, LEASE);
        leases.tended(&tended(0..10, 1, 1), now, LEASE);
        assert_eq!(leases.open(now).len(), 10);
        assert_eq!(leases.open_under(now).1.lanes(), leases.open(now), "what another node has is named no more");
        leases.tended(&tended(0..64, 3, 1), now, LEASE);
        assert!(!leases.holds(lane(3), Fence(1), now) && leases.holds(lane(3), Fence(3), now));
        leases.lose(lane(3), Fence(1));
        assert!(leases.holds(lane(3), Fence(3), now), "an older term's end is known");
        leases.lose(lane(3), Fence(3));
        assert_eq!((leases.begin(lane(3), now), leases.open(now).len()), (None, 63));
    }

    #[test]
    fn the_surplus_leaves_at_once_and_what_something_is_in_flight_in_goes_last() {
        let leases = Leases::none();
        let now = Instant::now();
        leases.tended(&tended(0..64, 1, 1), now, LEASE);
        assert_eq!(leases.begin(lane(40), now), Some(Fence(1)));
        leases.tended(&tended(0..64, 1, 2), now, LEASE);
        assert_eq!(leases.open(now), (0..31).chain([40]).map(lane).collect());
        assert_eq!(leases.word().give_back.len(), 32, "all of it can go");
        // With more nodes than lanes each has one.
        leases.tended(&tended(0..64, 1, 64), now, LEASE);
        assert_eq!(leases.open(now), [lane(40)].into_iter().collect());
        let others = Tended {
            held: vec![(lane(40), Fence(1)), (lane(50), Fence(1))],
            nodes_alive: 64,
            others: vec![],
            seen: None,
        };
        leases.tended(&others, now, LEASE);
        assert_eq!(leases.open(now), [lane(40)].into_iter().collect(), "what leaves goes on leaving");
    }

    #[test]
    fn what_was_taken_last_leaves_first() {
        let leases = Leases::none();
        let now = Instant::now();
        leases.tended(&tended(32..64, 1, 2), now, LEASE);
        // The other node was killed, and is back.
        let mut both = tended(0..64, 1, 1);
        both.held[..32].iter_mut().for_each(|(_, fence)| *fence = Fence(2));
        leases.tended(&both, now + LEASE, LEASE);
        assert_eq!(leases.begin(lane(5), now + LEASE), Some(Fence(2)));
        leases.tended(&Tended { nodes_alive: 2, ..both.clone() }, now + LEASE, LEASE);
        assert_eq!(
            leases.open(now + LEASE),
            (32..63).chain([5]).map(lane).collect(),
            "but what something is in flight in stays"
        );
        // A term of its own that another node had in between is a new one.
        both.held[63].1 = Fence(3);
        leases.land(lane(5));
        leases.tended(&Tended { nodes_alive: 3, ..both }, now + 2 * LEASE, LEASE);
        assert_eq!(leases.open(now + 2 * LEASE), (32..54).map(lane).collect());
    }

    #[test]
    fn a_lane_that_leaves_goes_when_nothing_is_in_flight_in_it() {
        let leases = Leases::none();
        let now = Instant::now();
        leases.tended(&tended(40..42, 1, 1), now, LEASE);
        assert_eq!(leases.begin(lane(40), now), Some(Fence(1)));
        let (_, portion) = leases.hold(lane(41), now).expect("it is open");
        leases.tended(&tended(40..42, 1, 64), now, LEASE);
        assert_eq!(leases.open(now), [lane(40)].into_iter().collect(), "one is its share");
        assert!(leases.begin(lane(41), now).is_none() && leases.hold(lane(41), now).is_none(), "nothing begins in it");
        assert!(leases.holds(lane(41), Fence(1), now), "what is in flight goes on");
        let word = leases.word();
        assert_eq!((word.held.len(), word.give_back.len()), (2, 0));
        leases.tended(&tended(40..42, 1, 1), now, LEASE);
        assert!(leases.begin(lane(41), now).is_none(), "it still leaves");
        drop(portion);
        assert_eq!(leases.word().give_back, [(lane(41), Fence(1))]);
        assert_eq!(leases.word().held, [(lane(40), Fence(1))]);
    }

    #[test]
    fn whoever_ends_begins_nothing_and_gives_each_lane_back_when_nothing_is_in_flight_in_it() {
        let leases = Leases::none();
        let now = Instant::now();
        leases.tended(&tended(0..64, 1, 1), now, LEASE);
        assert_eq!(leases.begin(lane(40), now), Some(Fence(1)));
        assert!(!leases.all_leave());
        leases.leave();
        assert!(leases.all_leave() && leases.open(now).is_empty());
        assert!(leases.begin(lane(41), now).is_none() && leases.hold(lane(40), now).is_none(), "nothing begins");
        assert!(leases.holds(lane(40), Fence(1), now), "what is in flight goes on");
        let word = leases.word();
        assert_eq!((word.held, word.give_back.len()), (vec![(lane(40), Fence(1))], 63));
        // A heartbeat that was under way may have taken another one.
        let held = vec![(lane(40), Fence(1)), (lane(50), Fence(7))];
        leases.tended(&Tended { held, nodes_alive: 2, others: Vec::new(), seen: None }, now, LEASE);
        assert!(leases.open(now).is_empty(), "it leaves, too");
        assert_eq!(leases.word().give_back, [(lane(50), Fence(7))]);
        leases.cut_off();
        assert_eq!(leases.word().give_back, [(lane(40), Fence(1)), (lane(50), Fence(7))]);
        leases.land(lane(40));
        assert_eq!(leases.word().give_back.len(), 2, "what lands late is none in flight");
    }

    #[test]
    fn a_node_alone_holds_every_lane_for_ever() {
        let leases = Leases::alone();
        assert_eq!(leases.open(Instant::now() + Duration::from_secs(1_000_000)), LaneSet::ALL);
        assert_eq!(leases.begin(lane(63), Instant::now()), Some(Fence(0)));
    }
}
