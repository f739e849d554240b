//! Each node knows of all of them.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_lists_all_of_them_with_version_key_lanes_and_settings_that_differ() {
    // Folders, addresses and keys are a node's own.
    let mut fleet = Fleet::new(3, |_| {}).await;
    fleet.configs[1].order_hold = Period(Duration::from_secs(60));
    fleet.configs[1].log_level = "debug".to_owned();
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    until("the lanes are shared", async || one.app.due.held().len() == 32 && two.app.due.held().len() == 32).await;
    for (asked, index) in [(&one, 0), (&two, 1)] {
        let differ = if index == 0 { [json!([]), json!(["order_hold"])] } else { [json!(["order_hold"]), json!([])] };
        let page = fleet.access(asked).call("GET", "/operator/v1/nodes", None).await.expect("an answer").json();
        let items = page["items"].as_array().expect("items");
        assert_eq!(items.len(), 2, "{page}");
        assert_eq!([0, 1].map(|at| items[at]["settings_differ"].clone()), differ, "{page}");
        for (item, node) in items.iter().zip([&one, &two]) {
            let said = ["name", "version", "key_id", "alive", "lanes"].map(|name| item[name].clone());
            let key_id = node.app.vault.key_id();
            assert_eq!(
                said,
                [json!(node.listen), json!(env!("CARGO_PKG_VERSION")), json!(key_id), json!(true), json!(32)]
            );
            assert_eq!(item["node_id"].as_str().map(str::len), Some(32), "{item}");
            assert!(item["clock_ahead_ms"].as_i64().is_some_and(|ms| ms.abs() < 1_000), "{item}");
            assert!(item["started_at"].as_str() <= item["seen_at"].as_str(), "{item}");
        }
        let here = items.iter().position(|item| item["this_node"] == true);
        assert_eq!((here, items[1 - index]["this_node"].clone()), (Some(index), json!(false)));
    }
    two.stop().await.expect("it stops");
    let page = fleet.access(&one).call("GET", "/operator/v1/nodes", None).await.expect("an answer").json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "one that stopped in order is not listed: {page}");
    let three = fleet.start(2).await;
    until("the third is there", async || {
        let page = fleet.access(&one).call("GET", "/operator/v1/nodes", None).await.expect("an answer").json();
        page["items"][1]["settings_differ"] == json!([])
    })
    .await;
    for node in [one, three] {
        node.stop().await.expect("it stops");
    }
}
