//! Rates: what the back end says that pairs are worth, and that operators hear of one that nobody keeps up.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::conversion::{Limits, Pair};
use countersign_domain::money::Amount;
use countersign_domain::time::{CLOCKS_APART_MS_MAX, UnixMillis};
use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::contract::{CommitError, Cursor};
use countersign_store::conversion::{ConvertWrite, RateRow};
use countersign_store::{ConvertStore as _, Store as _, StoreError};
use rust_decimal::Decimal;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::error::AppError;
use super::idempotency::{Keep, kept};
use super::turns::TurnKey;
use super::{Actor, App, Deed};
use crate::repeated_warning::RepeatedWarning;

#[cfg(test)]
mod tests;

/// How often a node looks for rates that have become too old.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// While they cannot be looked at, it is said so often.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// Rates that are asked for at once.
const PAGE: u32 = 500;
/// How often a rate is set anew because of others who set it at the same time: nodes, since within one they take turns.
const TRIES_MAX: u32 = 16;
/// Rates that became too old.
pub const GONE_STALE: &str = "countersign_rates_gone_stale_total";

/// How prices are promised; fixed at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PricePolicy {
    /// How long a quote is good.
    pub quote_life: Duration,
    /// How old a rate may be to be quoted.
    pub rate_max_age: Duration,
}

impl PricePolicy {
    /// [`Self::quote_life`] in ms.
    pub fn quote_life_ms(&self) -> i64 {
        i64::try_from(self.quote_life.as_millis()).unwrap_or(i64::MAX)
    }

    /// [`Self::rate_max_age`] in ms.
    pub fn rate_max_age_ms(&self) -> i64 {
        i64::try_from(self.rate_max_age.as_millis()).unwrap_or(i64::MAX)
    }

    /// Whether a rate is too old to be quoted, or of a clock that was ahead: nobody knows how old that is, also when the time of it comes.
    pub fn is_stale(&self, rate: &RateRow, now: UnixMillis) -> bool {
        let age_ms = now.0.saturating_sub(rate.updated_at.0);
        let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or(0));
        age >= self.rate_max_age || age_ms < -CLOCKS_APART_MS_MAX || rate.stale_told == rate.revision
    }
}

/// A rate as the back end puts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The pair.
    pub pair: Pair,
    /// Quote coin per base coin.
    pub rate: Decimal,
    /// How much at once.
    pub limits: Limits,
}

