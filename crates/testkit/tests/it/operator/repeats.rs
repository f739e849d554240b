//! Every write call under an `Idempotency-Key`: again with the same body, and with another.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use countersign::operator::doors;
use countersign_domain::delivery::DeliveryState;
use countersign_store::contract::Role;
use countersign_store::{Batch, Lost, Store as _, Write};
use hyper::body::Frame;
use serde_json::{Value, json};

use super::listener::{Answer, DAY_MS, House, request_by};
use super::payment_orders::made;

/// What is POST for its body's sake, and changes nothing: again is again.
const CHANGES_NOTHING: [&str; 1] = ["/audit/verify"];

/// A write call that is good in the furnished house: its door, its path and its body.
struct Case {
    method: &'static str,
    under: &'static str,
    path: String,
    body: Value,
}

/// An institution, a merchant with an application and an order, and something for each call to work on.
async fn cases(house: &House) -> Vec<Case> {
    house.post("/institutions", json!({"name": "I", "merchant_id": "i"})).await.ok();
    let client_id = house.application("m", Some("https://example.com/callback")).await;
    let application = format!("/applications/{client_id}");
    let mut secrets = Vec::new();
    for _ in 0..2 {
        secrets.push(house.post(&format!("{application}/secrets"), json!({})).await.ok().text_of("secret_id"));
    }
    let other = house.post("/merchants/m/applications", json!({"name": "B"})).await.ok();
    let (other_id, other_secret) = (other.text_of("client_id"), other.text_of("secret_id"));
    let order = json!({"sellCurrency": "A1", "buyCurrency": "B1", "sellAmount": "1", "buyAmount": "1", "rate": 1, "order_id": "5"});
    house.post("/merchants/m/convert-orders", order.clone()).await.ok();
    let event = json!({"client_id": client_id, "bizType": "T", "bizId": "1", "bizStatus": "S", "data": {}});
    let event_id = house.post("/events", event.clone()).await.ok().text_of("event_id");
    make_dead(house, &event_id).await;
    let token_id = house.post("/tokens", json!({"name": "t", "role": "viewer"})).await.ok().text_of("token_id");
    let case = |method, under, path: String, body| Case { method, under, path, body };
    let secret = |id: &str, what: &str| format!("{application}/secrets/{id}{what}");
    let mut another = order;
    another["order_id"] = json!("6");
    let mut cases = and_of_money(of_callbacks(house, &other_id).await, house, &client_id).await;
    cases.extend([
        case("POST", "/institutions", "/institutions".to_owned(), json!({"name": "N"})),
        case("POST", "/merchants", "/merchants".to_owned(), json!({"name": "N"})),
        case("PATCH", "/merchants/{merchant_id}", "/merchants/m".to_owned(), json!({"name": "N"})),
        case(
            "POST",
            "/institutions/{merchant_id}/sub-accounts",
            "/institutions/i/sub-accounts".to_owned(),
            json!({"name": "N"}),
        ),
        case(
            "POST",
            "/merchants/{merchant_id}/applications",
            "/merchants/m/applications".to_owned(),
            json!({"name": "N"}),
        ),
        case("PATCH", "/applications/{client_id}", application.clone(), json!({"name": "N"})),
        case("POST", "/applications/{client_id}/secrets", format!("/applications/{other_id}/secrets"), json!({})),
        case(
            "DELETE",
            "/applications/{client_id}/secrets/{secret_id}",
            format!("/applications/{other_id}/secrets/{other_secret}"),
            Value::Null,
        ),
        case("POST", "/applications/{client_id}/secrets/{secret_id}/retire", secret(&secrets[0], "/retire"), json!({})),
        case(
            "POST",
            "/applications/{client_id}/secrets/{secret_id}/use-for-callbacks",
            secret(&secrets[1], "/use-for-callbacks"),
            json!({}),
        ),
        case("POST", "/merchants/{merchant_id}/convert-orders", "/merchants/m/convert-orders".to_owned(), another),
        case("PATCH", "/convert-orders/{order_id}", "/convert-orders/5".to_owned(), json!({"status": 3})),
        case("POST", "/events", "/events".to_owned(), event),
        case("POST", "/events/{event_id}/redeliver", format!("/events/{event_id}/redeliver"), json!({})),
        case("POST", "/events/redeliver", "/events/redeliver".to_owned(), json!({"client_id": client_id})),
        case(
            "POST",
            "/redeliveries/{redelivery_id}/stop",
            format!("/redeliveries/{}/stop", running(house).await),
            json!({}),
        ),
        case("POST", "/delivery/release", "/delivery/release".to_owned(), json!({})),
        case("POST", "/master-key/rewrap", "/master-key/rewrap".to_owned(), json!({})),
        case("POST", "/tokens", "/tokens".to_owned(), json!({"name": "u", "role": "viewer"})),
        case("DELETE", "/tokens/{token_id}", format!("/tokens/{token_id}"), Value::Null),
    ]);
    cases
}

