//! Random histories of fee rules against the oracle, in small; `cargo xtask histories` is the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::histories::{Counts, run};

const HISTORIES: usize = 2_000;
const SEED: u64 = 20_260_102;

fn everything_happened(counts: &Counts) {
    assert!(counts.histories >= HISTORIES, "{counts:?}");
    assert!(counts.versions > 4 * HISTORIES && counts.in_force > HISTORIES, "{counts:?}");
    let rare = [counts.refused_period, counts.refused_exists, counts.replays, counts.strangers, counts.none_in_force];
    assert!(rare.iter().all(|times| *times > 200), "{counts:?}");
    assert!(counts.states.iter().all(|times| *times > 200), "every state is seen often: {counts:?}");
    assert!(counts.pages > HISTORIES, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fee_rules_in_memory_are_as_the_oracle_says_over_two_thousand_histories() {
    let counts = run(StoreKind::Model, HISTORIES, SEED).await.expect("every answer is the oracle's");
    everything_happened(&counts);
    assert_eq!(counts.restarts, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fee_rules_on_sqlite_are_as_the_oracle_says_over_two_thousand_histories_and_restarts() {
    let counts = run(StoreKind::Sqlite, HISTORIES, SEED).await.expect("every answer is the oracle's");
    everything_happened(&counts);
    assert!(counts.restarts > 5, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fee_rules_on_postgresql_are_as_the_oracle_says_over_many_histories_and_restarts() {
    let counts = run(StoreKind::Postgres, 512, SEED).await.expect("every answer is the oracle's");
    assert!(counts.versions > 2_000 && counts.replays > 50 && counts.refused_exists > 50, "{counts:?}");
    assert!(counts.states.iter().all(|times| *times > 50), "{counts:?}");
    assert!(counts.restarts > 1, "{counts:?}");
}
