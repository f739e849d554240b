//! Applications.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::delivery::{SCHEDULE_DELAYS_MAX, Schedule};
use countersign_domain::time::rfc3339;
use countersign_protocol::body::Fields;
use countersign_store::contract::{ApplicationRow, ApplicationView, EndpointSettings};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Call, Named, Reply, json};
use super::fields::{display_name, whole};
use super::paging::{Asked, Mark, Page, lettered};
use super::problem::{Problem, ProblemDocument};
use crate::app::identity::{
    self, ApplicationChange, EndpointChange, MadeApplication, NewApplication, Set, encoding_from_name, encoding_name,
    vocabulary_from_name, vocabulary_name,
};
use crate::dispatch::egress::Egress;

/// Largest rate that an application can be given.
pub(crate) const RATE_MAX: i64 = 1_000_000;
/// Largest rate of callbacks, and most of them at once, that an application can be given.
pub(crate) const CALLBACK_RATE_MAX: i64 = 10_000;
pub(crate) const CALLBACK_CONCURRENCY_MAX: i64 = 1_000;
/// No delay is written with more characters.
pub(crate) const DELAY_CHARS_MAX: usize = 24;

/// An application to be made.
#[derive(Debug, ToSchema)]
pub struct ApplicationRequest {
    /// A name for people, 1 to 100 characters.
    pub name: String,
    /// Where its callbacks go; absent: events are held.
    pub callback_url: Option<String>,
    /// Callbacks in a second, 1 to 10000; 0: as many as there are. Absent: the deployment's rate counts.
    pub callback_rate_per_s: Option<u32>,
    /// Callbacks at once, 1 to 1000. Absent: the deployment's number counts.
    pub callback_concurrency: Option<u32>,
    /// When failed attempts are repeated, such as `["5s", "2m", "1h"]`: 1 to 32 delays. Absent: the deployment's schedule counts.
    pub callback_schedule: Option<Vec<String>>,
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

/// What to change. What is absent stays; null clears `callback_url`, `timestamp_tolerance_ms`, `rate_limit_per_s`, `callback_rate_per_s`,
/// `callback_concurrency` and `callback_schedule`.
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
    /// Callbacks in a second, 1 to 10000; 0: as many as there are.
    pub callback_rate_per_s: Option<u32>,
    /// Callbacks at once, 1 to 1000.
    pub callback_concurrency: Option<u32>,
    /// When failed attempts are repeated, such as `["5s", "2m", "1h"]`: 1 to 32 delays.
    pub callback_schedule: Option<Vec<String>>,
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
    /// When the endpoint answered 410, if that is why they do not go out; RFC 3339.
    pub callback_gone_at: Option<String>,
    /// `hex` or `base64`.
    pub callback_encoding: &'static str,
    /// `standard` or `family`.
    pub callback_vocabulary: &'static str,
    /// A limit lower than the deployment's; null: the deployment's.
    pub timestamp_tolerance_ms: Option<i64>,
    /// Requests per second; 0 is off; null: the deployment's.
    pub rate_limit_per_s: Option<u32>,
    /// Callbacks in a second; 0: as many as there are; null: the deployment's.
    pub callback_rate_per_s: Option<u32>,
    /// Callbacks at once; null: the deployment's.
    pub callback_concurrency: Option<u32>,
    /// When failed attempts are repeated; null: the deployment's.
    pub callback_schedule: Option<Vec<String>>,
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
            callback_gone_at: row.gone_at().map(rfc3339),
            callback_encoding: encoding_name(row.callback_encoding),
            callback_vocabulary: vocabulary_name(row.callback_vocabulary),
            timestamp_tolerance_ms: row.timestamp_tolerance_ms,
            rate_limit_per_s: row.rate_limit_per_s,
            callback_rate_per_s: row.endpoint.rate_per_s,
            callback_concurrency: row.endpoint.concurrency,
            callback_schedule: row.endpoint.schedule.as_ref().map(Schedule::texts),
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
    egress.accept(&url).map_err(|refused| Problem::field("callback_url", refused))?;
    Ok(url)
}

