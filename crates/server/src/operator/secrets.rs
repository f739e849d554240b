//! Payment API Secrets of an application.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_protocol::body::Fields;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Bare, Call, Named, Reply, json};
use super::fields::whole;
use super::paging::Page;
use super::problem::{Problem, ProblemDocument};
use crate::app::identity::{self, MadeSecret, OVERLAP_S_DEFAULT, OVERLAP_S_MAX, SecretChange, SeenSecret};

/// How to rotate.
#[derive(Debug, ToSchema)]
pub struct RotationRequest {
    /// How long the secrets before it live on, in seconds: 0 to 2592000, default 86400.
    pub overlap_s: Option<i64>,
}

/// A secret that was just made.
#[derive(Debug, Serialize, ToSchema)]
pub struct NewSecretAnswer {
    /// Its id.
    pub secret_id: String,
    /// The secret, shown this once; null where the call is repeated.
    pub payment_api_secret: Option<String>,
    /// First 16 hex digits of SHA-256 over the secret.
    pub fingerprint: String,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When the last of the secrets that were live before it ends, RFC 3339; null: there was none.
    pub old_secrets_end_at: Option<String>,
}

/// A secret, without the secret, and how it is used.
#[derive(Debug, Serialize, ToSchema)]
pub struct Secret {
    /// Its id.
    pub secret_id: String,
    /// First 16 hex digits of SHA-256 over the secret.
    pub fingerprint: String,
    /// Its last four characters.
    pub last4: String,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it ends; null: it does not.
    pub not_after: Option<String>,
    /// Whether requests may be signed with it now.
    pub live: bool,
    /// When a request was last signed with it; null: never.
    pub last_used_at: Option<String>,
    /// How many requests were signed with it in the last hour.
    pub uses_last_hour: i64,
    /// Whether callbacks are signed with it now: it was chosen, or it is the newest live one where none that was chosen lives.
    pub signs_callbacks: bool,
    /// Whether nobody would notice if it ended now: it has ended, or nothing was signed with it for an hour, it does not sign callbacks, and another one is live.
    pub safe_to_retire: bool,
}

/// A secret that was just changed, without the secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChangedSecret {
    /// Its id.
    pub secret_id: String,
    /// First 16 hex digits of SHA-256 over the secret.
    pub fingerprint: String,
    /// Its last four characters.
    pub last4: String,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it ends; null: it does not.
    pub not_after: Option<String>,
    /// When it was revoked; null: it was not. Lists leave revoked secrets out.
    pub revoked_at: Option<String>,
    /// Whether requests may be signed with it now.
    pub live: bool,
    /// Whether it was chosen to sign callbacks.
    pub signs_callbacks: bool,
    /// How many secrets of the application are live now. Where there is none, every request of it is refused and its callbacks wait.
    pub live_secrets: usize,
    /// When the last of these ends, RFC 3339: without a rotation before that the application has none. Null where one of them does not end, or none is live.
    pub live_secrets_end_at: Option<String>,
}

impl Secret {
    fn at(seen: &SeenSecret, now: UnixMillis) -> Self {
        let row = &seen.row;
        Self {
            secret_id: row.secret_id.clone(),
            fingerprint: row.fingerprint.clone(),
            last4: row.last4.clone(),
            created_at: rfc3339(row.created_at),
            not_after: row.not_after.map(rfc3339),
            live: row.is_live(now),
            last_used_at: seen.usage.last_used_at.map(rfc3339),
            uses_last_hour: seen.usage.last_hour,
            signs_callbacks: seen.signs_callbacks,
            safe_to_retire: seen.in_use.is_none(),
        }
    }
}

impl ChangedSecret {
    fn at(change: &SecretChange, now: UnixMillis) -> Self {
        let row = &change.row;
        Self {
            secret_id: row.secret_id.clone(),
            fingerprint: row.fingerprint.clone(),
            last4: row.last4.clone(),
            created_at: rfc3339(row.created_at),
            not_after: row.not_after.map(rfc3339),
            revoked_at: row.revoked_at.map(rfc3339),
            live: row.is_live(now),
            signs_callbacks: row.signs_callbacks,
            live_secrets: change.live,
            live_secrets_end_at: change.live_end_at.map(rfc3339),
        }
    }
}

impl NewSecretAnswer {
    fn of(made: &MadeSecret, secret: Option<&str>) -> Self {
        Self {
            secret_id: made.row.secret_id.clone(),
            payment_api_secret: secret.map(str::to_owned),
            fingerprint: made.row.fingerprint.clone(),
            created_at: rfc3339(made.row.created_at),
            old_secrets_end_at: made.others_end_at.map(rfc3339),
        }
    }
}

