//! Every door is tested shut: without a token, with the wrong one, with one of a lower role.

use axum::body::Body;
use axum::http::{Method, Request};
use countersign::app::operators;
use countersign::operator::doors;
use countersign_domain::time::UnixMillis;
use countersign_store::contract::Role;
use serde_json::json;

use super::listener::{House, START, request_by};

/// A door's path with something in the place of each name.
fn path(template: &str) -> String {
    template.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect::<Vec<_>>().join("/")
}

#[tokio::test]
async fn no_door_opens_without_a_token_that_is_good() {
    let house = House::open().await;
    let ended = house.token(Role::Security, Some(START)).await;
    for door in doors() {
        for token in ["", "cso_nobody", ended.as_str()] {
            let request = request_by(token, door.method.as_str(), &path(&door.path()), None, &[]);
            let answer = house.send(request).await;
            answer.refused(401, "400801", "Bearer");
            assert_eq!(answer.headers["www-authenticate"], "Bearer");
        }
    }
}

#[tokio::test]
async fn each_door_opens_to_its_role_and_to_none_below() {
    let house = House::open().await;
    for role in [Role::Viewer, Role::Operator, Role::Security] {
        let token = house.token(role, None).await;
        for door in doors() {
            let answer = house.send(request_by(&token, door.method.as_str(), &path(&door.path()), None, &[])).await;
            let opens = match door.role {
                Role::Viewer => true,
                Role::Operator => role != Role::Viewer,
                Role::Security => role == Role::Security,
            };
            if opens {
                assert!(
                    ![401, 403].contains(&answer.status),
                    "{role:?} {} {}: {}",
                    door.method,
                    door.path(),
                    answer.text
                );
            } else {
                answer.refused(403, "400802", "role");
            }
        }
    }
}

