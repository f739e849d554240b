//! `histories [N] [SEED]`: so many random histories of fee rules on each store, against the oracle.

use anyhow::{Context, Result};
use countersign_testkit::histories;
use countersign_testkit::wire::wall_ms;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let count = words.next().map_or(Ok(100_000), |word| word.parse()).context("N is a number of histories")?;
    let seed = words.next().map_or_else(|| Ok(wall_ms().unsigned_abs()), |word| word.parse());
    let seed = seed.context("SEED is a number")?;
    tokio::runtime::Runtime::new()?.block_on(histories::report(count, seed))
}
