//! `evidence TRIALS [sqlite|postgres]`: a real order's evidence, spoiled and forged; each place found, each forger refused.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::evidence::{Plan, report};
use countersign_testkit::wire::wall_ms;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let trials = words.next().context("usage: evidence TRIALS [sqlite|postgres]")?;
    let trials = trials.parse().context("TRIALS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let plan = Plan { trials, seed: wall_ms().unsigned_abs() };
    tokio::runtime::Runtime::new()?.block_on(report(kind, plan))
}
