//! How much of one kind is done at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::AppError;

/// How many answers of a kind may be under way at once.
#[derive(Clone, Debug)]
pub struct ConcurrencyLimit {
    what: &'static str,
    most: usize,
    free: Arc<Semaphore>,
}

impl ConcurrencyLimit {
    /// So many places for what is named so.
    pub fn new(most: usize, what: &'static str) -> Self {
        Self { what, most, free: Arc::new(Semaphore::new(most)) }
    }

    /// A place, for as long as what is given lives.
    pub fn take(&self) -> Result<OwnedSemaphorePermit, AppError> {
        self.free.clone().try_acquire_owned().map_err(|_| {
            AppError::Crowded(format!(
                "{} {} are under way at once, and no more; repeat this one soon",
                self.most, self.what
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_let_in_and_the_next_one_when_one_has_left() {
        let limit = ConcurrencyLimit::new(2, "statements");
        let (first, second) = (limit.take().expect("is free"), limit.take().expect("is free"));
        let refused = limit.take().expect_err("both are taken");
        assert_eq!(refused.to_string(), "2 statements are under way at once, and no more; repeat this one soon");
        drop(first);
        let third = limit.take().expect("one has left");
        drop((second, third));
    }
}
