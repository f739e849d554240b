//! What is freed by age: the bytes that went over the wire in attempts, and events that are over, from an application's first one on.
//!
//! Every node looks by itself, in small portions that others' changes go between. What one has freed the others do not find any more, so it
//! costs them one look for each tenant and application. Payment evidence is never freed: the audit log, orders and their moves, fee rules.

use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_domain::time::UnixMillis;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{Asker, CommitError, Cursor};
use countersign_store::{Store as _, StoreError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::App;
use super::error::AppError;
use super::settled_time::STOOD_FOR;

/// How often a node looks.
const LOOK_EVERY: Duration = Duration::from_secs(600);
const _: () = assert!(LOOK_EVERY.as_secs() >= STOOD_FOR.as_secs(), "by its first look a node knows what time to go by");
/// Between two portions, so that other writers get their turn.
const PAUSE: Duration = Duration::from_millis(20);
/// Tenants, or applications, that are asked for at once where each is counted.
const PAGE: u32 = 64;
/// Applications whose first events are looked at together.
const LOOKED_AT: u32 = 1_000;
/// Rounds of one look, each of a portion for every tenant and application; the next look goes on.
const ROUNDS_MAX: u32 = 100_000;
/// How far a report counts for each tenant and application: what is more is not said.
const COUNTED_MAX: u32 = 1_000_000;

/// How long things are kept; none: for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// What went over the wire in an attempt, from the attempt on.
    pub attempt_bytes: Option<Duration>,
    /// An event that is over, with its delivery and attempts, from its making on.
    pub events: Option<Duration>,
}

/// What may be freed now, of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeable {
    /// The kind.
    pub kind: &'static str,
    /// How long it is kept; none: for ever.
    pub kept_for: Option<Duration>,
    /// What is older goes.
    pub older_than: Option<UnixMillis>,
    /// How many.
    pub rows: i64,
    /// How large they are; none: not counted.
    pub bytes: Option<i64>,
}

/// Portions that were freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Of bytes of attempts.
    pub attempt_bytes: u64,
    /// Of events.
    pub events: u64,
}

fn before(now: UnixMillis, life: Option<Duration>) -> Option<UnixMillis> {
    let life = i64::try_from(life?.as_millis()).unwrap_or(i64::MAX);
    Some(UnixMillis(now.0.saturating_sub(life)))
}

/// Until the end: frees what is too old.
pub async fn keep(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    while timeout(LOOK_EVERY, ended.wait_for(|ended| *ended)).await.is_err() {
        let freed = tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            freed = look(&app, Instant::now()) => freed,
        };
        match freed {
            Ok(freed) if freed == Freed::default() => {}
            Ok(Freed { attempt_bytes, events }) => {
                tracing::info!(
                    attempt_bytes,
                    events,
                    "What was kept long enough is freed: {attempt_bytes} portions of attempts' bytes, {events} of events"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "What is too old could not be freed: {error}; this is tried again");
            }
        }
    }
}

/// One look: frees all that is too old by a time that the clock has kept to for some minutes.
pub async fn look(app: &App, at: Instant) -> Result<Freed, StoreError> {
    match app.settled.look(at, app.clock.now()) {
        Some(now) => free(app, now).await,
        None => Ok(Freed::default()),
    }
}

/// Frees all that is too old at `now`, portion by portion.
pub async fn free(app: &App, now: UnixMillis) -> Result<Freed, StoreError> {
    let mut freed = Freed::default();
    for _ in 0..ROUNDS_MAX {
        let round = Freed { attempt_bytes: bytes_round(app, now).await?, events: events_round(app, now).await? };
        if round == Freed::default() {
            break;
        }
        freed.attempt_bytes += round.attempt_bytes;
        freed.events += round.events;
    }
    Ok(freed)
}

async fn bytes_round(app: &App, now: UnixMillis) -> Result<u64, StoreError> {
    let (mut after, mut portions) = (None, 0);
    let Some(begun_before) = before(now, app.policy.retention.attempt_bytes) else { return Ok(0) };
    loop {
        let page = app.store.old_bytes(Asker::Server, begun_before, 1, Cursor { after, limit: PAGE }).await?;
        let Some(last) = page.last() else { return Ok(portions) };
        after = Some(last.tenant);
        for old in &page {
            portion(app, Write::ForgetBytes { tenant: old.tenant, begun_before }).await?;
            portions += 1;
        }
    }
}

async fn events_round(app: &App, now: UnixMillis) -> Result<u64, StoreError> {
    let (mut after, mut portions) = (None, 0);
    let Some(created_before) = before(now, app.policy.retention.events) else { return Ok(0) };
    loop {
        let page = app.store.old_events(Asker::Server, created_before, 1, Cursor { after, limit: LOOKED_AT }).await?;
        let Some(last) = page.last() else { return Ok(portions) };
        after = Some((last.tenant, last.application));
        for old in page.iter().filter(|old| old.events > 0) {
            let (tenant, application) = (old.tenant, old.application);
            portion(app, Write::ForgetEvents { tenant, application, created_before }).await?;
            portions += 1;
        }
    }
}

/// Whatever became of it, the next look finds what is left.
async fn portion(app: &App, write: Write) -> Result<(), StoreError> {
    let done = app.store.commit(Batch(vec![write])).await;
    sleep(PAUSE).await;
    match done {
        Ok(_) | Err(CommitError::Conflict(_) | CommitError::Unknown) => Ok(()),
        Err(CommitError::Store(error)) => Err(error),
    }
}

/// What would be freed now, by kind. Frees nothing.
pub async fn report(app: &App) -> Result<Vec<Freeable>, AppError> {
    let Lives { attempt_bytes, events } = app.policy.retention;
    let now = app.clock.now();
    let kind = |kind, kept_for, bytes| Freeable { kind, kept_for, older_than: before(now, kept_for), rows: 0, bytes };
    let mut of_bytes = kind("attempt_bytes", attempt_bytes, Some(0));
    let (mut of_events, mut of_attempts) = (kind("events", events, Some(0)), kind("attempts", events, None));
    let mut after = None;
    while let Some(begun_before) = of_bytes.older_than {
        let page =
            app.store.old_bytes(Asker::Operator, begun_before, COUNTED_MAX, Cursor { after, limit: PAGE }).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.tenant);
        of_bytes.rows += page.iter().map(|old| old.rows).sum::<i64>();
        of_bytes.bytes = of_bytes.bytes.map(|bytes| bytes + page.iter().map(|old| old.bytes).sum::<i64>());
    }
    let mut after = None;
    while let Some(created_before) = of_events.older_than {
        let page =
            app.store.old_events(Asker::Operator, created_before, COUNTED_MAX, Cursor { after, limit: PAGE }).await?;
        let Some(last) = page.last() else { break };
        after = Some((last.tenant, last.application));
        of_events.rows += page.iter().map(|old| old.events).sum::<i64>();
        of_events.bytes = of_events.bytes.map(|bytes| bytes + page.iter().map(|old| old.bytes).sum::<i64>());
        of_attempts.rows += page.iter().map(|old| old.attempts).sum::<i64>();
    }
    Ok(vec![of_bytes, of_events, of_attempts])
}
