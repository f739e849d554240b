//! A merchant's own orders, by pages.

use std::sync::Arc;

use countersign_domain::ids::ApplicationNo;
use countersign_domain::payment_order::PrepayId;
use countersign_store::contract::{Asker, Cursor, MerchantRow};
use countersign_store::payment_order::{PaymentOrderFilter, PaymentOrderRow, PaymentOrders as _};

use super::checkout;
use super::standing::all_stand;
use crate::app::App;
use crate::app::concurrency_limit::ConcurrencyPermit;
use crate::app::error::AppError;
use crate::app::late_changes::LOOKS_MAX;
use crate::app::long_pages::{CROWDED, LOOKED_MAX, with_room};
use crate::app::turns::{TurnKey, read_in_turn};

/// A page of a merchant's orders.
#[derive(Debug)]
pub struct Listed {
    /// Newest first, each as it stands.
    pub orders: Vec<PaymentOrderRow>,
    /// Where the next page goes on; none: there is nothing more.
    pub next: Option<PrepayId>,
    /// Of a page that is long, until it is read.
    pub place: Option<Box<ConcurrencyPermit>>,
}

/// Orders of this merchant, newest first, as the application `by` asks for them. However many lists an application asks for, one of them is read
/// at a time. What has been told once as expired never is anything else: while one of the page may still be something else it is read again.
pub async fn of_merchant(
    app: &Arc<App>,
    owner: &MerchantRow,
    by: ApplicationNo,
    filter: PaymentOrderFilter,
    page: Cursor<PrepayId>,
) -> Result<Listed, AppError> {
    let filter = PaymentOrderFilter { of: Some((owner.tenant, owner.no)), ..filter };
    let read = move |app: Arc<App>| async move {
        for look in 1..=LOOKS_MAX {
            let now = app.clock.now();
            let (filter, page) = (filter.clone(), page.clone());
            let found = app.store.payment_orders(Asker::Merchant, filter, now, page, LOOKED_MAX).await?;
            if all_stand(&app, &found.orders, now, look).await? {
                return Ok((found, now));
            }
        }
        Err(AppError::Busy)
    };
    let (found, now) = read_in_turn(app, TurnKey::OrderList(by), CROWDED, read).await?;
    let mut orders: Vec<PaymentOrderRow> = found.orders.into_iter().map(|(_, row)| row).collect();
    for row in &mut orders {
        row.order.status = row.order.status_at(now);
    }
    let read = orders.len();
    let place = with_room(app, owner.tenant, &mut orders, |row| bytes_of(app, row));
    let cut = orders.last().filter(|_| orders.len() < read).map(|last| last.order.prepay_id);
    Ok(Listed { orders, next: cut.or(found.next), place })
}

/// About as many bytes as an order has in an answer: names and numbers, and what its merchant and the fee wrote.
fn bytes_of(app: &App, row: &PaymentOrderRow) -> usize {
    const NAMES: usize = 600;
    let order = &row.order;
    let texts = [&order.content.goods_name, &order.content.channel_id, &order.terminal_type];
    let written = texts.into_iter().flatten().map(|text| as_sent(text)).sum::<usize>() + order.trade_no.len();
    let codes = checkout(app, order).map_or(0, |code| 2 * code.len());
    NAMES + written + codes + order.fee.as_ref().map_or(0, |fee| fee.worked_sum.len())
}

/// The bytes of a text in JSON, in which control characters take six.
fn as_sent(text: &str) -> usize {
    let of = |byte: u8| match byte {
        0..0x20 => 6,
        b'"' | b'\\' => 2,
        _ => 1,
    };
    text.bytes().map(of).sum()
}

#[cfg(test)]
mod tests {
    use countersign_domain::payment_order::PaymentStatus;

    use super::super::{Wanted, create};
    use super::*;
    use crate::app::fixtures::{Deployment, application, bank, claim, nobody, ordered, wanted};
    use crate::app::identity::find_application;

    const fn page(after: Option<PrepayId>) -> Cursor<PrepayId> {
        Cursor { after, limit: 100 }
    }

