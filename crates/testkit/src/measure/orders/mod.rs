//! Payment orders: how many a second are made (each signed, all that the merchant listener does but its sockets) and moved (each with its callback
//! enqueued), beside the same writer with group size 1; and whether asking for them grows with their number.

use std::future::Future;
use std::path::Path;
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
/// Sub-accounts: each has pages of its own in some of the trees, so a group of moves writes the more pages the more of them are in it.
const TILLS: usize = 8;
/// Where nearly every move of a group is another one's.
const MANY_TILLS: usize = 64;
/// More than 128 callers move in a slice.
const MOVES_MAX: usize = 40_000;

/// A deployment, and the same with groups of one.
struct Both {
    tills: usize,
    grouped: Shop,
    single: Shop,
}

impl Both {
    async fn open(folder: &Path, tills: usize) -> Result<Self> {
        let grouped = Shop::open(&folder.join(format!("grouped-{tills}")), tills, None).await?;
        let single = Shop::open(&folder.join(format!("single-{tills}")), tills, Some(1)).await?;
        Ok(Self { tills, grouped, single })
    }

    /// A row of the table: what both do in turns with so many callers.
    async fn row(&self, what: What, callers: usize) -> Result<Vec<String>> {
        let figures =
            compare(async || what.of(&self.grouped, callers).await, async || what.of(&self.single, callers).await);
        let head = [what.name().to_owned(), callers.to_string(), self.tills.to_string()];
        Ok(head.into_iter().chain(figures.await?).collect())
    }
}

#[derive(Clone, Copy)]
enum What {
    Made,
    Paid,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Paid => "paid",
        }
    }

    async fn of(self, shop: &Shop, callers: usize) -> Result<Pace> {
        match self {
            Self::Made => shop.make(callers, SLICE).await,
            Self::Paid => shop.pay(callers, MOVES_MAX, SLICE).await,
        }
    }
}

/// Prints the table.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let few = Both::open(folder.path(), TILLS).await?;
    let many = Both::open(folder.path(), MANY_TILLS).await?;
    let mut rows = Vec::new();
    for what in [What::Made, What::Paid] {
        for callers in CALLERS {
            rows.push(few.row(what, callers).await?);
        }
        let [.., most] = CALLERS;
        rows.push(many.row(what, most).await?);
    }
    println!("Payment orders on SQLite, in process, {ROUNDS} interleaved rounds\n");
    let head = [
        "",
        "callers",
        "sub-accounts",
        "grouped, 1/s",
        "p50 / p99 ms",
        "group size 1, 1/s",
        "ratio, median [quartiles]",
    ];
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
