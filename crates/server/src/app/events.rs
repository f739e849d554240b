//! Callback events: what happened, that it is owed, and what became of it.

use std::fmt::Display;
use std::sync::Arc;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{EventNo, SortedId, prefix};
use countersign_domain::time::UnixMillis;
use countersign_protocol::callback::CallbackBody;
use countersign_store::Store;
use countersign_store::attempt_log::AttemptBytes;
use countersign_store::batch::{Conflict, EventNumbers, Guard, Key, Write};
use countersign_store::contract::{
    ApplicationRow, ApplicationView, Asker, AttemptRow, CommitError, Cursor, EventFilter, EventRow,
};
use countersign_store::event_list::EventPage;
use serde_json::json;

use super::callers::KnownApplication;
use super::error::AppError;
use super::idempotency::{Keep, kept};
use super::identity::find_application;
use super::payment_orders::LOOKED_MAX;
use super::turns::TurnKey;
use super::{Actor, App, Deed, fresh};

/// How often an event is written anew under another number before we say busy.
const NUMBER_TRIES_MAX: u32 = 5;

/// Something that happened, in the words that the merchant will read.
#[derive(Clone, Debug)]
pub struct Happening {
    /// Whose callback it is.
    pub client_id: String,
    /// What kind of business.
    pub biz_type: String,
    /// Of which payment order or transaction.
    pub biz_id: String,
    /// What became of it.
    pub biz_status: String,
    /// Business data, a JSON text.
    pub data: String,
}

/// An event's public id.
pub fn public_id(id: SortedId) -> String {
    format!("{}{id}", prefix::EVENT)
}

/// An event's id from its public form.
pub fn parse_public_id(text: &str) -> Option<SortedId> {
    text.strip_prefix(prefix::EVENT).and_then(SortedId::parse)
}

/// The guard of a decision that rests on the application as it was read.
pub(crate) fn as_read(application: &ApplicationRow) -> Guard {
    Guard::Application {
        application: application.no,
        client_id: application.client_id.clone(),
        revision: application.revision,
        holds_changes: true,
    }
}

/// Writes an event to the outbox. The answer carries the numbers that the store gave it.
pub async fn emit(app: &App, what: &Happening, keep: &Keep<'_, EventRow>, actor: &Actor) -> Result<EventRow, AppError> {
    let arrived = app.clock.now();
    let receiver = receiver(app, &what.client_id).await?;
    if let Some(event) = write(app, &receiver, what, keep, actor).await? {
        return Ok(event);
    }
    // The event was to be held, and the application has changed between the look and the write. From here on the write takes turns with changes of
    // the application on this node, so that such changes are not first again and again. Against changes on other nodes there is the guard alone.
    let _turn = app.turns.take_soon(TurnKey::Application(what.client_id.clone())).await?;
    loop {
        let read = Receiver::Read(Box::new(find_application(app, &what.client_id).await?));
        match write(app, &read, what, keep, actor).await? {
            Some(event) => return Ok(event),
            None if app.may_decide_anew(arrived) => {}
            None => return Err(AppError::Busy),
        }
    }
}

/// An application that an event is for.
pub(super) enum Receiver {
    /// The application as the only node keeps it in memory; its callbacks go out. If its callbacks are turned off meanwhile, the dispatcher sees so:
    /// the dispatcher looks at the application before each attempt.
    Known(Arc<KnownApplication>),
    /// The application as it was read just now. Where its callbacks do not go out, the write is guarded by the revision that was read ([`as_read`]).
    Read(Box<ApplicationView>),
}

impl Receiver {
    pub(super) fn application(&self) -> &ApplicationRow {
        match self {
            Self::Known(known) => &known.application,
            Self::Read(view) => &view.application,
        }
    }

    /// Whether its callbacks go out.
    pub(super) fn goes_out(&self) -> bool {
        match self {
            Self::Known(known) => known.goes_out,
            Self::Read(view) => view.goes_out(),
        }
    }
}

/// Whom an event is for. Where other nodes change applications, too, the store is asked: what is kept may be a moment old, and an event keeps
/// its words for good. It is asked as well to hold an event, which takes more than what is kept, and where no keys can be read, which an event
/// does not need.
pub(super) async fn receiver(app: &App, client_id: &str) -> Result<Receiver, AppError> {
    if !app.store.is_shared()
        && let Ok(Some(known)) = app.known_application(client_id).await
        && known.goes_out
    {
        return Ok(Receiver::Known(known));
    }
    Ok(Receiver::Read(Box::new(find_application(app, client_id).await?)))
}

