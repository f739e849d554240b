//! How much of one kind is done at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::AppError;

/// How many answers of a kind may be under way at once.
#[derive(Clone, Debug)]
pub struct Places {
    what: &'static str,
    most: usize,
    free: Arc<Semaphore>,
}

impl Places {
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
        let places = Places::new(2, "statements");
        let (first, second) = (places.take().expect("is free"), places.take().expect("is free"));
        let refused = places.take().expect_err("both are taken");
        assert_eq!(refused.to_string(), "2 statements are under way at once, and no more; repeat this one soon");
        drop(first);
        let third = places.take().expect("one has left");
        drop((second, third));
    }
}
