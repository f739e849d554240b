//! Journey (c): something happened; the merchant is told, once surely, and again if it did not listen.

use std::time::Duration;

use anyhow::{bail, ensure};
use hyper::Method;
use serde::Deserialize;

use super::receiver::Received;
use super::screen::Screen;
use super::stage::{Cast, Party, Stage, shortened};
use crate::cli::operator::{Call, accepted, send};

const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Deserialize)]
struct NewEvent {
    event_id: String,
}

#[derive(Deserialize)]
struct EventState {
    state: String,
}

/// Walks it. Gives the callback that was received first.
pub async fn walk(stage: &mut Stage, cast: &Cast, screen: &mut Screen) -> anyhow::Result<Received> {
    screen.chapter(
        "A callback: sent, verified, acknowledged",
        "A payment succeeded. The back end says so to the operator API; Countersign tells Corner Shop's receiver, a web server that \
         verifies each callback with the SDK before it believes a word of it.",
    );
    let event = emit(stage, &cast.sub_account, "PO-20260001", screen).await?;
    let received = stage.receiver.next().await?;
    show(&received, screen);
    screen.proves(
        received.refused.is_none(),
        "The receiver verified the signature over the raw body: it is Countersign's, for this merchant, and fresh.",
    );
    let shown = settled(stage, &event, screen).await?;
    screen.proves(
        shown == "delivered",
        "Acknowledged with returnCode SUCCESS, so the event is delivered, and its attempt is on record.",
    );
    comes_again(stage, cast, screen).await?;
    Ok(received)
}

async fn comes_again(stage: &mut Stage, cast: &Cast, screen: &mut Screen) -> anyhow::Result<()> {
    screen.chapter(
        "A receiver in trouble: the callback comes again",
        "The same once more, but the merchant's database is down at first: its receiver answers HTTP 500.",
    );
    stage.receiver.fail_next(1);
    let event = emit(stage, &cast.sub_account, "PO-20260002", screen).await?;
    let first = stage.receiver.next().await?;
    show(&first, screen);
    screen.say(
        "The receiver failed. Nobody has to do anything: the schedule of this demo says when the next attempt comes.",
    );
    let second = stage.receiver.next().await?;
    show(&second, screen);
    let same =
        first.event_id == second.event_id && first.body == second.body && first.attempt == "1" && second.attempt == "2";
    screen.proves(
        same,
        "The second attempt carries the same bytes: by bizType, bizId and bizStatus, which are signed with them, a receiver can tell that it is one event.",
    );
    let afresh = first.nonce != second.nonce && first.signature != second.signature && second.refused.is_none();
    screen.proves(afresh, "It was signed afresh, with its own timestamp and nonce, and verified again.");
    let shown = settled(stage, &event, screen).await?;
    screen.proves(
        shown == "delivered",
        "Delivered at the second attempt; both attempts are on record, with what came of each.",
    );
    Ok(())
}

async fn emit(stage: &Stage, party: &Party, biz_id: &str, screen: &Screen) -> anyhow::Result<String> {
    let data = format!(r#"{{"merchantTradeNo":"till-7-{biz_id}","currency":"USDT","orderAmount":"12.5"}}"#);
    let call = Call::new(Method::POST, "/events")
        .text("client_id", Some(&party.client_id))
        .text("bizType", Some("PAYMENT_ORDER"))
        .text("bizId", Some(biz_id))
        .text("bizStatus", Some("SUCCESS"))
        .raw("data", Some(data));
    let event: NewEvent = stage.operate_well(screen, &call).await?;
    Ok(event.event_id)
}

/// Shows a callback as the receiver got it, and what it answered.
pub fn show(received: &Received, screen: &Screen) {
    screen.say("The receiver got:");
    screen.sent("POST /callbacks", Some(&received.body));
    for (name, value) in [
        ("Timestamp", &received.timestamp),
        ("Nonce", &received.nonce),
        ("Signature", &shortened(&received.signature)),
        ("Event-Id", &received.event_id),
        ("Attempt", &received.attempt),
        ("Sequence", &received.sequence),
    ] {
        screen.detail(&format!("X-Service-{name}: {value}"));
    }
    if let Some(refused) = &received.refused {
        screen.detail(&format!("the SDK's verifier refused it: {refused}"));
    }
    screen.got(&format!("HTTP {}", received.answered), received.answer);
}

/// Waits until the event is no longer pending, then shows it as the operator sees it. Gives its state.
async fn settled(stage: &Stage, event_id: &str, screen: &Screen) -> anyhow::Result<String> {
    let call = Call::new(Method::GET, format!("/events/{event_id}"));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = send(&stage.operator_url, stage.token.expose(), &call).await?;
        let event: EventState = serde_json::from_str(accepted(&answer)?)?;
        if event.state != "pending" {
            break;
        }
        // The acknowledgement is on its way back to the dispatcher.
        ensure!(tokio::time::Instant::now() < deadline, "the event is still pending after {} s", PATIENCE.as_secs());
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    screen.say("As the operator sees it:");
    let event: serde_json::Value = serde_json::from_str(&stage.operate(screen, &call).await?.body)?;
    match event["state"].as_str() {
        Some(state) => Ok(state.to_owned()),
        None => bail!("the event has no state"),
    }
}
