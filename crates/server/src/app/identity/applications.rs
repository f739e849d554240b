//! Applications: holders of a ClientId, and where their callbacks go.

use countersign_domain::delivery::Schedule;
use countersign_domain::ids::{ApplicationNo, prefix};
use countersign_domain::time::UnixMillis;
use countersign_store::Store;
use countersign_store::batch::{Conflict, Key, Write};
use countersign_store::contract::{
    ApplicationFilter, ApplicationRow, ApplicationView, Asker, CommitError, Cursor, EndpointSettings, MerchantRow,
    SecretRow, SignatureEncoding, Vocabulary,
};
use serde_json::{Value, json};

use super::merchants::find_merchant;
use super::secrets::{new_secret, seals_now};
use super::{encoding_name, vocabulary_name};
use crate::app::error::AppError;
use crate::app::idempotency::{Keep, kept};
use crate::app::plain_secret::PlainSecret;
use crate::app::turns::TurnKey;
use crate::app::{Actor, App, Deed, master_key, nodes};

/// How often an application is written anew under another number before we say busy.
const NUMBER_TRIES_MAX: u32 = 5;

/// An application to be made.
#[derive(Clone, Debug)]
pub struct NewApplication {
    /// Its merchant's public id.
    pub merchant_id: String,
    /// A name for people.
    pub name: String,
    /// Where its callbacks go, checked already.
    pub callback_url: Option<String>,
    /// How they go there, checked already.
    pub endpoint: EndpointSettings,
}

/// An application that was just made, with its first secret.
#[derive(Debug)]
pub struct MadeApplication {
    /// The application.
    pub application: ApplicationRow,
    /// Its merchant.
    pub merchant: MerchantRow,
    /// Its secret, sealed.
    pub secret: SecretRow,
    /// Its secret, for its owner only.
    pub plain: PlainSecret,
}

