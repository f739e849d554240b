//! Convert orders: what the merchant asks, and what the back end makes and moves.

use std::sync::Arc;

use countersign_domain::convert_order::{self as machine, ConvertOrder, ConvertStatus};
use countersign_domain::ids::{ApplicationNo, OrderId};
use countersign_domain::time::rfc3339;
use countersign_store::batch::{Conflict, Key, Write};
use countersign_store::contract::{Asker, CommitError, Cursor, MerchantRow, NewAnswer};
use countersign_store::conversion::{ConvertMove, ConvertOrderFilter, ConvertOrderPage};
use countersign_store::{ConvertStore as _, Store};
use serde_json::json;

use super::error::AppError;
use super::payment_orders::LOOKED_MAX;
use super::turns::{TurnKey, read_in_turn};
use super::{Actor, App, Deed, long_pages};

/// A merchant's own convert order; another merchant's is not found by construction.
pub async fn query(app: &App, owner: &MerchantRow, order: OrderId) -> Result<ConvertOrder, AppError> {
    app.store.convert_order(owner.tenant, owner.no, order).await?.ok_or(AppError::OrderNotFound)
}

/// Adds a convert order for a merchant. `remember` is the answer kept for an idempotency key, in the same batch.
pub async fn insert(
    app: &App,
    owner: &MerchantRow,
    order: &ConvertOrder,
    remember: Option<NewAnswer>,
    actor: &Actor,
) -> Result<(), AppError> {
    let subject = order.order_id.to_string();
    let audit = actor.records(Deed {
        tenant: Some(owner.tenant),
        at: app.clock.now(),
        action: "convert_order.create",
        subject: &subject,
        before: String::new(),
        after: describe_whole(owner, order),
    });
    let mut writes = vec![
        Write::InsertConvertOrder { tenant: owner.tenant, merchant: owner.no, order: Box::new(order.clone()) },
        audit,
    ];
    writes.extend(remember.map(|answer| Write::RememberAnswer(Box::new(answer))));
    match app.store.commit(actor.batch(writes)).await {
        Ok(_) => Ok(()),
        Err(CommitError::Conflict(Conflict::Taken(Key::ConvertOrder(_)))) => {
            Err(AppError::AlreadyExists(format!("a convert order has the order_id {subject}; send another, or none")))
        }
        Err(error) => Err(error.into()),
    }
}

/// A convert order, whoever's, with its owner and every state that it came to.
pub async fn history(app: &App, id: OrderId) -> Result<(MerchantRow, ConvertOrder, Vec<ConvertMove>), AppError> {
    let (owner, order) = app.store.convert_order_owner(id).await?.ok_or(AppError::OrderNotFound)?;
    let moves = app.store.convert_moves(owner.tenant, id).await?;
    Ok((owner, order, moves))
}

/// Orders for operators, in the descending order of their numbers.
pub async fn list(
    app: &App,
    filter: ConvertOrderFilter,
    after: Option<OrderId>,
    limit: u32,
) -> Result<ConvertOrderPage, AppError> {
    Ok(app.store.convert_orders(Asker::Operator, filter, Cursor { after, limit }, LOOKED_MAX).await?)
}

/// Orders of this merchant, in the descending order of their numbers, as the application `by` asks for them. However many lists an application asks
/// for, one of them is read at a time. No page of these is a long one: an order comes to some 300 bytes.
pub async fn of_merchant(
    app: &Arc<App>,
    owner: &MerchantRow,
    by: ApplicationNo,
    status: Option<ConvertStatus>,
    page: Cursor<OrderId>,
) -> Result<ConvertOrderPage, AppError> {
    let filter = ConvertOrderFilter { status, of: Some((owner.tenant, owner.no)) };
    let read = move |app: Arc<App>| async move {
        app.store.convert_orders(Asker::Merchant, filter, page, long_pages::LOOKED_MAX).await
    };
    read_in_turn(app, TurnKey::OrderList(by), long_pages::CROWDED, read).await
}

