//! The switch of an application's callbacks, turned by hand: off while a receiver is being mended, on again afterwards.
//!
//! It is the switch that `PATCH callback_enabled` turns, and the dispatcher where an endpoint answers 410: there is no second one.

use countersign_store::contract::ApplicationView;
use serde_json::json;

use super::applications::{ApplicationChange, decide_and_commit, turned};
use crate::app::error::AppError;
use crate::app::idempotency::{Keep, kept};
use crate::app::{Actor, App, Deed};

/// Which way the switch is turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Nothing goes out: what is pending is held.
    Pause,
    /// Callbacks go out again: what is held is released.
    Resume,
}

impl Switch {
    const fn lets_go(self) -> bool {
        match self {
            Self::Pause => false,
            Self::Resume => true,
        }
    }

    const fn action(self) -> &'static str {
        match self {
            Self::Pause => "application.pause_callbacks",
            Self::Resume => "application.resume_callbacks",
        }
    }
}

/// Turns the switch. `why` is for the audit log.
pub async fn switch_callbacks(
    app: &App,
    client_id: &str,
    switch: Switch,
    why: Option<&str>,
    keep: &Keep<'_, ApplicationView>,
    actor: &Actor,
) -> Result<ApplicationView, AppError> {
    let change = ApplicationChange { callback_enabled: Some(switch.lets_go()), ..ApplicationChange::default() };
    decide_and_commit(app, client_id, actor, |before, now| {
        let (mut writes, after) = turned(app, before, &change, now);
        let row = &after.application;
        let was = json!({ "callback_enabled": before.application.callback_enabled }).to_string();
        let is = json!({ "callback_enabled": row.callback_enabled, "why": why }).to_string();
        let audit = actor.records(Deed {
            tenant: Some(row.tenant),
            at: now,
            action: switch.action(),
            subject: client_id,
            before: was,
            after: is,
        });
        writes.push(audit);
        writes.extend(kept(keep, &after));
        Ok((writes, after))
    })
    .await
}
