//! Whichever commit of a delivery is lost, with or without its change: what is recorded, counted and told in the end is what it is without a loss.

use std::collections::BTreeMap;

use countersign::meters;
use countersign_domain::delivery::Schedule;
use countersign_store::contract::Cursor;
use countersign_store::{AnyStore, Lost, ModelStore};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::in_process::InProcess;
use countersign_testkit::receiver::Reply;

use super::*;

/// What there is to see in the end.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// State and outcomes of each event.
    events: Vec<(&'static str, DeliveryState, Vec<Outcome>)>,
    /// How often each line stands in the audit log.
    told: BTreeMap<String, usize>,
    /// What the process has counted: dead events and disabled endpoints.
    dead: u64,
    disabled: u64,
}

fn count(counter: &str) -> u64 {
    let seen = meters::install().expect("meters").render();
    let line = seen.lines().find_map(|line| line.strip_prefix(counter)?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("no {counter}"))
}

async fn in_memory() -> Bench {
    let process = InProcess::start(StoreKind::Model, START).await.expect("it starts");
    let (app, clock) = (process.app().clone(), process.clock().clone());
    let schedule = Schedule::parse(&["1s", "1s"]).expect("a schedule");
    let settings = DispatchSettings { schedule, ..settings() };
    let dispatcher = Arc::new(Dispatcher::new(app.clone(), settings).expect("settings that hold"));
    Bench { app, dispatcher, clock, folder: tempfile::tempdir().expect("a folder"), backing: Backing::sqlite() }
}

fn model(bench: &Bench) -> &ModelStore {
    let AnyStore::Model(store) = &bench.app.store else { panic!("another store") };
    store
}

/// Endpoints that fail in each way, until nothing is pending any more. The commit after so many is lost, if there is one.
async fn play(lose: Option<(u64, Lost)>) -> (Seen, bool) {
    meters::install().expect("meters");
    let bench = in_memory().await;
    let (dead, disabled) = (count("countersign_callbacks_dead_total"), count("countersign_endpoints_disabled_total"));
    let (works, fails, gone, mends) = (receiver().await, receiver().await, receiver().await, receiver().await);
    fails.answer_with(Reply::Status(500));
    gone.answer_with(Reply::Status(410));
    mends.script([Reply::Status(503), Reply::Fail]);
    let mut events = Vec::new();
    for (name, endpoint) in [
        ("works", Some(works.url())),
        ("fails", Some(fails.url())),
        ("gone", Some(gone.url())),
        ("mends", Some(mends.url())),
        ("nowhere", None),
    ] {
        let owner = bench.owner(endpoint).await;
        // The second waits for the first.
        for _ in 0..2 {
            events.push((name, bench.emit(&owner, "order").await));
        }
    }
    if let Some((after, lost)) = lose {
        model(&bench).lose(after, lost);
    }
    loop {
        bench.deliver().await;
        let mut due = Vec::new();
        for (_, event) in &events {
            due.extend(bench.row(event).await.due_at);
        }
        let Some(next) = due.into_iter().min() else { break };
        bench.clock.advance_ms((next.0 - bench.clock.now().0).max(1));
    }
    let was_lost = !model(&bench).lose_no_more();
    let mut ended = Vec::new();
    for (name, event) in &events {
        ended.push((*name, bench.state(event).await, bench.outcomes(event).await));
    }
    let mut told = BTreeMap::new();
    for line in bench.app.store.audit(Cursor { after: None, limit: 500 }).await.expect("the audit log") {
        *told.entry(line.action).or_default() += 1;
    }
    let dead = count("countersign_callbacks_dead_total") - dead;
    let disabled = count("countersign_endpoints_disabled_total") - disabled;
    (Seen { events: ended, told, dead, disabled }, was_lost)
}

#[tokio::test]
async fn whichever_commit_is_lost_what_is_recorded_and_told_is_as_without_a_loss() {
    let (wanted, _) = play(None).await;
    assert_eq!((wanted.dead, wanted.disabled), (2, 1), "{wanted:?}");
    for lost in Lost::ALL {
        let mut after = 0;
        loop {
            let (seen, was_lost) = play(Some((after, lost))).await;
            if !was_lost {
                break;
            }
            assert_eq!(seen, wanted, "{lost:?} after {after} commits");
            after += 1;
        }
        assert!(after >= 10, "{after} commits");
    }
}
