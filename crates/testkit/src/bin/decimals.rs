//! `decimals [N] [SEED]`: so many random markups and amounts from end to end, beside sums on paper.

use anyhow::{Context, Result};
use countersign_testkit::decimals;
use countersign_testkit::wire::wall_ms;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let cases = words.next().map_or(Ok(100_000), |word| word.parse()).context("N is a number of cases")?;
    let seed = words.next().map_or_else(|| Ok(wall_ms().unsigned_abs()), |word| word.parse());
    let seed = seed.context("SEED is a number")?;
    tokio::runtime::Runtime::new()?.block_on(decimals::report(cases, seed))
}
