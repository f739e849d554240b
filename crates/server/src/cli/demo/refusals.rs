//! What must not work, tried for real.

use anyhow::Context as _;
use countersign_protocol::signing::Encoding;
use hyper::Method;
use serde::Deserialize;

use super::receiver::Received;
use super::screen::Screen;
use super::stage::{Cast, Party, Stage, shortened};
use crate::cli::http::{self, Answer, Ask};
use crate::cli::sign::{Signed, header_names, signed};
use crate::cli::signed_call::{Caller, ask};
use crate::clock::Clock;

const PREFIX: &str = "X-Service-";

/// The part of an envelope that says how it went.
#[derive(Debug, Deserialize)]
pub struct Envelope {
    /// SUCCESS or FAIL.
    pub status: String,
    /// Name of the error.
    pub label: String,
}

/// A signed request of a party, without the SDK, so that it can be spoiled.
pub fn signed_ask(
    party: &Party,
    method: Method,
    path: &str,
    timestamp: Option<String>,
    on_behalf_of: Option<&str>,
) -> anyhow::Result<Ask> {
    let names = header_names(PREFIX)?;
    let signed = signed(&party.secret, b"", timestamp, None, Encoding::Hex);
    let caller = Caller { client_id: &party.client_id, names: &names, merchant_id: None, on_behalf_of };
    Ok(ask(&caller, method, path, Vec::new(), &signed))
}

/// Walks them. `captured`: a callback that somebody has seen. Gives a request that was accepted once.
pub async fn walk(stage: &Stage, cast: &Cast, captured: Option<&Received>, screen: &mut Screen) -> anyhow::Result<Ask> {
    screen.chapter(
        "What is refused",
        "A thief, a bored listener on the line, a clock that is wrong, a forged callback: each tried for real.",
    );
    let path = "/v1/pay/events?limit=1";
    let merchant = &cast.sub_account;

    screen.say("A request whose signature has one wrong digit:");
    let mut forged = signed_ask(merchant, Method::GET, path, None, None)?;
    spoil_signature(&mut forged);
    let answer = stage.send(screen, &forged).await?;
    screen.proves(
        refused_as(&answer, 401, "INVALID_SIGNATURE")?,
        "Refused, without a word about what was wrong: an unknown ClientId gets the same answer.",
    );

    screen.say("A good request, with the headers that the SDK would send:");
    let good = signed_ask(merchant, Method::GET, path, None, None)?;
    for (name, value) in good.headers.iter().filter(|(name, _)| name.starts_with(PREFIX)) {
        screen
            .detail(&format!("{name}: {}", if name.ends_with("Signature") { shortened(value) } else { value.clone() }));
    }
    let answer = stage.send(screen, &good).await?;
    screen.proves(
        answer.status.is_success(),
        "Accepted: the merchant reads its own events, also those whose callback it missed.",
    );
    screen.say("The very same bytes again, as somebody would send them who listened on the line:");
    let answer = stage.send(screen, &good).await?;
    screen.proves(refused_as(&answer, 401, "NONCE_REUSED")?, "Refused: a nonce is good once.");

    screen.say("A request that is signed well, but a minute old:");
    let minute_ago = (Clock::System.now().0 - 60_000).to_string();
    let answer = stage.send(screen, &signed_ask(merchant, Method::GET, path, Some(minute_ago), None)?).await?;
    screen.proves(
        refused_as(&answer, 401, "TIMESTAMP_OUT_OF_RANGE")?,
        "Refused, and told the server's time, so that an honest client can set its clock.",
    );

    if let Some(captured) = captured {
        turned_round(stage, cast, captured, screen).await?;
    }
    forged_callback(stage, screen).await?;
    Ok(good)
}

/// A callback is signed with the same key as requests: somebody who captured one sends it to the server.
async fn turned_round(stage: &Stage, cast: &Cast, captured: &Received, screen: &mut Screen) -> anyhow::Result<()> {
    screen.say(
        "A callback that was captured on its way, sent back to the server as a request, with its own, right signature:",
    );
    let captured_signature = Signed {
        timestamp: captured.timestamp.clone(),
        nonce: captured.nonce.clone(),
        signature: captured.signature.clone(),
    };
    let names = header_names(PREFIX)?;
    let caller =
        Caller { client_id: &cast.sub_account.client_id, names: &names, merchant_id: None, on_behalf_of: None };
    let body = captured.body.clone().into_bytes();
    let answer = stage
        .send(screen, &ask(&caller, Method::POST, "/rate/commission_rule/list", body, &captured_signature))
        .await?;
    screen.proves(
        refused_as(&answer, 400, "INVALID_NONCE")?,
        "Refused: nonces of callbacks begin with a word that no request may use.",
    );
    Ok(())
}

/// The merchant's side: somebody who knows the receiver's address, and not the secret.
async fn forged_callback(stage: &Stage, screen: &mut Screen) -> anyhow::Result<()> {
    screen.say("A stranger tells Corner Shop's receiver that a payment succeeded:");
    let body = r#"{"bizType":"PAYMENT_ORDER","bizId":"PO-20260003","bizStatus":"SUCCESS","client_id":"x","data":"{}"}"#;
    let forged =
        signed("a guess", body.as_bytes(), None, Some("callback0123456789abcdef01234567".to_owned()), Encoding::Hex);
    let names = header_names(PREFIX)?;
    let caller = Caller { client_id: "x", names: &names, merchant_id: None, on_behalf_of: None };
    let (base, path) = stage.receiver.url.rsplit_once('/').context("the receiver's address has a path")?;
    let ask = ask(&caller, Method::POST, &format!("/{path}"), body.as_bytes().to_vec(), &forged);
    screen.sent("POST /callbacks", Some(body));
    let answer = http::exchange(base, &ask).await?;
    screen.got(&format!("HTTP {}", answer.status), &answer.body);
    screen.proves(
        answer.status.as_u16() == 401,
        "Refused by the SDK's verifier: without the secret nobody can speak for Countersign.",
    );
    Ok(())
}

/// Turns one digit of the signature into another one.
fn spoil_signature(ask: &mut Ask) {
    for (name, value) in &mut ask.headers {
        if name.ends_with("Signature") {
            let other = if value.starts_with('0') { "1" } else { "0" };
            value.replace_range(..1, other);
        }
    }
}

/// Whether an answer is a failure with this status and label.
pub fn refused_as(answer: &Answer, status: u16, label: &str) -> anyhow::Result<bool> {
    let envelope: Envelope = serde_json::from_str(&answer.body).context("the answer is no envelope")?;
    Ok(answer.status.as_u16() == status && envelope.status == "FAIL" && envelope.label == label)
}
