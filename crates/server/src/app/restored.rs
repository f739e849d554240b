//! The line of the audit log that tells of a restore. A restore itself has no key to link it with, so whoever serves the deployment first writes it.

use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::batch::{Batch, Conflict, Key, Write};
use countersign_store::contract::CommitError;
use serde_json::json;

use super::error::AppError;
use super::{Actor, App, Deed};

/// When a deployment was restored, RFC 3339. A setting, as the others here.
pub const RESTORED_AT: &str = "restored_at";
/// From the backup of which moment, RFC 3339.
pub const RESTORED_FROM: &str = "restored_from";
/// Which restore the audit log tells of last: its [`RESTORED_AT`].
const RESTORE_NOTED: &str = "restore_noted";

/// Notes a restore that the audit log does not tell of yet. Of several nodes one does.
pub async fn note(app: &App) {
    if let Err(error) = try_note(app, app.clock.now()).await {
        tracing::warn!(%error, "The audit log may not tell yet that this deployment was restored; the next start makes sure");
    }
}

async fn try_note(app: &App, now: UnixMillis) -> Result<(), AppError> {
    let Some(at) = app.store.setting(RESTORED_AT).await? else { return Ok(()) };
    let noted = app.store.setting(RESTORE_NOTED).await?;
    if noted.as_ref() == Some(&at) {
        return Ok(());
    }
    let of = json!({ "restored_at": at, "backup_taken_at": app.store.setting(RESTORED_FROM).await? });
    let line = Actor::system().records(Deed {
        tenant: None,
        at: now,
        action: "deployment.restore",
        subject: "deployment",
        before: String::new(),
        after: of.to_string(),
    });
    let noted = Write::MoveSetting { name: RESTORE_NOTED.to_owned(), from: noted, to: at };
    match app.store.commit(Batch(vec![noted, line])).await {
        // Or another node was first.
        Ok(_) | Err(CommitError::Conflict(Conflict::Moved(Key::Setting(_)))) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
