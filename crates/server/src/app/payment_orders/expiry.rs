//! What has expired: which orders, and that each is noted and told of.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use countersign_domain::ids::ApplicationNo;
use countersign_domain::lanes::LaneSet;
use countersign_domain::payment_order::{self as machine, Mover, PaymentStatus, Step};
use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::contract::CommitError;
use countersign_store::payment_order::{ExpiredFirst, PaymentOrderRow, PaymentOrders as _};
use countersign_store::{Store as _, StoreError};
use tokio::sync::OnceCell;

use super::telling;
use crate::app::error::AppError;
use crate::app::events::{self, Receiver, as_read};
use crate::app::{Actor, App, fresh};

/// Orders of all tenants that are to be noted as expired, in these lanes; an error stands for one that cannot be read back.
pub async fn expired(
    app: &App,
    lanes: LaneSet,
    first: ExpiredFirst,
    limit: u32,
) -> Result<Vec<Result<PaymentOrderRow, StoreError>>, StoreError> {
    app.store.payment_orders_expired(lanes, app.clock.now(), first, limit).await
}

/// The applications of a page of orders. Where the store is asked for each, it is asked once however many of the orders are one's own, and
/// what is written rests on the answer ([`as_read`]). In one process they are found without a question.
#[derive(Default)]
pub struct Receivers(Mutex<HashMap<ApplicationNo, Arc<OnceCell<Receiver>>>>);

impl std::fmt::Debug for Receivers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receivers").finish_non_exhaustive()
    }
}

impl Receivers {
    async fn of(&self, app: &App, order: &PaymentOrderRow) -> Result<Arc<OnceCell<Receiver>>, AppError> {
        let read = || events::receiver(app, &order.client_id);
        if !app.store.is_shared() {
            return Ok(Arc::new(OnceCell::from(read().await?)));
        }
        let of_all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = of_all().entry(order.application).or_default().clone();
        cell.get_or_try_init(read).await?;
        Ok(cell)
    }

    fn forget(&self, application: ApplicationNo) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&application);
    }
}

/// Notes that an order has expired, and tells of it: what every answer has said since its expire time. `rests_on`: the right to do so.
/// What somebody else has moved meanwhile is left as it is, and is a conflict; so is an application that has changed since `receivers` read it.
pub async fn expire(
    app: &App,
    before: &PaymentOrderRow,
    receivers: &Receivers,
    rests_on: Guard,
) -> Result<(), CommitError> {
    let step = Step { to: PaymentStatus::Expired, actual_amount: None, transact_at: None };
    let Ok(moved) = machine::advance(&before.order, Mover::Time, step, app.clock.now()) else { return Ok(()) };
    let cell = receivers.of(app, before).await.map_err(|error| match error {
        AppError::Store(error) => CommitError::Store(error),
        other => CommitError::Store(StoreError::Unfit(other.to_string())),
    })?;
    let Some(receiver) = cell.get() else {
        return Err(CommitError::Store(StoreError::Unfit("an application was not read".to_owned())));
    };
    let actor = Actor::system();
    let mut change = telling::change(app, receiver, before, moved, before.order.expires_at, &actor);
    if app.store.is_shared() {
        change.writes.push(Write::Guard(as_read(receiver.application())));
    }
    // A node whose clock is ahead would else end an order that another node may still be paying.
    let is_over = Guard::Reached { instant: before.order.expires_at, time: app.clock.source() };
    change.writes.extend([Write::Guard(rests_on), Write::Guard(is_over)]);
    let outcome = fresh::commit(app, change.event, Batch(change.writes)).await.map(|_| ());
    if let Err(CommitError::Conflict(Conflict::Moved(Key::Application(_)))) = &outcome {
        // The others of the page are told as it stands now.
        receivers.forget(before.application);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use countersign_domain::delivery::DeliveryState;
    use countersign_store::contract::{Cursor, EventFilter};

    use super::*;
    use crate::app::fixtures::{Deployment, application, nobody, ordered};
    use crate::app::identity::{Switch, find_application, switch_callbacks};
    use crate::clock::Clock;

    #[tokio::test]
    async fn of_several_nodes_what_expires_is_told_to_the_application_as_it_stands() {
        let deployment = Deployment::on_postgres().await;
        let app = deployment.open().await;
        let client_id = application(&app, "till", Some("https://till.example/callback")).await;
        let of = async || find_application(&app, &client_id).await.expect("is there");
        let seen = of().await;
        let [first, second] = [ordered(&app, &seen, "first").await, ordered(&app, &seen, "second").await];
        app.clock.advance_ms(second.order.expires_at.0 - app.clock.now().0);
        let receivers = Receivers::default();
        let note = async |order: &PaymentOrderRow, receivers: &Receivers| {
            expire(&app, order, receivers, as_read(&of().await.application)).await
        };
        note(&first, &receivers).await.expect("is noted");
        switch_callbacks(&app, &client_id, Switch::Pause, None, &|_| None, &nobody()).await.expect("pauses");
        let late = note(&second, &receivers).await.expect_err("the application was read before");
        assert!(matches!(late, CommitError::Conflict(Conflict::Moved(Key::Application(of))) if of == client_id));
        note(&second, &receivers).await.expect("it is read anew");
        let filter = EventFilter { biz_id: Some(second.order.prepay_id.to_string()), ..EventFilter::default() };
        let page = app.store.events(filter, Cursor { after: None, limit: 9 }, 99).await.expect("reads");
        let states: Vec<DeliveryState> = page.events.iter().map(|event| event.state).collect();
        assert_eq!(states, [DeliveryState::Held], "nobody would have released a pending one");
        Deployment::close(&app);
    }

    /// Another node, whose clock is right, may still see it paid.
    #[tokio::test]
    async fn no_order_is_noted_as_expired_before_it_has_by_the_database() {
        let deployment = Deployment::on_postgres().await.in_real_time();
        let app = deployment.open().await;
        let Clock::Shared(time) = &app.clock else { panic!("nodes share a clock") };
        let client_id = application(&app, "till", None).await;
        let of = find_application(&app, &client_id).await.expect("is there");
        let order = ordered(&app, &of, "late").await;
        time.measured(Instant::now(), order.order.expires_at, Duration::ZERO);
        let refused = expire(&app, &order, &Receivers::default(), as_read(&of.application)).await;
        assert!(matches!(refused, Err(CommitError::Conflict(Conflict::Early(_)))), "{refused:?}");
        Deployment::close(&app);
    }
}
