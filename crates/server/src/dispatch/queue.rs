//! A queue in which merchants take turns, and of a merchant its applications.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;

use countersign_domain::ids::{ApplicationNo, TenantNo};
use foldhash::HashMap;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Whoever has an entry in `waiting`, in the order of their turns.
    turns: VecDeque<TenantNo>,
    /// A line may be empty until its merchant's turn comes.
    waiting: HashMap<TenantNo, VecDeque<ApplicationNo>>,
    /// Of those in `waiting`: who had nothing under way when it was last asked.
    idle: BTreeSet<TenantNo>,
    /// Whose turn among the idle was last.
    last_idle: Option<TenantNo>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// To the end of its merchant's line. `is_idle`: the merchant has nothing under way.
    pub(super) fn push(&mut self, tenant: TenantNo, application: ApplicationNo, is_idle: bool) {
        let waiting = match self.waiting.entry(tenant) {
            Entry::Occupied(waiting) => waiting.into_mut(),
            Entry::Vacant(none) => {
                self.turns.push_back(tenant);
                none.insert(VecDeque::new())
            }
        };
        waiting.push_back(application);
        if is_idle {
            self.idle.insert(tenant);
        }
    }

    /// A merchant has nothing under way any more.
    pub(super) fn has_become_idle(&mut self, tenant: TenantNo) {
        if self.waiting.contains_key(&tenant) {
            self.idle.insert(tenant);
        }
    }

    /// The first application of the next merchant that may.
    pub(super) fn pop(&mut self, may: impl Fn(TenantNo) -> bool) -> Option<ApplicationNo> {
        for _ in 0..self.turns.len() {
            let tenant = self.turns.pop_front()?;
            if !may(tenant) {
                self.turns.push_back(tenant);
                continue;
            }
            let waiting = self.waiting.get_mut(&tenant)?;
            let application = waiting.pop_front();
            if waiting.is_empty() {
                self.waiting.remove(&tenant);
                self.idle.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
            if application.is_some() {
                return application;
            }
        }
        None
    }

    /// The first application of the next merchant that has nothing under way; those that have are not looked through.
    pub(super) fn pop_idle(&mut self, is_idle: impl Fn(TenantNo) -> bool) -> Option<ApplicationNo> {
        loop {
            let after = self.last_idle.map_or(Bound::Unbounded, Bound::Excluded);
            let tenant = *self.idle.range((after, Bound::Unbounded)).next().or_else(|| self.idle.first())?;
            let application = self.waiting.get_mut(&tenant).filter(|_| is_idle(tenant)).and_then(VecDeque::pop_front);
            if application.is_some() {
                self.last_idle = Some(tenant);
                return application;
            }
            self.idle.remove(&tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut Queue) -> Vec<i64> {
        std::iter::from_fn(|| queue.pop(|_| true)).map(|of| of.0).collect()
    }

    fn idle(queue: &mut Queue, of: &[i64]) -> Option<i64> {
        queue.pop_idle(|tenant| of.contains(&tenant.0)).map(|of| of.0)
    }

    /// So many applications of a merchant, numbered from a hundred times its number on.
    fn push(queue: &mut Queue, tenant: i64, applications: i64, is_idle: bool) {
        for n in 0..applications {
            queue.push(TenantNo(tenant), ApplicationNo(100 * tenant + n), is_idle);
        }
    }

    #[test]
    fn merchants_take_turns_however_many_applications_one_has() {
        let mut queue = Queue::default();
        push(&mut queue, 1, 3, true);
        push(&mut queue, 2, 1, true);
        assert_eq!(all(&mut queue), [100, 200, 101, 102]);
        assert!(queue.is_empty());
        assert_eq!(idle(&mut queue, &[1, 2]), None);
    }

    #[test]
    fn a_merchant_that_may_not_is_passed_over_and_keeps_its_place() {
        let mut queue = Queue::default();
        push(&mut queue, 1, 1, true);
        push(&mut queue, 2, 1, true);
        assert_eq!(queue.pop(|of| of != TenantNo(1)), Some(ApplicationNo(200)));
        assert_eq!(queue.pop(|of| of != TenantNo(1)), None);
        assert_eq!(all(&mut queue), [100]);
    }

    #[test]
    fn the_idle_take_turns_and_whoever_is_not_is_asked_once() {
        let mut queue = Queue::default();
        push(&mut queue, 1, 2, true);
        push(&mut queue, 2, 9, false);
        push(&mut queue, 3, 2, true);
        assert_eq!(idle(&mut queue, &[1, 3]), Some(100));
        assert_eq!(idle(&mut queue, &[1, 3]), Some(300));
        assert_eq!(idle(&mut queue, &[1, 3]), Some(101));
        assert_eq!(idle(&mut queue, &[1]), None, "neither has the first more, nor is the third idle");
        assert_eq!(idle(&mut queue, &[1, 2, 3]), None, "nobody has said so");
        queue.has_become_idle(TenantNo(3));
        queue.has_become_idle(TenantNo(1));
        assert_eq!(idle(&mut queue, &[1, 2, 3]), Some(301));
        assert_eq!(idle(&mut queue, &[1, 2, 3]), None);
        push(&mut queue, 1, 1, false);
        assert_eq!(all(&mut queue)[..3], [100, 200, 201], "each has one turn");
    }
}
