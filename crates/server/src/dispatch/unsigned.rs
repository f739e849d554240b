//! Applications whose callbacks no secret signs: each is told of once, for as long as it stays so.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use countersign_domain::ids::ApplicationNo;

/// So many are remembered. With more, each may be told of again.
const REMEMBERED_MAX: usize = 10_000;

/// Those that were told of.
#[derive(Debug, Default)]
pub(super) struct Unsigned {
    told: Mutex<HashSet<ApplicationNo>>,
    /// Whether there was ever one: where there was none, no attempt takes the lock.
    is_used: AtomicBool,
}

impl Unsigned {
    /// Nothing signs its callbacks: whether that is new.
    pub(super) fn is_new(&self, application: ApplicationNo) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_used.store(true, Ordering::Relaxed);
        if told.len() >= REMEMBERED_MAX && !told.contains(&application) {
            told.clear();
        }
        told.insert(application)
    }

    /// Something does.
    pub(super) fn signs(&self, application: ApplicationNo) {
        if self.is_used.load(Ordering::Relaxed) {
            self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&application);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_without_a_secret_is_told_of_once_until_it_has_one() {
        let unsigned = Unsigned::default();
        let told = |no| unsigned.is_new(ApplicationNo(no));
        assert!(told(1) && told(2) && !told(1) && !told(2));
        unsigned.signs(ApplicationNo(1));
        assert!(told(1) && !told(1) && !told(2));
    }

    #[test]
    fn no_more_are_remembered_than_the_bound() {
        let unsigned = Unsigned::default();
        for no in 0..2 * i64::try_from(REMEMBERED_MAX).expect("small") + 5 {
            assert!(unsigned.is_new(ApplicationNo(no)));
        }
        assert_eq!(unsigned.told.lock().expect("nobody panicked").len(), 5);
    }
}