/// Moves a convert order. `remember` makes the answer to keep of the order as it becomes.
pub async fn advance(
    app: &App,
    id: OrderId,
    next: ConvertStatus,
    remember: impl Fn(&MerchantRow, &ConvertOrder) -> Option<NewAnswer>,
    actor: &Actor,
) -> Result<(MerchantRow, ConvertOrder), AppError> {
    let _turn = app.turns.take_soon(TurnKey::ConvertOrder(id)).await?;
    let arrived = app.clock.now();
    loop {
        let Some((owner, order)) = app.store.convert_order_owner(id).await? else {
            return Err(AppError::OrderNotFound);
        };
        let moved = machine::advance(&order, next)?;
        let (at, subject) = (app.clock.now(), id.to_string());
        let audit = actor.records(Deed {
            tenant: Some(owner.tenant),
            at,
            action: "convert_order.move",
            subject: &subject,
            before: describe(&order),
            after: describe(&moved),
        });
        let mut writes =
            vec![Write::MoveConvertOrder { tenant: owner.tenant, order: Box::new(moved.clone()), at }, audit];
        writes.extend(remember(&owner, &moved).map(|answer| Write::RememberAnswer(Box::new(answer))));
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => return Ok((owner, moved)),
            // Another node was first: what it left says whether there is a move to make.
            Err(CommitError::Conflict(Conflict::Moved(Key::ConvertOrder(_)))) if app.may_decide_anew(arrived) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// An order's changing part as a JSON text for the audit log; numbers only, so nothing needs escaping.
fn describe(order: &ConvertOrder) -> String {
    format!(r#"{{"status":{},"revision":{}}}"#, order.status.code(), order.revision)
}

/// The same of one that was just made, with whose it is and all that never changes.
pub(super) fn describe_whole(owner: &MerchantRow, order: &ConvertOrder) -> String {
    json!({
        "merchant_id": owner.merchant_id,
        "user_id": order.user_id,
        "sell_currency": order.sell_currency.as_str(),
        "buy_currency": order.buy_currency.as_str(),
        "sell_amount": order.sell_amount.to_string(),
        "buy_amount": order.buy_amount.to_string(),
        "rate": order.rate.to_string(),
        "quote_id": order.quote_id,
        "status": order.status.code(),
        "revision": order.revision,
        "created_at": rfc3339(order.created_at),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::fixtures::{Deployment, application};
    use crate::app::identity::find_application;

    #[tokio::test]
    async fn one_list_of_an_application_is_read_at_a_time_whatever_it_lists() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let mut of = Vec::new();
        for name in ["eager", "quiet"] {
            of.push(find_application(&app, &application(&app, name, None).await).await.expect("is there"));
        }
        let page = || Cursor { after: None, limit: 1 };
        let [eager, quiet] = <[_; 2]>::try_from(of).expect("two applications");
        let reading = app.turns.take(TurnKey::OrderList(eager.application.no)).await;
        let waits = tokio::spawn({
            let app = app.clone();
            async move { of_merchant(&app, &eager.merchant, eager.application.no, None, page()).await }
        });
        // Long enough for the one that was begun before it, if nothing held that one up.
        for _ in 0..9 {
            let listed = of_merchant(&app, &quiet.merchant, quiet.application.no, None, page()).await;
            assert_eq!(listed.expect("it has its own turn"), ConvertOrderPage::default());
        }
        assert!(!waits.is_finished(), "a list of this application is being read");
        drop(reading);
        match waits.await.expect("ends") {
            // Where the machine stood still it has waited for too long, and was told so.
            Err(AppError::Crowded(said)) => assert_eq!(said, long_pages::CROWDED),
            listed => assert_eq!(listed.expect("it is its turn"), ConvertOrderPage::default()),
        }
        Deployment::close(&app);
    }
}
