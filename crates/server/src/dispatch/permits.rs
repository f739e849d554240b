//! How many attempts may be under way, and whose.

use std::collections::VecDeque;

use countersign_domain::ids::{EventNo, TenantNo};
use countersign_domain::time::UnixMillis;
use foldhash::HashMap;

use super::health::Class;

/// An attempt that takes longer than this counts as slow, in ms.
pub(super) const SLOW_MS: i64 = 1_000;

/// How much may be in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Attempts at once that are not slow.
    pub(super) in_flight: usize,
    /// Attempts at once that are slow.
    pub(super) slow: usize,
    /// Attempts at once of one application.
    pub(super) per_application: usize,
    /// Attempts at once of one merchant that are not slow. A merchant is an institution with its sub-accounts, or a plain one.
    pub(super) per_merchant: usize,
}

/// Whose permit it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) class: Class,
    pub(super) tenant: TenantNo,
    pub(super) event: EventNo,
}

/// Who may begin one more attempt of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    None,
    /// Merchants that have nothing under way.
    ForIdle,
    ForAll,
}

/// What a merchant has under way.
#[derive(Clone, Copy, Debug, Default)]
struct Of {
    fast: usize,
    /// Of these, those at endpoints that have answered.
    proven: usize,
    slow: usize,
}

#[derive(Debug)]
pub(super) struct Permits {
    bounds: Bounds,
    held: HashMap<EventNo, Attempt>,
    /// Attempts so far: an event may go again before the entry of its last attempt has left the line.
    taken: u64,
    /// Not slow, by class.
    fast: [usize; 3],
    /// Slow, by class.
    slow: [usize; 3],
    /// Of those that have something under way.
    of: HashMap<TenantNo, Of>,
    /// Those that may turn slow, by class, in the order of their beginning: when, whose, which attempt.
    young: [VecDeque<Young>; 3],
    /// Those that would have turned slow, but for what their merchant has among the slow: they may when one of these is over.
    kept: [VecDeque<Young>; 3],
}

/// When an attempt began, of what, and which one it is.
type Young = (UnixMillis, EventNo, u64);

#[derive(Clone, Copy, Debug)]
struct Attempt {
    held: Held,
    number: u64,
    is_slow: bool,
    is_kept: bool,
}

