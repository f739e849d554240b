//! `matrix ONE_IN [STORE]`: who may see and do what, on both stores unless one is named.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::hostile::matrix;
use countersign_testkit::wire::wall_ms;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let one_in = words.first().map_or(Ok(1), |word| word.parse()).context("ONE_IN is a number")?;
    let stores = match words.get(1) {
        Some(word) => vec![StoreKind::lasting(word)?],
        None => vec![StoreKind::Sqlite, StoreKind::Postgres],
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let mut verdict = Ok(());
    for store in stores {
        let report = runtime.block_on(matrix::run(store, one_in, wall_ms().unsigned_abs()))?;
        matrix::print(store, &report);
        verdict = verdict.and(report.verdict());
    }
    verdict
}
