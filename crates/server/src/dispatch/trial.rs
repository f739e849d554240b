//! A callback that tells of nothing: so that somebody can see what becomes of one, before it counts.
//!
//! It goes the way of every attempt: the same keys and headers, the same vetting of the address, the same deadline. It leaves neither an event nor an
//! attempt, and counts in no meter. It goes out while callbacks are paused too, since that is when a receiver is mended; but not while the whole
//! deployment is held after a restore: then nothing goes out.
//!
//! Invariant: of one application one is under way at a time on a node, and [`UNDER_WAY_MAX`] in all.
//! Invariant: who had it sent is in the audit log before it goes. What came of it is in the answer, and in the log.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{ApplicationNo, EventNo};
use countersign_domain::time::UnixMillis;
use countersign_protocol::callback::CallbackBody;
use countersign_store::contract::{ApplicationRow, EventRow};
use countersign_store::{Batch, CommitError, Store as _};
use hyper::header::HeaderMap;

use super::Dispatcher;
use super::attempt;
use crate::app::callers::{CallbackKeys, KnownApplication, LiveKey};
use crate::app::delivery::HELD;
use crate::app::error::AppError;
use crate::app::idempotency::{Keep, kept};
use crate::app::identity::no_application;
use crate::app::{Actor, App, Deed};
use crate::clock::ms_of;

/// Its kind of business: a receiver that does not know it must take it all the same.
pub const BIZ_TYPE: &str = "CALLBACK_TEST";
/// At once, of all applications.
const UNDER_WAY_MAX: usize = 16;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// As of an attempt.
    pub outcome: Outcome,
    /// The status, where an answer came.
    pub http_status: Option<u16>,
    /// The address that was connected to.
    pub address: Option<Arc<str>>,
    /// How long it took.
    pub took: Duration,
    /// What went wrong, in words.
    pub detail: String,
    /// Names and values of the headers that were signed and sent; signatures are withheld.
    pub headers: Vec<(String, String)>,
    /// The body that was signed and sent.
    pub body: String,
}

/// Applications whose trial is under way.
#[derive(Debug, Default)]
pub(super) struct Trials(Mutex<HashSet<i64>>);

/// A trial's permit to be one of them. Given back when it is dropped.
#[derive(Debug)]
struct TrialPermit<'a> {
    trials: &'a Trials,
    application: i64,
}

impl Trials {
    fn enter(&self, application: ApplicationNo) -> Result<TrialPermit<'_>, AppError> {
        let mut under_way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if under_way.contains(&application.0) {
            return Err(refused("a test callback of this application is under way: wait for its answer"));
        }
        if under_way.len() >= UNDER_WAY_MAX {
            return Err(refused("as many test callbacks as may be are under way: ask again in some seconds"));
        }
        under_way.insert(application.0);
        Ok(TrialPermit { trials: self, application: application.0 })
    }
}

impl Drop for TrialPermit<'_> {
    fn drop(&mut self) {
        self.trials.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.application);
    }
}

pub(super) fn refused(why: &str) -> AppError {
    AppError::CallbackNotTestable(why.to_owned())
}

/// Where a callback goes, what signs it, and when that was so.
struct Addressed<'k> {
    url: &'k str,
    signing: &'k LiveKey,
    next: Option<&'k LiveKey>,
    now: UnixMillis,
}

/// Of an application, as it is now; or why none goes.
fn addressed<'k>(app: &App, known: &'k KnownApplication) -> Result<Addressed<'k>, AppError> {
    let Some(url) = known.application.callback_url.as_deref() else {
        return Err(refused("the application has no callback_url: set one, and test again"));
    };
    if app.bell.is_paused() {
        return Err(refused(&format!("{HELD}, and test again")));
    }
    let now = app.clock.now();
    let CallbackKeys { signing: Some(signing), next } = known.callback_keys(now) else {
        return Err(refused("the application has no live secret to sign with: make one, and test again"));
    };
    Ok(Addressed { url, signing, next, now })
}

impl Dispatcher {
    async fn testable(&self, client_id: &str) -> Result<Arc<KnownApplication>, AppError> {
        let known = self.app.known_application(client_id).await?;
        known.ok_or_else(|| no_application(client_id))
    }

