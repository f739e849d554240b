//! Payment orders: how many a second are made (each signed, all that the merchant listener does but its sockets) and moved (each with its callback
//! enqueued), beside the same writer with group size 1; and whether asking for them grows with their number.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;

use super::pace::Pace;
use super::{spread, table};

pub mod flat;
mod shop;

use shop::Shop;

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_millis(1200);
const CALLERS: [usize; 3] = [1, 16, 128];
/// More than 128 callers move in a slice, grouped and one by one.
const MOVES_MAX: [usize; 2] = [150_000, 30_000];

/// Prints the table.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let grouped = Shop::open(&folder.path().join("grouped"), None).await?;
    let single = Shop::open(&folder.path().join("single"), Some(1)).await?;
    let mut rows = Vec::new();
    for callers in CALLERS {
        let row = compare(async || grouped.make(callers, SLICE).await, async || single.make(callers, SLICE).await);
        rows.push(["made".to_owned(), callers.to_string()].into_iter().chain(row.await?).collect());
    }
    for callers in CALLERS {
        let [many, few] = MOVES_MAX;
        let row =
            compare(async || grouped.pay(callers, many, SLICE).await, async || single.pay(callers, few, SLICE).await);
        rows.push(["paid".to_owned(), callers.to_string()].into_iter().chain(row.await?).collect());
    }
    println!("Payment orders on SQLite, in process, {ROUNDS} interleaved rounds\n");
    let head = ["", "callers", "grouped, 1/s", "p50 / p99 ms", "group size 1, 1/s", "ratio, median [quartiles]"];
    println!("{}", table(&head, &rows));
    Ok(())
}

/// Both in turns: the columns from the grouped writer's rate on.
async fn compare<A, B>(grouped: impl Fn() -> A, single: impl Fn() -> B) -> Result<[String; 4]>
where
    A: Future<Output = Result<Pace>>,
    B: Future<Output = Result<Pace>>,
{
    let (mut ours, mut theirs, mut ratios, mut p50, mut p99) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let b = single().await?;
        let a = grouped().await?;
        ratios.push(a.rate / b.rate);
        ours.push(a.rate);
        theirs.push(b.rate);
        p50.push(a.p50_ms);
        p99.push(a.p99_ms);
    }
    Ok([
        format!("{:.0}", spread(&ours).median),
        format!("{:.2} / {:.2}", spread(&p50).median, spread(&p99).median),
        format!("{:.0}", spread(&theirs).median),
        spread(&ratios).to_string(),
    ])
}
