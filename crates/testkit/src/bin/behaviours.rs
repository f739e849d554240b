//! `behaviours`: what attempts make of endpoints of every kind, with the time and the memory that each takes.

use anyhow::Result;
use countersign_testkit::behaviours;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(behaviours::run(behaviours::all()))
}