fn parse_new(egress: &Egress, merchant_id: String, body: &[u8]) -> Result<NewApplication, Problem> {
    let fields = Fields::parse(body)?;
    let name = display_name(fields.required_text("name")?)?;
    let url = fields.text("callback_url")?.map(|url| callback_url(egress, url)).transpose()?;
    Ok(NewApplication { merchant_id, name, callback_url: url, endpoint: endpoint(&fields)? })
}

/// How callbacks go out; null is absent.
fn endpoint(fields: &Fields<'_>) -> Result<EndpointSettings, Problem> {
    let small = |name, least, most| -> Result<Option<u32>, Problem> {
        Ok(whole(fields, name, least, most)?.and_then(|number| u32::try_from(number).ok()))
    };
    Ok(EndpointSettings {
        rate_per_s: small("callback_rate_per_s", 0, CALLBACK_RATE_MAX)?,
        concurrency: small("callback_concurrency", 1, CALLBACK_CONCURRENCY_MAX)?,
        schedule: schedule(fields)?,
    })
}

/// By the rules of the setting of this name.
fn schedule(fields: &Fields<'_>) -> Result<Option<Schedule>, Problem> {
    const NAME: &str = "callback_schedule";
    let Some(list) = fields.raw(NAME).map(RawValue::get).filter(|raw| *raw != "null") else { return Ok(None) };
    let is_short = |delay: &String| delay.chars().count() <= DELAY_CHARS_MAX;
    let delays = serde_json::from_str::<Vec<String>>(list).ok().filter(|delays| delays.iter().all(is_short));
    let delays = delays.ok_or_else(|| {
        Problem::field(
            NAME,
            format_args!("must be a list of 1 to {SCHEDULE_DELAYS_MAX} delays such as [\"5s\", \"2m\", \"1h\"]"),
        )
    })?;
    Schedule::parse(&delays).map(Some).map_err(|refused| Problem::field(NAME, refused))
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
    let endpoint = endpoint(&fields)?;
    Ok(ApplicationChange {
        name: fields.text("name")?.map(display_name).transpose()?,
        enabled: fields.boolean("enabled")?,
        callback_url: set(&fields, "callback_url", url),
        callback_enabled: fields.boolean("callback_enabled")?,
        callback_encoding: encoding.as_deref().and_then(encoding_from_name),
        callback_vocabulary: vocabulary.as_deref().and_then(vocabulary_from_name),
        timestamp_tolerance_ms: set(&fields, "timestamp_tolerance_ms", tolerance),
        rate_limit_per_s: set(&fields, "rate_limit_per_s", rate),
        endpoint: EndpointChange {
            rate_per_s: set(&fields, "callback_rate_per_s", endpoint.rate_per_s),
            concurrency: set(&fields, "callback_concurrency", endpoint.concurrency),
            schedule: set(&fields, "callback_schedule", endpoint.schedule),
        },
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

const MARK: Mark<i64> = lettered::<'a'>();

/// Applications, in the order they were made. All, or those of one merchant, those whose callbacks are turned off.
#[utoipa::path(get, path = "/operator/v1/applications", tag = "Applications", operation_id = "list_applications",
    params(("merchant_id" = Option<String>, Query, description = "Only of this merchant"),
        ("callback_enabled" = Option<bool>, Query, description = "Only those whose callbacks are turned on (`true`), or off (`false`)"),
        ("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<Application>), (status = 404, body = ProblemDocument)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let (merchant, enabled) = (asked.filters.id("merchant_id")?, asked.filters.boolean("callback_enabled")?);
    let (after, limit) = (asked.after(&MARK)?, asked.limit_and_one());
    let rows = identity::list_applications(&desk.app, merchant.as_deref(), enabled, after, limit).await?;
    Ok(json(&asked.page(rows, &MARK, |view| view.application.no.0, |view| Application::from(view))))
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
    call.once_everywhere(async {
        let change = parse_patch(&desk, &call.body)?;
        let keep = |view: &ApplicationView| call.keep(&Application::from(view));
        let view = identity::update_application(&desk.app, &client_id, &change, &keep, &call.actor).await?;
        Ok(Application::from(&view))
    })
    .await
}
