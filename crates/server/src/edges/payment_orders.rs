//! A payment order as merchants and operators see it.

use countersign_domain::fees::OrderFee;
use countersign_domain::ids::config_id;
use countersign_domain::payment_order::PaymentOrder;
use countersign_protocol::endpoint::payment_order::{Fee, Order};
use countersign_protocol::endpoint::{order_create, order_native, order_query};
use countersign_protocol::exact::Exact;

use crate::app::{App, payment_orders};

fn order(order: &PaymentOrder) -> Order {
    Order {
        prepay_id: order.prepay_id.to_string(),
        merchant_trade_no: order.trade_no.clone(),
        currency: order.content.currency.as_str().to_owned(),
        order_amount: order.content.amount.to_string(),
        status: order.status.name().to_owned(),
        terminal_type: order.terminal_type.clone(),
        create_time: order.created_at.0,
        expire_time: order.expires_at.0,
    }
}

fn fee(fee: &OrderFee) -> Fee {
    Fee {
        config_id: fee.config_id.map(config_id),
        version_no: fee.version_no,
        r_markup: Exact(fee.markup.r()),
        f_markup: Exact(fee.markup.f().to_decimal()),
        r_fee: fee.fee.r_fee.to_string(),
        f_fee: fee.fee.f_fee.to_string(),
        worked_sum: fee.worked_sum.clone(),
    }
}

/// An order for its maker.
pub fn made(made: &PaymentOrder) -> order_create::Response {
    order_create::Response(order(made))
}

/// An order with a QR code for its maker.
pub fn made_native(app: &App, made: &PaymentOrder) -> order_native::Response {
    let checkout = payment_orders::checkout(app, made).unwrap_or_default();
    order_native::Response { order: order(made), location: checkout.clone(), qr_content: checkout }
}

/// An order with all that became of it.
pub fn in_full(app: &App, merchant_id: &str, found: &PaymentOrder) -> order_query::Response {
    let checkout = payment_orders::checkout(app, found);
    order_query::Response {
        order: order(found),
        merchant_id: merchant_id.to_owned(),
        transact_time: found.transact_at.map(|at| at.0),
        goods_name: found.content.goods_name.clone(),
        channel_id: found.content.channel_id.clone(),
        actual_amount: found.actual_amount.map(|amount| amount.to_string()),
        fee: found.fee.as_ref().map(fee),
        location: checkout.clone(),
        qr_content: checkout,
    }
}
