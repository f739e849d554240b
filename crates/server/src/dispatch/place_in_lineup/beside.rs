//! What goes beside the attempts that an endpoint may have by now.
//!
//! - **What was never tried** does not wait for what hangs again.
//! - **What is overdue** at an endpoint that is away: it has been due for as long as its whole schedule takes. Such an endpoint is tried now and then, and its
//!   events keep their attempts meanwhile; where more is written than it is tried with, all of that would stay pending for ever. So it goes once more,
//!   for the last time.

use countersign_domain::delivery::is_overdue;
use countersign_domain::ids::EventNo;
use countersign_domain::time::UnixMillis;

use super::{Considered, Place, UnderWay};

/// Whoever may have fewer at once keeps none for what is new.
const FOR_NEW_MOST_MIN: usize = 4;
/// Between two attempts at what is overdue, in ms; and where it has been due for twice as long as its schedule takes: as many as are read in the pause of
/// an endpoint that is away.
const OVERDUE_MS: i64 = 1_000;
const LONG_OVERDUE_MS: i64 = 300;
/// So many of these are under way at once: they take places of all endpoints that fail.
const OVERDUE_MOST: usize = 2;

impl Place {
    /// Whether a first attempt may begin beside what is repeated and takes up all that the endpoint may have by now. One: how it fares says whether more
    /// may.
    pub(super) fn may_begin_beside(&self, under_way: usize) -> bool {
        let [first, _] = &self.kinds;
        let has_first = first.has_more || !first.ready.is_empty();
        has_first && self.health.has_room_at_the_most(under_way) && self.in_flight.iter().all(|one| one.is_repeat)
    }

    /// Whether one more would be the last, and so many hang that it may be the only one that does not.
    pub(super) const fn is_for_new(&self, under_way: usize, slow: usize) -> bool {
        let most = self.health.most();
        most >= FOR_NEW_MOST_MIN && under_way + 1 == most && slow * 2 >= most
    }

    /// Of an endpoint that has as many as it may, until then or until one has landed: where it is away what is overdue goes all the same, within all that the
    /// endpoint may have.
    pub(super) fn overdue(&mut self, until: Option<UnixMillis>, now: UnixMillis) -> Considered {
        let waits = until.map_or(Considered::AtLimit, Considered::Rests);
        let has_room = self.goes_beside() < OVERDUE_MOST && self.in_flight() < self.health.most();
        let Some(([kind, at], every_ms)) = self.next_overdue(now).filter(|_| has_room) else { return waits };
        let next = self.overdue_next.filter(|next| (1..=OVERDUE_MS).contains(&next.0.saturating_sub(now.0)));
        if let Some(next) = next.into_iter().chain(self.pace.wait(now)).max() {
            return Considered::Rests(until.map_or(next, |until| until.min(next)));
        }
        let Some(event) = self.kinds[kind].ready.remove(at) else { return waits };
        self.in_flight.push(UnderWay {
            event: event.no,
            began: now,
            by_hand: event.by_hand,
            is_repeat: kind > 0,
            is_overdue: true,
            url: self.url,
        });
        self.overdue_next = Some(now.plus_ms(every_ms));
        self.pace.begins(now);
        Considered::Begin(Box::new(event))
    }

    /// Where what has been due longest stands, by kind, if that is overdue, and how soon another one may follow. What is sent again by hand has no end of
    /// its own.
    fn next_overdue(&self, now: UnixMillis) -> Option<([usize; 2], i64)> {
        let whole_ms = self.whole_ms.filter(|_| self.health.is_away(now))?;
        let places = self.kinds.iter().enumerate().flat_map(|(kind, of)| {
            let due = of.ready.iter().enumerate().filter(|(_, event)| !event.by_hand);
            due.filter_map(move |(at, event)| Some((event.due_at?, [kind, at])))
        });
        let (due_at, place) = places.min().filter(|(due_at, _)| is_overdue(*due_at, whole_ms, now))?;
        let is_long = is_overdue(due_at, whole_ms.saturating_mul(2), now);
        Some((place, if is_long { LONG_OVERDUE_MS } else { OVERDUE_MS }))
    }

    /// Whether an attempt goes for having been overdue. That nobody answers it says nothing new of its endpoint, and nothing of one that is back meanwhile.
    /// Whoever answers that there is too much to do is there, and rests as long as before.
    pub(in crate::dispatch) fn goes_overdue(&self, event: EventNo) -> bool {
        self.in_flight.iter().any(|one| one.event == event && one.is_overdue)
    }

    /// How many of these are under way.
    fn goes_beside(&self) -> usize {
        self.in_flight() - self.tries()
    }

    /// How many attempts are under way that say how the endpoint is.
    pub(super) fn tries(&self) -> usize {
        self.here().count()
    }
}