    /// Signs and sends a callback that tells of nothing. Refused where there is no URL, nothing to sign with, one under way, or where nothing may go out.
    pub async fn try_out(&self, client_id: &str, keep: &Keep<'_, Tried>, actor: &Actor) -> Result<Tried, AppError> {
        let app = &self.app;
        let known = self.testable(client_id).await?;
        let now = addressed(app, &known)?.now;
        let row = &known.application;
        let _place = self.trials.enter(row.no)?;
        let audit = actor.records(Deed {
            tenant: Some(row.tenant),
            at: now,
            action: "application.test_callback",
            subject: client_id,
            before: String::new(),
            after: String::new(),
        });
        app.store.commit(actor.batch(vec![audit])).await?;
        // As it is by now: that may have taken long.
        let known = self.testable(client_id).await?;
        let Addressed { url, signing, next, now } = addressed(app, &known)?;
        let row = &known.application;
        let event = nothing(row, app.chance.sorted_id(now), &app.chance.hex(8), now);
        let letter = self.letter(&event, &known, signing, next, now);
        let headers = shown(&letter.headers);
        let report = Box::pin(attempt::make(&self.connector, url, letter, self.settings.deadline, now)).await;
        if report.lack.is_some() {
            let why = "this server has no file, no memory, no address of its own, no look-up or no proxy for a connection now";
            return Err(refused(&format!(
                "{why} ({}): look at its limits and its proxy, and test again",
                report.detail
            )));
        }
        let (outcome, took_ms) = (report.outcome.name(), ms_of(report.took));
        tracing::info!(client_id, outcome, detail = %report.detail, took_ms, "A test callback of {client_id} came to {outcome}");
        let tried = Tried {
            outcome: report.outcome,
            http_status: report.http_status,
            address: report.address,
            took: report.took,
            detail: report.detail,
            headers,
            body: String::from_utf8_lossy(&event.body).into_owned(),
        };
        self.keep_answer(keep, &tried).await;
        Ok(tried)
    }

    /// It was sent, whatever becomes of this: the answer goes out all the same, and a repeat of the call would send another.
    async fn keep_answer(&self, keep: &Keep<'_, Tried>, tried: &Tried) {
        let Some(answer) = kept(keep, tried) else { return };
        match self.app.store.commit(Batch(vec![answer])).await {
            // Another node has kept one under the same key.
            Ok(_) | Err(CommitError::Conflict(_)) => {}
            Err(error) => tracing::warn!(%error, "The answer to a test callback could not be kept under its key"),
        }
    }
}

/// An event that happened nowhere and is kept nowhere.
fn nothing(row: &ApplicationRow, event_id: countersign_domain::ids::SortedId, name: &str, now: UnixMillis) -> EventRow {
    let body = CallbackBody {
        biz_type: BIZ_TYPE.to_owned(),
        biz_id: format!("test-{name}"),
        biz_status: "TEST".to_owned(),
        client_id: row.client_id.clone(),
        data: "{}".to_owned(),
    };
    EventRow {
        no: EventNo(0),
        tenant: row.tenant,
        application: row.no,
        client_id: row.client_id.clone(),
        event_id,
        seq: 0,
        sequence: 1,
        biz_type: body.biz_type.clone(),
        biz_id: body.biz_id.clone(),
        biz_status: body.biz_status.clone(),
        data: body.data.clone(),
        body: body.to_bytes(),
        created_at: now,
        state: DeliveryState::Pending,
        attempts: 0,
        due_at: None,
        behind: None,
        by_hand: false,
    }
}

/// By name. Nobody needs the signature of what tells of nothing; in the attempt log it stands, for who looks for a mistake in it.
fn shown(headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |name: &str, value: &[u8]| {
        let is_signature = name.ends_with("-signature") || name.ends_with("-signature-next");
        if is_signature { "(withheld)".to_owned() } else { String::from_utf8_lossy(value).into_owned() }
    };
    let mut shown: Vec<(String, String)> =
        headers.iter().map(|(name, is)| (name.to_string(), value(name.as_str(), is.as_bytes()))).collect();
    shown.sort();
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_application_has_one_trial_under_way_and_all_together_a_bounded_number() {
        let trials = Trials::default();
        let mut places: Vec<TrialPermit<'_>> = Vec::new();
        for no in 1..=16 {
            places.push(trials.enter(ApplicationNo(no)).expect("there is room"));
            assert!(trials.enter(ApplicationNo(no)).is_err(), "one at a time");
        }
        assert!(trials.enter(ApplicationNo(17)).expect_err("full").to_string().contains("as many"));
        places.pop();
        assert!(trials.enter(ApplicationNo(15)).is_err());
        trials.enter(ApplicationNo(17)).expect("a place was given back");
        trials.enter(ApplicationNo(16)).expect("whose trial has ended may have another");
    }

    #[test]
    fn headers_are_shown_by_name_and_signatures_are_not() {
        let mut headers = HeaderMap::new();
        for name in ["x-a-timestamp", "x-a-signature-next", "x-a-signature"] {
            headers.insert(name, "abc".parse().expect("a value"));
        }
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            shown(&headers),
            [
                pair("x-a-signature", "(withheld)"),
                pair("x-a-signature-next", "(withheld)"),
                pair("x-a-timestamp", "abc")
            ]
        );
    }
}
