//! Applications.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::time::rfc3339;
use countersign_protocol::body::Fields;
use countersign_store::contract::{ApplicationRow, ApplicationView};
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Call, Named, Reply, json};
use super::fields::{display_name, whole};
use super::paging::{Asked, Page};
use super::problem::{Problem, ProblemDocument};
use crate::app::identity::{
    self, ApplicationChange, MadeApplication, NewApplication, Set, encoding_from_name, encoding_name,
    vocabulary_from_name, vocabulary_name,
};
use crate::dispatch::egress::Egress;

/// Largest rate that an application can be given.
const RATE_MAX: i64 = 1_000_000;

/// An application to be made.
#[derive(Debug, ToSchema)]
pub struct ApplicationRequest {
    /// A name for people, 1 to 100 characters.
    pub name: String,
    /// Where its callbacks go; absent: events are held.
    pub callback_url: Option<String>,
}

/// An application that was just made, with its first secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct NewApplicationAnswer {
    /// Its ClientId.
    pub client_id: String,
    /// Whose it is.
    pub merchant_id: String,
    /// A name for people.
    pub name: String,
    /// The secret's id.
    pub secret_id: String,
    /// The secret, shown this once; null where the call is repeated.
    pub payment_api_secret: Option<String>,
    /// Where its callbacks go.
    pub callback_url: Option<String>,
    /// When it was made, RFC 3339.
    pub created_at: String,
}

/// What to change. What is absent stays; null clears `callback_url`, `timestamp_tolerance_ms` and `rate_limit_per_s`.
#[derive(Debug, ToSchema)]
pub struct ApplicationPatch {
    /// A name for people.
    pub name: Option<String>,
    /// Whether its requests are accepted.
    pub enabled: Option<bool>,
    /// Where its callbacks go. Setting one turns callbacks on and releases held events.
    pub callback_url: Option<String>,
    /// Whether callbacks go out. Turning them on releases held events, turning them off holds pending ones.
    pub callback_enabled: Option<bool>,
    /// `hex` or `base64`.
    pub callback_encoding: Option<String>,
    /// `standard` or `family`.
    pub callback_vocabulary: Option<String>,
    /// A limit lower than the deployment's.
    pub timestamp_tolerance_ms: Option<i64>,
    /// Requests per second; 0 is off.
    pub rate_limit_per_s: Option<u32>,
}

/// An application.
#[derive(Debug, Serialize, ToSchema)]
pub struct Application {
    /// Its ClientId.
    pub client_id: String,
    /// Whose it is.
    pub merchant_id: String,
    /// A name for people.
    pub name: String,
    /// Whether its requests are accepted.
    pub enabled: bool,
    /// Whether its merchant and the institution over that are enabled; else its requests are refused and its events held all the same.
    pub merchant_enabled: bool,
    /// Where its callbacks go.
    pub callback_url: Option<String>,
    /// Whether callbacks go out.
    pub callback_enabled: bool,
    /// `hex` or `base64`.
    pub callback_encoding: &'static str,
    /// `standard` or `family`.
    pub callback_vocabulary: &'static str,
    /// A limit lower than the deployment's; null: the deployment's.
    pub timestamp_tolerance_ms: Option<i64>,
    /// Requests per second; 0 is off; null: the deployment's.
    pub rate_limit_per_s: Option<u32>,
    /// When it was made, RFC 3339.
    pub created_at: String,
}

impl From<&ApplicationView> for Application {
    fn from(view: &ApplicationView) -> Self {
        let row: &ApplicationRow = &view.application;
        Self {
            client_id: row.client_id.clone(),
            merchant_id: view.merchant.merchant_id.clone(),
            name: row.name.clone(),
            enabled: row.enabled,
            merchant_enabled: view.merchant_is_enabled(),
            callback_url: row.callback_url.clone(),
            callback_enabled: row.callback_enabled,
            callback_encoding: encoding_name(row.callback_encoding),
            callback_vocabulary: vocabulary_name(row.callback_vocabulary),
            timestamp_tolerance_ms: row.timestamp_tolerance_ms,
            rate_limit_per_s: row.rate_limit_per_s,
            created_at: rfc3339(row.created_at),
        }
    }
}

impl NewApplicationAnswer {
    fn of(made: &MadeApplication, secret: Option<&str>) -> Self {
        Self {
            client_id: made.application.client_id.clone(),
            merchant_id: made.merchant.merchant_id.clone(),
            name: made.application.name.clone(),
            secret_id: made.secret.secret_id.clone(),
            payment_api_secret: secret.map(str::to_owned),
            callback_url: made.application.callback_url.clone(),
            created_at: rfc3339(made.application.created_at),
        }
    }
}

/// Where callbacks may go by the form of the URL. Names are looked up and vetted on each attempt.
fn callback_url(egress: &Egress, url: String) -> Result<String, Problem> {
    egress.target(&url).map_err(|refused| Problem::field("callback_url", refused))?;
    Ok(url)
}

