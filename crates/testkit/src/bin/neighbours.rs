//! `neighbours HUNG [sqlite|postgres]`: so many endpoints that hang beside one that works, and how soon its first attempts begin. Three runs.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::neighbours::{self, Plan};

/// An odd number.
const RUNS: usize = 3;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let hung = words.next().context("usage: neighbours HUNG [sqlite|postgres]")?.parse().context("HUNG is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let plan = Plan { hung, events_each: 2, events: 2_000, deadline_s: 15, slow: 1_024 };
    let runtime = tokio::runtime::Runtime::new()?;
    let mut reports = Vec::new();
    for _ in 0..RUNS {
        let report = runtime.block_on(neighbours::run(kind, plan))?;
        neighbours::print(&report, plan);
        reports.push(report);
    }
    let middle = neighbours::figures(&reports)?;
    println!("The middle ratio of {RUNS} runs: {middle:.2}; it may be 2.");
    Ok(())
}