/// And what the back end says: a rate, and that an order is paid.
async fn and_of_money(mut cases: Vec<Case>, house: &House, client_id: &str) -> Vec<Case> {
    let order = format!("/payment-orders/{}", made(house, ("m", client_id), "T-1", "1").await);
    // From here on it does not expire.
    house.patch(&order, json!({"status": "PROCESS"})).await.ok();
    cases.extend([
        Case { method: "PUT", under: "/rates/{pair}", path: "/rates/GT_USDT".to_owned(), body: json!({"rate": 2}) },
        Case { method: "PATCH", under: "/payment-orders/{prepayId}", path: order, body: json!({"status": "PAID"}) },
    ]);
    cases
}

/// The calls about the callbacks of an application.
async fn of_callbacks(house: &House, client_id: &str) -> Vec<Case> {
    // This machine's name: refused where callbacks are vetted, so nothing leaves.
    let here = json!({"name": "C", "callback_url": "https://localhost/callback"});
    let here = house.post("/merchants/m/applications", here).await.ok().text_of("client_id");
    let case = |under: &'static str, client_id: &str, body| Case {
        method: "POST",
        under,
        path: under.replace("{client_id}", client_id),
        body,
    };
    vec![
        case("/applications/{client_id}/callbacks/pause", client_id, json!({"reason": "mending"})),
        case("/applications/{client_id}/callbacks/resume", client_id, json!({})),
        case("/applications/{client_id}/callbacks/test", &here, json!({})),
    ]
}

/// A redelivery of another application's dead event, which nobody carries out here.
pub async fn running(house: &House) -> String {
    let made = house.post("/merchants/m/applications", json!({"name": "D", "callback_url": "https://example.com/d"}));
    let client_id = made.await.ok().text_of("client_id");
    let event = json!({"client_id": client_id, "bizType": "T", "bizId": "1", "bizStatus": "S", "data": {}});
    make_dead(house, &house.post("/events", event).await.ok().text_of("event_id")).await;
    house.post("/events/redeliver", json!({"client_id": client_id})).await.ok().text_of("redelivery_id")
}

/// The event's only attempt failed for good.
pub async fn make_dead(house: &House, event_id: &str) {
    house.record(event_id, DeliveryState::Dead, None, |row| row).await;
}

async fn keyed(house: &House, case: &Case, body: &Value) -> Answer {
    let text = if body.is_null() { None } else { Some(body.to_string()) };
    house.send(house.request(case.method, &case.path, text.as_deref(), &[("idempotency-key", "the-key")])).await
}

#[tokio::test]
async fn every_write_call_answers_a_repeat_as_the_first_time_and_refuses_another_body() {
    let house = House::open().await;
    let cases = cases(&house).await;
    let named: BTreeSet<(String, String)> =
        cases.iter().map(|case| (case.method.to_owned(), case.under.to_owned())).collect();
    let writes: BTreeSet<(String, String)> = doors()
        .into_iter()
        .filter(|door| door.method != "GET" && !CHANGES_NOTHING.contains(&door.under))
        .map(|door| (door.method.to_string(), door.under.to_owned()))
        .collect();
    assert_eq!(named, writes, "a case for every write call, and for no other");
    // What was just made is not retired.
    house.app.clock.advance_ms(3_600_000);
    for case in &cases {
        let which = format!("{} {}", case.method, case.path);
        house.app.clock.advance_ms(1);
        let first = keyed(&house, case, &case.body).await.ok();
        let lines = house.audit().await.len();
        let mut expected = first.json();
        for name in ["payment_api_secret", "token"] {
            if expected.get(name).is_some() {
                assert!(expected[name].is_string(), "{which}: shown the first time");
                expected[name] = Value::Null;
            }
        }
        house.app.clock.advance_ms(DAY_MS - 1);
        let again = keyed(&house, case, &case.body).await.ok();
        assert_eq!(again.json(), expected, "{which}");
        let mut other = if case.body.is_null() { json!({}) } else { case.body.clone() };
        other["unknown"] = json!(1);
        keyed(&house, case, &other).await.refused(409, "400804", "Idempotency-Key");
        assert_eq!(house.audit().await.len(), lines, "{which}: nothing was done again");
        house.app.clock.advance_ms(1 - DAY_MS);
    }
}

