//! `canaries N [STORE]`: secrets that are looked for everywhere. `canaries panic` is the process that panics for it.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::hostile::canaries::{self, panicking};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    if words.first().is_some_and(|word| word == panicking::WORD) {
        return runtime.block_on(panicking::panic_here());
    }
    let count = words.first().map_or(Ok(1_000), |word| word.parse()).context("N is a number")?;
    let store = words.get(1).map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(word))?;
    let report = runtime.block_on(canaries::run(store, count))?;
    canaries::print(store, &report);
    report.verdict_of_all()
}
