//! Which nodes there are, and what each of them runs.

use std::time::Duration;

use countersign_domain::lanes::LANES;
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::nodes::{NodeRow, Who};

use super::App;
use super::error::AppError;

/// Nodes that are listed, at the most.
pub const NODES_MAX: u32 = 500;

/// Nodes that share the database, those alive first, then by their start; where it is not shared, this one alone. `lease`: a node that was not seen
/// for so long is not alive.
pub async fn list(app: &App, own: &Who, started_at: UnixMillis, lease: Duration) -> Result<Vec<NodeRow>, AppError> {
    if app.store.is_shared() {
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        return Ok(app.store.nodes(lease_ms, NODES_MAX).await?);
    }
    Ok(vec![NodeRow {
        who: own.clone(),
        started_at,
        seen_at: app.clock.now(),
        is_alive: true,
        clock_ahead_ms: None,
        lanes: i64::from(LANES),
    }])
}
