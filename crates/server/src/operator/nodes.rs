//! The nodes of the deployment.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::time::rfc3339;
use countersign_store::nodes::{NodeRow, Who};
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Reply, json};
use super::paging::Page;
use crate::app::nodes;
use crate::config::differing;

/// A node, as it said in its last heartbeat who it is.
#[derive(Debug, Serialize, ToSchema)]
pub struct Node {
    /// Its id, as in its file `node.id`; null: the database is not shared.
    pub node_id: Option<String>,
    /// Where its merchants call.
    pub name: String,
    /// Its program's version; null: one from before nodes said so.
    pub version: Option<String>,
    /// The id of the master key that it was started with; null: a program from before nodes said so.
    pub key_id: Option<String>,
    /// When it started, RFC 3339.
    pub started_at: String,
    /// When it was seen last, RFC 3339.
    pub seen_at: String,
    /// Whether that was within `dispatch_lease`. One that was killed stays in the list for a day or more, one that stopped in order does not.
    pub alive: bool,
    /// How far its clock was ahead of the database's, in ms; null: not known, or the database is not shared.
    pub clock_ahead_ms: Option<i64>,
    /// For how many of the 64 lanes it delivers callbacks.
    pub lanes: i64,
    /// Whether it is the one that answers.
    pub this_node: bool,
    /// Names of settings that have to be the same on all nodes and differ from those of the node that answers; null: it is not alive, or does not say.
    pub settings_differ: Option<Vec<String>>,
}

impl Node {
    fn of(row: &NodeRow, own: &Who) -> Self {
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Self {
            node_id: (row.who.node != Who::NOBODY.node).then(|| row.who.node.to_string()),
            name: row.who.name.clone(),
            version: said(&row.who.version),
            key_id: said(&row.who.key_id),
            started_at: rfc3339(row.started_at),
            seen_at: rfc3339(row.seen_at),
            alive: row.is_alive,
            clock_ahead_ms: row.clock_ahead_ms,
            lanes: row.lanes,
            this_node: row.who.node == own.node,
            settings_differ: differing(&own.settings, &row.who.settings).filter(|_| row.is_alive),
        }
    }
}

/// The nodes of the deployment. Those alive first, then by their start, 500 at the most: what each of them runs, for how many lanes it
/// delivers, and which of its settings are not those of the node that answers.
#[utoipa::path(get, path = "/operator/v1/nodes", tag = "Deployment", operation_id = "list_nodes",
    responses((status = 200, body = Page<Node>)))]
pub async fn list(State(desk): State<Arc<Desk>>) -> Reply {
    let (own, lease) = desk.settings.dispatcher.node();
    let rows = nodes::list(&desk.app, own, desk.started_at, lease).await?;
    Ok(json(&Page::whole(rows.iter().map(|row| Node::of(row, own)).collect())))
}
