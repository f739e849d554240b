//! `fees [ORDERS] [sqlite|postgres]`: orders paid under rules that change, every fee beside paper, a what-if beside really running the rule, and statements.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::fees::{Plan, report};
use countersign_testkit::wire::wall_ms;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let orders = words.next().map_or(Ok(100_000), |word| word.parse()).context("ORDERS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let plan = Plan { orders, seed: wall_ms().unsigned_abs() };
    tokio::runtime::Runtime::new()?.block_on(report(kind, plan))
}
