//! One event sent again, or sooner than its schedule says.
//!
//! What is decided rests on how the event stood and on its application, and so does the write: of several who ask at once one is heard, and nothing goes out that
//! nobody has looked at.

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::SortedId;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::Store as _;
use countersign_store::batch::{Conflict, Key, Write};
use countersign_store::contract::{ApplicationView, CommitError, EventRow};
use serde_json::json;

use crate::app::error::AppError;
use crate::app::events::{as_read, find, next_attempt_at, public_id};
use crate::app::idempotency::{Keep, kept};
use crate::app::identity::find_application;
use crate::app::{Actor, App, Deed, delivery};

/// Looks at an event that others send again, too.
const LOOKS_MAX: u32 = 5;

/// Makes a delivered or dead event pending again, due now; or one that waits for its next attempt due now. Of several who ask at once one is
/// heard, however soon the event goes out: the others looked at what it was before.
pub async fn redeliver(
    app: &App,
    event_id: SortedId,
    keep: &Keep<'_, EventRow>,
    actor: &Actor,
) -> Result<EventRow, AppError> {
    let mut looked_at: Option<i64> = None;
    for _ in 0..LOOKS_MAX {
        let (event, _) = find(app, event_id).await?;
        if looked_at.is_some_and(|attempts| attempts != event.attempts) {
            return Err(AppError::NotRedeliverable(format!(
                "the event was sent in this moment, by its schedule or for somebody else: it is {} now, look at that attempt before it is sent again",
                event.state.name()
            )));
        }
        delivery::must_go_out(app)?;
        let view = find_application(app, &event.client_id).await?;
        let now = app.clock.now();
        if event.state == DeliveryState::Pending {
            // Without a secret what is due by now does not go by itself, so that is what it is told.
            delivery::must_be_signed(app, &view)?;
        }
        let write = redelivering(&event, &view, now)?;
        delivery::must_be_wanted(&view)?;
        delivery::must_be_signed(app, &view)?;
        let again = EventRow { state: DeliveryState::Pending, due_at: Some(now), ..event.clone() };
        let described = |event: &EventRow| {
            json!({ "state": event.state.name(), "next_attempt_at": next_attempt_at(event).map(rfc3339) }).to_string()
        };
        let (before, after) = (described(&event), described(&again));
        let audit = actor.records(Deed {
            tenant: Some(event.tenant),
            at: now,
            action: "event.redeliver",
            subject: &public_id(event_id),
            before,
            after,
        });
        // Of an application whose callbacks are turned off in between, what is asked for would go out by itself when they are turned on, days later.
        let rests_on = Write::Guard(as_read(&view.application));
        let mut writes = vec![rests_on, write, audit];
        writes.extend(kept(keep, &again));
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => {
                app.ring(event.tenant, event.application);
                return Ok(again);
            }
            // Somebody was first, and says so at the next look.
            Err(CommitError::Conflict(Conflict::Moved(Key::Delivery(_) | Key::Application(_)))) => {
                looked_at = Some(event.attempts);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

/// What sends an event again, or sooner than its schedule says.
fn redelivering(event: &EventRow, view: &ApplicationView, now: UnixMillis) -> Result<Write, AppError> {
    let (tenant, no) = (event.tenant, event.no);
    let why = match event.state {
        DeliveryState::Delivered | DeliveryState::Dead => {
            return Ok(Write::Redeliver { tenant, event: no, attempts: event.attempts, due_at: now });
        }
        DeliveryState::Pending if event.due_at.is_none_or(|due_at| due_at <= now) => {
            "the event is pending, and due by now: it is sent without being asked for, as soon as its endpoint takes callbacks \
             (`countersign application callbacks` says how it stands)"
                .to_owned()
        }
        DeliveryState::Pending if event.behind.is_some() => {
            "the event waits for an earlier one of its bizId: send that one again (`countersign event list --biz-id` shows it), and \
             this one follows as soon as it is delivered or dead"
                .to_owned()
        }
        DeliveryState::Pending => {
            let was_due = event.due_at.unwrap_or(now);
            return Ok(Write::SendNow { tenant, event: no, attempts: event.attempts, was_due, due_at: now });
        }
        DeliveryState::Held if view.goes_out() => {
            "the event is held, and let go in this moment: it is sent without being asked for".to_owned()
        }
        DeliveryState::Held => {
            format!("the event is held: its application gets no callbacks now, since {}", delivery::silence(view))
        }
    };
    Err(AppError::NotRedeliverable(why))
}

#[cfg(test)]
mod tests {
    use countersign_store::batch::Batch;
    use tokio::runtime::Handle;
    use tokio::task::block_in_place;

    use super::*;
    use crate::app::fixtures::{Deployment, application, attempted, dead, nobody};
    use crate::app::identity::{Switch, switch_callbacks};

    /// Where callbacks go out to.
    const URL: Option<&str> = Some("https://example.com/callbacks");

    /// What a caller keeps is made between its look and its commit: there the other one is heard, and its attempt is made.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_two_who_send_an_event_again_one_is_heard_though_it_has_gone_out_in_between() {
        for deployment in Deployment::on_each_store().await.map(Deployment::in_real_time) {
            let app = deployment.open().await;
            let (id, is_shared) = (application(&app, "till", URL).await, deployment.is_shared());
            let event = dead(&app, &id).await;
            let meanwhile = async |changes_application: bool| {
                redeliver(&app, event.event_id, &|_| None, &nobody()).await.expect("is heard");
                let (stands, _) = find(&app, event.event_id).await.expect("is there");
                let write = attempted(&event, stands.attempts + 1, DeliveryState::Delivered);
                app.store.commit(Batch(vec![write])).await.expect("is recorded");
                if changes_application {
                    for switch in [Switch::Pause, Switch::Resume] {
                        switch_callbacks(&app, &id, switch, None, &|_| None, &nobody()).await.expect("is switched");
                    }
                }
            };
            let late_behind = async |changes_application: bool| {
                let keep = |_: &EventRow| {
                    block_in_place(|| Handle::current().block_on(meanwhile(changes_application)));
                    None
                };
                redeliver(&app, event.event_id, &keep, &nobody()).await
            };
            let late = late_behind(false).await;
            assert!(
                matches!(&late, Err(AppError::NotRedeliverable(why)) if why.contains("delivered now")),
                "{late:?}: {is_shared}"
            );
            let (stands, _) = find(&app, event.event_id).await.expect("is there");
            assert_eq!((stands.state, stands.attempts), (DeliveryState::Delivered, 2), "it goes out once: {is_shared}");
            let late = late_behind(true).await;
            assert!(
                matches!(&late, Err(AppError::NotRedeliverable(why)) if why.contains("delivered now")),
                "{late:?}: {is_shared}"
            );
            redeliver(&app, event.event_id, &|_| None, &nobody()).await.expect("whoever has seen that may");
            Deployment::close(&app);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_event_is_not_sent_again_where_its_callbacks_are_paused_in_between() {
        for deployment in Deployment::on_each_store().await.map(Deployment::in_real_time) {
            let app = deployment.open().await;
            let (id, is_shared) = (application(&app, "till", URL).await, deployment.is_shared());
            let event = dead(&app, &id).await;
            let keep = |_: &EventRow| {
                let pausing = async {
                    switch_callbacks(&app, &id, Switch::Pause, None, &|_| None, &nobody()).await.expect("pauses")
                };
                block_in_place(|| Handle::current().block_on(pausing));
                None
            };
            let late = redeliver(&app, event.event_id, &keep, &nobody()).await;
            assert!(
                matches!(&late, Err(AppError::NotRedeliverable(why)) if why.contains("paused")),
                "{late:?}: {is_shared}"
            );
            let (stands, _) = find(&app, event.event_id).await.expect("is there");
            assert_eq!((stands.state, stands.attempts), (DeliveryState::Dead, 1), "{is_shared}");
            Deployment::close(&app);
        }
    }
}
