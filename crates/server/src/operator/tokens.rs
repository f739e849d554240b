//! Operators' bearer tokens.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_protocol::body::Fields;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Bare, Call, Named, Reply, json};
use super::fields::{display_name, whole};
use super::paging::{Asked, Mark, Page};
use super::problem::{Problem, ProblemDocument};
use crate::app::operators::{self, MadeToken, NewToken, SeenToken, role_from_name, role_name};
use crate::app::token_ends;

/// How long a token is good where nothing is said, in days.
pub(crate) const LIFE_DAYS_DEFAULT: i64 = 90;
/// The longest, in days.
pub(crate) const LIFE_DAYS_MAX: i64 = token_ends::LIFE_DAYS_MAX;
const DAY_S: i64 = 86_400;

/// A token to be made.
#[derive(Debug, ToSchema)]
pub struct TokenRequest {
    /// A name for people, 1 to 100 characters.
    pub name: String,
    /// `viewer`, `operator` or `security`.
    pub role: String,
    /// How long it is good: 1 to 366 days, default 90.
    pub life_days: Option<i64>,
}

/// A token that was just made.
#[derive(Debug, Serialize, ToSchema)]
pub struct NewTokenAnswer {
    /// Its id.
    pub token_id: String,
    /// The token, shown this once; null where the call is repeated.
    pub token: Option<String>,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub role: &'static str,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it ends, RFC 3339.
    pub expires_at: Option<String>,
}

/// A token, without the token.
#[derive(Debug, Serialize, ToSchema)]
pub struct Token {
    /// Its id.
    pub token_id: String,
    /// A name for people.
    pub name: String,
    /// What it may do.
    pub role: &'static str,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it ends, RFC 3339; null: it does not.
    pub expires_at: Option<String>,
    /// When it was revoked, RFC 3339; null: it was not.
    pub revoked_at: Option<String>,
    /// When a call was last made with it, RFC 3339, at most a minute behind; null: never.
    pub last_used_at: Option<String>,
    /// Whether calls may be made with it now.
    pub live: bool,
}

impl Token {
    fn at(seen: &SeenToken, now: UnixMillis) -> Self {
        let row = &seen.row;
        Self {
            token_id: row.token_id.clone(),
            name: row.name.clone(),
            role: role_name(row.role),
            created_at: rfc3339(row.created_at),
            expires_at: row.expires_at.map(rfc3339),
            revoked_at: row.revoked_at.map(rfc3339),
            last_used_at: seen.last_used_at.map(rfc3339),
            live: row.is_live(now),
        }
    }
}

/// A token that was revoked.
#[derive(Debug, Serialize, ToSchema)]
pub struct RevokedToken {
    /// Its id.
    pub token_id: String,
    /// When, RFC 3339.
    pub revoked_at: String,
}

impl NewTokenAnswer {
    fn of(made: &MadeToken, token: Option<&str>) -> Self {
        Self {
            token_id: made.row.token_id.clone(),
            token: token.map(str::to_owned),
            name: made.row.name.clone(),
            role: role_name(made.row.role),
            created_at: rfc3339(made.row.created_at),
            expires_at: made.row.expires_at.map(rfc3339),
        }
    }
}

fn parse(body: &[u8]) -> Result<NewToken, Problem> {
    let fields = Fields::parse(body)?;
    let role = fields.required_text("role")?;
    Ok(NewToken {
        name: display_name(fields.required_text("name")?)?,
        role: role_from_name(&role).ok_or_else(|| Problem::field("role", "must be viewer, operator or security"))?,
        life_s: whole(&fields, "life_days", 1, LIFE_DAYS_MAX)?.unwrap_or(LIFE_DAYS_DEFAULT) * DAY_S,
    })
}

/// Makes a token, shown this once.
#[utoipa::path(post, path = "/operator/v1/tokens", tag = "Tokens", operation_id = "create_token", request_body = TokenRequest,
    responses((status = 200, body = NewTokenAnswer)))]
pub async fn create(call: Call) -> Reply {
    call.once(async {
        let ask = parse(&call.body)?;
        let keep = |made: &MadeToken| call.keep(&NewTokenAnswer::of(made, None));
        let made = operators::create_token(call.app(), &ask, &keep, &call.actor).await?;
        Ok(NewTokenAnswer::of(&made, Some(made.plain.expose())))
    })
    .await
}

const MARK: Mark<String> =
    Mark { read: |text| operators::is_token_id(text).then(|| text.to_owned()), write: String::clone };

/// Tokens in the order they were made, those that have ended or were revoked too.
#[utoipa::path(get, path = "/operator/v1/tokens", tag = "Tokens", operation_id = "list_tokens",
    params(("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<Token>)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let now = desk.app.clock.now();
    let found = operators::list_tokens(&desk.app, asked.after(&MARK)?, asked.limit_and_one()).await?;
    Ok(json(&asked.page(found, &MARK, |seen| seen.row.token_id.clone(), |seen| Token::at(seen, now))))
}

/// One token.
#[utoipa::path(get, path = "/operator/v1/tokens/{token_id}", tag = "Tokens", operation_id = "show_token",
    params(("token_id" = String, Path, description = "The token's id")),
    responses((status = 200, body = Token), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(token_id): Named<String>) -> Reply {
    let now = desk.app.clock.now();
    Ok(json(&Token::at(&operators::find_token(&desk.app, &token_id).await?, now)))
}

/// Revokes a token at once. Answered when nothing that rests on it is on its way any more.
#[utoipa::path(delete, path = "/operator/v1/tokens/{token_id}", tag = "Tokens", operation_id = "revoke_token",
    params(("token_id" = String, Path, description = "The token's id")),
    responses((status = 200, body = RevokedToken), (status = 404, body = ProblemDocument)))]
pub async fn revoke(Named(token_id): Named<String>, Bare(call): Bare) -> Reply {
    let revoked = call.once(async {
        let answer = |at: UnixMillis| RevokedToken { token_id: token_id.clone(), revoked_at: rfc3339(at) };
        let at = operators::revoke_token(call.app(), &token_id, &|at| call.keep(&answer(*at)), &call.actor).await?;
        Ok(answer(at))
    });
    let reply = revoked.await?;
    operators::until_let_go(call.app(), &token_id).await?;
    Ok(reply)
}
