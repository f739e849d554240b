//! Fee-rule upgrades per second through the whole use case, in process, beside the same writer with group size 1: same schema,
//! same folder, `synchronous=FULL`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use countersign::app::rules::{Making, RuleChange, change};
use countersign::app::{Actor, App};
use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_domain::money::Amount;
use countersign_domain::rules::{Markup, RuleAsk};
use countersign_domain::time::UnixMillis;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{ClaimKey, Claimed, MerchantKind, MerchantRow, Store};
use rust_decimal::Decimal;
use tokio::task::JoinSet;

use super::{spread, table};
use crate::world::open_app;

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_millis(1200);
const KEYS: i64 = 1_000;

/// Prints the table.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let grouped = app(&folder.path().join("grouped"), None).await?;
    let single = app(&folder.path().join("single"), Some(1)).await?;
    let mut rows = Vec::new();
    for (callers, keys) in [(1, KEYS), (16, KEYS), (128, KEYS), (128, 1)] {
        let (mut ours, mut theirs, mut ratios, mut p50, mut p99) = (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let b = slice(&single, callers, keys).await?;
            let a = slice(&grouped, callers, keys).await?;
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

/// An institution with [`KEYS`] sub-accounts in a store of its own.
async fn app(folder: &Path, group_max: Option<usize>) -> Result<(Arc<App>, MerchantRow)> {
    let app = open_app(folder, group_max).await?;
    let institution = merchant(1, "bank", MerchantKind::Institution);
    app.store.commit(Batch(vec![Write::InsertMerchant(Box::new(institution.clone()))])).await?;
    let subs = (1..=KEYS)
        .map(|n| Write::InsertMerchant(Box::new(merchant(n + 1, &format!("bank-{n}"), MerchantKind::SubAccount))));
    app.store.commit(Batch(subs.collect())).await?;
    Ok((app, institution))
}

fn merchant(no: i64, id: &str, kind: MerchantKind) -> MerchantRow {
    MerchantRow {
        no: MerchantNo(no),
        merchant_id: id.to_owned(),
        tenant: TenantNo(1),
        kind,
        name: id.to_owned(),
        base_r: Decimal::ZERO,
        base_f: Amount::ZERO,
        user_id: no,
        created_at: UnixMillis(0),
    }
}

struct Pace {
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Closed-loop callers for a slice of time.
async fn slice((app, institution): &(Arc<App>, MerchantRow), callers: usize, keys: i64) -> Result<Pace> {
    static NONCES: AtomicU64 = AtomicU64::new(0);
    let mut tasks: JoinSet<Result<Vec<f64>>> = JoinSet::new();
    let started = Instant::now();
    for caller in 0..callers {
        let (app, institution) = (app.clone(), institution.clone());
        let mut key = i64::try_from(caller)? * 7;
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while started.elapsed() < SLICE {
                key += 1;
                let nonce = NONCES.fetch_add(1, Ordering::Relaxed);
                let asked = Instant::now();
                upgrade(&app, &institution, key % keys + 1, nonce).await?;
                latencies.push(asked.elapsed().as_secs_f64() * 1e3);
            }
            Ok(latencies)
        });
    }
    let mut all = Vec::new();
    while let Some(latencies) = tasks.join_next().await {
        all.extend(latencies??);
    }
    let took = started.elapsed().as_secs_f64();
    all.sort_by(f64::total_cmp);
    let at = |percent: usize| all.get((all.len().saturating_sub(1)) * percent / 100).copied().unwrap_or(0.0);
    Ok(Pace { rate: f64::from(u32::try_from(all.len())?) / took, p50_ms: at(50), p99_ms: at(99) })
}

/// What a signed upgrade does after its signature was checked.
async fn upgrade(app: &App, institution: &MerchantRow, key: i64, nonce: u64) -> Result<()> {
    let now = app.clock.now();
    let (tenant, nonce) = (institution.tenant, format!("{nonce:032x}"));
    let claim = ClaimKey { tenant, application: ApplicationNo(1), nonce, stamped_at: now };
    anyhow::ensure!(app.store.reserve(&claim).await? == Claimed::Fresh, "a fresh nonce is fresh");
    let asked = RuleChange {
        making: Making::Upgrade,
        sub_merchant_id: format!("bank-{key}"),
        ask: RuleAsk {
            markup: Markup::new(Decimal::new(3, 1), Decimal::ZERO).context("a markup in range")?,
            effective_at: now,
            due_at: None,
        },
        arrived_at: now,
    };
    let actor = Actor { name: "application:measure".into(), source: String::new(), request_id: "measure".into() };
    change(app, institution, &asked, &claim, &actor).await?;
    Ok(())
}
