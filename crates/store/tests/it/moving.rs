//! A move from SQLite to PostgreSQL: everything is there, once, whatever cuts it off, and a copy that is not the same is found.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::delivery::{DeliveryState, Schedule};
use countersign_domain::ids::{ApplicationNo, MerchantNo};
use countersign_domain::payment_order::PaymentStatus;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{
    ApplicationRow, Claimed, EndpointSettings, MerchantKind, SecretRow, SecretUses, StoreError, TokenRow, TokenUse,
    Uses,
};
use countersign_store::moving::{self, Move, MoveError, Progress, Report};
use countersign_store::sqlite::MoveMark;
use countersign_store::testing::{Database, Server, ServerOptions};
use countersign_store::{AnyStore, PostgresOptions, PostgresStore, SqliteStore, Store};
use proptest::prelude::*;

use crate::contract::payment_orders::{moved, paid};
use crate::fixtures::*;
use crate::property::{everything, histories, write};

fn order_of(fresh: &Fresh, database: &Database, id: u8) -> Move {
    Move {
        from: fresh.dir.as_ref().expect("a file").path().join("countersign.db"),
        sqlite: options(),
        to: postgres_options(database, 9),
        id: [id; 16],
        now: at(1_000_000),
        rows_per_portion: 2,
        refuse_ahead_ms: None,
    }
}

async fn move_it(fresh: &Fresh, database: &Database, id: u8) -> Result<Report, MoveError> {
    moving::run(order_of(fresh, database, id), |_| {}).await
}