/// None: it was to be held, and the application has changed meanwhile.
async fn write(
    app: &App,
    receiver: &Receiver,
    what: &Happening,
    keep: &Keep<'_, EventRow>,
    actor: &Actor,
) -> Result<Option<EventRow>, AppError> {
    for _ in 0..NUMBER_TRIES_MAX {
        let event = Arc::new(new_event(app, receiver, what));
        let mut writes = Vec::with_capacity(4);
        if event.state == DeliveryState::Held {
            writes.push(Write::Guard(as_read(receiver.application())));
        }
        writes.push(Write::EnqueueEvent(event.clone()));
        writes.push(audit(&event, actor));
        writes.extend(kept(keep, &event));
        match fresh::commit(app, event.clone(), actor.batch(writes)).await {
            Ok(numbers) => {
                let event = Arc::unwrap_or_clone(event);
                return Ok(Some(match numbers {
                    Some(EventNumbers { seq, sequence }) => EventRow { seq, sequence, ..event },
                    None => event,
                }));
            }
            Err(CommitError::Conflict(Conflict::Moved(Key::Application(_)))) => return Ok(None),
            // Another node drew the same number in the same millisecond.
            Err(CommitError::Conflict(Conflict::Taken(Key::Event(_)))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

pub(super) fn new_event(app: &App, receiver: &Receiver, what: &Happening) -> EventRow {
    let now = app.clock.now();
    let (application, pending) = (receiver.application(), receiver.goes_out());
    EventRow {
        no: EventNo(app.chance.number(now)),
        tenant: application.tenant,
        application: application.no,
        client_id: application.client_id.clone(),
        event_id: app.chance.sorted_id(now),
        seq: 0,
        sequence: 0,
        biz_type: what.biz_type.clone(),
        biz_id: what.biz_id.clone(),
        biz_status: what.biz_status.clone(),
        data: what.data.clone(),
        body: body(application, what),
        created_at: now,
        state: if pending { DeliveryState::Pending } else { DeliveryState::Held },
        attempts: 0,
        due_at: pending.then_some(now),
        behind: None,
        by_hand: false,
    }
}

/// The bytes of every attempt, fixed now.
fn body(application: &ApplicationRow, what: &Happening) -> Vec<u8> {
    CallbackBody {
        biz_type: what.biz_type.clone(),
        biz_id: what.biz_id.clone(),
        biz_status: what.biz_status.clone(),
        client_id: application.client_id.clone(),
        data: what.data.clone(),
    }
    .to_bytes()
}

/// Business data stays out of the audit log: it is the merchant's.
fn audit(event: &EventRow, actor: &Actor) -> Write {
    let after = json!({
        "client_id": event.client_id,
        "bizType": event.biz_type,
        "bizId": event.biz_id,
        "bizStatus": event.biz_status,
        "state": event.state.name(),
    });
    actor.records(Deed {
        tenant: Some(event.tenant),
        at: event.created_at,
        action: "event.emit",
        subject: &public_id(event.event_id),
        before: String::new(),
        after: after.to_string(),
    })
}

/// An event with all its attempts.
pub async fn find(app: &App, event_id: SortedId) -> Result<(EventRow, Vec<AttemptRow>), AppError> {
    let (event, attempts) = app.store.event(Asker::Operator, event_id).await?.ok_or_else(|| no_event(event_id))?;
    let goes_out = is_open(event.state) && goes_out(app, &event.client_id).await?;
    Ok((as_it_stands(app, event, goes_out), attempts))
}

/// An attempt at an event, with what went over the wire as far as that is kept.
pub async fn attempt(
    app: &App,
    event_id: SortedId,
    number: i64,
) -> Result<(EventRow, AttemptRow, Option<AttemptBytes>), AppError> {
    let (event, attempts) = app.store.event(Asker::Operator, event_id).await?.ok_or_else(|| no_event(event_id))?;
    let found = attempts.into_iter().find(|attempt| attempt.attempt == number);
    let attempt = found.ok_or_else(|| no_attempt(event_id, number))?;
    let bytes = app.store.attempt_bytes(event.tenant, event.no, attempt.attempt, attempt.at).await?;
    Ok((event, attempt, bytes))
}

/// That an event has no attempt of this name.
pub fn no_attempt(event_id: SortedId, number: impl Display) -> AppError {
    AppError::NotFound(format!("the event {} has no attempt {number}", public_id(event_id)))
}

const fn is_open(state: DeliveryState) -> bool {
    match state {
        DeliveryState::Pending | DeliveryState::Held => true,
        DeliveryState::Delivered | DeliveryState::Dead => false,
    }
}

async fn goes_out(app: &App, client_id: &str) -> Result<bool, AppError> {
    Ok(app.store.application(client_id).await?.is_some_and(|view| view.goes_out()))
}

/// An open event as it stands: pending, and due by now where its row is late; or held. What is open goes by its application as it is now: a large
/// backlog is held or released in portions, and some rows are late. While callbacks are held since a restore nobody knows when what is pending is due.
fn as_it_stands(app: &App, event: EventRow, goes_out: bool) -> EventRow {
    let state = event.state.standing(goes_out);
    let due_at = match state {
        DeliveryState::Pending if app.bell.is_paused() => None,
        DeliveryState::Pending => event.due_at.or(Some(app.clock.now())),
        DeliveryState::Held => None,
        DeliveryState::Delivered | DeliveryState::Dead => event.due_at,
    };
    EventRow { state, due_at, ..event }
}

fn no_event(event_id: SortedId) -> AppError {
    AppError::NotFound(format!("no event has the id {}", public_id(event_id)))
}

/// Events, newest first. `after`: the number of the last one seen, which age may have freed since.
pub async fn list(app: &App, filter: EventFilter, after: Option<i64>, limit: u32) -> Result<EventPage, AppError> {
    let EventPage { events, next } = app.store.events(filter, Cursor { after, limit }, LOOKED_MAX).await?;
    let stands = |row: EventRow| {
        let goes_out = row.state == DeliveryState::Pending;
        as_it_stands(app, row, goes_out)
    };
    Ok(EventPage { events: events.into_iter().map(stands).collect(), next })
}

/// When an event is due next, in words of the operator API: none unless pending.
pub fn next_attempt_at(event: &EventRow) -> Option<UnixMillis> {
    match event.state {
        DeliveryState::Pending => event.due_at,
        DeliveryState::Held | DeliveryState::Delivered | DeliveryState::Dead => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixtures::{Deployment, application, happening, happens, nobody};
    use crate::app::identity::{Switch, switch_callbacks};

    /// Where callbacks go out to.
    const URL: Option<&str> = Some("https://example.com/callbacks");

    /// An application whose callbacks are paused.
    async fn paused(app: &App) -> String {
        let id = application(app, "till", URL).await;
        switch_callbacks(app, &id, Switch::Pause, None, &|_| None, &nobody()).await.expect("pauses");
        id
    }

    #[tokio::test]
    async fn an_event_that_is_held_waits_for_no_turn_of_its_application() {
        for deployment in Deployment::on_each_store().await.map(Deployment::in_real_time) {
            let app = deployment.open().await;
            let (id, is_shared) = (paused(&app).await, deployment.is_shared());
            let turn = app.turns.take(TurnKey::Application(id.clone())).await;
            for seq in 1..=3 {
                let event = happens(&app, &id).await;
                assert_eq!((event.state, event.seq), (DeliveryState::Held, seq), "{is_shared}");
            }
            drop(turn);
            Deployment::close(&app);
        }
    }

    #[tokio::test]
    async fn an_event_is_held_only_for_the_application_that_was_looked_at() {
        for deployment in Deployment::on_each_store().await.map(Deployment::in_real_time) {
            let app = deployment.open().await;
            let (id, is_shared) = (paused(&app).await, deployment.is_shared());
            let (looked_at, what) = (receiver(&app, &id).await.expect("is there"), happening(&id));
            switch_callbacks(&app, &id, Switch::Resume, None, &|_| None, &nobody()).await.expect("resumes");
            let late = write(&app, &looked_at, &what, &|_| None, &nobody()).await.expect("is tried");
            assert!(late.is_none(), "nobody would release it: {is_shared}");
            let event = happens(&app, &id).await;
            assert_eq!((event.state, event.seq), (DeliveryState::Pending, 1), "the late one left nothing: {is_shared}");
            Deployment::close(&app);
        }
    }

    #[tokio::test]
    async fn an_application_is_taken_as_it_is_kept_only_where_its_callbacks_go_out_and_nobody_else_changes_it() {
        for deployment in Deployment::on_each_store().await.map(Deployment::in_real_time) {
            let app = deployment.open().await;
            let (id, is_shared) = (application(&app, "till", URL).await, deployment.is_shared());
            let found = async || receiver(&app, &id).await.expect("is there");
            let before = found().await;
            assert_eq!((matches!(before, Receiver::Known(_)), before.goes_out()), (!is_shared, true), "{is_shared}");
            assert_eq!(before.application().client_id, id);
            switch_callbacks(&app, &id, Switch::Pause, None, &|_| None, &nobody()).await.expect("pauses");
            let after = found().await;
            assert_eq!((matches!(after, Receiver::Read(_)), after.goes_out()), (true, false), "{is_shared}");
            let none = receiver(&app, "app_none").await;
            assert!(matches!(none, Err(AppError::NotFound(why)) if why.contains("app_none")), "{is_shared}");
            Deployment::close(&app);
        }
    }
}
