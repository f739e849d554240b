//! `fleet RUN [N]`: what several nodes of one deployment must hold, in large. Prints what was found.

use anyhow::{Context, Result, bail, ensure};
use countersign_store::testing::Database;
use countersign_testkit::fleet::failover::{self, Standby};
use countersign_testkit::fleet::{kills, pauses, replay, restarts, rolling};
use countersign_testkit::wire::wall_ms;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, count] = &words[..] else {
        bail!("usage: fleet replay|kills|failover|control|pauses|restarts|rolling N")
    };
    let count = count.parse().context("N is a number")?;
    tokio::runtime::Runtime::new()?.block_on(run(what, count))
}

async fn run(what: &str, count: usize) -> Result<()> {
    match what {
        "replay" => {
            let (database, seed) = (Database::new().await, wall_ms().unsigned_abs());
            replay::print(&replay::run(&database.url(), count, count.div_ceil(20), seed).await?);
        }
        "kills" => kills::print(&kills::run(&Database::new().await, count).await?),
        "pauses" => pauses::print(&pauses::run(&Database::new().await, count).await?),
        "failover" => {
            let report = failover::run(Standby::Synchronous, count).await?;
            failover::print(Standby::Synchronous, &report);
            let (slowest, limit) = (report.ready.slowest(), failover::READY_WITHIN);
            ensure!(
                slowest <= limit,
                "a write was acknowledged {slowest:?} after the failover; the limit is {limit:?}"
            );
        }
        "control" => failover::print(Standby::Lagging, &failover::run(Standby::Lagging, count).await?),
        "restarts" => {
            let report = restarts::run(count).await?;
            restarts::print(&report);
            let (slowest, limit) = (report.recovered.slowest(), restarts::RECOVERED_WITHIN);
            ensure!(slowest <= limit, "a write was acknowledged {slowest:?} after the return; the limit is {limit:?}");
        }
        "rolling" => rolling::print(&rolling::run(&Database::new().await, count).await?),
        _ => bail!("there is no run {what:?}"),
    }
    Ok(())
}
