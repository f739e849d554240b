//! How much of one kind is done at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::AppError;

/// How many answers of a kind may be under way at once: of one who asks, and of all, so that one leaves places to others.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    what: &'static str,
    each: usize,
    all: usize,
    free: Arc<Semaphore>,
    of: Arc<Mutex<HashMap<String, usize>>>,
}

/// A place, until this is dropped.
#[derive(Debug)]
pub struct ConcurrencyPermit {
    _permit: OwnedSemaphorePermit,
    of: Arc<Mutex<HashMap<String, usize>>>,
    owner: String,
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = of.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                of.remove(&self.owner);
            }
        }
    }
}

impl ConcurrencyLimit {
    /// So many places of each, and of all together, for what is named so.
    pub fn new(each: usize, all: usize, what: &'static str) -> Self {
        Self { what, each, all, free: Arc::new(Semaphore::new(all)), of: Arc::default() }
    }

    /// A place of this owner's, for as long as what is given lives.
    pub fn take(&self, owner: &str) -> Result<ConcurrencyPermit, AppError> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let own = of.get(owner).copied().unwrap_or(0);
        if own >= self.each {
            return Err(self.crowded(self.each, " of this token"));
        }
        let permit = self.free.clone().try_acquire_owned().map_err(|_| self.crowded(self.all, ""))?;
        of.insert(owner.to_owned(), own + 1);
        Ok(ConcurrencyPermit { _permit: permit, of: Arc::clone(&self.of), owner: owner.to_owned() })
    }

    fn crowded(&self, most: usize, whose: &str) -> AppError {
        AppError::Crowded(format!(
            "{most} {}{whose} are under way at once, and no more; repeat this one soon",
            self.what
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_let_in_and_the_next_one_when_one_has_left() {
        let limit = ConcurrencyLimit::new(2, 3, "statements");
        let (first, second) = (limit.take("one").expect("is free"), limit.take("one").expect("is free"));
        let refused = limit.take("one").expect_err("has both of its places");
        let (of_token, soon) = (" of this token", "are under way at once, and no more; repeat this one soon");
        assert_eq!(refused.to_string(), format!("2 statements{of_token} {soon}"));
        let other = limit.take("other").expect("one was left to others");
        let refused = limit.take("third").expect_err("all are taken");
        assert_eq!(refused.to_string(), format!("3 statements {soon}"));
        drop(first);
        let third = limit.take("third").expect("one has left");
        assert!(limit.take("one").is_err(), "though it has one place only");
        drop((second, third, other));
        assert!(limit.of.lock().expect("nobody panicked").is_empty());
    }
}
