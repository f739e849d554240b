//! Waiting for what others will do: asked again and again until a deadline. The one place of the testkit that does so.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
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

/// The same of what this process can see by itself.
pub async fn until_so(what: &str, within: Duration, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let began = Instant::now();
    while !is_so() {
        ensure!(began.elapsed() < within, "{what}: not within {within:?}");
        sleep(PERIOD).await;
    }
    Ok(())
}
