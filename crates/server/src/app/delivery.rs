//! Delivery of callbacks as a whole: a deployment that was restored sends nothing until somebody says that it may.
//!
//! The one that it was restored from may still run, and would send the same callbacks. The hold is a setting of the database, written by the
//! restore before anybody can serve it; a node reads it at its start, and again each second while it holds.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::lanes::LaneSet;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::batch::{Conflict, Write};
use countersign_store::contract::{ApplicationView, CommitError};
use countersign_store::{AnyStore, Store as _, StoreError};
use metrics::gauge;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::sleep;

use super::error::AppError;
use super::idempotency::{Keep, kept};
use super::{Actor, App, Deed};

/// Since when callbacks are held, RFC 3339; empty or absent: they are not.
pub const DELIVERY_HELD: &str = "delivery_held";

/// Why nothing goes out after a restore, and what to do about it.
pub const HELD: &str = "callbacks are held since a restore: when the deployment that the backup is of is down for good, let them go with \
     POST /delivery/release (`countersign delivery release`)";

/// How often a release that another one comes before is tried again.
const RELEASE_TRIES_MAX: u32 = 3;
/// How often a node that holds looks whether it may send.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Since when callbacks are held; none: they are not.
pub async fn held_since(store: &AnyStore) -> Result<Option<String>, StoreError> {
    Ok(store.setting(DELIVERY_HELD).await?.filter(|since| !since.is_empty()))
}

/// Refuses to send anything again while callbacks are held: it would go out by itself when they are let go.
pub(super) fn must_go_out(app: &App) -> Result<(), AppError> {
    if app.bell.is_paused() {
        return Err(AppError::NotRedeliverable(format!("{HELD}, and ask again")));
    }
    Ok(())
}

/// Why callbacks of an application do not go out, and what to do about it.
pub(super) fn silence(view: &ApplicationView) -> &'static str {
    if view.application.callback_url.is_none() {
        "it has no callback_url: set one"
    } else if view.application.gone_at().is_some() {
        "its endpoint answered 410: ask its merchant, then POST /applications/{client_id}/callbacks/resume (`countersign application resume-callbacks`) lets them go"
    } else if !view.application.callback_enabled {
        "they are paused: POST /applications/{client_id}/callbacks/resume (`countersign application resume-callbacks`) lets them go"
    } else {
        "its merchant, or the institution of that, is disabled: enable it"
    }
}

/// Refuses to send anything again of an application whose callbacks do not go out.
pub(super) fn must_be_wanted(view: &ApplicationView) -> Result<(), AppError> {
    if view.goes_out() {
        return Ok(());
    }
    Err(AppError::NotRedeliverable(format!(
        "the application gets no callbacks now, since {}; then ask again",
        silence(view)
    )))
}

/// Refuses to send anything again that would wait for a secret: it would go out by itself when one is made.
pub(super) fn must_be_signed(app: &App, view: &ApplicationView) -> Result<(), AppError> {
    let now = app.clock.now();
    if view.secrets.iter().any(|secret| secret.is_live(now)) {
        return Ok(());
    }
    Err(AppError::NotRedeliverable(
        "the application has no live secret to sign with: make one, and ask again".to_owned(),
    ))
}

/// Reads whether callbacks are held, before anything is delivered.
pub async fn look(app: &App) -> Result<(), StoreError> {
    let held = held_since(&app.store).await?;
    if let Some(since) = &held {
        tracing::warn!(
            "Callbacks are held since {since}, when this deployment was restored: `countersign delivery release` lets them go"
        );
    }
    set(app, held.is_some());
    Ok(())
}

fn set(app: &App, held: bool) {
    metrics::describe_gauge!("countersign_delivery_held", "1 while callbacks are held since a restore, else 0");
    gauge!("countersign_delivery_held").set(if held { 1.0 } else { 0.0 });
    app.bell.set_paused(held);
    if !held {
        app.bell.ring_lanes(LaneSet::ALL);
    }
}

/// While callbacks are held: looks whether somebody has let them go, here or on another node. Until the end, or until they may go.
pub async fn watch(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    while app.bell.is_paused() {
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = sleep(LOOK_EVERY) => {}
        }
        match held_since(&app.store).await {
            Ok(None) => {
                tracing::info!("Callbacks are let go");
                set(&app, false);
            }
            Ok(Some(_)) => {}
            Err(error) => tracing::debug!(%error, "Whether callbacks are held could not be read"),
        }
    }
}

/// Callbacks may go.
#[derive(Clone, Copy, Debug)]
pub struct Released {
    /// The instant of the call.
    pub at: UnixMillis,
    /// Whether they were held until then.
    pub was_held: bool,
}

/// Lets callbacks go. Where they were not held nothing changes.
pub async fn release(app: &App, keep: &Keep<'_, Released>, actor: &Actor) -> Result<Released, AppError> {
    let now = app.clock.now();
    for _ in 0..RELEASE_TRIES_MAX {
        let held = held_since(&app.store).await?;
        let released = Released { at: now, was_held: held.is_some() };
        let mut writes = Vec::new();
        if let Some(since) = held {
            let before = json!({ "delivery_held": since }).to_string();
            let after = json!({ "at": rfc3339(now) }).to_string();
            let line = actor.records(Deed {
                tenant: None,
                at: now,
                action: "delivery.release",
                subject: "delivery",
                before,
                after,
            });
            writes.push(Write::MoveSetting { name: DELIVERY_HELD.to_owned(), from: Some(since), to: String::new() });
            writes.push(line);
        }
        writes.extend(kept(keep, &released));
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => {
                set(app, false);
                return Ok(released);
            }
            // Another call was first: what this one finds is another thing.
            Err(CommitError::Conflict(Conflict::Moved(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}