/// Makes an application and its first secret.
pub async fn create_application(
    app: &App,
    ask: &NewApplication,
    keep: &Keep<'_, MadeApplication>,
    actor: &Actor,
) -> Result<MadeApplication, AppError> {
    let merchant = find_merchant(app, &ask.merchant_id).await?;
    for _ in 0..NUMBER_TRIES_MAX {
        let application = new_row(app, ask, &merchant);
        let (secret, plain) = new_secret(app, &application, application.created_at, true);
        let made = MadeApplication { application, merchant: merchant.clone(), secret, plain };
        let row = &made.application;
        let audit = actor.records(Deed {
            tenant: Some(row.tenant),
            at: row.created_at,
            action: "application.create",
            subject: &row.client_id,
            before: String::new(),
            after: describe_made(&made),
        });
        let mut writes = vec![
            Write::InsertApplication(Box::new(row.clone())),
            Write::InsertSecret(Box::new(made.secret.clone())),
            seals_now(&made.secret),
            audit,
        ];
        writes.extend(kept(keep, &made));
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => {
                app.callers.made(&made.application.client_id);
                return Ok(made);
            }
            // Another node drew the same number in the same millisecond.
            Err(CommitError::Conflict(Conflict::Taken(Key::Application(_)))) => {}
            Err(CommitError::Conflict(Conflict::Moved(Key::Setting(_)))) => master_key::look(app).await?,
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

fn new_row(app: &App, ask: &NewApplication, merchant: &MerchantRow) -> ApplicationRow {
    let now = app.clock.now();
    ApplicationRow {
        no: ApplicationNo(app.chance.number(now)),
        client_id: format!("{}{}", prefix::CLIENT, app.chance.sorted_id(now)),
        tenant: merchant.tenant,
        merchant: merchant.no,
        name: ask.name.clone(),
        enabled: true,
        callback_url: ask.callback_url.clone(),
        callback_enabled: true,
        callback_gone_at: None,
        callback_encoding: SignatureEncoding::Hex,
        callback_vocabulary: Vocabulary::Standard,
        timestamp_tolerance_ms: None,
        tolerance_before_ms: None,
        tolerance_raised_at: None,
        rate_limit_per_s: None,
        endpoint: ask.endpoint.clone(),
        revision: 1,
        created_at: now,
    }
}

/// An application by its ClientId.
pub async fn find_application(app: &App, client_id: &str) -> Result<ApplicationView, AppError> {
    let found = app.store.application(client_id).await?;
    found.ok_or_else(|| no_application(client_id))
}

/// No application has this ClientId.
pub(crate) fn no_application(client_id: &str) -> AppError {
    AppError::NotFound(format!("no application has the client_id {client_id}"))
}

/// Applications in the order they were made: all, or of one merchant, or whose callbacks are turned on or off. `after`: the number of the last one
/// seen.
pub async fn list_applications(
    app: &App,
    merchant: Option<&str>,
    callback_enabled: Option<bool>,
    after: Option<i64>,
    limit: u32,
) -> Result<Vec<ApplicationView>, AppError> {
    let merchant = match merchant {
        None => None,
        Some(id) => Some(find_merchant(app, id).await?.no),
    };
    let filter = ApplicationFilter { merchant, callback_enabled };
    Ok(app.store.applications(Asker::Operator, filter, Cursor { after, limit }).await?)
}

/// What becomes of a field that can be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Set<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It becomes absent: the deployment's own value counts.
    Clear,
    /// It becomes this.
    To(T),
}

impl<T: Clone> Set<T> {
    fn of(&self, now: Option<&T>) -> Option<T> {
        match self {
            Self::Keep => now.cloned(),
            Self::Clear => None,
            Self::To(value) => Some(value.clone()),
        }
    }
}

/// What becomes of how callbacks go to an endpoint.
#[derive(Clone, Debug, Default)]
pub struct EndpointChange {
    /// Attempts in a second; 0: as many as there are.
    pub rate_per_s: Set<u32>,
    /// Attempts at once, at least 1.
    pub concurrency: Set<u32>,
    /// When failed attempts are repeated.
    pub schedule: Set<Schedule>,
}

impl EndpointChange {
    fn on(&self, before: &EndpointSettings) -> EndpointSettings {
        EndpointSettings {
            rate_per_s: self.rate_per_s.of(before.rate_per_s.as_ref()),
            concurrency: self.concurrency.of(before.concurrency.as_ref()),
            schedule: self.schedule.of(before.schedule.as_ref()),
        }
    }
}

/// A change of an application; what is `None` or `Keep` stays.
#[derive(Clone, Debug, Default)]
pub struct ApplicationChange {
    /// A name for people.
    pub name: Option<String>,
    /// Whether its requests are accepted.
    pub enabled: Option<bool>,
    /// Where its callbacks go, checked already. Setting one turns callbacks on, unless `callback_enabled` says otherwise.
    pub callback_url: Set<String>,
    /// Whether callbacks go out.
    pub callback_enabled: Option<bool>,
    /// How callbacks are signed.
    pub callback_encoding: Option<SignatureEncoding>,
    /// Which words they use.
    pub callback_vocabulary: Option<Vocabulary>,
    /// A limit lower than the deployment's.
    pub timestamp_tolerance_ms: Set<i64>,
    /// Requests per second; 0 is off.
    pub rate_limit_per_s: Set<u32>,
    /// How its callbacks go out.
    pub endpoint: EndpointChange,
}

impl ApplicationChange {
    /// The row after the change. `deployment_ms`: the tolerance where the application sets none.
    fn on(&self, row: &ApplicationRow, now: UnixMillis, deployment_ms: i64) -> ApplicationRow {
        let tolerance = self.timestamp_tolerance_ms.of(row.timestamp_tolerance_ms.as_ref());
        let (tolerance_before_ms, tolerance_raised_at) = raised(row, tolerance, now, deployment_ms);
        let sets_url = matches!(self.callback_url, Set::To(_));
        let callback_enabled = self.callback_enabled.unwrap_or(row.callback_enabled || sets_url);
        // Whoever turns the switch decides from here on, also one who pauses what was gone.
        let stays_gone = !callback_enabled && self.callback_enabled.is_none();
        ApplicationRow {
            name: self.name.clone().unwrap_or_else(|| row.name.clone()),
            enabled: self.enabled.unwrap_or(row.enabled),
            callback_url: self.callback_url.of(row.callback_url.as_ref()),
            callback_enabled,
            callback_gone_at: row.callback_gone_at.filter(|_| stays_gone),
            callback_encoding: self.callback_encoding.unwrap_or(row.callback_encoding),
            callback_vocabulary: self.callback_vocabulary.unwrap_or(row.callback_vocabulary),
            timestamp_tolerance_ms: tolerance,
            tolerance_before_ms,
            tolerance_raised_at,
            rate_limit_per_s: self.rate_limit_per_s.of(row.rate_limit_per_s.as_ref()),
            endpoint: self.endpoint.on(&row.endpoint),
            revision: row.revision + 1,
            ..row.clone()
        }
    }

    fn touches_callbacks(&self) -> bool {
        self.callback_enabled.is_some() || self.callback_url != Set::Keep
    }
}

/// A raised limit applies to requests stamped after the raise: what the limit was, and until when it judges.
fn raised(
    row: &ApplicationRow,
    next: Option<i64>,
    now: UnixMillis,
    deployment_ms: i64,
) -> (Option<i64>, Option<UnixMillis>) {
    let limit = |ms: Option<i64>| ms.unwrap_or(deployment_ms).min(deployment_ms);
    if limit(next) <= limit(row.timestamp_tolerance_ms) {
        return (row.tolerance_before_ms, row.tolerance_raised_at);
    }
    // A raise soon after another: the lowest limit of the time goes on judging.
    let still = row.tolerance_raised_at.is_some_and(|at| now.0 - at.0 <= deployment_ms);
    let before = row.tolerance_before_ms.filter(|_| still);
    (before.into_iter().chain([limit(row.timestamp_tolerance_ms)]).min(), Some(now))
}

/// Changes an application. Where callbacks begin to go out, held events are released; where they cease, pending ones are held: many of
/// them in portions, after the change. That it was disabled is answered when no node accepts its requests any more.
pub async fn update_application(
    app: &App,
    client_id: &str,
    change: &ApplicationChange,
    keep: &Keep<'_, ApplicationView>,
    actor: &Actor,
) -> Result<ApplicationView, AppError> {
    let after = decide_and_commit(app, client_id, actor, |before, now| {
        let (mut writes, after) = turned(app, before, change, now);
        let row = &after.application;
        let audit = actor.records(Deed {
            tenant: Some(row.tenant),
            at: now,
            action: "application.update",
            subject: client_id,
            before: describe(&before.application),
            after: describe(row),
        });
        writes.push(audit);
        writes.extend(kept(keep, &after));
        Ok((writes, after))
    })
    .await?;
    if change.enabled == Some(false) {
        nodes::until_all_know(app).await;
    }
    Ok(after)
}

/// The application after a change, and the writes that make it so. The line of the audit log is the caller's.
pub(super) fn turned(
    app: &App,
    before: &ApplicationView,
    change: &ApplicationChange,
    now: UnixMillis,
) -> (Vec<Write>, ApplicationView) {
    let row = change.on(&before.application, now, app.policy.timestamp_tolerance_ms);
    let (tenant, application) = (row.tenant, row.no);
    let mut writes = vec![Write::UpdateApplication(Box::new(row.clone()))];
    let after = ApplicationView { application: row, ..before.clone() };
    if change.touches_callbacks() {
        // A portion is turned with the change; if that is not all, the note stays, and the dispatcher goes on.
        writes.push(Write::Turn { tenant, application, due_at: now });
        writes.push(if after.goes_out() {
            Write::ReleaseHeld { tenant, application, due_at: now }
        } else {
            Write::HoldPending { tenant, application }
        });
    }
    (writes, after)
}

/// Reads an application, decides, commits; decides again where another node was first. Changes of one application take turns.
pub(super) async fn decide_and_commit<T: Send>(
    app: &App,
    client_id: &str,
    actor: &Actor,
    decide: impl Fn(&ApplicationView, UnixMillis) -> Result<(Vec<Write>, T), AppError> + Send + Sync,
) -> Result<T, AppError> {
    let _turn = app.turns.take_soon(TurnKey::Application(client_id.to_owned())).await?;
    let arrived = app.clock.now();
    loop {
        let view = find_application(app, client_id).await?;
        let now = app.clock.now();
        let (writes, value) = decide(&view, now)?;
        let outcome = app.store.commit(actor.batch(writes)).await;
        // Whatever became of it: what is kept in memory may be old now. Deliveries that waited may be able to go.
        app.callers.forget(client_id);
        app.bell.change(client_id);
        app.ring(view.application.tenant, view.application.no);
        match outcome {
            Ok(_) => return Ok(value),
            Err(CommitError::Conflict(Conflict::Moved(Key::Application(_)))) if app.may_decide_anew(arrived) => {}
            Err(CommitError::Conflict(Conflict::Moved(Key::Setting(_)))) if app.may_decide_anew(arrived) => {
                master_key::look(app).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// An application as a JSON text for the audit log.
fn describe(row: &ApplicationRow) -> String {
    described(row).to_string()
}

/// The same of one that was just made, with whose it is and its first secret.
fn describe_made(made: &MadeApplication) -> String {
    let mut after = described(&made.application);
    after["merchant_id"] = json!(made.merchant.merchant_id);
    after["secret_id"] = json!(made.secret.secret_id);
    after["fingerprint"] = json!(made.secret.fingerprint);
    after.to_string()
}

fn described(row: &ApplicationRow) -> Value {
    json!({
        "name": row.name,
        "enabled": row.enabled,
        "callback_url": row.callback_url,
        "callback_enabled": row.callback_enabled,
        "callback_encoding": encoding_name(row.callback_encoding),
        "callback_vocabulary": vocabulary_name(row.callback_vocabulary),
        "timestamp_tolerance_ms": row.timestamp_tolerance_ms,
        "rate_limit_per_s": row.rate_limit_per_s,
        "callback_rate_per_s": row.endpoint.rate_per_s,
        "callback_concurrency": row.endpoint.concurrency,
        "callback_schedule": row.endpoint.schedule.as_ref().map(Schedule::texts),
    })
}
