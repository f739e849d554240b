//! How a payment order stands, in a way that stays true where that is final.
//!
//! Every answer says that a pending order has expired from its expire time on, whether that is noted already or not. A move that was decided in
//! time may still be on its way then. So a move out of pending is applied only before the expire time ([`in_time`]), and whoever would say that an
//! order has expired first sees that no move of it is on its way ([`nothing_comes`]); who cannot see that within a second says so. There is one exception:
//! a restored deployment, until its callbacks are let go ([`back_end_of`]).

use countersign_domain::payment_order::{Mover, PaymentOrder, PaymentStatus};
use countersign_domain::time::{UnixMillis, parse_rfc3339};
use countersign_store::Store as _;
use countersign_store::batch::{Guard, Write};
use countersign_store::payment_order::{OrderName, PaymentOrderRow, PaymentOrders as _};

use super::{App, AppError};
use crate::app::delivery::{self, DELIVERY_HELD};
use crate::app::late_changes::{LOOKS_MAX, nothing_comes};
use crate::app::restored::RESTORED_FROM;
use crate::app::statements::SETTLE_MS;

/// What a move out of `before`, decided at `now`, rests on when it is applied: that the order has not expired; of a payment also that the statement
/// of its month is still waited for, whatever held it up.
pub(super) fn in_time(
    app: &App,
    before: &PaymentOrder,
    by: Mover,
    to: PaymentStatus,
    now: UnixMillis,
) -> Option<Write> {
    let may_expire = before.status == PaymentStatus::Pending && by != Mover::BackEndOfRestored;
    let expires = may_expire.then_some(before.expires_at);
    let settles = (to == PaymentStatus::Paid).then(|| now.plus_ms(SETTLE_MS / 2));
    let ends = expires.into_iter().chain(settles).min();
    ends.map(|instant| Write::Guard(Guard::Before { instant, time: app.clock.source() }))
}

/// Whether an order that was read as pending has expired since: what was refused then was refused too soon.
pub(super) fn has_lapsed(app: &App, read: &PaymentOrder) -> bool {
    read.status_at(app.clock.now()) != read.status
}

/// As whom the back end moves an order that was read so. What it has moved since the backup, a restored deployment does not know, and orders expire
/// meanwhile: until callbacks are let go, no expiry is noted or told, and what was in the backup and had not expired by its time may still be moved. So a
/// payment that was made in time and is lost with the original can be entered again. Of an order that was made after the restore nothing is lost. Such a
/// move rests on it that callbacks are held.
pub(super) async fn back_end_of(app: &App, read: &PaymentOrder) -> Result<(Mover, Option<Guard>), AppError> {
    if !app.bell.is_paused() || !has_lapsed(app, read) {
        return Ok((Mover::BackEnd, None));
    }
    let held = delivery::held_since(&app.store).await?;
    let backup = app.store.setting(RESTORED_FROM).await?;
    let is_after = |at: Option<&String>, instant| at.and_then(|at| parse_rfc3339(at)).is_some_and(|at| at < instant);
    // What is in a backup may be newer than its time, by as long as it took: the restore is later than all of it.
    let may_be_lost = is_after(backup.as_ref(), read.expires_at) && !is_after(held.as_ref(), read.created_at);
    let held = held.filter(|_| may_be_lost).map(|value| Guard::Setting { name: DELIVERY_HELD.to_owned(), value });
    Ok((if held.is_some() { Mover::BackEndOfRestored } else { Mover::BackEnd }, held))
}

/// The order with the status that it has at an instant, and the instant. Where it was read as pending and its time is over, nothing that was
/// decided in time can come any more.
pub(super) async fn as_it_stands(
    app: &App,
    mut row: PaymentOrderRow,
) -> Result<(PaymentOrderRow, UnixMillis), AppError> {
    for look in 1..=LOOKS_MAX {
        let (now, read) = (app.clock.now(), row.order.status);
        row.order.status = row.order.status_at(now);
        if row.order.status == read {
            return Ok((row, now));
        }
        if nothing_comes(app, [as_read(&row)], row.order.expires_at, look).await? {
            return Ok((row, now));
        }
        let name = OrderName::Prepay(row.order.prepay_id);
        let found = app.store.payment_order(row.tenant, row.merchant, name).await?;
        row = found.ok_or(AppError::OrderNotFound)?;
    }
    Err(AppError::Busy)
}

/// Holds as long as an order is as it was read.
const fn as_read(row: &PaymentOrderRow) -> Guard {
    let (tenant, merchant, id) = (row.tenant, row.merchant, row.order.prepay_id);
    Guard::PaymentOrder { tenant, merchant, id, revision: row.order.revision }
}

