//! A file that is looked at, brought up to date or refused, by its schema and by what is in it.

use std::fs;

use countersign_domain::time::UnixMillis;
use countersign_store::contract::StoreError;
use countersign_store::sqlite::Revival;
use countersign_store::testing::Tampering;
use countersign_store::{AnyStore, SqliteStore};
use rusqlite::Connection;

use crate::contract::last_paid::{add, made, pay, since};
use crate::fixtures::*;
use crate::sqlite::path;

fn unfit(answer: Result<SqliteStore, StoreError>) -> String {
    match answer {
        Err(StoreError::Unfit(why)) => why,
        other => panic!("unfit was expected, not {other:?}"),
    }
}

#[test]
fn a_newer_schema_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(open(dir.path()));
    let conn = Connection::open(path(dir.path())).expect("opens");
    let later = SqliteStore::schema_state(&path(dir.path())).expect("reads").known + 1;
    conn.execute("INSERT INTO schema_step VALUES (?1, 'later', 'digest')", [later]).expect("writes");
    drop(conn);
    assert!(unfit(SqliteStore::open(&path(dir.path()), options())).contains("newer program"));
    assert!(matches!(SqliteStore::schema_state(&path(dir.path())), Err(StoreError::Unfit(_))));
}

#[test]
fn a_changed_schema_step_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    drop(open(dir.path()));
    let conn = Connection::open(path(dir.path())).expect("opens");
    conn.execute("UPDATE schema_step SET digest = 'another'", []).expect("writes");
    drop(conn);
    assert!(unfit(SqliteStore::open(&path(dir.path()), options())).contains("schema step 1"));
}

#[test]
fn a_file_of_another_program_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let conn = Connection::open(path(dir.path())).expect("opens");
    conn.execute_batch("CREATE TABLE theirs (a); PRAGMA application_id = 7;").expect("writes");
    drop(conn);
    let before = fs::read(path(dir.path())).expect("reads");
    assert!(unfit(SqliteStore::open(&path(dir.path()), options())).contains("another program"));
    assert_eq!(fs::read(path(dir.path())).expect("reads").len(), before.len());
    fs::write(path(dir.path()), "this is no database, but it is long enough to be looked at".repeat(20))
        .expect("writes");
    unfit(SqliteStore::open(&path(dir.path()), options()));
}

#[test]
fn the_schema_state_is_told_and_nothing_is_changed_by_asking() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = path(dir.path());
    let none = SqliteStore::schema_state(&file).expect("answers");
    assert_eq!(none.applied, 0);
    assert!(!file.exists());
    let made = SqliteStore::migrate(&file).expect("migrates");
    assert_eq!(made.applied, made.known);
    assert_eq!(SqliteStore::schema_state(&file).expect("answers"), made);
    assert_eq!(SqliteStore::migrate(&file).expect("again"), made);
}

#[tokio::test]
async fn faults_inside_a_file_are_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    furnish(&store).await;
    for no in 1..=3 {
        commit(&store, vec![append(SUB, version(no))]).await;
    }
    commit(&store, vec![insert_payment(payment_order(SUB, 7, "T-7")), insert_payment(payment_order(SUB, 8, "T-8"))])
        .await;
    drop(store);
    let faults = || SqliteStore::faults(&path(dir.path())).expect("answers");
    assert_eq!(faults(), Vec::<String>::new());
    let conn = Connection::open(path(dir.path())).expect("opens");
    conn.execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM fee_rule WHERE version_no = 2; DELETE FROM merchant WHERE merchant_no = 2;
                        DELETE FROM payment_order_request WHERE order_no = 8")
        .expect("breaks");
    drop(conn);
    let found = faults();
    assert!(found.iter().any(|f| f.contains("fee rules do not point")), "{found:?}");
    assert!(found.iter().any(|f| f.contains("application")), "{found:?}");
    assert!(found.iter().any(|f| f == "1 payment orders are without the request that made them"), "{found:?}");
}

