//! What is at the listener's root: health, meters, documents and their viewer.

use std::path::Path;

use axum::body::Body;
use axum::http::Request;
use countersign::app::master_key::MASTER_KEY_ID;
use countersign_store::testing::Damage;
use countersign_store::{Batch, Store as _, Write};
use serde_json::{Value, json};

use super::listener::{Answer, House};

async fn open(house: &House, path: &str) -> Answer {
    house.send(Request::builder().uri(path).header("host", "localhost").body(Body::empty()).expect("a request")).await
}

#[tokio::test]
async fn health_and_readiness_need_no_token() {
    let house = House::open().await;
    assert_eq!(open(&house, "/healthz").await.ok().text, r#"{"status":"up"}"#);
    assert_eq!(open(&house, "/readyz").await.ok().text, r#"{"status":"ready"}"#);
}

#[tokio::test]
async fn meters_are_prometheus_text_and_count_calls_by_route_and_code() {
    let house = House::open().await;
    house.get("/merchants/nobody").await.refused(404, "400404", "nobody");
    let strange = house.request("MADE-UP", "/merchants/nobody", None, &[]);
    assert_eq!(house.send(strange).await.status, 405);
    let answer = open(&house, "/metrics").await.ok();
    assert!(answer.headers["content-type"].starts_with("text/plain"));
    let line = r#"countersign_operator_requests_total{method="GET",route="/operator/v1/merchants/{merchant_id}",code="400404"}"#;
    assert!(answer.text.contains(line), "{}", answer.text);
    assert!(!answer.text.contains("MADE-UP") && answer.text.contains(r#"{method="other","#), "{}", answer.text);
}

#[tokio::test]
async fn both_documents_are_served_and_are_the_committed_ones() {
    let house = House::open().await;
    for name in ["merchant", "operator"] {
        let served = open(&house, &format!("/openapi/{name}.json")).await.ok().json();
        let file = format!("{}/../../docs/openapi/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let kept: Value = serde_json::from_str(&std::fs::read_to_string(file).expect("a file")).expect("JSON");
        assert!(served == kept, "{name}");
    }
}

/// Whether a text in the page names a script or a style sheet.
fn is_part(text: &str) -> bool {
    Path::new(text).extension().is_some_and(|extension| extension == "js" || extension == "css")
}

#[tokio::test]
async fn the_viewer_is_whole_and_asks_nobody_outside() {
    let house = House::open().await;
    assert_eq!(open(&house, "/docs").await.status, 303);
    let page = open(&house, "/docs/").await.ok();
    assert!(page.headers["content-type"].starts_with("text/html"));
    assert!(!page.text.contains("https://") && !page.text.contains("http://"), "{}", page.text);
    let parts: Vec<&str> = page.text.split(['"', '\'']).filter(|part| is_part(part)).collect();
    assert!(parts.len() >= 4, "{}", page.text);
    for part in parts {
        let found = open(&house, &format!("/docs/{}", part.trim_start_matches("./"))).await.ok();
        assert!(!found.text.is_empty(), "{part}");
    }
    open(&house, "/docs/nothing").await.refused(404, "400404", "no such path");
    let start = open(&house, "/docs/swagger-initializer.js").await.ok();
    for name in ["merchant", "operator"] {
        assert!(start.text.contains(&format!("/openapi/{name}.json")), "{}", start.text);
    }
    assert!(start.text.contains(r#""validatorUrl": "none""#), "{}", start.text);
    assert!(start.text.contains(r#""supportedSubmitMethods": []"#), "it calls nothing: {}", start.text);
}

#[tokio::test]
async fn a_node_without_the_master_key_that_the_deployment_seals_under_is_not_ready_and_says_which_it_lacks() {
    let house = House::open().await;
    let setting =
        Write::PutSetting { name: MASTER_KEY_ID.to_owned(), value: "00112233445566778899aabbccddeeff".to_owned() };
    house.app.store.commit(Batch(vec![setting])).await.expect("is written");
    open(&house, "/readyz").await.refused(503, "300503", "the master key 00112233445566778899aabbccddeeff");
    house.get("/master-key").await.refused(503, "300503", "the master key 00112233445566778899aabbccddeeff");
    house.post("/master-key/rewrap", json!({})).await.refused(503, "300503", "start it again with that key");
}

#[tokio::test]
async fn a_node_whose_table_is_gone_is_not_ready_and_names_it() {
    let house = House::open().await;
    house.damage(&Damage::Renamed("pair_rate", "pair_rate_before")).await;
    open(&house, "/readyz").await.refused(
        503,
        "300503",
        "the table pair_rate of this deployment can no longer be found",
    );
    assert!(open(&house, "/metrics").await.ok().text.contains("\ncountersign_ready 0\n"));
    house.damage(&Damage::Renamed("pair_rate_before", "pair_rate")).await;
    assert_eq!(open(&house, "/readyz").await.ok().text, r#"{"status":"ready"}"#);
}