impl Permits {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            held: HashMap::default(),
            taken: 0,
            fast: [0; 3],
            slow: [0; 3],
            of: HashMap::default(),
            young: Default::default(),
            kept: Default::default(),
        }
    }

    /// Attempts in flight.
    pub(super) fn flights(&self) -> usize {
        self.held.len()
    }

    /// Who may begin one more of this class. The last eighth of what a class may have is for merchants that have nothing under way: whoever
    /// hangs has, so they do not wait for it, whatever their class.
    pub(super) fn room(&self, class: Class) -> Room {
        let all = self.bounds.in_flight;
        let (unproven, failing) = ((3 * all).div_ceil(4), all.div_ceil(2));
        let [proven, new, suspect] = self.fast;
        let left = |most: usize, taken: usize| (most.saturating_sub(taken), most / 8);
        let shares = [
            left(all, proven + new + suspect),
            left(if class == Class::Proven { usize::MAX } else { unproven }, new + suspect),
            left(if class == Class::Suspect { failing } else { usize::MAX }, suspect),
        ];
        if shares.iter().any(|(left, _)| *left == 0) {
            Room::None
        } else if shares.iter().any(|(left, kept)| left <= kept) {
            Room::ForIdle
        } else {
            Room::ForAll
        }
    }

    /// Whether one more of this merchant may begin.
    pub(super) fn has_room_of(&self, tenant: TenantNo) -> bool {
        self.of.get(&tenant).is_none_or(|of| of.fast < self.bounds.per_merchant)
    }

    /// Whether this merchant has nothing under way; or nothing but what goes well, where the class is none of endpoints that have answered: a busy
    /// merchant's new endpoint is as new as any other's.
    pub(super) fn is_idle(&self, tenant: TenantNo, class: Class) -> bool {
        self.of.get(&tenant).is_none_or(|of| class != Class::Proven && of.fast == of.proven && of.slow == 0)
    }

    pub(super) fn take(&mut self, held: Held, now: UnixMillis) {
        self.taken += 1;
        self.held.insert(held.event, Attempt { held, number: self.taken, is_slow: false, is_kept: false });
        self.fast[held.class as usize] += 1;
        let of = self.of.entry(held.tenant).or_default();
        of.fast += 1;
        of.proven += usize::from(held.class == Class::Proven);
        self.young[held.class as usize].push_back((now, held.event, self.taken));
    }

    /// An attempt is over.
    pub(super) fn give_back(&mut self, event: EventNo) {
        let Some(Attempt { held, number, is_slow, is_kept }) = self.held.remove(&event) else { return };
        if is_slow {
            self.slow[held.class as usize] -= 1;
            let Some(of) = self.of.get_mut(&held.tenant) else { return };
            of.slow -= 1;
            self.look_again_at_one_of(held.tenant);
        } else {
            if is_kept {
                self.kept[held.class as usize].retain(|(.., kept)| *kept != number);
            }
            self.is_fast_no_more(held);
        }
        if self.of.get(&held.tenant).is_some_and(|of| of.fast + of.slow == 0) {
            self.of.remove(&held.tenant);
        }
    }

    /// Of a merchant that has one fewer among the slow, the oldest one that was kept from them. There are no more of these than fast permits.
    fn look_again_at_one_of(&mut self, tenant: TenantNo) {
        for at in 0..self.kept.len() {
            let is_of = |(_, event, _): &Young| self.held.get(event).is_some_and(|kept| kept.held.tenant == tenant);
            let Some(entry) = self.kept[at].iter().position(is_of).and_then(|found| self.kept[at].remove(found)) else {
                continue;
            };
            if let Some(attempt) = self.held.get_mut(&entry.1) {
                attempt.is_kept = false;
            }
            self.young[at].push_front(entry);
            return;
        }
    }

    fn is_fast_no_more(&mut self, held: Held) {
        self.fast[held.class as usize] -= 1;
        if let Some(of) = self.of.get_mut(&held.tenant) {
            of.fast -= 1;
            of.proven -= usize::from(held.class == Class::Proven);
        }
    }

    /// What has taken long by now gives its permit back, where there is room among the slow. Where its merchant has its share of these it keeps
    /// the permit until one of them is over.
    pub(super) fn age(&mut self, now: UnixMillis) {
        for class in Class::ALL {
            let at = class as usize;
            while let Some((began, event, number)) = self.young[at].front().copied() {
                let of_this = |attempt: &&Attempt| attempt.number == number;
                let held = self.held.get(&event).filter(of_this).map(|attempt| attempt.held);
                if held.is_some() && (now < began.plus_ms(SLOW_MS) || !self.has_room_among_the_slow(class)) {
                    break;
                }
                self.young[at].pop_front();
                let Some(held) = held else { continue };
                let is_slow = self.has_room_among_the_slow_of(held.tenant, class);
                if is_slow {
                    self.is_fast_no_more(held);
                    self.slow[at] += 1;
                    self.of.entry(held.tenant).or_default().slow += 1;
                } else {
                    self.kept[at].push_back((began, event, number));
                }
                self.held.insert(event, Attempt { held, number, is_slow, is_kept: !is_slow });
            }
        }
    }

    fn has_room_among_the_slow(&self, class: Class) -> bool {
        self.free_among_the_slow(class) > 0
    }

    /// Endpoints that fail leave a quarter to those that do not.
    fn free_among_the_slow(&self, class: Class) -> usize {
        let all = self.bounds.slow;
        let share = match class {
            Class::Proven | Class::New => all,
            Class::Suspect => all - all / 4,
        };
        all.saturating_sub(self.slow.iter().sum()).min(share.saturating_sub(self.slow[class as usize]))
    }

    /// Whether one more of this merchant may be among the slow: while it has fewer than four times as many as are free. The first merchant
    /// comes to four fifths of them, and each that comes later to four fifths of what was left (dynamic thresholds, Choudhury and Hahne 1998).
    fn has_room_among_the_slow_of(&self, tenant: TenantNo, class: Class) -> bool {
        let free = self.free_among_the_slow(class);
        self.of.get(&tenant).is_none_or(|of| of.slow < free.saturating_mul(4))
    }

    /// When the first one may turn slow.
    pub(super) fn first_aged_at(&self) -> Option<UnixMillis> {
        let may = |class: &Class| self.has_room_among_the_slow(*class);
        let first = |class: Class| self.young[class as usize].front().map(|(began, ..)| began.plus_ms(SLOW_MS));
        Class::ALL.into_iter().filter(may).filter_map(first).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { in_flight: 4, slow: 4, per_application: 4, per_merchant: 4 };

    fn held(event: i64) -> Held {
        Held { class: Class::Proven, tenant: TenantNo(1), event: EventNo(event) }
    }

    #[test]
    fn an_event_that_goes_again_within_a_second_is_counted_once_and_from_its_own_beginning() {
        let mut permits = Permits::new(BOUNDS);
        permits.take(held(1), UnixMillis(0));
        permits.give_back(EventNo(1));
        permits.take(held(1), UnixMillis(500));
        permits.age(UnixMillis(1_000));
        assert_eq!((permits.fast, permits.slow), ([1, 0, 0], [0; 3]), "it has taken half a second");
        permits.age(UnixMillis(1_500));
        assert_eq!((permits.fast, permits.slow), ([0; 3], [1, 0, 0]));
        permits.take(held(2), UnixMillis(1_600));
        permits.age(UnixMillis(9_000));
        assert_eq!((permits.fast, permits.slow), ([0; 3], [2, 0, 0]));
        permits.give_back(EventNo(1));
        permits.give_back(EventNo(2));
        assert_eq!((permits.fast, permits.slow, permits.flights()), ([0; 3], [0; 3], 0));
        assert!(permits.of.is_empty());
    }

    #[test]
    fn the_slow_of_all_classes_have_a_bound_and_those_that_fail_leave_a_part_of_it() {
        let slow = |classes: [Class; 8]| {
            let mut permits = Permits::new(BOUNDS);
            for (event, class) in (1..).zip(classes) {
                permits.take(Held { class, ..held(event) }, UnixMillis(0));
            }
            permits.age(UnixMillis(9_000));
            permits.slow
        };
        assert_eq!(slow([Class::Suspect; 8]), [0, 0, 3]);
        let [proven, new] = [Class::Proven, Class::New];
        assert_eq!(slow([proven, new, proven, new, proven, new, proven, Class::Suspect]), [4, 0, 0]);
    }

    #[test]
    fn each_merchant_has_four_fifths_of_the_slow_that_those_before_it_have_left() {
        for (class, slow) in [(Class::Proven, 90), (Class::New, 90), (Class::Suspect, 120)] {
            let mut permits = Permits::new(Bounds { in_flight: 400, slow, ..BOUNDS });
            let mut of_slow = |tenant: i64| {
                for event in tenant * 100..tenant * 100 + 100 {
                    permits.take(Held { tenant: TenantNo(tenant), class, ..held(event) }, UnixMillis(0));
                }
                permits.age(UnixMillis(9_000));
                (permits.of[&TenantNo(tenant)].slow, permits.of[&TenantNo(tenant)].fast)
            };
            assert_eq!([1, 2, 3, 4].map(&mut of_slow), [(72, 28), (15, 85), (3, 97), (0, 100)], "{class:?}");
            (100..500).for_each(|event| permits.give_back(EventNo(event)));
            let left = (permits.of.len(), permits.kept.iter().map(VecDeque::len).sum::<usize>());
            assert_eq!((permits.fast, permits.slow, left), ([0; 3], [0; 3], (0, 0)));
        }
    }

    #[test]
    fn what_its_merchants_share_kept_from_the_slow_turns_slow_when_one_of_these_is_over() {
        let mut permits = Permits::new(Bounds { in_flight: 100, slow: 10, ..BOUNDS });
        (1..=12).for_each(|event| permits.take(held(event), UnixMillis(event)));
        permits.age(UnixMillis(2_000));
        assert_eq!((permits.slow, permits.fast), ([8, 0, 0], [4, 0, 0]));
        permits.give_back(EventNo(9));
        permits.give_back(EventNo(1));
        assert_eq!(permits.first_aged_at(), Some(UnixMillis(1_010)), "the oldest one that is not over");
        permits.age(UnixMillis(2_001));
        assert_eq!((permits.slow, permits.fast), ([8, 0, 0], [2, 0, 0]));
        permits.take(Held { tenant: TenantNo(2), ..held(20) }, UnixMillis(2_001));
        (2..=12).for_each(|event| permits.give_back(EventNo(event)));
        assert!(permits.kept.iter().all(VecDeque::is_empty));
        permits.age(UnixMillis(9_000));
        assert_eq!((permits.slow, permits.fast, permits.flights()), ([1, 0, 0], [0; 3], 1));
    }

    #[test]
    fn what_was_given_back_while_there_was_no_room_among_the_slow_turns_nothing_slow_later() {
        let mut permits = Permits::new(Bounds { slow: 1, ..BOUNDS });
        permits.take(held(1), UnixMillis(0));
        permits.take(held(2), UnixMillis(1));
        permits.take(held(3), UnixMillis(2));
        permits.age(UnixMillis(2_000));
        assert_eq!((permits.fast, permits.slow), ([2, 0, 0], [1, 0, 0]));
        permits.give_back(EventNo(3));
        permits.take(held(3), UnixMillis(2_500));
        permits.give_back(EventNo(1));
        permits.give_back(EventNo(2));
        permits.age(UnixMillis(3_000));
        assert_eq!((permits.fast, permits.slow), ([1, 0, 0], [0; 3]), "it has taken half a second");
        permits.age(UnixMillis(3_500));
        permits.give_back(EventNo(3));
        assert_eq!((permits.fast, permits.slow, permits.flights()), ([0; 3], [0; 3], 0));
    }
}
