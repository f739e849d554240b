//! `kill ROUNDS`: kills the real server that often under load and prints what was found.

use anyhow::{Context, Result};
use countersign_testkit::kill;

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).context("usage: kill ROUNDS")?.parse().context("ROUNDS is a number")?;
    let report = tokio::runtime::Runtime::new()?.block_on(kill::run(rounds))?;
    kill::print(&report);
    Ok(())
}
