//! `idle`: start-up time and memory of the real server.

use anyhow::Result;

fn main() -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(countersign_testkit::idle::run())
}
