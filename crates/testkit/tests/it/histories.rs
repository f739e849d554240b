//! Random histories of fee rules and of payment orders against their oracles, in small; `cargo xtask histories` is the same in large.

use countersign_testkit::backing::StoreKind;
use countersign_testkit::histories::{Counts, convert, orders, run};

const HISTORIES: usize = 1_200;
const CONVERSIONS: usize = 400;
/// On PostgreSQL each takes five times as long.
const CONVERSIONS_ON_POSTGRESQL: usize = 256;
const SEED: u64 = 20_260_102;

fn everything_happened(counts: &Counts) {
    assert!(counts.histories >= HISTORIES, "{counts:?}");
    assert!(counts.versions > 4 * HISTORIES && counts.in_force > HISTORIES, "{counts:?}");
    let rare = [counts.refused_period, counts.refused_exists, counts.replays, counts.strangers, counts.none_in_force];
    assert!(rare.iter().all(|times| *times > 100), "{counts:?}");
    assert!(counts.states.iter().all(|times| *times > 100), "every state is seen often: {counts:?}");
    assert!(counts.pages > HISTORIES, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fee_rules_in_memory_are_as_the_oracle_says_over_many_histories() {
    let counts = run(StoreKind::Model, HISTORIES, SEED).await.expect("every answer is the oracle's");
    everything_happened(&counts);
    assert_eq!(counts.restarts, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fee_rules_on_sqlite_are_as_the_oracle_says_over_many_histories_and_restarts() {
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

fn every_conversion_happened(counts: &convert::Counts, histories: usize) {
    assert!(counts.histories >= histories, "{counts:?}");
    let rare = [counts.no_rate, counts.other_content, counts.expired, counts.other_terms, counts.strangers];
    let common = [counts.quotes, counts.orders, counts.repeats, counts.moves, counts.illegal_moves, counts.compared];
    assert!(rare.into_iter().chain(common).all(|times| times > 50), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversions_in_memory_are_as_the_oracle_says_over_many_histories() {
    let counts = convert::run(StoreKind::Model, CONVERSIONS, SEED).await.expect("every answer is the oracle's");
    every_conversion_happened(&counts, CONVERSIONS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversions_on_sqlite_are_as_the_oracle_says_over_many_histories_and_restarts() {
    let counts = convert::run(StoreKind::Sqlite, CONVERSIONS, SEED).await.expect("every answer is the oracle's");
    every_conversion_happened(&counts, CONVERSIONS);
    assert!(counts.restarts > 0, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversions_on_postgresql_are_as_the_oracle_says_over_many_histories_and_restarts() {
    let counts =
        convert::run(StoreKind::Postgres, CONVERSIONS_ON_POSTGRESQL, SEED).await.expect("every answer is the oracle's");
    every_conversion_happened(&counts, CONVERSIONS_ON_POSTGRESQL);
    assert!(counts.restarts > 0, "{counts:?}");
}

async fn payment_orders_are_as_the_oracle_says(kind: StoreKind, histories: usize) {
    let counts = orders::run(kind, histories, SEED).await.expect("every answer is the oracle's");
    let seen = [
        counts.made,
        counts.found,
        counts.duplicates,
        counts.refused_expiry,
        counts.moved,
        counts.refused_moves,
        counts.nowhere,
        counts.swept,
    ];
    assert!(seen.iter().all(|times| *times > histories / 40), "{counts:?}");
    assert!(counts.ends.iter().all(|times| *times > 0) && counts.closed_again > 0, "{counts:?}");
    assert_eq!(counts.restarts > 0, kind != StoreKind::Model, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payment_orders_in_memory_are_as_the_oracle_says_over_many_histories() {
    payment_orders_are_as_the_oracle_says(StoreKind::Model, 256).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payment_orders_on_sqlite_are_as_the_oracle_says_over_many_histories_and_restarts() {
    payment_orders_are_as_the_oracle_says(StoreKind::Sqlite, 1_024).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payment_orders_on_postgresql_are_as_the_oracle_says_over_many_histories_and_restarts() {
    payment_orders_are_as_the_oracle_says(StoreKind::Postgres, 512).await;
}