/// Runs a move and drops it, as a kill would, when it was polled so often or `last` says yes to its progress. False: it came to its
/// end before.
async fn cut_off(order: Move, polls: usize, mut last: impl FnMut(Progress) -> bool) -> bool {
    let cut = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&cut);
    let mut run = pin!(moving::run(order, move |progress| {
        if last(progress) {
            told.store(true, Ordering::SeqCst);
        }
    }));
    let mut polled = 0;
    std::future::poll_fn(|cx| {
        let outcome = run.as_mut().poll(cx);
        polled += 1;
        match outcome {
            Poll::Ready(done) => {
                done.expect("moves");
                Poll::Ready(false)
            }
            Poll::Pending if polled >= polls || cut.load(Ordering::SeqCst) => Poll::Ready(true),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Closes the file as a server's stop would, so that nobody serves it.
fn close(fresh: &mut Fresh) {
    if let AnyStore::Sqlite(store) = &*fresh.store {
        store.close().expect("closes");
    }
}

async fn on_target(database: &Database) -> AnyStore {
    AnyStore::Postgres(PostgresStore::open(postgres_options(database, 8)).await.expect("opens"))
}

/// Rows in every table, and every state that a row can be in.
async fn furnish_all(store: &AnyStore) {
    commit(store, vec![put("initialised_at", "then"), put("s1", "v")]).await;
    furnish(store).await;
    // Its number is below its institution's, as after a clock that was set back.
    let late = merchant(MerchantNo(90), "late", countersign_domain::ids::TenantNo(90), MerchantKind::Institution);
    let early = countersign_store::contract::MerchantRow { tenant: late.tenant, ..sub(5, "early") };
    commit(store, vec![Write::InsertMerchant(Box::new(late)), Write::InsertMerchant(Box::new(early))]).await;
    let bare = ApplicationRow {
        callback_url: None,
        rate_limit_per_s: None,
        endpoint: EndpointSettings {
            rate_per_s: Some(7),
            concurrency: Some(2),
            schedule: Schedule::parse(&["5s"]).ok(),
        },
        enabled: false,
        timestamp_tolerance_ms: Some(5),
        tolerance_before_ms: Some(6),
        tolerance_raised_at: Some(at(7)),
        ..application(ApplicationNo(101), "app_bare", SUB, TENANT)
    };
    commit(store, vec![Write::InsertApplication(Box::new(bare))]).await;
    for (n, revoked) in [(0, None), (1, Some(at(4)))] {
        let row = SecretRow { revoked_at: revoked, not_after: revoked, ..secret(&format!("s{n}"), APP, 1) };
        commit(store, vec![Write::InsertSecret(Box::new(row))]).await;
        let row = TokenRow { revoked_at: revoked, ..token(&format!("t{n}"), n) };
        commit(store, vec![Write::InsertToken(Box::new(row)), audit("token.create")]).await;
        let used = SecretUses { secret_id: format!("s{n}"), minute: 7, uses: 3, last_used_at: at(8) };
        let tokens = vec![TokenUse { token_id: format!("t{n}"), last_used_at: at(9) }];
        let uses = Uses { secrets: vec![used], tokens, ..Uses::default() };
        commit(store, vec![Write::AddUses(Box::new(uses))]).await;
        commit(store, vec![remember(answer(&format!("k{n}")))]).await;
    }
    for no in 1..=5 {
        commit(store, vec![append(SUB, version(no)), audit("rule"), claim(&format!("rule{no}"), no)]).await;
    }
    for (id, status) in [(1, None), (2, Some(ConvertStatus::Success)), (3, Some(ConvertStatus::Failed))] {
        commit(store, vec![insert_order(SUB, id)]).await;
        if let Some(status) = status {
            let order = Box::new(ConvertOrder { revision: 2, status, ..order(id) });
            commit(store, vec![Write::MoveConvertOrder { tenant: TENANT, order, at: at(2) }]).await;
        }
    }
    for (no, state) in DeliveryState::ALL.into_iter().enumerate() {
        let no = i64::try_from(no + 1).expect("few");
        commit(store, vec![enqueue(event(no, "biz\u{e9}0"))]).await;
        let due = (state == DeliveryState::Pending).then_some(at(9));
        commit(store, vec![attempt(no, 1, DeliveryState::Pending, Some(at(5)))]).await;
        commit(store, vec![attempt(no, 2, state, due)]).await;
    }
    commit(store, vec![enqueue(event(8, "biz1"))]).await;
    commit(store, vec![Write::Turn { tenant: TENANT, application: APP, due_at: at(6) }, start(redelivery(9))]).await;
    commit(store, vec![put_rate(rate("BTC_USDT", 1)), add_quote(quote("PAY-1", 30)), add_quote(quote("PAY-2", 30))])
        .await;
    commit(store, vec![execute("req", 4, "PAY-1")]).await;
    let (pending, other) = (payment_order(SUB, 7, "T-7"), payment_order(SUB, 8, "T-8"));
    commit(store, vec![insert_payment(pending), insert_payment(other.clone())]).await;
    commit(store, vec![moved(&paid(&other), PaymentStatus::Pending)]).await;
    assert!(store.events_after(TENANT, APP, 0, 10).await.expect("reads").len() == 5);
}

async fn furnished() -> Fresh {
    let mut fresh = sqlite().await;
    furnish_all(&fresh.store).await;
    close(&mut fresh);
    fresh
}

/// What the file answers to every read, beside what the database answers.
async fn assert_same(fresh: &mut Fresh, database: &Database) {
    fresh.reopen();
    let expected = everything(&fresh.store).await;
    assert_eq!(expected, everything(&on_target(database).await).await);
}

#[tokio::test]
async fn a_deployment_with_rows_in_every_table_reads_the_same_after_its_move() {
    let (mut fresh, database) = (furnished().await, Database::new().await);
    let report = move_it(&fresh, &database, 1).await.expect("moves");
    for table in &report.tables {
        assert!(table.rows > 0, "{} was tried empty", table.table);
    }
    for chain in &report.chains {
        assert!(chain.links > 0, "{} was tried empty", chain.about);
    }
    assert_same(&mut fresh, &database).await;
    // It goes on: numbers that the store gives follow those that were moved.
    let target = on_target(&database).await;
    let committed = commit(&target, vec![enqueue(event(9, "biz1")), audit("after")]).await;
    assert_eq!((committed.events[0].seq, committed.events[0].sequence), (6, 2));
    assert_eq!(target.audit(all()).await.expect("reads").len(), 8);
}

/// How many rows were copied before a run, and how many there are.
async fn goes_on(order: Move) -> ((u64, u64), Report) {
    let mut begun = (0, 0);
    let report = moving::run(order, |progress| {
        if let Progress::Begun { rows, already } = progress {
            begun = (already, rows);
        }
    });
    let report = report.await.expect("goes on");
    (begun, report)
}

#[tokio::test]
async fn a_move_that_is_cut_off_after_each_portion_goes_on_and_copies_each_row_once() {
    let (mut fresh, database) = (furnished().await, Database::new().await);
    let is_copied = |progress| matches!(progress, Progress::Copied { .. });
    let mut cuts = 0;
    // Each run copies one more portion.
    while cut_off(order_of(&fresh, &database, cuts), usize::MAX, is_copied).await {
        cuts += 1;
        let unfit = PostgresStore::open(postgres_options(&database, 8)).await;
        assert!(matches!(unfit, Err(StoreError::Unfit(why)) if why.contains("run the same `countersign move` again")));
    }
    assert!(cuts > 20, "{cuts}");
    assert_same(&mut fresh, &database).await;
}

#[tokio::test]
async fn a_move_that_is_cut_off_anywhere_goes_on() {
    let (mut fresh, database) = (furnished().await, Database::new().await);
    let mut cuts = 0;
    // Each run is let go on for a little longer than the one before, and ends in another place.
    while cut_off(order_of(&fresh, &database, cuts), 5 * usize::from(cuts) + 1, |_| false).await {
        cuts += 1;
    }
    assert!(cuts > 10, "{cuts}");
    assert_same(&mut fresh, &database).await;
}

#[tokio::test]
async fn a_move_says_how_far_it_was_and_reports_every_row() {
    let (fresh, database) = (furnished().await, Database::new().await);
    let is_compared = |progress| matches!(progress, Progress::Compared { .. });
    assert!(cut_off(order_of(&fresh, &database, 1), usize::MAX, is_compared).await);
    let ((already, rows), report) = goes_on(order_of(&fresh, &database, 2)).await;
    assert_eq!(already, rows);
    assert_eq!(report.tables.iter().map(|table| table.rows).sum::<u64>(), rows);
    let orders = report.tables.iter().find(|table| table.table == "convert_order").expect("is there");
    assert!(orders.sums.contains(&("sell_amount", 2_000_000)), "{:?}", orders.sums);
    assert_eq!(report.place, database.url().replace("postgres://postgres@", "").replace("%2F", "/"));
}

/// What the proof says after the copy was changed behind its back.
async fn found(change: &str) -> String {
    let (fresh, database) = (furnished().await, Database::new().await);
    let is_compared = |progress| matches!(progress, Progress::Compared { .. });
    assert!(cut_off(order_of(&fresh, &database, 1), usize::MAX, is_compared).await);
    database.client().await.batch_execute(change).await.expect("is changed");
    let refused = move_it(&fresh, &database, 1).await.expect_err("is found");
    assert!(matches!(refused, MoveError::Differs { .. }), "{refused:?}");
    assert!(PostgresStore::open(postgres_options(&database, 8)).await.is_err(), "nobody serves it");
    let file = order_of(&fresh, &database, 1).from;
    assert!(matches!(SqliteStore::move_mark(&file).expect("reads"), Some(MoveMark::Begun(_))), "it was not moved");
    refused.to_string()
}

#[tokio::test]
async fn a_copy_that_is_not_the_same_is_found_and_never_served() {
    for (change, words) in [
        (
            "UPDATE convert_order SET sell_amount = sell_amount + 1 WHERE order_id = 2",
            "table convert_order: row order_id 2 has another sell_amount",
        ),
        (
            "UPDATE application SET callback_url = NULL WHERE application_no = 100",
            "row application_no 100 has another callback_url",
        ),
        ("UPDATE secret SET revoked_at = 9 WHERE secret_id = 's0'", "row secret_id s0 has another revoked_at"),
        (
            "DELETE FROM attempt WHERE event_no = 2 AND attempt = 1",
            "the source has row event_no 2, attempt 1 where the target has row event_no 2, attempt 2",
        ),
        (
            "DELETE FROM biz_counter WHERE biz_id LIKE 'biz\u{e9}%'",
            "row application_no 100, biz_id biz\u{e9}0 is missing in the target",
        ),
        (
            "UPDATE payment_order_request SET request_body = request_body || ' '::bytea WHERE order_no = 8",
            "table payment_order_request: row order_no 8 has another request_body",
        ),
        ("INSERT INTO setting VALUES ('t', '1')", "row name t of the target is not in the source"),
    ] {
        let said = found(change).await;
        assert!(said.contains(words) && said.contains("another, empty database"), "{said}");
    }
}

#[tokio::test]
async fn a_chain_that_was_broken_before_the_move_is_found() {
    for (change, words) in [
        (
            "UPDATE fee_rule SET previous_config_id = zeroblob(16) WHERE version_no = 3",
            "not merchant_no 10, version_no 3",
        ),
        ("UPDATE fee_rule_head SET version_no = 4", "not merchant_no 10"),
        ("UPDATE fee_rule_head SET last_no = (SELECT min(rule_no) FROM fee_rule)", "not merchant_no 10"),
        ("UPDATE convert_order SET status = 3 WHERE order_id = 3", "not order_id 3"),
        ("DELETE FROM payment_order_request WHERE order_no = 7", "not order_no 7"),
        ("UPDATE payment_order SET revision = 2 WHERE order_no = 7", "table payment_order: payment orders stand where"),
        ("UPDATE payment_order SET status = 'PROCESS' WHERE order_no = 7", "put them, but not order_no 7"),
        ("DELETE FROM payment_order_move", "put them, but not order_no 8"),
        ("UPDATE payment_order_move SET was = 'PROCESS'", "put them, but not order_no 8"),
        ("UPDATE event_counter SET seq = 9", "not application_no 100"),
        ("UPDATE biz_counter SET sequence = 9 WHERE biz_id = 'biz1'", "not application_no 100, biz_id biz1"),
        ("UPDATE delivery SET attempts = 3 WHERE event_no = 4", "not event_no 4"),
        ("UPDATE audit_head SET audit_no = 99 WHERE tenant_no = 1", "not tenant_no 1"),
        ("DELETE FROM audit WHERE audit_no = 3 AND tenant_no = 1", "not tenant_no 1, audit_no 4"),
    ] {
        let (fresh, database) = (furnished().await, Database::new().await);
        let conn = rusqlite::Connection::open(order_of(&fresh, &database, 1).from).expect("opens");
        conn.execute_batch(change).expect("is changed");
        let said = move_it(&fresh, &database, 1).await.expect_err("is found").to_string();
        assert!(said.contains(words), "{said}");
    }
}

async fn refusal(fresh: &Fresh, database: &Database) -> String {
    move_it(fresh, database, 7).await.expect_err("is refused").to_string()
}

#[tokio::test]
async fn only_the_same_deployment_goes_on_into_a_database() {
    let (first, second) = (furnished().await, furnished().await);
    let (database, other) = (Database::new().await, Database::new().await);
    assert!(cut_off(order_of(&first, &database, 1), usize::MAX, |p| matches!(p, Progress::Copied { .. })).await);
    assert!(refusal(&second, &database).await.contains("another deployment"));
    // Into another database it begins anew, and the first one is never completed.
    move_it(&first, &other, 2).await.expect("moves");
    assert!(refusal(&first, &database).await.contains("another deployment"));
    // Done is done, as often as it is said.
    assert!(move_it(&first, &other, 3).await.expect("is done").tables.is_empty());
    assert!(refusal(&first, &Database::new().await).await.contains("was moved to"));
    // A deployment that lives in a database is never overwritten.
    let served = Database::new().await;
    furnish(&on_target(&served).await).await;
    assert!(refusal(&second, &served).await.contains("holds another deployment"));
}

#[tokio::test]
async fn a_file_that_is_taken_back_is_no_longer_what_was_moved() {
    let (fresh, database) = (furnished().await, Database::new().await);
    let file = order_of(&fresh, &database, 1).from;
    assert_eq!(SqliteStore::move_mark(&file).expect("reads"), None);
    assert!(cut_off(order_of(&fresh, &database, 1), usize::MAX, |p| matches!(p, Progress::Copied { .. })).await);
    assert!(matches!(SqliteStore::move_mark(&file).expect("reads"), Some(MoveMark::Begun(_))));
    SqliteStore::take_back(&file).expect("is taken back");
    assert_eq!(SqliteStore::move_mark(&file).expect("reads"), None);
    assert!(refusal(&fresh, &database).await.contains("before it was served again"));
    let other = Database::new().await;
    move_it(&fresh, &other, 2).await.expect("moves");
    SqliteStore::take_back(&file).expect("is taken back");
    assert!(matches!(SqliteStore::move_mark(&file).expect("reads"), Some(MoveMark::Done(_))), "it says so for good");
    assert!(refusal(&fresh, &other).await.contains("before it was served again"));
}

#[tokio::test]
async fn a_move_that_died_before_it_marked_the_file_marks_it_when_run_again() {
    let (fresh, database) = (furnished().await, Database::new().await);
    move_it(&fresh, &database, 1).await.expect("moves");
    let file = order_of(&fresh, &database, 1).from;
    rusqlite::Connection::open(&file)
        .expect("opens")
        .execute("DELETE FROM setting WHERE name = 'moved_to'", [])
        .expect("goes");
    let target = on_target(&database).await;
    commit(&target, vec![audit("the database is served already")]).await;
    let ends = SqliteStore::move_mark(&file).expect("reads");
    assert!(matches!(ends, Some(MoveMark::Ending(_))), "somebody may serve the copy: {ends:?}");
    let other = Database::new().await;
    let said = refusal(&fresh, &other).await;
    assert!(said.contains("may be complete and served") && said.contains("--serve-moved"), "{said}");
    let report = move_it(&fresh, &database, 2).await.expect("finishes");
    assert!(report.tables.is_empty());
    assert!(matches!(SqliteStore::move_mark(&file).expect("reads"), Some(MoveMark::Done(_))));

    // One that is taken back is another deployment's file, and may be moved anywhere.
    SqliteStore::take_back(&file).expect("is taken back");
    let gone = rusqlite::Connection::open(&file).expect("opens");
    gone.execute("DELETE FROM setting WHERE name = 'moved_to'", []).expect("goes");
    drop(gone);
    move_it(&fresh, &other, 3).await.expect("moves");
}

#[tokio::test]
async fn a_move_whose_end_a_failover_has_lost_is_ended_again() {
    let (mut fresh, database) = (furnished().await, Database::new().await);
    move_it(&fresh, &database, 1).await.expect("moves");
    let lost = "UPDATE move_record SET completed_at = NULL; DELETE FROM replay; DELETE FROM audit;
                DELETE FROM move_progress WHERE table_name = 'audit'";
    database.client().await.batch_execute(lost).await.expect("is lost");
    let report = move_it(&fresh, &database, 2).await.expect("is ended again");
    assert!(report.tables.iter().any(|table| table.table == "audit" && table.rows > 0));
    assert_same(&mut fresh, &database).await;
}

#[tokio::test]
async fn what_was_accepted_before_the_move_is_never_accepted_after_it() {
    let mut fresh = furnished().await;
    fresh.reopen();
    // The newest use is only in the journal.
    let store = &fresh.store;
    commit(&**store, vec![claim("write", 40)]).await;
    for (text, ms) in [("read", 50), ("late", 30)] {
        store.reserve(&nonce(text, ms)).await.expect("answers");
        assert_eq!(store.settle(nonce(text, ms)).await.expect("answers"), Claimed::Fresh);
    }
    // As a kill leaves it.
    fresh.store = Arc::new(AnyStore::Model(countersign_store::ModelStore::new()));
    let database = Database::new().await;
    let report = move_it(&fresh, &database, 1).await.expect("moves");
    assert_eq!(report.horizon, Some(at(50)));
    let target = on_target(&database).await;
    for (text, ms) in [("write", 40), ("read", 50), ("never used", 50)] {
        assert_eq!(target.reserve(&nonce(text, ms)).await.expect("answers"), Claimed::TooOld, "{text}");
        assert_eq!(target.settle(nonce(text, ms)).await.expect("answers"), Claimed::TooOld, "{text}");
    }
    assert_eq!(target.settle(nonce("never used", 51)).await.expect("answers"), Claimed::Fresh);
}

#[tokio::test]
async fn after_a_crash_of_the_machine_all_that_may_have_been_accepted_counts_as_accepted() {
    let mut fresh = furnished().await;
    fresh.reopen();
    fresh.store.reserve(&nonce("read", 50)).await.expect("answers");
    fresh.store = Arc::new(AnyStore::Model(countersign_store::ModelStore::new()));
    let database = Database::new().await;
    let order = order_of(&fresh, &database, 1);
    let order = Move { sqlite: countersign_store::SqliteOptions::new([7; 16], "the next boot"), ..order };
    let report = moving::run(order, |_| {}).await.expect("moves");
    assert!(report.horizon.expect("is known") > at(50), "{:?}", report.horizon);
}

#[tokio::test]
async fn a_text_that_postgresql_cannot_hold_is_named_with_its_row() {
    let (mut fresh, database) = (furnished().await, Database::new().await);
    fresh.reopen();
    let event = countersign_store::contract::EventRow { data: "a\0b".to_owned(), ..event(9, "biz1") };
    commit(&*fresh.store, vec![enqueue(event)]).await;
    close(&mut fresh);
    let said = refusal(&fresh, &database).await;
    assert!(said.contains("the data of row event_no 9 of event holds U+0000"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_whose_database_crashes_midway_goes_on_when_it_is_back() {
    let (mut fresh, nowhere) = (furnished().await, Database::new().await);
    let mut server = Server::start(ServerOptions { fsync: true, ..ServerOptions::default() });
    let order = |id| {
        let to = PostgresOptions::new(server.url("postgres"), [9; 16], [9; 16]);
        Move { to, ..order_of(&fresh, &nowhere, id) }
    };
    let (first, second) = (order(1), order(2));
    let mut portions = 0;
    let moved = moving::run(first, |progress| {
        portions += usize::from(matches!(progress, Progress::Copied { .. }));
        if portions == 10 {
            server.stop_immediately();
            portions += 1;
        }
    });
    assert!(matches!(moved.await, Err(MoveError::Store(StoreError::Unavailable(_)))));
    server.start_again();
    let ((already, rows), _) = goes_on(second).await;
    assert!((10..rows).contains(&already), "{already} of {rows}");
    let target = PostgresOptions::new(server.url("postgres"), [8; 16], [8; 16]);
    let target = AnyStore::Postgres(PostgresStore::open(target).await.expect("opens"));
    fresh.reopen();
    assert_eq!(everything(&fresh.store).await, everything(&target).await);
}

proptest! {
    #![proptest_config(histories(12))]

    #[test]
    fn a_random_history_reads_the_same_after_its_move(
        steps in proptest::collection::vec(proptest::collection::vec(write(), 1..4), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (mut fresh, database) = (sqlite().await, Database::new().await);
            commit(&*fresh.store, vec![put("initialised_at", "then")]).await;
            furnish(&*fresh.store).await;
            commit(&*fresh.store, vec![Write::InsertMerchant(Box::new(sub(11, "sub-b")))]).await;
            for writes in steps {
                drop(fresh.store.commit(Batch(writes)).await);
            }
            close(&mut fresh);
            move_it(&fresh, &database, 1).await.expect("moves");
            assert_same(&mut fresh, &database).await;
        });
    }
}
