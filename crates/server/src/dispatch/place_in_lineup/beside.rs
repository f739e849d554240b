//! What goes beside the attempts that an endpoint may have by now.
//!
//! - **What was never tried** does not wait for what hangs again.
//! - **What is overdue**: it has been due for as long as its whole schedule takes, since its endpoint fails as a whole. Such a one is tried now and then,
//!   and its events keep their attempts meanwhile; where more is written than it is tried with, all of that would stay pending for ever. So it goes once
//!   more, for the last time.

use countersign_domain::delivery::is_overdue;
use countersign_domain::ids::EventNo;
use countersign_domain::time::UnixMillis;

use super::{Considered, Kind, Place, UnderWay};

/// Whoever may have fewer at once keeps none for what is new.
const FOR_NEW_MOST_MIN: usize = 4;
/// Between two attempts at what is overdue, in ms.
const OVERDUE_MS: i64 = 1_000;

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

    /// Of an endpoint that has as many as it may, until then or until one has landed: where it is left alone what is overdue goes all the same, one a second
    /// and as many at once as the endpoint may have at the most.
    pub(super) fn overdue(&mut self, until: Option<UnixMillis>, now: UnixMillis) -> Considered {
        let waits = until.map_or(Considered::AtLimit, Considered::Rests);
        let Some(repeated) = self.next_overdue(now).filter(|_| self.in_flight() < self.health.most()) else {
            return waits;
        };
        let next = self.overdue_next.filter(|next| (1..=OVERDUE_MS).contains(&next.0.saturating_sub(now.0)));
        if let Some(next) = next.into_iter().chain(self.pace.wait(now)).max() {
            return Considered::Rests(until.map_or(next, |until| until.min(next)));
        }
        let Some(event) = self.kinds[repeated].ready.pop_front() else { return waits };
        let (is_repeat, by_hand) = (repeated > 0, event.by_hand);
        self.in_flight.push(UnderWay {
            event: event.no,
            began: now,
            by_hand,
            is_repeat,
            is_overdue: true,
            url: self.url,
        });
        self.overdue_next = Some(now.plus_ms(OVERDUE_MS));
        self.pace.begins(now);
        Considered::Begin(Box::new(event))
    }

    /// Which kind begins with what has been due longest, if that is overdue. What is sent again by hand has no end of its own.
    fn next_overdue(&self, now: UnixMillis) -> Option<usize> {
        let whole_ms = self.whole_ms.filter(|_| self.health.is_open())?;
        let due = |kind: &Kind| kind.ready.front().filter(|event| !event.by_hand).and_then(|event| event.due_at);
        let of_each = self.kinds.iter().enumerate().filter_map(|(kind, of)| Some((due(of)?, kind)));
        of_each.min().filter(|(due_at, _)| is_overdue(*due_at, whole_ms, now)).map(|(_, kind)| kind)
    }

    /// Whether an attempt goes for having been overdue. That it fails says nothing new of its endpoint.
    pub(in crate::dispatch) fn goes_overdue(&self, event: EventNo) -> bool {
        self.in_flight.iter().any(|one| one.event == event && one.is_overdue)
    }

    /// How many attempts are under way that say how the endpoint is: of one that is left alone those that are to try it.
    pub(super) fn tries(&self) -> usize {
        let overdue = self.in_flight.iter().filter(|one| one.is_overdue && one.url == self.url).count();
        self.in_flight() - if self.health.is_open() { overdue } else { 0 }
    }
}
