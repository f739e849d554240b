//! A panic in one request is that request's failure, not the process's.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

/// The request panicked. The panic's own text went to the log through the panic hook.
#[derive(Debug)]
pub struct Panicked;

/// Runs `future`, and says so where it panics. By reference: one that is handed over would lie in memory twice.
pub async fn caught<F: Future>(mut future: Pin<&mut F>) -> Result<F::Output, Panicked> {
    poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}
