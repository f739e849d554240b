//! `slow CONNECTIONS [SECONDS]`: slowhttptest's four modes beside honest traffic, with addresses counted and not counted.

use std::time::Duration;

use anyhow::{Context, Result};
use countersign_testkit::hostile::slow::{self, Generator, Mode, Plan};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let connections = words.first().map_or(Ok(2_000), |word| word.parse()).context("CONNECTIONS is a number")?;
    let seconds = words.get(1).map_or(Ok(20), |word| word.parse()).context("SECONDS is a number")?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut verdict = Ok(());
    for generator in [Generator::Slowhttptest, Generator::Own] {
        for is_counted in [true, false] {
            for mode in Mode::ALL {
                let plan = Plan { mode, generator, connections, lasts: Duration::from_secs(seconds), is_counted };
                let report = runtime.block_on(slow::run(plan))?;
                slow::print(&report);
                verdict = verdict.and(report.verdict());
            }
        }
    }
    verdict
}
