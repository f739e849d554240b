//! `trade-numbers ROUNDS [sqlite|postgres]`: one trade number sent by 64 clients at once, and answers that never arrive.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::trade_numbers::{Plan, report};
use countersign_testkit::wire::wall_ms;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let rounds = words.next().context("usage: trade-numbers ROUNDS [sqlite|postgres]")?;
    let rounds = rounds.parse().context("ROUNDS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let plan = Plan { rounds, clients: 64, seed: wall_ms().unsigned_abs() };
    tokio::runtime::Runtime::new()?.block_on(report(kind, plan))
}
