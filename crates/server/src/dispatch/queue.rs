//! A queue in which merchants take turns, and of a merchant its applications.

use std::collections::VecDeque;

use countersign_domain::ids::{ApplicationNo, TenantNo};
use foldhash::HashMap;

#[derive(Debug, Default)]
pub(super) struct Queue {
    turns: VecDeque<TenantNo>,
    waiting: HashMap<TenantNo, VecDeque<ApplicationNo>>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// To the end of its merchant's line.
    pub(super) fn push(&mut self, tenant: TenantNo, application: ApplicationNo) {
        let waiting = self.waiting.entry(tenant).or_default();
        if waiting.is_empty() {
            self.turns.push_back(tenant);
        }
        waiting.push_back(application);
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
            } else {
                self.turns.push_back(tenant);
            }
            return application;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(queue: &mut Queue) -> Vec<i64> {
        std::iter::from_fn(|| queue.pop(|_| true)).map(|of| of.0).collect()
    }

    #[test]
    fn merchants_take_turns_however_many_applications_one_has() {
        let mut queue = Queue::default();
        for application in [1, 2, 3] {
            queue.push(TenantNo(1), ApplicationNo(application));
        }
        queue.push(TenantNo(2), ApplicationNo(9));
        assert_eq!(all(&mut queue), [1, 9, 2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_merchant_that_may_not_is_passed_over_and_keeps_its_place() {
        let mut queue = Queue::default();
        queue.push(TenantNo(1), ApplicationNo(1));
        queue.push(TenantNo(2), ApplicationNo(2));
        assert_eq!(queue.pop(|of| of != TenantNo(1)), Some(ApplicationNo(2)));
        assert_eq!(queue.pop(|of| of != TenantNo(1)), None);
        assert_eq!(all(&mut queue), [1]);
    }
}
