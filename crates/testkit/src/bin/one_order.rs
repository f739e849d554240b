//! `one-order ROUNDS [sqlite|postgres]`: one name, `merchantTradeNo` or `clientReqId`, sent by 64 clients at once, and answers that never arrive.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::one_order::{Plan, Subject, report};
use countersign_testkit::wire::wall_ms;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let rounds = words.next().context("usage: one-order ROUNDS [sqlite|postgres]")?;
    let rounds = rounds.parse().context("ROUNDS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let plan = Plan { rounds, clients: 64, seed: wall_ms().unsigned_abs() };
    let runtime = tokio::runtime::Runtime::new()?;
    for subject in Subject::ALL {
        runtime.block_on(report(subject, kind, plan))?;
    }
    Ok(())
}
