//! Callers in a closed loop: how many of something are done in a slice of time, and how long each takes.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

/// What a slice of time has shown.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many a second.
    pub rate: f64,
    /// Median latency, in ms.
    pub p50_ms: f64,
    /// 99th percentile, in ms.
    pub p99_ms: f64,
}

/// `callers` tasks, each of which does one after the other until the slice is over. `what` is told which caller it is and how many that one has done.
pub async fn closed_loop<F>(
    callers: usize,
    slice: Duration,
    what: impl Fn(usize, usize) -> F + Clone + Send + 'static,
) -> Result<Pace>
where
    F: Future<Output = Result<()>> + Send,
{
    let mut tasks: JoinSet<Result<Vec<f64>>> = JoinSet::new();
    let started = Instant::now();
    for caller in 0..callers {
        let what = what.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while started.elapsed() < slice {
                let asked = Instant::now();
                what(caller, latencies.len()).await?;
                latencies.push(asked.elapsed().as_secs_f64() * 1e3);
            }
            Ok(latencies)
        });
    }
    let mut all = Vec::new();
    while let Some(latencies) = tasks.join_next().await {
        all.extend(latencies??);
    }
    let took = started.elapsed().as_secs_f64();
    all.sort_by(f64::total_cmp);
    let at = |percent: usize| all.get((all.len().saturating_sub(1)) * percent / 100).copied().unwrap_or(0.0);
    Ok(Pace { rate: f64::from(u32::try_from(all.len())?) / took, p50_ms: at(50), p99_ms: at(99) })
}
