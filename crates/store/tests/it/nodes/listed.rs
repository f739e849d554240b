//! What nodes see of each other.

use countersign_store::nodes::NodeRow;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_listed_with_what_they_run_also_one_that_was_killed_but_none_that_ended() {
    let (database, [one, two]) = two_nodes().await;
    let are_listed = async || {
        let look = async |node| two.directory_changes(0, NodeId([node; 16])).await.expect("reads").is_listed;
        [look(1).await, look(2).await, look(3).await]
    };
    assert_eq!(are_listed().await, [false; 3]);
    tend(&one, Tend { stage: Stage::Begins, ..heartbeat(1, &[]) }).await;
    assert_eq!(are_listed().await, [true, false, false]);
    tend(&two, Tend { clock_ahead_ms: Some(-3), ..heartbeat(2, &[]) }).await;
    let list = || async { two.nodes(LEASE_MS, 10).await.expect("reads") };
    let brief = |rows: &[NodeRow]| rows.iter().map(|n| (n.who.name.clone(), n.is_alive, n.lanes)).collect::<Vec<_>>();
    let both = list().await;
    assert_eq!(brief(&both), [("node 1".to_owned(), true, 64), ("node 2".to_owned(), true, 0)]);
    assert_eq!((&both[0].who, &both[1].who), (&heartbeat(1, &[]).who, &heartbeat(2, &[]).who));
    assert_eq!((both[0].clock_ahead_ms, both[1].clock_ahead_ms), (None, Some(-3)));
    assert!(both.iter().all(|node| node.started_at <= node.seen_at && node.started_at.0 > 1_700_000_000_000));
    assert_eq!(brief(&two.nodes(LEASE_MS, 1).await.expect("reads")), brief(&both[..1]), "the longest-running first");

    let mut newer = heartbeat(2, &[]);
    newer.who.version = "0.2.0".to_owned();
    newer.who.key_id = "k2".to_owned();
    newer.who.settings = "s2".to_owned();
    tend(&two, newer.clone()).await;
    assert_eq!(list().await[1].who, newer.who, "it says anew with each beat");
    expire(&database, 1).await;
    assert_eq!(are_listed().await, [true, true, false], "it is still seen, dead as it is");
    let killed = list().await;
    assert_eq!(
        brief(&killed)[1],
        ("node 1".to_owned(), false, 0),
        "its lanes are anybody's, and the living stand first"
    );
    tend(&two, Tend { stage: Stage::Ends, ..newer }).await;
    assert_eq!(brief(&list().await), brief(&killed[1..]));
    let said = "SELECT count(*) FROM node_program";
    let rows: i64 = database.client().await.query_one(said, &[]).await.expect("reads").get(0);
    assert_eq!(rows, 1, "what ended says nothing more");
    tend(&two, Tend { stage: Stage::Begins, ..heartbeat(3, &[]) }).await;
    assert_eq!(brief(&list().await), [("node 3".to_owned(), true, 0)], "one that was away for a day is forgotten");
    assert_eq!(are_listed().await, [false, false, true]);
    let rows: i64 = database.client().await.query_one(said, &[]).await.expect("reads").get(0);
    assert_eq!(rows, 1);
}
