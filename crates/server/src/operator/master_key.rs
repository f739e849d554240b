//! The master key: which one seals, and sealing every secret again under another.

use std::sync::Arc;

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Bare, Reply, json};
use crate::app::master_key::{self, Rewrapped};

/// The master keys of this node.
#[derive(Debug, Serialize, ToSchema)]
pub struct MasterKeyAnswer {
    /// The id of the key that it was started with; it tells nothing about the key.
    pub key_id: String,
    /// The id of the one that it takes the place of, if it was given.
    pub previous_key_id: Option<String>,
    /// The id of the one that new secrets are sealed under.
    pub sealing_key_id: String,
    /// Whether every secret is under `key_id`, and the next one will be.
    pub all_rewrapped: bool,
}

/// What a re-wrap did.
#[derive(Debug, Serialize, ToSchema)]
pub struct RewrapAnswer {
    /// The id of the key that secrets are sealed under now.
    pub key_id: String,
    /// Secrets that this call sealed again.
    pub rewrapped: u64,
    /// Secrets that do not open, and were left as they are: somebody has changed their rows.
    pub unreadable: Vec<String>,
    /// Whether all is done; if not, call again.
    pub done: bool,
    /// The other key that this node has; null where it has none, and nothing but its own key could be meant.
    pub previous_key_id: Option<String>,
}

impl From<&Rewrapped> for RewrapAnswer {
    fn from(done: &Rewrapped) -> Self {
        Self {
            key_id: done.key_id.clone(),
            rewrapped: done.rewrapped,
            unreadable: done.unreadable.clone(),
            done: done.is_done,
            previous_key_id: done.previous_key_id.clone(),
        }
    }
}

/// Which master keys this node has.
#[utoipa::path(get, path = "/operator/v1/master-key", tag = "Deployment", operation_id = "show_master_key",
    responses((status = 200, body = MasterKeyAnswer)))]
pub async fn show(State(desk): State<Arc<Desk>>) -> Reply {
    master_key::look(&desk.app).await?;
    let vault = &desk.app.vault;
    Ok(json(&MasterKeyAnswer {
        key_id: vault.key_id().to_owned(),
        previous_key_id: vault.previous_id().map(str::to_owned),
        sealing_key_id: vault.sealing_id().to_owned(),
        all_rewrapped: !master_key::is_left(&desk.app).await?,
    }))
}

/// Seals every secret again under the master key of this node. Goes on for some seconds; what is left is for the next call. Refused while a node is
/// alive that was started with another key: it may be unable to open what is sealed under this one.
#[utoipa::path(post, path = "/operator/v1/master-key/rewrap", tag = "Deployment", operation_id = "rewrap_master_key",
    responses((status = 200, body = RewrapAnswer)))]
pub async fn rewrap(Bare(call): Bare) -> Reply {
    call.once(async {
        let keep = |done: &Rewrapped| call.keep(&RewrapAnswer::from(done));
        let done = master_key::rewrap(call.app(), call.lease(), &keep, &call.actor).await?;
        Ok(RewrapAnswer::from(&done))
    })
    .await
}