/// What the log says was done, oldest first, of what is not there at first.
async fn done(house: &House, before: usize) -> Vec<Value> {
    let lines = house.audit().await;
    lines[..lines.len() - before].iter().rev().map(|line| line["action"].clone()).collect()
}

/// Makes the call number `no` twice in a house of its own, in which the commit after so many is lost. None: the call has fewer commits. Otherwise what was
/// answered first, and what was done.
async fn lost_and_repeated(no: usize, loss: Option<(u64, Lost)>) -> Option<(Answer, Vec<Value>)> {
    let house = House::open_in_memory().await;
    let case = cases(&house).await.swap_remove(no);
    let before = house.audit().await.len();
    // What was just made is not retired.
    house.app.clock.advance_ms(DAY_MS / 2);
    if let Some((after, lost)) = loss {
        house.model().lose(after, lost);
    }
    let first = keyed(&house, &case, &case.body).await;
    if loss.is_some() && house.model().lose_no_more() {
        return None;
    }
    let again = keyed(&house, &case, &case.body).await;
    assert_eq!(again.status, 200, "{} {}, {loss:?}: {}", case.method, case.path, again.text);
    Some((first, done(&house, before).await))
}

#[tokio::test]
async fn every_write_call_whose_commit_is_lost_is_done_once_when_it_is_repeated() {
    for (no, case) in cases(&House::open_in_memory().await).await.iter().enumerate() {
        let which = format!("{} {}", case.method, case.under);
        let (_, wanted) = lost_and_repeated(no, None).await.expect("nothing is lost");
        for lost in Lost::ALL {
            let mut after = 0;
            while let Some((first, mut done)) = lost_and_repeated(no, Some((after, lost))).await {
                // A test callback is made again, and told again, where the answer of the first was not kept.
                if case.under.ends_with("/callbacks/test") {
                    done.dedup();
                }
                assert_eq!(done, wanted, "{which}, {lost:?} after {after} commits: {}", first.text);
                after += 1;
            }
            assert!(after > 0, "{which} commits something");
        }
    }
}

/// A body that comes when something has happened.
struct Late(Option<Pin<Box<dyn Future<Output = Bytes> + Send>>>);

impl hyper::body::Body for Late {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(coming) = self.0.as_mut() else { return Poll::Ready(None) };
        let bytes = ready!(coming.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

#[tokio::test]
async fn no_write_call_is_done_for_a_token_that_is_revoked_while_its_body_comes() {
    for no in 0..cases(&House::open_in_memory().await).await.len() {
        let house = House::open_in_memory().await;
        let case = cases(&house).await.swap_remove(no);
        house.app.clock.advance_ms(DAY_MS / 2);
        let token = house.token(Role::Security, None).await;
        let digest = countersign::digest::sha256(token.as_bytes());
        let token_id = house.app.store.token(&digest).await.expect("reads").expect("is there").token_id;
        let lines = house.audit().await.len();
        let (app, at, body) = (house.app.clone(), house.app.clock.now(), case.body.clone());
        let body = Body::new(Late(Some(Box::pin(async move {
            app.store.commit(Batch(vec![Write::RevokeToken { token_id, at }])).await.expect("is revoked");
            Bytes::from(if body.is_null() { String::new() } else { body.to_string() })
        }))));
        let request = request_by(&token, case.method, &case.path, Some("{}"), &[("idempotency-key", "the-key")]);
        let answer = house.send(request.map(|_| body)).await;
        answer.refused(401, "400801", "revoked while this was under way");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        assert_eq!(house.audit().await.len(), lines, "{} {} is not done", case.method, case.under);
    }
}
