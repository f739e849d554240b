//! Fee-rule upgrades per second through the whole use case, in process, beside the same writer with group size 1: same schema,
//! same folder, `synchronous=FULL`.

use std::time::Duration;

use anyhow::Result;

use super::callers::Loaded;
use super::{spread, table};
use crate::backing::Backing;
use crate::world::open_app;

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_millis(1200);
const SUB_ACCOUNTS: usize = 1_000;

/// Prints the table.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let grouped =
        Loaded::fill(open_app(&folder.path().join("grouped"), &Backing::sqlite(), None).await?, 1, SUB_ACCOUNTS)
            .await?;
    let single =
        Loaded::fill(open_app(&folder.path().join("single"), &Backing::sqlite(), Some(1)).await?, 1, SUB_ACCOUNTS)
            .await?;
    let mut rows = Vec::new();
    for (callers, keys) in [(1, SUB_ACCOUNTS), (16, SUB_ACCOUNTS), (128, SUB_ACCOUNTS), (128, 1)] {
        let (mut ours, mut theirs, mut ratios, mut p50, mut p99) = (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let b = single.slice(callers, keys, SLICE).await?;
            let a = grouped.slice(callers, keys, SLICE).await?;
            ratios.push(a.rate / b.rate);
            ours.push(a.rate);
            theirs.push(b.rate);
            p50.push(a.p50_ms);
            p99.push(a.p99_ms);
        }
        rows.push(vec![
            callers.to_string(),
            keys.to_string(),
            format!("{:.0}", spread(&ours).median),
            format!("{:.2} / {:.2}", spread(&p50).median, spread(&p99).median),
            format!("{:.0}", spread(&theirs).median),
            spread(&ratios).to_string(),
        ]);
    }
    println!("Durable fee-rule upgrades per second, in process, {ROUNDS} interleaved rounds\n");
    let head =
        ["callers", "sub-accounts", "grouped, 1/s", "p50 / p99 ms", "group size 1, 1/s", "ratio, median [quartiles]"];
    println!("{}", table(&head, &rows));
    Ok(())
}
