//! Statements that are sent one behind the other, without a wait for the answer to the one before.

use std::task::Poll;

use tokio_postgres::{Error, Row};

use super::session::Step;

/// Sends all steps in this order without waiting, then waits for all: the rows of each, or the first error and which step it was.
/// Their statements must have been prepared.
pub(super) async fn in_order(steps: Vec<Step<'_>>) -> Result<Vec<Vec<Row>>, (usize, Error)> {
    let found = each_in_order(steps).await;
    found.into_iter().enumerate().map(|(at, rows)| rows.map_err(|error| (at, error))).collect()
}

/// The same for steps of several transactions: what became of each.
pub(super) async fn each_in_order(steps: Vec<Step<'_>>) -> Vec<Result<Vec<Row>, Error>> {
    let mut waiting: Vec<Option<Step<'_>>> = steps.into_iter().map(Some).collect();
    let mut found: Vec<Option<Result<Vec<Row>, Error>>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut open = false;
        for (step, found) in waiting.iter_mut().zip(&mut found) {
            let Some(future) = step else { continue };
            match future.as_mut().poll(cx) {
                Poll::Ready(rows) => {
                    *found = Some(rows);
                    *step = None;
                }
                Poll::Pending => open = true,
            }
        }
        if open { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    found.into_iter().flatten().collect()
}
