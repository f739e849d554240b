//! Delivery of callbacks as a whole: held after a restore, until it is told to go.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::time::rfc3339;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Bare, Reply, json};
use super::problem::Problem;
use crate::app::delivery::{self, Released};
use crate::app::error::AppError;

/// Whether callbacks go out.
#[derive(Debug, Serialize, ToSchema)]
pub struct DeliveryAnswer {
    /// Whether all of them are held.
    pub held: bool,
    /// Since when, RFC 3339.
    pub held_since: Option<String>,
}

/// Callbacks may go.
#[derive(Debug, Serialize, ToSchema)]
pub struct ReleasedAnswer {
    /// Always false.
    pub held: bool,
    /// Since when they may, RFC 3339; where they were not held, the instant of the call.
    pub released_at: String,
    /// Whether they were held until then; false: nothing has changed.
    pub was_held: bool,
}

impl From<&Released> for ReleasedAnswer {
    fn from(released: &Released) -> Self {
        Self { held: false, released_at: rfc3339(released.at), was_held: released.was_held }
    }
}

/// Whether callbacks are held since a restore.
#[utoipa::path(get, path = "/operator/v1/delivery", tag = "Deployment", operation_id = "show_delivery",
    responses((status = 200, body = DeliveryAnswer)))]
pub async fn show(State(desk): State<Arc<Desk>>) -> Reply {
    let since = delivery::held_since(&desk.app.store).await.map_err(|error| Problem::from(AppError::from(error)))?;
    Ok(json(&DeliveryAnswer { held: since.is_some(), held_since: since }))
}

/// Lets a restored deployment send its callbacks from now on.
#[utoipa::path(post, path = "/operator/v1/delivery/release", tag = "Deployment", operation_id = "release_delivery",
    responses((status = 200, body = ReleasedAnswer)))]
pub async fn release(Bare(call): Bare) -> Reply {
    call.once(async {
        let keep = |released: &Released| call.keep(&ReleasedAnswer::from(released));
        Ok(ReleasedAnswer::from(&delivery::release(call.app(), &keep, &call.actor).await?))
    })
    .await
}