#[tokio::test]
async fn orders_that_do_not_stand_where_their_moves_put_them_are_found() {
    const STAND: &str = "payment orders do not stand where their moves put them";
    const BEGIN: &str = "moves of payment orders do not begin where the move before them ended";
    const CONVERT: &str = "convert orders do not stand where their moves put them";
    let damages: [(&str, &[&str]); 8] = [
        ("UPDATE payment_order SET revision = 3 WHERE status = 'PAID'", &[STAND]),
        ("UPDATE payment_order SET status = 'PROCESS' WHERE status = 'PENDING'", &[STAND]),
        ("DELETE FROM payment_order_move", &[STAND]),
        ("UPDATE payment_order_move SET was = 'PROCESS'", &[BEGIN]),
        ("UPDATE payment_order_move SET revision = 3", &[BEGIN]),
        ("UPDATE payment_order_move SET order_no = 77", &[STAND, BEGIN]),
        ("UPDATE convert_order SET status = 3", &[CONVERT]),
        ("UPDATE convert_order_move SET revision = 2", &["moves of convert orders are without the move before them"]),
    ];
    for (damage, found) in damages {
        let dir = tempfile::tempdir().expect("a folder");
        let store = AnyStore::Sqlite(open(dir.path()));
        furnish(&store).await;
        commit(&store, vec![insert_order(SUB, 1)]).await;
        let (paid, _) = (add(&store, SUB, 7).await, add(&store, SUB, 8).await);
        commit(&store, vec![pay(&paid, 500)]).await;
        drop(store);
        let faults = || SqliteStore::faults(&path(dir.path())).expect("answers");
        assert_eq!(faults(), Vec::<String>::new());
        Connection::open(path(dir.path())).and_then(|conn| conn.execute_batch(damage)).expect("breaks");
        let wanted: Vec<String> = found.iter().map(|what| format!("1 {what}")).collect();
        assert_eq!(faults(), wanted, "{damage}");
    }
}

#[tokio::test]
async fn a_copy_of_an_older_program_is_brought_up_to_date_and_one_of_a_mixed_fleet_is_made_good() {
    for (left, was_whole) in [(Tampering::StepBack, true), (Tampering::ForgetPaid, false)] {
        let dir = tempfile::tempdir().expect("a folder");
        let store = AnyStore::Sqlite(open(dir.path()));
        furnish(&store).await;
        let (early, late) = (add(&store, SUB, 7).await, add(&store, SUB, 8).await);
        commit(&store, vec![pay(&early, 900)]).await;
        commit(&store, vec![pay(&late, 500)]).await;
        drop(store);
        let copy = path(dir.path());
        left.of_file(&copy);
        assert_eq!(SqliteStore::damage(&copy).expect("reads"), Vec::<String>::new(), "{left:?}");
        assert_eq!(SqliteStore::unchained(&copy).is_err(), was_whole, "{left:?}");
        SqliteStore::bring_up_to_date(&copy).expect("it can be");
        assert_eq!(SqliteStore::faults(&copy).expect("reads"), Vec::<String>::new(), "{left:?}");
        let store = AnyStore::Sqlite(open(dir.path()));
        assert_eq!(conflict(&store, vec![append(SUB, made(1, 900))]).await, since(900), "{left:?}");
        commit(&store, vec![append(SUB, made(1, 901))]).await;
    }
}

#[tokio::test]
async fn a_copy_that_is_revived_later_leaves_out_what_an_earlier_one_has_given() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = AnyStore::Sqlite(open(dir.path()));
    furnish(&store).await;
    commit(&store, vec![enqueue(event(1, "a"))]).await;
    drop(store);
    let seq_of = |name: &str, at: UnixMillis| {
        let copy = dir.path().join(name);
        SqliteStore::copy(&path(dir.path()), &copy).expect("is made");
        SqliteStore::revive(&copy, &Revival { settings: &[], horizon: at, at }).expect("is revived");
        let conn = Connection::open(&copy).expect("opens");
        let count = "SELECT seq FROM event_counter WHERE application_no = ?1";
        conn.query_row(count, [APP.0], |row| row.get::<_, i64>(0)).expect("reads")
    };
    let at = UnixMillis(1_767_225_600_000);
    let seqs = [("first", at), ("second", at.plus_ms(10_000)), ("third", at.plus_ms(60_000))];
    let seqs = seqs.map(|(name, at)| seq_of(name, at));
    assert!(seqs[0] > 20_000_000 && seqs.iter().all(|seq| seq % 10_000_000 == 0), "{seqs:?}");
    assert_eq!((seqs[1] - seqs[0], seqs[2] - seqs[0]), (10_000_000, 60_000_000));
    assert_eq!(seq_of("wrong clock", UnixMillis(0)), 20_000_000, "never less than what the copy itself demands");
    assert!(seq_of("late", UnixMillis(6_200_000_000_000)) < 1 << 52, "exact as a double");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_that_open_a_new_file_at_once_all_come_up() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().expect("a folder");
        let file = path(dir.path());
        let migrate = |_| {
            let file = file.clone();
            tokio::task::spawn_blocking(move || SqliteStore::migrate(&file).map(|state| state.applied))
        };
        for task in (0..4).map(migrate).collect::<Vec<_>>() {
            assert!(task.await.expect("ends").expect("migrates") > 0);
        }
    }
}
