//! `fleet replay|kills [N]`: what several nodes of one deployment must hold, in large. Prints what was found.

use anyhow::{Context, Result, bail};
use countersign_store::testing::Database;
use countersign_testkit::fleet::{kills, replay};
use countersign_testkit::wire::wall_ms;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    tokio::runtime::Runtime::new()?.block_on(run(&words))
}

async fn run(words: &[&str]) -> Result<()> {
    let Some((what, rest)) = words.split_first() else { bail!("usage: fleet replay|kills [N]") };
    let count = |default: usize| rest.first().map_or(Ok(default), |word| word.parse().context("N is a number"));
    let seed = wall_ms().unsigned_abs();
    match *what {
        "replay" => {
            let rounds = count(1_000)?;
            let database = Database::new().await;
            replay::print(&replay::run(&database.url(), rounds, rounds.div_ceil(20), seed).await?);
        }
        "kills" => kills::print(&kills::run(&Database::new().await, count(100)?).await?),
        _ => bail!("there is no run {what:?}"),
    }
    Ok(())
}
