//! Notes which payment orders have expired, and so tells their merchants, once each.
//!
//! No answer waits for it: every answer computes from the expire time whether an order has expired. What is noted here is that the callback is
//! written, in the same batch, guarded by the order's revision and by the lane of the application. So whoever dies in between leaves both
//! undone, the next look finds the order again, and of two nodes one writes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::lanes::{Lane, LaneSet};
use countersign_store::batch::{Conflict, Guard};
use countersign_store::payment_order::{ExpiredFirst, PaymentOrderRow};
use countersign_store::{CommitError, StoreError};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Dispatcher, SAID_EVERY, STORE_PAUSE};
use crate::app::payment_orders::{self, Receivers};
use crate::repeated_warning::RepeatedWarning;

/// Orders are looked for this often; their callbacks are written within 2 s.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Orders of one look, of all lanes together.
const PAGE: u32 = 512;
/// Of those that expired last, where a page is full.
const LAST_PAGE: u32 = 128;
/// Orders that a look reaches beyond where they cannot be noted.
const STUCK_MAX: u32 = 8_192;
/// Orders that are noted at once, so that they share commits.
const AT_ONCE: usize = 256;
/// Between two rounds, so that others who write have their turn.
const ROUND_PAUSE: Duration = Duration::from_millis(5);

/// An order that has expired, or why it cannot be read.
type Expired = Result<PaymentOrderRow, StoreError>;

/// What came of a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Whether another one is worth while at once.
    goes_on: bool,
    /// Orders that will be found again, before all others.
    stuck: u32,
    /// Why the first one could not be noted.
    first_error: Option<StoreError>,
}

impl Round {
    /// An order could not be noted.
    fn failed(&mut self, error: StoreError) {
        match &error {
            StoreError::Unavailable(_) => {}
            StoreError::Corrupt { .. } | StoreError::Unfit(_) => self.stuck = self.stuck.saturating_add(1),
        }
        self.first_error.get_or_insert(error);
    }
}

impl Dispatcher {
    /// Notes what has expired until it is cut off.
    pub(super) async fn expire_always(self: Arc<Self>) {
        let (mut warning, mut stuck) = (RepeatedWarning::default(), 0);
        loop {
            let (pause, error) = match self.clone().expire_round(stuck).await {
                Ok(round) => {
                    stuck = round.stuck;
                    (if round.goes_on { ROUND_PAUSE } else { LOOK_EVERY }, round.first_error)
                }
                Err(error) => (STORE_PAUSE, Some(error)),
            };
            if let Some(error) = error
                && let Some(failed) = warning.due(SAID_EVERY, Instant::now().into_std())
            {
                tracing::warn!(
                    %error,
                    failed,
                    "Payment orders that have expired could not be told of; it is tried again shortly"
                );
            }
            sleep(pause).await;
        }
    }

    /// What has expired by now in the lanes of this node. So many of before were `stuck`: the page reaches beyond them. One that cannot be
    /// noted keeps none of the others waiting.
    pub(super) async fn expire_round(self: Arc<Self>, stuck: u32) -> Result<Round, StoreError> {
        let lanes = self.leases.open(Instant::now());
        // After a restore the back end says first what has become of orders since the backup: until callbacks are let go.
        if lanes.is_empty() || self.app.bell.is_paused() {
            return Ok(Round::default());
        }
        let limit = PAGE + stuck.min(STUCK_MAX);
        let rows = payment_orders::expired(&self.app, lanes, ExpiredFirst::Oldest, limit).await?;
        let is_full = rows.len() >= limit as usize;
        let last = if is_full { self.expired_last(lanes, &rows).await? } else { Vec::new() };
        let (mut noted, mut round, mut waiting) = (false, Round::default(), last.into_iter().chain(rows));
        let (mut under_way, mut names, receivers) = (JoinSet::new(), HashMap::new(), Arc::<Receivers>::default());
        loop {
            while under_way.len() < AT_ONCE
                && let Some(row) = waiting.next()
            {
                match row {
                    Ok(row) => {
                        let name = row.order.prepay_id;
                        names.insert(under_way.spawn(self.clone().expire(row, receivers.clone())).id(), name);
                    }
                    Err(error) => round.failed(error),
                }
            }
            match under_way.join_next_with_id().await {
                Some(Ok((_, Ok(done)))) => noted |= done,
                Some(Ok((_, Err(error)))) => round.failed(error),
                Some(Err(panic)) => {
                    let name = names.get(&panic.id()).map(ToString::to_string).unwrap_or_default();
                    round.failed(StoreError::Unfit(format!("noting payment order {name} panicked: {panic}")));
                }
                None => break,
            }
        }
        round.goes_on = is_full && (noted || round.stuck.min(STUCK_MAX) > stuck);
        Ok(round)
    }