#[tokio::test]
async fn each_write_reads_its_body_strictly_whether_it_takes_fields_or_not() {
    let house = House::open().await;
    house.post("/merchants", json!({"name": "X", "merchant_id": "x"})).await.ok();
    for door in doors().into_iter().filter(|door| door.method != Method::GET) {
        let path = path(&door.path())
            .replace("/rates/x", "/rates/GT_USDT")
            .replace("/payment-orders/x", "/payment-orders/314159265358979");
        let send = async |body| house.send(house.request(door.method.as_str(), &path, Some(body), &[])).await;
        send("not json").await.refused(400, "400001", "body: must be a JSON object");
        send("[1]").await.refused(400, "400001", "body: must be a JSON object");
        send(r#"{"a":1,"a":2}"#).await.refused(400, "400001", "field a: must be given once");
    }
    assert_eq!(house.audit().await.len(), 1, "nothing was done but to make the merchant");
}

#[tokio::test]
async fn evidence_is_not_taken_by_asking_for_its_head() {
    let house = House::open().await;
    let door = "/payment-orders/x/evidence";
    for method in ["HEAD", "DELETE"] {
        let answer = house.send(house.request(method, &format!("/operator/v1{door}"), None, &[])).await;
        assert_eq!((answer.status, answer.headers["allow"].as_str()), (405, "GET"), "{method}");
    }
    assert!(house.audit().await.is_empty(), "nobody has taken a file");
}

#[tokio::test]
async fn a_token_is_good_until_it_ends_and_not_a_moment_longer() {
    let house = House::open().await;
    let token = house.token(Role::Viewer, Some(UnixMillis(START.0 + 1_000))).await;
    let ask = || request_by(&token, "GET", "/merchants", None, &[]);
    house.app.clock.advance_ms(999);
    house.send(ask()).await.ok();
    house.app.clock.advance_ms(1);
    house.send(ask()).await.refused(401, "400801", "token");
}

#[tokio::test]
async fn a_token_is_made_shown_once_and_revoked() {
    let house = House::open().await;
    let made = house.post_keyed("k", "/tokens", r#"{"name":"console","role":"viewer","life_days":1}"#).await.ok();
    let token = made.text_of("token");
    assert_eq!(
        (made.json()["role"].as_str(), made.text_of("expires_at").as_str()),
        (Some("viewer"), "2026-01-02T00:00:00.000Z")
    );
    let again =
        house.post_keyed("k", "/tokens", r#"{"name":"console","role":"viewer","life_days":1}"#).await.ok().json();
    assert_eq!((again["token"].is_null(), &again["token_id"]), (true, &made.json()["token_id"]));
    house.send(request_by(&token, "GET", "/audit", None, &[])).await.ok();
    house.delete(&format!("/tokens/{}", made.text_of("token_id"))).await.ok();
    house.send(request_by(&token, "GET", "/audit", None, &[])).await.refused(401, "400801", "revoked");
    house.delete("/tokens/tok_nobody").await.refused(404, "400404", "tok_nobody");
    house.post("/tokens", json!({"name": "x", "role": "root"})).await.refused(400, "400001", "role");
    house.post("/tokens", json!({"name": "x", "role": "viewer", "life_days": 367})).await.refused(
        400,
        "400001",
        "life_days",
    );
}

#[tokio::test]
async fn what_is_no_door_is_refused_with_a_document_too() {
    let house = House::open().await;
    house.get("/nothing").await.refused(404, "400404", "path");
    let outside =
        Request::builder().uri("/elsewhere").header("host", "localhost").body(Body::empty()).expect("a request");
    house.send(outside).await.refused(404, "400404", "path");
    let answer = house.delete("/merchants").await;
    answer.refused(405, "400405", "method");
    assert!(
        answer.headers["allow"].contains("POST") && answer.headers["allow"].contains("GET"),
        "{:?}",
        answer.headers
    );
}

#[tokio::test]
async fn a_body_is_json_as_it_is_and_at_most_64_kib() {
    let house = House::open().await;
    let post = |body: &'static str, name: &'static str, value: &'static str| {
        let mut request = house.request("POST", "/merchants", None, &[(name, value)]);
        *request.body_mut() = Body::from(body);
        house.send(request)
    };
    post("{}", "x-nothing", "1").await.refused(415, "400007", "Content-Type");
    post("{}", "content-type", "text/plain").await.refused(415, "400007", "application/json");
    let packed = house.request("POST", "/merchants", Some("{}"), &[("content-encoding", "gzip")]);
    house.send(packed).await.refused(415, "400007", "Content-Encoding");
    post(r#"{"name":"M"}"#, "content-type", "application/json; charset=utf-8").await.ok();
    let long = format!(r#"{{"name":"M","x":"{}"}}"#, "y".repeat(64 * 1024));
    house.send(house.request("POST", "/merchants", Some(&long), &[])).await.refused(413, "400413", "65536");
    let fits = format!(r#"{{"name":"M","x":"{}"}}"#, "y".repeat(64 * 1024 - 19));
    assert_eq!(fits.len(), 64 * 1024);
    house.send(house.request("POST", "/merchants", Some(&fits), &[])).await.ok();
}

#[tokio::test]
async fn a_body_that_is_malformed_is_one_clear_refusal_that_names_the_field() {
    let house = House::open().await;
    for (body, word) in [
        ("[]", "object"),
        ("{", "object"),
        ("{}", "name"),
        (r#"{"name":"A","name":"B"}"#, "name"),
        (r#"{"name":7}"#, "name"),
        (r#"{"name":"  "}"#, "name"),
        (r#"{"name":"a\u0000b"}"#, "name"),
        (r#"{"name":"A","merchant_id":"a b"}"#, "merchant_id"),
        (r#"{"name":"A","merchant_id":""}"#, "merchant_id"),
        (r#"{"name":"A","user_id":0}"#, "user_id"),
    ] {
        house.send(house.request("POST", "/merchants", Some(body), &[])).await.refused(400, "400001", word);
    }
    assert!(house.audit().await.is_empty(), "a refusal changes nothing");
}

/// A line for each call of the operator API, and which roles may make it: as docs/OPERATOR-API.md shows it.
fn matrix() -> String {
    let mut lines = vec!["| Call | viewer | operator | security |".to_owned(), "|---|---|---|---|".to_owned()];
    for door in doors() {
        let may = [Role::Viewer, Role::Operator, Role::Security]
            .map(|role| if operators::role_allows(role, door.role) { "yes" } else { "-" });
        lines.push(format!("| `{} {}` | {} |", door.method, door.under, may.join(" | ")));
    }
    lines.join("\n")
}

#[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the program")]
fn is_blessing() -> bool {
    std::env::var("COUNTERSIGN_BLESS").is_ok_and(|value| value == "1")
}

#[test]
fn the_page_about_operating_says_of_every_call_which_roles_may_make_it() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATING.md");
    let text = std::fs::read_to_string(&page).expect("docs/OPERATING.md is there");
    let (before, rest) = text.split_once("<!-- roles -->\n").expect("the table begins");
    let (table, after) = rest.split_once("\n<!-- end of roles -->").expect("the table ends");
    if is_blessing() {
        let blessed = format!("{before}<!-- roles -->\n{}\n<!-- end of roles -->{after}", matrix());
        std::fs::write(&page, blessed).expect("is written");
    } else {
        assert_eq!(table, matrix(), "run this test with COUNTERSIGN_BLESS=1");
    }
}
