//! Waiting for what others will do: asked again and again until a deadline. The one place of the testkit that does so.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

const PERIOD: Duration = Duration::from_millis(5);

/// Asks until there is an answer; an error of the question ends the waiting. How long it took is the second value.
pub async fn until<T>(
    what: &str,
    within: Duration,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<(T, Duration)> {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok((answer, began.elapsed()));
        }
        if began.elapsed() >= within {
            bail!("{what}: not within {within:?}");
        }
        sleep(PERIOD).await;
    }
}