    /// The orders that expired last and are not in a page that is full: where one merchant's expire all at once, what others have lies behind them. What of
    /// them cannot be read is told when its turn comes.
    async fn expired_last(&self, lanes: LaneSet, page: &[Expired]) -> Result<Vec<Expired>, StoreError> {
        let known: HashSet<_> = page.iter().flatten().map(|row| row.order.prepay_id).collect();
        let mut last = payment_orders::expired(&self.app, lanes, ExpiredFirst::Newest, LAST_PAGE).await?;
        last.retain(|row| row.as_ref().is_ok_and(|row| !known.contains(&row.order.prepay_id)));
        Ok(last)
    }

    /// Notes one order: whether that was done, or need not be done any more.
    async fn expire(self: Arc<Self>, row: PaymentOrderRow, receivers: Arc<Receivers>) -> Result<bool, StoreError> {
        let (application, lane) = (row.application, Lane::of(row.application));
        let Some((fence, _held)) = self.leases.hold(lane, Instant::now()) else { return Ok(false) };
        match payment_orders::expire(&self.app, &row, &receivers, Guard::Lane { application, fence }).await {
            Ok(()) => Ok(true),
            Err(CommitError::Conflict(Conflict::Fenced(lane))) => {
                self.leases.lose(lane, fence);
                Ok(false)
            }
            // Somebody changed something meanwhile, or nobody knows: the next look says whether there is more to do.
            Err(CommitError::Conflict(_) | CommitError::Unknown) => Ok(false),
            Err(CommitError::Store(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_domain::payment_order::PaymentStatus;
    use countersign_store::Store as _;
    use countersign_store::Write;
    use countersign_store::batch::Batch;
    use countersign_store::payment_order::PaymentOrderRow;
    use countersign_store::testing::Damage;

    use super::*;
    use crate::app::App;
    use crate::app::fixtures::{Deployment, application, ordered};
    use crate::app::identity::find_application;
    use crate::dispatch::DispatchSettings;

    /// A deployment with so many orders, all of which have expired.
    async fn expired(count: usize) -> (Deployment, Arc<App>, Vec<PaymentOrderRow>) {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let client_id = application(&app, "till", Some("https://till.example/callback")).await;
        let of = find_application(&app, &client_id).await.expect("is there");
        let mut orders = Vec::with_capacity(count);
        for no in 0..count {
            orders.push(ordered(&app, &of, &format!("T-{no}")).await);
        }
        let last = orders.last().expect("some").order.expires_at;
        app.clock.advance_ms(last.0 - app.clock.now().0);
        (deployment, app, orders)
    }

    async fn damage(deployment: &Deployment, app: &App, what: Damage) {
        what.file(&deployment.file());
        let seen = Write::PutSetting { name: "damaged".to_owned(), value: String::new() };
        app.store.commit(Batch(vec![seen])).await.expect("is committed");
    }

    fn dispatcher(app: &Arc<App>) -> Arc<Dispatcher> {
        Arc::new(Dispatcher::new(app.clone(), DispatchSettings::default()).expect("settings that hold"))
    }

    async fn status(app: &App, row: &PaymentOrderRow) -> PaymentStatus {
        payment_orders::show(app, row.order.prepay_id).await.expect("is there").row.order.status
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_page_of_orders_that_cannot_be_read_keeps_none_behind_it_waiting_and_slows_none() {
        let page = PAGE as usize;
        let (deployment, app, orders) = expired(2 * page + 1 + LAST_PAGE as usize).await;
        damage(&deployment, &app, Damage::PaymentOrdersTo(orders[page - 1].order.prepay_id)).await;
        let dispatcher = dispatcher(&app);
        let (mut stuck, mut rounds) = (0, Vec::new());
        for _ in 0..4 {
            let round = dispatcher.clone().expire_round(stuck).await.expect("the store reads");
            assert!(round.first_error.is_some(), "it is told");
            stuck = round.stuck;
            rounds.push((round.goes_on, round.stuck));
        }
        assert_eq!(rounds, [(true, PAGE), (true, PAGE), (false, PAGE), (false, PAGE)]);
        for row in &orders[page..] {
            assert_eq!(status(&app, row).await, PaymentStatus::Expired);
        }
        damage(&deployment, &app, Damage::PaymentOrdersTo(orders[page - 1].order.prepay_id)).await;
        let round = dispatcher.expire_round(stuck).await.expect("the store reads");
        assert!(round.first_error.is_none() && round.stuck == 0, "{round:?}");
        assert_eq!(status(&app, &orders[0]).await, PaymentStatus::Expired);
        Deployment::close(&app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_merchant_whose_orders_expire_all_at_once_keeps_those_of_others_from_nothing() {
        let (_deployment, app, many) = expired(4 * PAGE as usize).await;
        let client_id = application(&app, "other", Some("https://other.example/callback")).await;
        let of = find_application(&app, &client_id).await.expect("is there");
        let mut one = ordered(&app, &of, "O-1").await;
        app.clock.advance_ms(one.order.expires_at.0 - app.clock.now().0);
        let dispatcher = dispatcher(&app);
        let round = dispatcher.clone().expire_round(0).await.expect("the store reads");
        one = payment_orders::show(&app, one.order.prepay_id).await.expect("is there").row;
        assert!(round.goes_on && one.order.revision == 2, "it has waited for the next round: {round:?}");
        while dispatcher.clone().expire_round(0).await.expect("the store reads").goes_on {}
        for row in many {
            let row = payment_orders::show(&app, row.order.prepay_id).await.expect("is there").row;
            assert_eq!(row.order.revision, 2, "each once");
        }
        Deployment::close(&app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_expiry_is_noted_while_callbacks_are_held_since_a_restore() {
        let (_deployment, app, orders) = expired(1).await;
        let dispatcher = dispatcher(&app);
        for (is_held, revision) in [(true, 1), (false, 2)] {
            app.bell.set_paused(is_held);
            dispatcher.clone().expire_round(0).await.expect("the store reads");
            let row = payment_orders::show(&app, orders[0].order.prepay_id).await.expect("is there").row;
            assert_eq!((row.order.status, row.order.revision), (PaymentStatus::Expired, revision));
        }
        Deployment::close(&app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_panic_over_one_order_is_told_and_the_others_are_noted() {
        let (deployment, app, orders) = expired(3).await;
        let odd = orders[0].order.prepay_id;
        damage(&deployment, &app, Damage::LastRevision(odd)).await;
        let round = dispatcher(&app).expire_round(0).await.expect("the store reads");
        let told = round.first_error.expect("it is told").to_string();
        assert!(told.starts_with(&format!("noting payment order {odd} panicked: ")), "{told}");
        assert_eq!((round.goes_on, round.stuck), (false, 1));
        for row in &orders[1..] {
            assert_eq!(status(&app, row).await, PaymentStatus::Expired);
        }
        Deployment::close(&app);
    }
}
