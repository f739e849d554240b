//! Receivers that put callbacks off with 429 or 503: they are asked again, as the server would, before anything is said of them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;

use super::faults::{Fault, routes};
use super::*;

fn put_off(status: StatusCode) -> Response {
    (status, [("retry-after", "0")], "later").into_response()
}

/// The same receiver behind something that puts off each request whose number can be divided by this.
fn behind_a_limit(routes: Router, each: usize) -> Router {
    let count = Arc::new(AtomicUsize::new(0));
    routes.layer(from_fn(move |request: Request, next: Next| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            if number.is_multiple_of(each) { put_off(StatusCode::TOO_MANY_REQUESTS) } else { next.run(request).await }
        }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_puts_some_off_is_accused_of_nothing() {
    for each in [2, 3, 5, 7] {
        let (found, code) = found(behind_a_limit(shown(verifier()).await, each)).await;
        assert_eq!((found, code), (Vec::new(), Some(0)), "each {each}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_off_once_and_taken_then_was_not_refused() {
    for each in [2, 3] {
        let verifier = verifier().tolerance(Duration::MAX);
        let (found, code) = found(behind_a_limit(shown(verifier).await, each)).await;
        assert_eq!((found, code), (vec![pair("stale", "fail"), pair("future", "fail")], Some(1)), "each {each}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_puts_all_off_takes_no_good_one_and_is_asked_three_times() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let routes = Router::new().route(
        "/callback",
        post(move || {
            count.fetch_add(1, Ordering::SeqCst);
            async { put_off(StatusCode::SERVICE_UNAVAILABLE) }
        }),
    );
    let (found, code) = found(routes).await;
    assert_eq!((&found[0], found.len(), code), (&pair("good", "fail"), 27, Some(1)));
    assert!(found[1..].iter().all(|(_, verdict)| verdict == "untold"), "{found:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_put_off_each_time_is_not_told_whether_it_was_to_be_taken_or_not() {
    const MANY_BYTES: usize = 32 * 1024;
    // Whatever is large, and whatever is not signed.
    let routes = shown(verifier()).await.layer(from_fn(|request: Request, next: Next| {
        let has = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let bytes: usize = has("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
        let is_put_off = bytes > MANY_BYTES || has("x-service-signature").is_none();
        async move { if is_put_off { put_off(StatusCode::SERVICE_UNAVAILABLE) } else { next.run(request).await } }
    }));
    let address = listens(routes).await;
    let (found, code) = found_at(address).await;
    // Of the huge ones that whose length is stated is put off: what the receiver does with the other says half of it.
    let untold = ["no-signature", "large", "huge"].map(|check| pair(check, "untold"));
    assert_eq!((found, code), (untold.to_vec(), Some(1)));
    let output = certify(address, &[]).await;
    let sentence = format!(
        "countersign: the receiver at http://{address}/callback does not pass: some checks could not be told\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stderr), sentence);
}

/// Puts off what has this header with a value that came before, or with a new one.
fn puts_off(routes: Router, name: &'static str, is_for_new: bool, of: fn(&HeaderMap) -> bool) -> Router {
    let known = Arc::new(Mutex::new(HashSet::new()));
    routes.layer(from_fn(move |request: Request, next: Next| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let is_new = known.lock().unwrap_or_else(PoisonError::into_inner).insert(value);
        let is_put_off = is_new == is_for_new && of(request.headers());
        async move { if is_put_off { put_off(StatusCode::SERVICE_UNAVAILABLE) } else { next.run(request).await } }
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_at_once_of_which_one_alone_is_judged_nothing_is_told() {
    // Nobody knows what becomes of a nonce once it is not put off any more.
    let routes = puts_off(shown(verifier()).await, "x-service-nonce", false, |_| true);
    let untold = vec![pair("replayed", "untold"), pair("replayed-at-once", "untold")];
    assert_eq!(found(routes).await, (untold, Some(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_puts_off_what_it_has_in_hand_claims_a_nonce_rightly() {
    let in_hand = Arc::new(Mutex::new(HashSet::new()));
    let routes = shown(verifier()).await.layer(from_fn(move |request: Request, next: Next| {
        let in_hand = Arc::clone(&in_hand);
        let nonce = request
            .headers()
            .get("x-service-nonce")
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        async move {
            if !in_hand.lock().unwrap_or_else(PoisonError::into_inner).insert(nonce.clone()) {
                return put_off(StatusCode::SERVICE_UNAVAILABLE);
            }
            // Long enough that the others come meanwhile.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let answer = next.run(request).await;
            in_hand.lock().unwrap_or_else(PoisonError::into_inner).remove(&nonce);
            answer
        }
    }));
    assert_eq!(found(routes).await, (Vec::new(), Some(0)));
}

fn is_second(headers: &HeaderMap) -> bool {
    headers.get("x-service-sequence").is_some_and(|sequence| sequence == "2")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_event_that_is_put_off_once_comes_again_before_the_earlier_one() {
    let routes = puts_off(routes(Fault::InsistsOnOrder), "x-service-event-id", true, is_second);
    assert_eq!(found(routes).await, (vec![pair("out-of-order", "fail")], Some(1)));
}

/// Of orders it is known which have begun.
fn is_behind_what_is_missing(begun: &Mutex<HashSet<String>>, order: String, is_second: bool) -> bool {
    let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
    if is_second {
        return !begun.contains(&order);
    }
    begun.insert(order);
    false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_puts_a_later_event_off_until_the_earlier_one_has_come_waits_rightly() {
    let begun = Arc::new(Mutex::new(HashSet::new()));
    let routes = shown(verifier()).await.layer(from_fn(move |request: Request, next: Next| {
        let begun = Arc::clone(&begun);
        async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = axum::body::to_bytes(body, 1024 * 1024).await else {
                return StatusCode::PAYLOAD_TOO_LARGE.into_response();
            };
            let told: Value = serde_json::from_slice(&body).unwrap_or_default();
            let order = told["bizId"].as_str().unwrap_or_default().to_owned();
            if is_behind_what_is_missing(&begun, order, is_second(&parts.headers)) {
                return put_off(StatusCode::SERVICE_UNAVAILABLE);
            }
            next.run(Request::from_parts(parts, body.into())).await
        }
    }));
    // Where the earlier one never comes it waits for ever.
    assert_eq!(found(routes).await, (vec![pair("first-missing", "advice")], Some(0)));
}
