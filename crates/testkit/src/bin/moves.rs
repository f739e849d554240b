//! `moves ROWS`: moves a deployment of about that many rows, killed 20 times midway, and prints what was found.

use anyhow::{Context, Result};
use countersign_testkit::moves;

/// Kills on the way.
const KILLS: u64 = 20;

fn main() -> Result<()> {
    let rows = std::env::args().nth(1).context("usage: moves ROWS")?.parse().context("ROWS is a number")?;
    let report = tokio::runtime::Runtime::new()?.block_on(moves::run(rows, KILLS))?;
    moves::print(&report);
    Ok(())
}
