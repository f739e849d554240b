//! What a move of a payment order says: to the merchant in a callback, to the audit log, and to its own history.

use std::sync::Arc;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::payment_order::{PaymentOrder, PaymentStatus};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::batch::Write;
use countersign_store::contract::{EventRow, Vocabulary};
use countersign_store::payment_order::{PaymentMoveRow, PaymentOrderRow, PaymentOrderWrite};
use serde::Serialize;

use crate::app::events::{self, Happening, Receiver, as_read};
use crate::app::{Actor, App, Deed};

/// A move that is to be committed.
pub(super) struct Change {
    /// The order as it becomes.
    pub(super) row: PaymentOrderRow,
    /// What tells of it.
    pub(super) event: Arc<EventRow>,
    pub(super) writes: Vec<Write>,
}

/// The writes of a move: order, history, callback, audit line.
pub(super) fn change(
    app: &App,
    receiver: &Receiver,
    before: &PaymentOrderRow,
    order: PaymentOrder,
    at: UnixMillis,
    actor: &Actor,
) -> Change {
    let row = PaymentOrderRow { order, ..before.clone() };
    let event = events::new_event(app, receiver, &happening(&row, receiver.application().callback_vocabulary));
    let event = Arc::new(event);
    let entry = PaymentMoveRow {
        revision: row.order.revision,
        was: before.order.status,
        status: row.order.status,
        at,
        actor: actor.name.clone(),
        request_id: actor.request_id.clone(),
    };
    let subject = row.order.prepay_id.to_string();
    let audit = actor.records(Deed {
        tenant: Some(row.tenant),
        at: app.clock.now(),
        action: "payment_order.move",
        subject: &subject,
        before: describe(&before.order),
        after: describe(&row.order),
    });
    let mut writes = Vec::with_capacity(5);
    if event.state == DeliveryState::Held {
        // No change of the application may come between the look and the write, or nobody would release it.
        writes.push(Write::Guard(as_read(receiver.application())));
    }
    writes.extend([
        Write::PaymentOrder(Box::new(PaymentOrderWrite::Move { row: row.clone(), entry })),
        Write::EnqueueEvent(event.clone()),
        audit,
    ]);
    Change { row, event, writes }
}

/// The audit line of an order that was made. Trade numbers and currencies are plain, so nothing needs escaping.
pub(super) fn made(row: &PaymentOrderRow, actor: &Actor) -> Write {
    let (order, content) = (&row.order, &row.order.content);
    let after = format!(
        r#"{{"merchantTradeNo":"{}","kind":"{}","currency":"{}","orderAmount":"{}","expire_at":"{}"}}"#,
        order.trade_no,
        content.kind.name(),
        content.currency.as_str(),
        content.amount,
        rfc3339(order.expires_at),
    );
    let subject = order.prepay_id.to_string();
    actor.records(Deed {
        tenant: Some(row.tenant),
        at: order.created_at,
        action: "payment_order.create",
        subject: &subject,
        before: String::new(),
        after,
    })
}

/// An order's changing part as a JSON text for the audit log: names and numbers.
fn describe(order: &PaymentOrder) -> String {
    let actual = order.actual_amount.map_or_else(|| "null".to_owned(), |amount| format!("\"{amount}\""));
    let fee = order.fee.as_ref().map_or_else(
        || "null".to_owned(),
        |fee| {
            let version = fee.version_no.map_or_else(|| "null".to_owned(), |no| no.to_string());
            format!(r#"{{"version_no":{version},"r_fee":"{}","f_fee":"{}"}}"#, fee.fee.r_fee, fee.fee.f_fee)
        },
    );
    let transacted = order.transact_at.map_or_else(|| "null".to_owned(), |at| format!("\"{}\"", rfc3339(at)));
    format!(
        r#"{{"status":"{}","revision":{},"actualAmount":{actual},"transact_at":{transacted},"fee":{fee}}}"#,
        order.status.name(),
        order.revision
    )
}

/// What a callback about an order holds, in this order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OrderData<'a> {
    pub(crate) merchant_trade_no: &'a str,
    pub(crate) prepay_id: String,
    pub(crate) currency: &'a str,
    pub(crate) order_amount: String,
    pub(crate) actual_amount: Option<String>,
    pub(crate) status: &'static str,
    pub(crate) create_time: i64,
    pub(crate) transact_time: Option<i64>,
}

impl OrderData<'_> {
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers always serialize")
    }
}

fn happening(row: &PaymentOrderRow, vocabulary: Vocabulary) -> Happening {
    let order = &row.order;
    let data = OrderData {
        merchant_trade_no: &order.trade_no,
        prepay_id: order.prepay_id.to_string(),
        currency: order.content.currency.as_str(),
        order_amount: order.content.amount.to_string(),
        actual_amount: order.actual_amount.map(|amount| amount.to_string()),
        status: order.status.name(),
        create_time: order.created_at.0,
        transact_time: order.transact_at.map(|at| at.0),
    };
    let (biz_type, biz_status) = callback_words(order.status, vocabulary);
    Happening {
        client_id: row.client_id.clone(),
        biz_type: biz_type.to_owned(),
        biz_id: order.prepay_id.to_string(),
        biz_status: biz_status.to_owned(),
        data: data.to_json(),
    }
}

/// `bizType` and `bizStatus` of the callback about an order that has become so.
pub(crate) const fn callback_words(status: PaymentStatus, vocabulary: Vocabulary) -> (&'static str, &'static str) {
    match vocabulary {
        Vocabulary::Standard => (
            "PAYMENT_ORDER",
            match status {
                PaymentStatus::Pending => "PENDING",
                PaymentStatus::Process => "PROCESS",
                PaymentStatus::Paid => "SUCCESS",
                PaymentStatus::Expired => "EXPIRED",
                PaymentStatus::Closed => "CLOSED",
            },
        ),
        Vocabulary::Family => (
            "PAY",
            match status {
                PaymentStatus::Pending => "PAY_PENDING",
                PaymentStatus::Process => "PAY_PROCESS",
                PaymentStatus::Paid => "PAY_SUCCESS",
                PaymentStatus::Expired => "PAY_EXPIRED",
                PaymentStatus::Closed => "PAY_CLOSE",
            },
        ),
    }
}
