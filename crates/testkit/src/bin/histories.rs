//! `histories [N] [SEED] [model|sqlite|postgres]`: so many random histories of fee rules, conversions and payment orders on each store, or on one, against oracles.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::histories;
use countersign_testkit::wire::wall_ms;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let one = words.last().and_then(|last| StoreKind::named(last));
    if one.is_some() {
        words.pop();
    }
    let number =
        |at: usize, or: u64| words.get(at).map_or(Ok(or), |word| word.parse().context("N and SEED are numbers"));
    let (count, seed) = (number(0, 100_000)?, number(1, wall_ms().unsigned_abs())?);
    let kinds = one.map_or(StoreKind::ALL.to_vec(), |kind| vec![kind]);
    tokio::runtime::Runtime::new()?.block_on(histories::report(&kinds, usize::try_from(count)?, seed))
}
