//! A heartbeat says which nodes have noted other settings.

use countersign_store::nodes::Other;
use countersign_store::testing::Feigned;

use super::*;

fn of(node: u8, settings: &str) -> Tend {
    let mut tend = heartbeat(node, &[]);
    settings.clone_into(&mut tend.who.settings);
    tend
}

fn other(node: u8, settings: &str) -> Other {
    Other { node: NodeId([node; 16]), name: format!("node {node}"), settings: settings.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_names_the_living_that_have_noted_other_settings_and_nobody_else() {
    let (database, [one, two]) = two_nodes().await;
    for (node, settings, seen_ms_ago) in [
        (3, Some("a"), 0),
        (4, Some("b"), LEASE_MS + 1_000),
        // Later than a lease from now nobody was seen: the row is of before a clock went back.
        (5, Some("b"), -LEASE_MS - 60_000),
        (6, None, 0),
    ] {
        database.feign(Feigned { node, settings, seen_ms_ago }).await;
    }
    let told = async |store: &PostgresStore, beat: Tend| {
        let mut others = tend(store, beat).await.others;
        others.sort_by_key(|other| other.node.0);
        others
    };
    assert_eq!(told(&one, Tend { stage: Stage::Begins, ..of(1, "a") }).await, []);
    assert_eq!(told(&two, Tend { stage: Stage::Begins, ..of(2, "b") }).await, [other(1, "a"), other(3, "a")]);
    assert_eq!(told(&one, of(1, "a")).await, [other(2, "b")]);
    // Started anew with other settings.
    assert_eq!(told(&two, Tend { stage: Stage::Begins, ..of(2, "a") }).await, []);
    assert_eq!(told(&one, of(1, "a")).await, []);
    assert_eq!(told(&one, of(1, "c")).await, [other(2, "a"), other(3, "a")]);
    assert_eq!(told(&one, Tend { stage: Stage::Ends, ..of(1, "c") }).await, [], "it counts no more");
    assert_eq!(told(&two, of(2, "a")).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_written_once_and_again_by_a_node_that_was_forgotten() {
    let (database, [one, two]) = two_nodes().await;
    let client = database.client().await;
    let written = async || {
        let asked = "SELECT settings, xmin::text FROM node_program";
        let rows = client.query(asked, &[]).await.expect("reads");
        rows.iter().map(|row| (row.get::<_, String>(0), row.get::<_, String>(1))).collect::<Vec<_>>()
    };
    tend(&one, Tend { stage: Stage::Begins, ..of(1, "a") }).await;
    let first = written().await;
    assert_eq!((first.len(), first[0].0.as_str()), (1, "a"));
    tend(&one, of(1, "a")).await;
    assert_eq!(written().await, first, "a beat like the one before writes nothing here");
    // Held up for a day, while another one began.
    expire(&database, 1).await;
    tend(&two, Tend { stage: Stage::Begins, ..of(2, "b") }).await;
    tend(&two, Tend { stage: Stage::Ends, ..of(2, "b") }).await;
    assert_eq!(written().await, []);
    tend(&one, of(1, "a")).await;
    assert_eq!(database.noted_settings().await, ["a"]);
}
