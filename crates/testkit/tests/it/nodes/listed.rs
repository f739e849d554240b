//! Each node knows of all of them.

use countersign_store::batch::{Batch, Write};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_lists_all_of_them_with_version_key_lanes_and_settings_that_differ() {
    // Folders, addresses and keys are a node's own.
    let mut fleet = Fleet::new(3, |_| {}).await;
    fleet.configs[1].order_hold = Period(Duration::from_secs(60));
    fleet.configs[1].log_level = "debug".to_owned();
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    until("the lanes are shared", async || one.app.bell.lanes().len() == 32 && two.app.bell.lanes().len() == 32).await;
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

/// Two nodes, and what gives one of them another master key, with the one of now as the one before.
async fn with_next_key() -> (Fleet, impl Fn(&mut Config)) {
    let fleet = Fleet::new(2, |_| {}).await;
    let [old, next] = ["master.key", "next.key"].map(|name| fleet.configs[0].data.join(name));
    std::fs::write(&next, "5a".repeat(32)).expect("written");
    std::fs::set_permissions(&next, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("ours");
    let has_both = move |config: &mut Config| {
        config.master_key_file = Optional(Some(next.clone()));
        config.master_key_previous_file = Optional(Some(old.clone()));
    };
    (fleet, has_both)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_rewrap_begins_while_a_node_is_alive_that_lacks_the_new_master_key() {
    let (mut fleet, has_both) = with_next_key().await;
    has_both(&mut fleet.configs[0]);
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let [current, before] = [&one, &two].map(|node| node.app.vault.key_id().to_owned());
    until("both have said that they are there", async || {
        one.app.store.nodes(5_000, 10).await.expect("reads").len() == 2
    })
    .await;
    let access = fleet.access(&one);
    let signer = access.institution("bank", 0, None).await.expect("an institution");
    let rewrap =
        async || access.call("POST", "/operator/v1/master-key/rewrap", Some(json!({}))).await.expect("answers");
    let refused = rewrap().await;
    let message = refused.json()["detail"].to_string();
    assert_eq!((refused.status, refused.code().as_str()), (409, "400805"), "{message}");
    let node_id = std::fs::read_to_string(fleet.configs[1].data.join("node.id")).expect("is there");
    for said in [node_id.trim(), &two.listen.to_string(), &current, &before] {
        assert!(message.contains(said), "{said}: {message}");
    }
    let sealing = async || one.app.store.setting("master_key_id").await.expect("reads");
    assert_eq!(sealing().await.as_ref(), Some(&before), "nothing was done");
    assert!(one.app.store.secrets_not_under(&before, None, 10).await.expect("reads").is_empty());
    two.stop().await.expect("it stops");
    has_both(&mut fleet.configs[1]);
    let two = fleet.start(1).await;
    assert_eq!(rewrap().await.json()["done"], json!(true));
    assert_eq!(sealing().await, Some(current));
    until("the other one opens it", async || pull(&two, &signer, wall_ms()).await.code() == "000000").await;
    for node in [one, two] {
        node.stop().await.expect("it stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lacks_the_master_key_leaves_its_lanes_to_the_others() {
    let (mut fleet, has_both) = with_next_key().await;
    has_both(&mut fleet.configs[0]);
    let (one, two) = (fleet.start(0).await, fleet.start(1).await);
    let are_shared = async || one.app.bell.lanes().len() == 32 && two.app.bell.lanes().len() == 32;
    until("the lanes are shared", are_shared).await;
    let [current, before] = [&one, &two].map(|node| node.app.vault.key_id().to_owned());
    // As a re-wrap does that began while the second one stood still.
    let seal_under = async |from: &str, to: &str| {
        let (name, from) = ("master_key_id".to_owned(), Some(from.to_owned()));
        one.app.store.commit(Batch(vec![Write::MoveSetting { name, from, to: to.to_owned() }])).await.expect("moves");
    };
    seal_under(&before, &current).await;
    until("the first one has all", async || one.app.bell.lanes().len() == 64 && two.app.bell.lanes().is_empty()).await;
    seal_under(&current, &before).await;
    until("the lanes are shared again", are_shared).await;
    for node in [one, two] {
        node.stop().await.expect("it stops");
    }
}
