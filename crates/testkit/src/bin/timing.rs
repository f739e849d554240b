//! `timing N [STORE]`: whether the time of a refusal tells anything.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::hostile::timing;
use countersign_testkit::wire::wall_ms;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let samples = words.first().map_or(Ok(100_000), |word| word.parse()).context("N is a number")?;
    let store = words.get(1).map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(word))?;
    // One thread: what another one does would be noise.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(timing::run(store, samples, wall_ms().unsigned_abs()))?;
    timing::print(&report);
    report.verdict()
}
