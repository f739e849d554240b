//! Whether a change that was decided in time may still come, now that its time is over.
//!
//! Whoever would say for good that something is over (a payment order, a quote) first sees that no change of it is on its way. Such a change rests on
//! [`Guard::Before`] its end, as the last thing that is looked at; so one that is applied after a look that found the row free and the end reached is
//! refused. Nothing is written for a look, and nobody waits for a row. For both the time is the database's where there is one: the clocks of
//! nodes differ by some ms.

use std::time::Duration;

use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::batch::{Batch, Guard, Write};
use countersign_store::contract::CommitError;
use tokio::time::sleep;

use super::App;
use super::error::AppError;
use super::trouble::NoChanges;

/// How often something is looked at that somebody is changing: for a second, about. Who sees nothing by then says so.
pub const LOOKS_MAX: u32 = 10;
/// Between the first and the second look; each is longer than the one before it.
pub const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// One look, of [`LOOKS_MAX`]: whether nothing comes any more that was decided before `end`. `as_read` are guards that hold as long as the
/// rows are as they were read, and no batch is about to change them. Where something may come, this takes the pause before the next look.
pub async fn nothing_comes(
    app: &App,
    as_read: impl IntoIterator<Item = Guard>,
    end: UnixMillis,
    look: u32,
) -> Result<bool, AppError> {
    // Where the one node of a file refuses changes nothing comes. What a disk that hangs has not answered may.
    if !app.store.is_shared() && app.trouble.why_not_ready() == Some(NoChanges::Refused) {
        return Ok(true);
    }
    let is_over = Guard::Reached { instant: end, time: app.clock.source() };
    let guards = as_read.into_iter().chain([is_over]).map(Write::Guard).collect();
    match app.store.commit(Batch(guards)).await {
        Ok(_) => Ok(true),
        // It has changed, or somebody is about to change it, or may still; or nobody knows whether nothing was written.
        Err(CommitError::Conflict(_) | CommitError::Unknown) => {
            sleep(LOOK_PAUSE * look).await;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
