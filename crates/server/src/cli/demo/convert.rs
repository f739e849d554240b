//! Journey (b): a convert order that the platform's back end makes and moves, and the merchant asks about.

use anyhow::Context as _;
use countersign_protocol::endpoint::convert_order;
use hyper::Method;
use serde::Deserialize;

use super::refusals::{Envelope, signed_ask};
use super::screen::Screen;
use super::stage::{Cast, Party, Stage};
use crate::cli::operator::{Call, accepted};

const RATE: &str = "2.228571428571428571";

#[derive(Deserialize)]
struct NewOrder {
    order_id: String,
}

/// Walks it.
pub async fn walk(stage: &Stage, cast: &Cast, screen: &mut Screen) -> anyhow::Result<()> {
    screen.chapter(
        "A convert order: made by the back end, asked for by the merchant",
        "The platform's own back end records orders and moves them through the operator API. Merchants see their own.",
    );
    let call = Call::new(Method::POST, format!("/merchants/{}/convert-orders", cast.sub_account.merchant_id))
        .raw("userId", Some("2124".to_owned()))
        .text("sellCurrency", Some("GT"))
        .text("buyCurrency", Some("USDT"))
        .text("sellAmount", Some("10.5"))
        .text("buyAmount", Some("23.4"))
        .raw("rate", Some(RATE.to_owned()));
    let order: NewOrder = stage.operate_well(screen, &call).await?;

    screen.say("Corner Shop's program asks for it:");
    let (found, text) = query(stage, &cast.sub_account, &order.order_id, screen).await?;
    screen.proves(found.status == 1, "The merchant sees the order, status 1: created.");
    screen.proves(
        text.contains(&format!(r#""rate":{RATE}"#)),
        "The rate came back digit for digit: no floating point on the way.",
    );

    others_do_not_see_it(stage, cast, &order.order_id, screen).await?;

    screen.say("The back end carries the exchange out and says so:");
    let call =
        Call::new(Method::PATCH, format!("/convert-orders/{}", order.order_id)).raw("status", Some("3".to_owned()));
    accepted(&stage.operate(screen, &call).await?)?;
    let (found, _) = query(stage, &cast.sub_account, &order.order_id, screen).await?;
    screen.proves(found.status == 3, "The merchant sees status 3: success.");

    screen.say("A slip of the back end: the same order is to be failed afterwards.");
    let call =
        Call::new(Method::PATCH, format!("/convert-orders/{}", order.order_id)).raw("status", Some("6".to_owned()));
    let answer = stage.operate(screen, &call).await?;
    screen.proves(
        answer.status.as_u16() == 409,
        "Refused: success is final. The state machine has no such move, whoever asks.",
    );
    Ok(())
}

async fn query(
    stage: &Stage,
    party: &Party,
    order_id: &str,
    screen: &Screen,
) -> anyhow::Result<(convert_order::Response, String)> {
    let request = convert_order::Request { order_id: order_id.to_owned() };
    screen.sent(&format!("GET /v1/pay/convert/order?{}", request.to_query()), None);
    let found = stage.client(party)?.convert_order(&request).await?;
    let text = serde_json::to_string(&found)?;
    screen.got("data", &text);
    Ok((found, text))
}

/// The institution has its own key: by itself it does not see the sub-account's order, on its behalf it does.
async fn others_do_not_see_it(stage: &Stage, cast: &Cast, order_id: &str, screen: &mut Screen) -> anyhow::Result<()> {
    let path = format!("/v1/pay/convert/order?orderId={order_id}");
    screen.say("Harbour Bank asks for the same number, in its own name:");
    let answer = stage.send(screen, &signed_ask(&cast.institution, Method::GET, &path, None, None)?).await?;
    let own: Envelope = serde_json::from_str(&answer.body).context("the answer is no envelope")?;
    screen.proves(
        own.label == "ORDER_NOT_FOUND",
        "Not found: an order that is not yours and one that does not exist look the same.",
    );
    screen.say("And once more with the header X-Service-On-Behalf-Of: corner-shop");
    let ask = signed_ask(&cast.institution, Method::GET, &path, None, Some(&cast.sub_account.merchant_id))?;
    let answer = stage.send(screen, &ask).await?;
    let delegated: Envelope = serde_json::from_str(&answer.body).context("the answer is no envelope")?;
    screen.proves(
        delegated.status == "SUCCESS",
        "Found: an institution may act for its own sub-accounts, and says so each time.",
    );
    Ok(())
}