    #[tokio::test]
    async fn one_list_of_an_application_is_read_at_a_time_and_others_come_between() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let mut of = Vec::new();
        for name in ["eager", "quiet"] {
            of.push(find_application(&app, &application(&app, name, None).await).await.expect("is there"));
        }
        let [eager, quiet] = <[_; 2]>::try_from(of).expect("two applications");
        let reading = app.turns.take(TurnKey::OrderList(eager.application.no)).await;
        let waits = tokio::spawn({
            let (app, eager) = (app.clone(), eager.clone());
            async move {
                of_merchant(&app, &eager.merchant, eager.application.no, PaymentOrderFilter::default(), page(None))
                    .await
            }
        });
        tokio::task::yield_now().await;
        let listed =
            of_merchant(&app, &quiet.merchant, quiet.application.no, PaymentOrderFilter::default(), page(None)).await;
        assert!(listed.expect("it has its own turn").orders.is_empty());
        assert!(!waits.is_finished(), "a list of this application is being read");
        drop(reading);
        match waits.await.expect("ends") {
            // Where the machine stood still it has waited for too long, and was told so.
            Err(AppError::Crowded(said)) => assert_eq!(said, CROWDED),
            listed => assert!(listed.expect("it is its turn").orders.is_empty()),
        }
        Deployment::close(&app);
    }

    #[tokio::test]
    async fn a_long_page_has_a_place_or_is_cut_and_the_next_one_goes_on_where_it_was_cut() {
        const MANY: usize = 100;
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let of = find_application(&app, &application(&app, "till", None).await).await.expect("is there");
        let mut making = tokio::task::JoinSet::new();
        for n in 0..MANY {
            let (app, of) = (app.clone(), of.clone());
            making.spawn(async move {
                let trade_no = format!("T-{n}");
                let mut wanted: Wanted = wanted(&trade_no);
                wanted.content.goods_name = Some("é".repeat(160));
                let claim = claim(&of.application, &trade_no, app.clock.now());
                create(&app, &of.merchant, &of.application, &wanted, &claim, &nobody()).await.expect("is made");
            });
        }
        making.join_all().await;
        let list = async |after| {
            of_merchant(&app, &of.merchant, of.application.no, PaymentOrderFilter::default(), page(after))
                .await
                .expect("is listed")
        };
        let whole = list(None).await;
        assert_eq!((whole.orders.len(), whole.next, whole.place.is_some()), (MANY, None, true));
        drop(whole.place);
        let tenant = of.application.tenant.0.to_string();
        let taken: Vec<_> = std::iter::from_fn(|| app.long_pages.take(&tenant).ok()).collect();
        let cut = list(None).await;
        assert!(cut.place.is_none() && (50..MANY).contains(&cut.orders.len()), "{} orders", cut.orders.len());
        assert_eq!(cut.next, cut.orders.last().map(|row| row.order.prepay_id));
        let rest = list(cut.next).await;
        assert_eq!(([cut.orders, rest.orders].concat(), rest.next), (whole.orders, None));
        drop(taken);
        Deployment::close(&app);
    }

    #[tokio::test]
    async fn what_is_not_noted_yet_is_listed_as_it_stands_and_under_that_status_alone() {
        for deployment in Deployment::on_each_store().await {
            let app = deployment.open().await;
            let (of, _) = bank(&app).await;
            let orders = [ordered(&app, &of, "one").await, ordered(&app, &of, "two").await];
            let list = async |status| {
                let filter = PaymentOrderFilter { status: Some(status), ..PaymentOrderFilter::default() };
                let listed = of_merchant(&app, &of.merchant, of.application.no, filter, page(None)).await;
                listed.expect("is listed").orders.into_iter().map(|row| row.order.status).collect::<Vec<_>>()
            };
            assert_eq!(list(PaymentStatus::Pending).await, [PaymentStatus::Pending; 2]);
            assert!(list(PaymentStatus::Expired).await.is_empty());
            app.clock.advance_ms(orders[1].order.expires_at.0 - app.clock.now().0);
            assert_eq!(list(PaymentStatus::Expired).await, [PaymentStatus::Expired; 2]);
            assert!(list(PaymentStatus::Pending).await.is_empty());
            Deployment::close(&app);
        }
    }
}