/// Sets a pair's rate and its limits, whole: an omitted limit means no limit.
pub async fn put(app: &App, wanted: &Wanted, keep: &Keep<'_, RateRow>, actor: &Actor) -> Result<RateRow, AppError> {
    let subject = wanted.pair.to_string();
    let _turn = app.turns.take_soon(TurnKey::Rate(wanted.pair.clone())).await?;
    for _ in 0..TRIES_MAX {
        let before = app.store.rate(&wanted.pair).await?;
        let row = RateRow {
            pair: wanted.pair.clone(),
            rate: wanted.rate,
            limits: wanted.limits,
            revision: before.as_ref().map_or(1, |before| before.revision + 1),
            stale_told: before.as_ref().map_or(0, |before| before.stale_told),
            updated_at: app.clock.now(),
        };
        let said = before.as_ref().map(describe).unwrap_or_default();
        let audit = actor.records(Deed {
            tenant: None,
            at: row.updated_at,
            action: "rate.put",
            subject: &subject,
            before: said,
            after: describe(&row),
        });
        let mut writes = vec![Write::Convert(Box::new(ConvertWrite::PutRate(row.clone()))), audit];
        writes.extend(kept(keep, &row));
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => {
                if before.is_some_and(|before| before.stale_told == before.revision) {
                    tracing::info!(pair = %subject, "The rate of {subject} is kept up again; it can be quoted");
                }
                return Ok(row);
            }
            Err(CommitError::Conflict(Conflict::Moved(Key::Rate(_)))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

/// A rate as a JSON text for the audit log.
fn describe(row: &RateRow) -> String {
    let Limits { base_min, base_max, quote_min, quote_max } = row.limits;
    let limit = |amount: Option<Amount>| amount.map(|amount| amount.to_string());
    json!({
        "rate": row.rate.to_string(), "base_min": limit(base_min), "base_max": limit(base_max),
        "quote_min": limit(quote_min), "quote_max": limit(quote_max), "revision": row.revision,
    })
    .to_string()
}

/// A page of rates by the names of their pairs.
pub async fn list(app: &App, page: Cursor<String>) -> Result<Vec<RateRow>, AppError> {
    Ok(app.store.rates(page).await?)
}

/// A pair's rate.
pub async fn find(app: &App, pair: &str) -> Result<RateRow, AppError> {
    let found = match Pair::parse(pair) {
        Some(pair) => app.store.rate(&pair).await?,
        None => None,
    };
    found.ok_or_else(|| AppError::NotFound(format!("no rate was put for the pair {pair}")))
}

/// Every rate there is.
pub async fn all(app: &App) -> Result<Vec<RateRow>, StoreError> {
    let mut all: Vec<RateRow> = Vec::new();
    loop {
        let after = all.last().map(|row| row.pair.to_string());
        let page = app.store.rates(Cursor { after, limit: PAGE }).await?;
        let is_last = page.len() < PAGE as usize;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Until the end: tells operators of each rate that becomes too old, once.
pub async fn watch(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    let mut warning = RepeatedWarning::default();
    while timeout(LOOK_EVERY, ended.wait_for(|ended| *ended)).await.is_err() {
        if let Err(error) = tell_stale(&app).await
            && let Some(failed) = warning.due(SAID_EVERY, Instant::now().into_std())
        {
            tracing::warn!(%error, failed, "Rates could not be looked at; this is tried again");
        }
    }
}

/// Tells of the rates that are too old now and were not told of: the audit log, the log, and a metric. How many this node told of. That one
/// is told of is noted in the same batch as its audit line, so of several nodes one tells, also after a restart.
pub async fn tell_stale(app: &App) -> Result<u64, AppError> {
    let mut told = 0;
    let rows = all(app).await?;
    // Read after them: however long that took, a rate that another node has put meanwhile is not of a clock that was ahead.
    let now = app.clock.now();
    for row in rows {
        if row.stale_told == row.revision || !app.policy.prices.is_stale(&row, now) {
            continue;
        }
        let (pair, revision, age_ms) = (row.pair.clone(), row.revision, now.0 - row.updated_at.0);
        let why = if age_ms < 0 { "it was put by a clock that was ahead" } else { "no newer rate was put" };
        let after = json!({"rate": row.rate.to_string(), "revision": revision, "why": why}).to_string();
        let audit = Actor::system().records(Deed {
            tenant: None,
            at: now,
            action: "rate.stale",
            subject: &pair.to_string(),
            before: String::new(),
            after,
        });
        // The mark counts on every node, so a shared database judges it by its own time: that of one node may be behind for a moment.
        let time = app.clock.source();
        let is_so = if age_ms < 0 {
            Guard::Before { instant: row.updated_at.plus_ms(-CLOCKS_APART_MS_MAX), time }
        } else {
            Guard::Reached { instant: row.updated_at.plus_ms(app.policy.prices.rate_max_age_ms()), time }
        };
        let writes = vec![
            Write::Convert(Box::new(ConvertWrite::TellStale { pair: pair.clone(), revision })),
            audit,
            Write::Guard(is_so),
        ];
        match app.store.commit(Batch(writes)).await {
            // Where nobody knows whether it is noted it is told all the same: twice at the most, and not never.
            Ok(_) | Err(CommitError::Unknown) => {
                metrics::counter!(GONE_STALE).increment(1);
                if age_ms < 0 {
                    tracing::warn!(%pair, age_ms, "The rate of {pair} was put by a clock that was ahead: it cannot be quoted until it is put again");
                } else {
                    tracing::warn!(%pair, age_ms, "The rate of {pair} is {age_ms} ms old: it cannot be quoted until a newer one is put");
                }
                told += 1;
            }
            // Another node told, or a newer one came, or it is not so by the database's time.
            Err(CommitError::Conflict(_)) => {}
            Err(CommitError::Store(error)) => return Err(error.into()),
        }
    }
    Ok(told)
}