fn parse_new(egress: &Egress, merchant_id: String, body: &[u8]) -> Result<NewApplication, Problem> {
    let fields = Fields::parse(body)?;
    let name = display_name(fields.required_text("name")?)?;
    let url = fields.text("callback_url")?.map(|url| callback_url(egress, url)).transpose()?;
    Ok(NewApplication { merchant_id, name, callback_url: url })
}

fn parse_patch(desk: &Desk, body: &[u8]) -> Result<ApplicationChange, Problem> {
    let fields = Fields::parse(body)?;
    let word = |name, from: fn(&str) -> bool, words| match fields.text(name)? {
        Some(text) if !from(&text) => Err(Problem::field(name, format_args!("must be {words}"))),
        text => Ok(text),
    };
    let encoding = word("callback_encoding", |t| encoding_from_name(t).is_some(), "hex or base64")?;
    let vocabulary = word("callback_vocabulary", |t| vocabulary_from_name(t).is_some(), "standard or family")?;
    let url = fields.text("callback_url")?.map(|url| callback_url(&desk.settings.egress, url)).transpose()?;
    let tolerance = whole(&fields, "timestamp_tolerance_ms", 1, desk.app.policy.timestamp_tolerance_ms)?;
    let rate = whole(&fields, "rate_limit_per_s", 0, RATE_MAX)?.and_then(|rate| u32::try_from(rate).ok());
    Ok(ApplicationChange {
        name: fields.text("name")?.map(display_name).transpose()?,
        enabled: fields.boolean("enabled")?,
        callback_url: set(&fields, "callback_url", url),
        callback_enabled: fields.boolean("callback_enabled")?,
        callback_encoding: encoding.as_deref().and_then(encoding_from_name),
        callback_vocabulary: vocabulary.as_deref().and_then(vocabulary_from_name),
        timestamp_tolerance_ms: set(&fields, "timestamp_tolerance_ms", tolerance),
        rate_limit_per_s: set(&fields, "rate_limit_per_s", rate),
    })
}

/// A field that null clears.
fn set<T>(fields: &Fields<'_>, name: &str, value: Option<T>) -> Set<T> {
    match value {
        Some(value) => Set::To(value),
        None if fields.has(name) => Set::Clear,
        None => Set::Keep,
    }
}

/// Adds an application to an institution, a merchant or a sub-account. Its secret is shown this once.
#[utoipa::path(post, path = "/operator/v1/merchants/{merchant_id}/applications", tag = "Applications", operation_id = "create_application",
    params(("merchant_id" = String, Path, description = "A merchant_id or sub_merchant_id")), request_body = ApplicationRequest,
    responses((status = 200, body = NewApplicationAnswer), (status = 404, body = ProblemDocument)))]
pub async fn create(State(desk): State<Arc<Desk>>, Named(merchant_id): Named<String>, call: Call) -> Reply {
    call.once(async {
        let ask = parse_new(&desk.settings.egress, merchant_id, &call.body)?;
        let keep = |made: &MadeApplication| call.keep(&NewApplicationAnswer::of(made, None));
        let made = identity::create_application(&desk.app, &ask, &keep, &call.actor).await?;
        Ok(NewApplicationAnswer::of(&made, Some(made.plain.expose())))
    })
    .await
}

/// Applications in the order they were made, all or of one merchant.
#[utoipa::path(get, path = "/operator/v1/applications", tag = "Applications", operation_id = "list_applications",
    params(("merchant_id" = Option<String>, Query, description = "Only of this merchant"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<Application>)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let merchant = asked.filter("merchant_id")?;
    let rows =
        identity::list_applications(&desk.app, merchant.as_deref(), asked.after.as_deref(), asked.limit_and_one())
            .await?;
    Ok(json(&asked.page(rows, |view| view.application.client_id.clone(), |view| Application::from(view))))
}

/// One application.
#[utoipa::path(get, path = "/operator/v1/applications/{client_id}", tag = "Applications", operation_id = "show_application",
    params(("client_id" = String, Path, description = "The ClientId")),
    responses((status = 200, body = Application), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(client_id): Named<String>) -> Reply {
    Ok(json(&Application::from(&identity::find_application(&desk.app, &client_id).await?)))
}

/// Changes an application.
#[utoipa::path(patch, path = "/operator/v1/applications/{client_id}", tag = "Applications", operation_id = "update_application",
    params(("client_id" = String, Path, description = "The ClientId")), request_body = ApplicationPatch,
    responses((status = 200, body = Application), (status = 404, body = ProblemDocument)))]
pub async fn update(State(desk): State<Arc<Desk>>, Named(client_id): Named<String>, call: Call) -> Reply {
    call.once(async {
        let change = parse_patch(&desk, &call.body)?;
        let keep = |view: &ApplicationView| call.keep(&Application::from(view));
        let view = identity::update_application(&desk.app, &client_id, &change, &keep, &call.actor).await?;
        Ok(Application::from(&view))
    })
    .await
}
