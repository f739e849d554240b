//! Within the journey of the fee rule: one order is paid under the old version, one under the new, and both are told of.

use anyhow::Context as _;
use countersign_protocol::endpoint::payment_order::{Fee, Name};
use countersign_protocol::endpoint::{order_create, order_query};
use hyper::Method;

use super::callbacks::show;
use super::screen::Screen;
use super::stage::{Cast, Stage};
use crate::cli::operator::{Call, accepted};

const AMOUNT: &str = "12.5";

/// An order that was paid.
#[derive(Debug)]
pub struct Paid {
    trade_no: &'static str,
    /// What it cost, fixed at that instant.
    pub fee: Fee,
}

/// Corner Shop makes an order, the back end says that it is paid, Corner Shop is told and asks what it cost.
pub async fn pay(stage: &mut Stage, cast: &Cast, trade_no: &'static str, screen: &mut Screen) -> anyhow::Result<Paid> {
    let request = order_create::Request {
        merchant_trade_no: trade_no.to_owned(),
        currency: "USDT".to_owned(),
        order_amount: AMOUNT.to_owned(),
        ..order_create::Request::default()
    };
    screen.sent("POST /v1/pay/order", Some(&String::from_utf8_lossy(&request.to_body())));
    let made = stage.client(&cast.sub_account)?.order_create(&request).await?.0;
    screen.got("data", &serde_json::to_string(&made)?);
    screen.say("The platform's back end has seen the money:");
    let call = Call::new(Method::PATCH, format!("/payment-orders/{}", made.prepay_id)).text("status", Some("PAID"));
    accepted(&stage.operate(screen, &call).await?)?;
    let told = stage.receiver.next().await?;
    show(&told, screen);
    let is_told = told.refused.is_none() && told.body.contains(&made.prepay_id) && told.body.contains("SUCCESS");
    screen
        .proves(is_told, "The move and its callback were one commit, so the merchant is told of it whatever happens.");
    screen.say("What did it cost?");
    let found = query(stage, cast, trade_no, screen).await?;
    let fee = found.fee.context("an order of a sub-account that is paid has a fee")?;
    Ok(Paid { trade_no, fee })
}

async fn query(stage: &Stage, cast: &Cast, trade_no: &str, screen: &Screen) -> anyhow::Result<order_query::Response> {
    let name = Name { prepay_id: None, merchant_trade_no: Some(trade_no.to_owned()) };
    screen.sent("POST /v1/pay/order/query", Some(&String::from_utf8_lossy(&name.to_body())));
    let found = stage.client(&cast.sub_account)?.order_query(&name).await?;
    screen.got("data", &serde_json::to_string(&found)?);
    Ok(found)
}

/// Whether an order cost so much under this version.
pub fn is_priced(paid: &Paid, config_id: &str, r_fee: &str, f_fee: &str) -> bool {
    paid.fee.config_id.as_deref() == Some(config_id) && paid.fee.r_fee == r_fee && paid.fee.f_fee == f_fee
}

/// The order that was paid under the old version costs what it cost.
pub async fn still_costs(stage: &Stage, cast: &Cast, paid: &Paid, screen: &mut Screen) -> anyhow::Result<()> {
    screen.say("And the order that was paid under version 1, asked for again:");
    let again = query(stage, cast, paid.trade_no, screen).await?;
    screen.proves(
        again.fee.as_ref() == Some(&paid.fee),
        "The same fee, figure for figure: it was fixed when the order was paid, and no later rule changes it.",
    );
    Ok(())
}