/// One look at orders that were read at `now`: whether all of them stand as that instant has it, those included that have expired and are not noted.
/// Where somebody is changing one of these, or has just done so, this takes the pause before they are to be read again.
pub(super) async fn all_stand(
    app: &App,
    read: &[(String, PaymentOrderRow)],
    now: UnixMillis,
    look: u32,
) -> Result<bool, AppError> {
    let rows = read.iter().map(|(_, row)| row);
    let lapsed = rows.filter(|row| row.order.status_at(now) != row.order.status);
    match lapsed.clone().map(|row| row.order.expires_at).max() {
        Some(end) => nothing_comes(app, lapsed.map(as_read), end, look).await,
        None => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use countersign_domain::payment_order::Step;
    use countersign_domain::time::rfc3339;
    use countersign_store::batch::Batch;
    use countersign_store::contract::Cursor;
    use countersign_store::payment_order::PaymentOrderFilter;
    use countersign_store::testing::Database;
    use tokio::time::timeout;

    use super::super::{Named, Wanted, advance, close, create, find, of_merchant, show};
    use super::*;
    use crate::app::fixtures::{Deployment, application, claim, nobody, ordered};
    use crate::app::identity::find_application;
    use crate::app::late_changes::LOOK_PAUSE;
    use crate::app::trouble::NoChanges;
    use crate::clock::Clock;

    struct Shop {
        deployment: Deployment,
        app: Arc<App>,
        order: PaymentOrderRow,
    }

    impl Shop {
        async fn open() -> Self {
            let deployment = Deployment::on_postgres().await;
            let app = deployment.open().await;
            let client_id = application(&app, "till", Some("https://till.example/callback")).await;
            let of = find_application(&app, &client_id).await.expect("is there");
            let order = ordered(&app, &of, "late").await;
            Self { deployment, app, order }
        }

        /// `ms` after the order has expired.
        fn is_over(&self, ms: i64) {
            let clock = &self.deployment.clock;
            clock.advance_ms(self.order.order.expires_at.0 + ms - clock.now().0);
        }
    }

    const NAMED: Named<'static> = Named { prepay_id: None, trade_no: Some("late") };

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_move_that_was_decided_in_time_and_waits_beyond_it_is_refused() {
        let shop = Shop::open().await;
        let of = find_application(&shop.app, &shop.order.client_id).await.expect("is there");
        for by_merchant in [false, true] {
            shop.is_over(-1);
            let held = shop.deployment.database().hold_orders().await;
            let (app, id, of) = (shop.app.clone(), shop.order.order.prepay_id, of.clone());
            let moved = tokio::spawn(async move {
                if by_merchant {
                    let claim = claim(&of.application, "close", app.clock.now());
                    return close(&app, &of.merchant, &NAMED, &claim, &nobody()).await;
                }
                let step = Step { to: PaymentStatus::Paid, actual_amount: None, transact_at: None };
                advance(&app, id, step, &|_| None, &nobody()).await.map(|_| ())
            });
            shop.deployment.database().somebody_waits().await;
            shop.is_over(0);
            drop(held);
            let refused = moved.await.expect("ends").expect_err("the order has expired");
            assert!(refused.to_string().contains("EXPIRED"), "{refused:?}");
        }
        let shown = show(&shop.app, shop.order.order.prepay_id).await.expect("is there");
        assert_eq!((shown.row.order.status, shown.moves), (PaymentStatus::Expired, Vec::new()));
        Deployment::close(&shop.app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_payment_that_was_decided_before_the_statement_was_complete_and_waits_beyond_it_is_refused() {
        let shop = Shop::open().await;
        let id = shop.order.order.prepay_id;
        let to = |to| Step { to, actual_amount: None, transact_at: None };
        advance(&shop.app, id, to(PaymentStatus::Process), &|_| None, &nobody()).await.expect("it does not expire now");
        for (waits_ms, is_paid) in [(SETTLE_MS / 2, false), (SETTLE_MS / 2 - 1, true)] {
            let held = shop.deployment.database().hold_orders().await;
            let app = shop.app.clone();
            let paid =
                tokio::spawn(async move { advance(&app, id, to(PaymentStatus::Paid), &|_| None, &nobody()).await });
            shop.deployment.database().somebody_waits().await;
            shop.deployment.clock.advance_ms(waits_ms);
            drop(held);
            let answer = paid.await.expect("ends");
            let is_busy = matches!(answer, Err(AppError::Busy));
            assert_eq!((answer.is_ok(), is_busy), (is_paid, !is_paid), "{waits_ms}: {answer:?}");
        }
        Deployment::close(&shop.app);
    }

    /// A deployment that was restored from a backup of this moment, and whose callbacks are held.
    async fn restored(app: &App, from: UnixMillis) {
        let put = |name: &str, at| Write::PutSetting { name: name.to_owned(), value: rfc3339(at) };
        let writes = vec![put(RESTORED_FROM, from), put(DELIVERY_HELD, app.clock.now())];
        app.store.commit(Batch(writes)).await.expect("is put");
        delivery::look(app).await.expect("reads");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_has_expired_since_the_backup_may_be_moved_until_a_restored_deployment_lets_callbacks_go() {
        for deployment in Deployment::on_each_store().await {
            let app = deployment.open().await;
            let client_id = application(&app, "till", Some("https://till.example/callback")).await;
            let of = find_application(&app, &client_id).await.expect("is there");
            let orders =
                [ordered(&app, &of, "paid").await, ordered(&app, &of, "tried").await, ordered(&app, &of, "late").await];
            let [paid, tried, late] = orders.map(|order| order.order);
            let to = async |id, to| {
                let step = Step { to, actual_amount: None, transact_at: None };
                advance(&app, id, step, &|_| None, &nobody()).await.map(|(_, row)| row.order)
            };
            app.clock.advance_ms(late.expires_at.0 + 60_000 - app.clock.now().0);
            let refused = to(paid.prepay_id, PaymentStatus::Paid).await.expect_err("it is not restored");
            assert!(refused.to_string().contains("EXPIRED"), "{refused}");
            restored(&app, late.expires_at).await;
            let refused = to(late.prepay_id, PaymentStatus::Paid).await.expect_err("the backup knows that it expired");
            assert!(refused.to_string().contains("EXPIRED"), "{refused}");
            restored(&app, paid.created_at).await;
            let named = Named { prepay_id: None, trade_no: Some("tried") };
            let claimed = claim(&of.application, "close", app.clock.now());
            let refused =
                close(&app, &of.merchant, &named, &claimed, &nobody()).await.expect_err("for the back end alone");
            assert!(refused.to_string().contains("EXPIRED"), "{refused}");
            let refused = to(tried.prepay_id, PaymentStatus::Expired).await.expect_err("nobody moves it there");
            assert!(refused.to_string().contains("PENDING cannot become EXPIRED"), "{refused}");
            let moved = to(paid.prepay_id, PaymentStatus::Process).await.expect("it was made in time");
            assert_eq!(moved.status, PaymentStatus::Process);
            let moved = to(paid.prepay_id, PaymentStatus::Paid).await.expect("as any other");
            assert_eq!((moved.status, moved.paid_at), (PaymentStatus::Paid, Some(app.clock.now())));
            app.clock.advance_ms(1);
            let new = ordered(&app, &of, "after the restore").await.order;
            app.clock.advance_ms(new.expires_at.0 - app.clock.now().0);
            let refused = to(new.prepay_id, PaymentStatus::Paid).await.expect_err("the original never had it");
            assert!(refused.to_string().contains("EXPIRED"), "{refused}");
            let moved = to(late.prepay_id, PaymentStatus::Process).await.expect("of this one it may have known more");
            assert_eq!(moved.status, PaymentStatus::Process);
            delivery::release(&app, &|_| None, &nobody()).await.expect("they are let go");
            let refused = to(tried.prepay_id, PaymentStatus::Paid).await.expect_err("from here on it has expired");
            assert!(refused.to_string().contains("EXPIRED"), "{refused}");
            Deployment::close(&app);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_is_told_that_an_order_has_expired_while_a_move_of_it_is_on_its_way() {
        for looks in 0..4 {
            let shop = Shop::open().await;
            let of = find_application(&shop.app, &shop.order.client_id).await.expect("is there");
            let held = shop.deployment.database().hold_orders().await;
            shop.is_over(1);
            let (app, row) = (shop.app.clone(), shop.order.clone());
            let look = async move || match looks {
                0 => find(&app, &of.merchant, &NAMED).await,
                1 => show(&app, row.order.prepay_id).await.map(|shown| shown.row),
                2 => {
                    let page = Cursor { after: None, limit: 100 };
                    let listed =
                        of_merchant(&app, &of.merchant, row.application, PaymentOrderFilter::default(), page).await?;
                    Ok(listed.orders.into_iter().next().expect("there is one"))
                }
                _ => {
                    let claim = claim(&of.application, "again", app.clock.now());
                    let wanted = same(&row);
                    create(&app, &of.merchant, &of.application, &wanted, &claim, &nobody()).await
                }
            };
            let mut seen = tokio::spawn(async move {
                // Who is told that nobody knows yet asks again: where the machine stood still it has looked for long enough.
                loop {
                    match look().await {
                        Err(AppError::Busy) => {}
                        seen => return seen.expect("is there").order.status,
                    }
                }
            });
            assert!(timeout(LOOK_PAUSE * 5, &mut seen).await.is_err(), "nobody knows yet");
            Database::close_orders(held).await;
            assert_eq!(seen.await.expect("ends"), PaymentStatus::Closed, "{looks}");
            Deployment::close(&shop.app);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_list_of_what_has_expired_waits_for_one_that_is_moved_and_leaves_it_out() {
        let shop = Shop::open().await;
        let of = find_application(&shop.app, &shop.order.client_id).await.expect("is there");
        let other = application(&shop.app, "other", None).await;
        let other = find_application(&shop.app, &other).await.expect("is there");
        let before = shop.order.order.prepay_id;
        let moved = ordered(&shop.app, &of, "moved").await.order.prepay_id;
        let after = ordered(&shop.app, &of, "after").await.order;
        ordered(&shop.app, &other, "another merchant's").await;
        let clock = &shop.deployment.clock;
        clock.advance_ms(after.expires_at.0 + 1 - clock.now().0);
        let held = shop.deployment.database().hold_order(moved).await;
        let (app, of) = (shop.app.clone(), of);
        let list = async move || {
            let filter = PaymentOrderFilter { status: Some(PaymentStatus::Expired), ..PaymentOrderFilter::default() };
            let page = Cursor { after: None, limit: 2 };
            of_merchant(&app, &of.merchant, of.application.no, filter, page).await
        };
        let mut seen = tokio::spawn(async move {
            // Who is told that nobody knows yet asks again: where the machine stood still it has looked for long enough.
            loop {
                match list().await {
                    Err(AppError::Busy) => {}
                    seen => return seen.expect("is listed"),
                }
            }
        });
        assert!(timeout(LOOK_PAUSE * 5, &mut seen).await.is_err(), "nobody knows yet");
        Database::close_order(held, moved).await;
        let seen = seen.await.expect("ends");
        let told: Vec<_> = seen.orders.iter().map(|row| (row.order.prepay_id, row.order.status)).collect();
        assert_eq!(told, [after.prepay_id, before].map(|id| (id, PaymentStatus::Expired)));
        assert_eq!(seen.next, None);
        Deployment::close(&shop.app);
    }

    /// Another node, whose clock is right, may still move it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_is_told_that_an_order_has_expired_before_it_has_by_the_database() {
        let deployment = Deployment::on_postgres().await.in_real_time();
        let app = deployment.open().await;
        let Clock::Shared(time) = &app.clock else { panic!("nodes share a clock") };
        let client_id = application(&app, "till", None).await;
        let of = find_application(&app, &client_id).await.expect("is there");
        let row = ordered(&app, &of, "late").await;
        let shown = async || find(&app, &of.merchant, &NAMED).await;
        assert_eq!(shown().await.expect("is there").order.status, PaymentStatus::Pending);
        time.measured(Instant::now(), row.order.expires_at, Duration::ZERO);
        assert!(matches!(shown().await, Err(AppError::Busy)), "the database has an hour to go");
        Deployment::close(&app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nobody_is_told_that_an_order_has_expired_while_changes_go_unanswered() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let client_id = application(&app, "till", None).await;
        let of = find_application(&app, &client_id).await.expect("is there");
        let row = ordered(&app, &of, "late").await;
        app.clock.advance_ms(row.order.expires_at.0 - app.clock.now().0);
        // Whoever asks the store now whether a move is on its way is not answered that there is none.
        Deployment::close(&app);
        for (why, is_told) in [(NoChanges::Refused, true), (NoChanges::Unanswered, false)] {
            app.trouble.found(Some(why));
            assert_eq!(as_it_stands(&app, row.clone()).await.is_ok(), is_told, "{why:?}");
        }
    }

    /// The same order asked for again.
    fn same(row: &PaymentOrderRow) -> Wanted {
        Wanted {
            trade_no: row.order.trade_no.clone(),
            content: row.order.content.clone(),
            terminal_type: None,
            return_url: None,
            cancel_url: None,
            expires_at: None,
            received: Arc::default(),
        }
    }
}