fn parse_overlap(body: &[u8]) -> Result<i64, Problem> {
    Ok(whole(&Fields::parse(body)?, "overlap_s", 0, OVERLAP_S_MAX)?.unwrap_or(OVERLAP_S_DEFAULT))
}

/// Makes a further secret, shown this once. The ones before it end after `overlap_s`; with 0 they are revoked. At most 3 are live.
#[utoipa::path(post, path = "/operator/v1/applications/{client_id}/secrets", tag = "Secrets", operation_id = "rotate_secret",
    params(("client_id" = String, Path, description = "The ClientId")), request_body = RotationRequest,
    responses((status = 200, body = NewSecretAnswer), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn rotate(Named(client_id): Named<String>, call: Call) -> Reply {
    call.once_everywhere(async {
        let overlap_s = parse_overlap(&call.body)?;
        let keep = |made: &MadeSecret| call.keep(&NewSecretAnswer::of(made, None));
        let made = identity::rotate_secret(call.app(), &client_id, overlap_s, &keep, &call.actor).await?;
        Ok(NewSecretAnswer::of(&made, Some(made.plain.expose())))
    })
    .await
}

/// The secrets that are not revoked, newest first, with their use over all nodes. They come on one page. Another node's uses of the last 5 seconds may be missing.
#[utoipa::path(get, path = "/operator/v1/applications/{client_id}/secrets", tag = "Secrets", operation_id = "list_secrets",
    params(("client_id" = String, Path, description = "The ClientId")),
    responses((status = 200, body = Page<Secret>), (status = 404, body = ProblemDocument)))]
pub async fn list(State(desk): State<Arc<Desk>>, Named(client_id): Named<String>) -> Reply {
    let now = desk.app.clock.now();
    let found = identity::list_secrets(&desk.app, &client_id).await?;
    Ok(json(&Page::whole(found.iter().map(|seen| Secret::at(seen, now)).collect())))
}

/// Revokes a secret at once, whatever it is used for.
#[utoipa::path(delete, path = "/operator/v1/applications/{client_id}/secrets/{secret_id}", tag = "Secrets", operation_id = "revoke_secret",
    params(("client_id" = String, Path, description = "The ClientId"), ("secret_id" = String, Path, description = "The secret")),
    responses((status = 200, body = ChangedSecret), (status = 404, body = ProblemDocument)))]
pub async fn revoke(Named((client_id, secret_id)): Named<(String, String)>, Bare(call): Bare) -> Reply {
    call.once_everywhere(async {
        let now = call.app().clock.now();
        let keep = |change: &SecretChange| call.keep(&ChangedSecret::at(change, now));
        let change = identity::revoke_secret(call.app(), &client_id, &secret_id, &keep, &call.actor).await?;
        Ok(ChangedSecret::at(&change, now))
    })
    .await
}

/// Revokes a secret that nobody uses any more. Refused where somebody may, with the reason.
#[utoipa::path(post, path = "/operator/v1/applications/{client_id}/secrets/{secret_id}/retire", tag = "Secrets", operation_id = "retire_secret",
    params(("client_id" = String, Path, description = "The ClientId"), ("secret_id" = String, Path, description = "The secret")),
    responses((status = 200, body = ChangedSecret), (status = 404, body = ProblemDocument), (status = 409, body = ProblemDocument)))]
pub async fn retire(Named((client_id, secret_id)): Named<(String, String)>, Bare(call): Bare) -> Reply {
    call.once_everywhere(async {
        let now = call.app().clock.now();
        let keep = |change: &SecretChange| call.keep(&ChangedSecret::at(change, now));
        let change = identity::retire_secret(call.app(), &client_id, &secret_id, &keep, &call.actor).await?;
        Ok(ChangedSecret::at(&change, now))
    })
    .await
}

/// Signs callbacks with this secret from now on.
#[utoipa::path(post, path = "/operator/v1/applications/{client_id}/secrets/{secret_id}/use-for-callbacks", tag = "Secrets",
    operation_id = "use_secret_for_callbacks",
    params(("client_id" = String, Path, description = "The ClientId"), ("secret_id" = String, Path, description = "The secret")),
    responses((status = 200, body = ChangedSecret), (status = 404, body = ProblemDocument)))]
pub async fn use_for_callbacks(Named((client_id, secret_id)): Named<(String, String)>, Bare(call): Bare) -> Reply {
    call.once(async {
        let now = call.app().clock.now();
        let keep = |change: &SecretChange| call.keep(&ChangedSecret::at(change, now));
        let change = identity::use_for_callbacks(call.app(), &client_id, &secret_id, &keep, &call.actor).await?;
        Ok(ChangedSecret::at(&change, now))
    })
    .await
}
