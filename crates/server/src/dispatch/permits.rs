//! How many attempts may be under way, and whose.

use std::collections::{HashMap, VecDeque};

use countersign_domain::ids::{EventNo, TenantNo};
use countersign_domain::time::UnixMillis;

use super::health::Class;

/// An attempt that takes longer than this counts as slow, in ms.
const SLOW_MS: i64 = 1_000;

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

#[derive(Debug)]
pub(super) struct Permits {
    bounds: Bounds,
    held: HashMap<EventNo, (Held, bool)>,
    /// Not slow, by class.
    fast: [usize; 3],
    /// Slow, by class.
    slow: [usize; 3],
    /// Not slow, by merchant.
    of: HashMap<TenantNo, usize>,
    /// Those that may turn slow, by class, in the order of their beginning.
    young: [VecDeque<(UnixMillis, EventNo)>; 3],
}

impl Permits {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, held: HashMap::new(), fast: [0; 3], slow: [0; 3], of: HashMap::new(), young: Default::default() }
    }

    /// Attempts in flight.
    pub(super) fn flights(&self) -> usize {
        self.held.len()
    }

    /// Whether one more of this class may begin.
    pub(super) fn has_room(&self, class: Class) -> bool {
        let all = self.bounds.in_flight;
        let [_, new, suspect] = self.fast;
        let is_in_its_share = match class {
            Class::Proven => true,
            Class::New => new + suspect < (3 * all).div_ceil(4),
            Class::Suspect => suspect < all.div_ceil(2) && new + suspect < (3 * all).div_ceil(4),
        };
        is_in_its_share && self.fast.iter().sum::<usize>() < all
    }

    /// Whether one more of this merchant may begin.
    pub(super) fn has_room_of(&self, tenant: TenantNo) -> bool {
        self.of.get(&tenant).is_none_or(|held| *held < self.bounds.per_merchant)
    }

    pub(super) fn take(&mut self, held: Held, now: UnixMillis) {
        self.held.insert(held.event, (held, false));
        self.fast[held.class as usize] += 1;
        *self.of.entry(held.tenant).or_insert(0) += 1;
        self.young[held.class as usize].push_back((now, held.event));
    }

    pub(super) fn give_back(&mut self, event: EventNo) {
        match self.held.remove(&event) {
            Some((held, true)) => self.slow[held.class as usize] -= 1,
            Some((held, false)) => self.is_fast_no_more(held),
            None => {}
        }
    }

    fn is_fast_no_more(&mut self, held: Held) {
        self.fast[held.class as usize] -= 1;
        if let Some(of) = self.of.get_mut(&held.tenant) {
            *of -= 1;
            if *of == 0 {
                self.of.remove(&held.tenant);
            }
        }
    }

    /// What has taken long by now gives its permit back, where there is room among the slow.
    pub(super) fn age(&mut self, now: UnixMillis) {
        for class in Class::ALL {
            let at = class as usize;
            while let Some((began, event)) = self.young[at].front().copied() {
                let held = self.held.get(&event).map(|(held, _)| *held);
                if held.is_some() && (now < began.plus_ms(SLOW_MS) || !self.has_room_among_the_slow(class)) {
                    break;
                }
                self.young[at].pop_front();
                if let Some(held) = held {
                    self.is_fast_no_more(held);
                    self.slow[at] += 1;
                    self.held.insert(event, (held, true));
                }
            }
        }
    }

    /// Endpoints that fail leave a quarter to those that do not.
    fn has_room_among_the_slow(&self, class: Class) -> bool {
        let all = self.bounds.slow;
        let share = match class {
            Class::Proven | Class::New => all,
            Class::Suspect => all - all / 4,
        };
        self.slow.iter().sum::<usize>() < all && self.slow[class as usize] < share
    }

    /// When the first one may turn slow.
    pub(super) fn first_aged_at(&self) -> Option<UnixMillis> {
        let may = |class: &Class| self.has_room_among_the_slow(*class);
        let first = |class: Class| self.young[class as usize].front().map(|(began, _)| began.plus_ms(SLOW_MS));
        Class::ALL.into_iter().filter(may).filter_map(first).min()
    }
}
