//! `slow CONNECTIONS [SECONDS]`: slowhttptest's four modes beside honest traffic, with addresses counted and not counted.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use countersign_testkit::hostile::slow::{self, Generator, Mode, Plan, Scarce};

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
                let lasts = Duration::from_secs(seconds);
                let plan = Plan { mode, generator, connections, lasts, is_counted, scarce: None };
                verdict = verdict.and(judge(&runtime, plan)?);
            }
        }
    }
    // Fewer places than want one: what gives them back is all that there is. Without it, the same must fail.
    let scarce = |mode, patience| Plan {
        mode,
        generator: Generator::Own,
        connections: 200,
        lasts: Duration::from_secs(seconds),
        is_counted: false,
        scarce: Some(Scarce { places: 150, patience: Duration::from_secs(patience) }),
    };
    for mode in [Mode::Headers, Mode::Body] {
        verdict = verdict.and(judge(&runtime, scarce(mode, 1))?);
    }
    // Longer than honest clients wait for an answer.
    let control = Plan { lasts: Duration::from_secs(seconds.max(8)), ..scarce(Mode::Headers, 600) };
    let report = runtime.block_on(slow::run(control))?;
    slow::print(&report);
    ensure!(report.is_noticed(), "a server without limits passes: this shows nothing");
    println!("  the last one is the control, and failed as it must");
    verdict
}

/// Runs a plan; what it comes to.
fn judge(runtime: &tokio::runtime::Runtime, plan: Plan) -> Result<Result<()>> {
    let report = runtime.block_on(slow::run(plan))?;
    slow::print(&report);
    Ok(report.verdict())
}
