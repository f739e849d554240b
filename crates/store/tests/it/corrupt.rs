//! A damaged file: every column of every table is made unreadable in turn. Reads say `Corrupt` or find nothing; nothing panics,
//! and nothing is guessed.

use std::fs;
use std::path::Path;

use countersign_domain::conversion::Pair;
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{EventNo, OrderId, SortedId};
use countersign_domain::lanes::LaneSet;
use countersign_domain::payment_order::PaymentStatus;
use countersign_domain::rules::RuleVersion;
use countersign_store::attempt_log::OldRows as _;
use countersign_store::backlog::Backlogs as _;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{
    ApplicationFilter, Asker, CommitError, Cursor, EventFilter, EventRow, Portion, RuleFilter, SecretUses, StoreError,
    Uses,
};
use countersign_store::conversion::ConvertOrderFilter;
use countersign_store::paid_order::{PaidOrders as _, PaidSpan, Payee};
use countersign_store::payment_order::{ExpiredFirst, PaymentOrderFilter, PaymentOrders as _};
use countersign_store::public_ids::PublicIds as _;
use countersign_store::redelivery::Redeliveries;
use countersign_store::{ConvertStore as _, SqliteStore, Store};
use rusqlite::Connection;

use crate::contract;
use crate::fixtures::*;

/// A file with a row in every table, whose tables take any value in any column.
async fn lawless(dir: &Path) -> std::path::PathBuf {
    let store = open(dir);
    furnish(&store).await;
    commit(&store, vec![append(SUB, version(1)), claim("n", 0)]).await;
    commit(&store, vec![append(SUB, RuleVersion { due_at: Some(at(9_000)), ..version(2) })]).await;
    commit(&store, vec![Write::InsertSecret(Box::new(secret("sec_1", APP, 1)))]).await;
    commit(&store, vec![Write::InsertToken(Box::new(token("tok_1", 1)))]).await;
    let used = SecretUses { secret_id: "sec_1".to_owned(), minute: 1, uses: 2, last_used_at: at(3) };
    let uses = Uses { secrets: vec![used], ..Uses::default() };
    commit(&store, vec![Write::AddUses(Box::new(uses))]).await;
    commit(&store, vec![insert_order(SUB, 7), enqueue(event(1, "a")), audit("everything"), put("name", "value")]).await;
    commit(&store, vec![attempt(1, 1, DeliveryState::Pending, Some(at(60)))]).await;
    commit(&store, vec![remember(answer("k"))]).await;
    commit(&store, vec![Write::Turn { tenant: TENANT, application: APP, due_at: at(1) }]).await;
    commit(&store, vec![start(redelivery(1)), put_rate(rate("BTC_USDT", 1))]).await;
    commit(&store, vec![add_quote(quote("PAY-1", 30)), execute("req", 8, "PAY-1")]).await;
    let pending = payment_order(SUB, 7, "T-7");
    commit(&store, vec![insert_payment(pending.clone())]).await;
    let paid = contract::payment_orders::paid(&pending);
    commit(&store, vec![contract::payment_orders::moved(&paid, PaymentStatus::Pending)]).await;
    store.close().expect("closes");
    drop(store);
    let file = dir.join("countersign.db");
    let conn = Connection::open(&file).expect("opens");
    conn.execute_batch(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(replace(replace(replace(sql, 'IS NOT NULL', 'NOTNULL'), ' NOT NULL', ''),
           'STRICT, ', ''), 'STRICT', '')
           WHERE type = 'table';
         PRAGMA writable_schema = OFF; PRAGMA journal_mode = DELETE; VACUUM;",
    )
    .expect("loosens the tables");
    file
}

/// Reads everything there is; what each read said if it found no sound row.
async fn everything(store: &SqliteStore) -> Vec<StoreError> {
    let mut errors = Vec::new();
    macro_rules! read {
        ($($call:expr),* $(,)?) => { $( errors.extend($call.await.err()); )* };
    }
    let (order, pair) = (OrderId::new(7).expect("in range"), Pair::parse("BTC_USDT").expect("a pair"));
    let payment = payment_order(SUB, 7, "T-7").order.prepay_id;
    read!(
        store.application("app_one"),
        store.applications(Asker::Operator, ApplicationFilter::default(), all()),
        store.client_ids(all()),
        store.tenant_ids(vec![TENANT]),
        store.tenant_id(TENANT),
        store.merchant("inst"),
        store.merchant("sub-a"),
        store.merchants(None, None, all()),
        store.token(&[1; 32]),
        store.token_by_id("tok_1"),
        store.tokens(Cursor { after: None, limit: 10 }),
        store.secret_uses(APP, 0),
        store.rule_head(TENANT, SUB, None),
        store.rule_head(TENANT, SUB, Some(at(1_500))),
        store.rule_head(TENANT, SUB, Some(at(9_500))),
        store.rule_versions(TENANT, SUB, all()),
        store.rule_page(TENANT, RuleFilter::default(), at(3_000), 0, 100),
        store.convert_order(TENANT, SUB, order),
        store.convert_order_owner(order),
        store.rate(&pair),
        store.rates(Cursor { after: None, limit: 9 }),
        store.quote(TENANT, SUB, "PAY-1"),
        store.convert_request(TENANT, SUB, "req"),
        store.convert_moves(TENANT, order),
        store.convert_orders(Asker::Operator, ConvertOrderFilter::default(), Cursor { after: None, limit: 9 }, 9),
        store.owed(LaneSet::ALL, Cursor { after: None, limit: 10 }),
        async { store.pending_of(Portion { of: vec![(TENANT, APP)], known: Vec::new(), limit: 10 }).await?.whole() },
        store.turning(LaneSet::ALL, Cursor { after: None, limit: 10 }),
        store.event(Asker::Operator, SortedId(1)),
        store.attempt_bytes(TENANT, EventNo(1), 1, at(1)),
        store.old_bytes(Asker::Operator, at(99), 9, all()),
        store.old_events(Asker::Operator, too_old(at(99)), 9, all()),
        store.old_bytes_of(Asker::Operator, TENANT, at(99), Cursor { after: None, limit: 9 }),
        store.old_events_of(Asker::Operator, (TENANT, APP), too_old(at(99)), all()),
        store.events(EventFilter::default(), all(), 9),
        store.events_after(TENANT, APP, 0, 10),
        store.backlog(TENANT, APP, 9),
        store.dead(None, all()),
        store.with_dead(None, 9),
        store.place_of("app_one"),
        store.dead(Some((TENANT, APP)), all()),
        store.redeliveries(Redeliveries::All { client_id: None, after: None }, 9),
        store.redeliveries(Redeliveries::Running { lanes: LaneSet::ALL, after: None }, 9),
        store.payment_orders(Asker::Operator, PaymentOrderFilter::default(), at(9), all(), 9),
        store.paid_orders(
            PaidSpan { of: Payee::Tenant(TENANT), from: at(0), to: at(99) },
            Cursor { after: None, limit: 9 }
        ),
        store.payment_order_owner(payment),
        store.payment_order_moves(TENANT, payment),
        store.payment_order_received(TENANT, SUB, payment),
        store.remembered(&answer("k").scope, "k"),
        store.audit(all()),
        store.audit_chain(all()),
        store.audit_heads(all()),
        store.secrets_not_under("another", None, 10),
        store.setting("name"),
    );
    errors
}

/// Writes whose guards read rows; what each said if it could not.
async fn guarded(store: &SqliteStore) -> Vec<StoreError> {
    let mut errors = Vec::new();
    for write in [append(SUB, version(3)), attempt(1, 2, DeliveryState::Dead, None)] {
        match store.commit(Batch(vec![write])).await {
            Ok(_) | Err(CommitError::Conflict(_)) => {}
            Err(CommitError::Store(error)) => errors.push(error),
            Err(CommitError::Unknown) => panic!("the fate of no commit is unknown here"),
        }
    }
    errors
}

/// Columns whose every value of the right type is good, or that nothing reads back.
fn is_never_corrupt(table: &str, column: &str) -> bool {
    const UNREAD: [&str; 7] =
        ["event_counter", "biz_counter", "audit_head", "last_paid", "schema_step", "nonce", "replay"];
    // Rows are found by these: another value finds nothing.
    const FINDERS: [&str; 38] = [
        "fee_rule.tenant_no",
        "fee_rule.merchant_no",
        "fee_rule.previous_no",
        "fee_rule_head.tenant_no",
        "fee_rule_head.merchant_no",
        "fee_rule_head.base_no",
        "fee_rule_head.base_version_no",
        "convert_order.tenant_no",
        "convert_order.merchant_no",
        "convert_order_move.tenant_no",
        "convert_order_move.order_id",
        "convert_quote.tenant_no",
        "convert_quote.merchant_no",
        "convert_quote.quote_id",
        "convert_request.tenant_no",
        "convert_request.merchant_no",
        "convert_request.client_req_id",
        "convert_request.order_id",
        "payment_order_move.tenant_no",
        "payment_order_move.order_no",
        "delivery.tenant_no",
        "delivery.application_no",
        "delivery.redelivery_id",
        "attempt.tenant_no",
        "attempt.event_no",
        "attempt_bytes.tenant_no",
        "attempt_bytes.event_no",
        "attempt_bytes.attempt",
        "attempt_bytes.at",
        "audit.at",
        "setting.name",
        "secret.application_no",
        "secret.revoked_at",
        "secret_use.secret_id",
        "secret_use.minute",
        "operator_token.digest",
        "idempotency.scope",
        "idempotency.key",
    ];
    // Row numbers: any integer is one, and nothing else can be put there.
    const NUMBERS: [&str; 6] = [
        "merchant.merchant_no",
        "application.application_no",
        "fee_rule.rule_no",
        "convert_order.order_id",
        "payment_order.order_no",
        "audit.line_no",
    ];
    let name = format!("{table}.{column}");
    UNREAD.contains(&table) || FINDERS.contains(&name.as_str()) || NUMBERS.contains(&name.as_str())
}

fn columns(file: &Path) -> Vec<(String, String)> {
    let conn = Connection::open(file).expect("opens");
    let mut select = conn
        .prepare(
            "SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.schema = 'main' AND t.name NOT LIKE 'sqlite%'",
        )
        .expect("prepares");
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("reads");
    rows.map(|row| row.expect("reads")).collect()
}

/// Values that are wrong for most columns.
const WRONG: [&str; 5] = ["NULL", "'no word of ours'", "x'00ff'", "CAST(x'ff' AS TEXT)", "-7"];

fn lawless_connection(file: &Path) -> Connection {
    let conn = Connection::open(file).expect("opens");
    conn.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON").expect("sets");
    conn
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_cannot_be_read_back_is_corrupt_and_nothing_panics() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = lawless(dir.path()).await;
    let columns = columns(&file);
    let store = open(dir.path());
    assert!(everything(&store).await.is_empty(), "all is sound before");
    let conn = lawless_connection(&file);
    let mut silent = Vec::new();
    for (table, column) in columns {
        conn.execute_batch(&format!("CREATE TEMP TABLE sound AS SELECT * FROM {table}")).expect("keeps");
        let mut reported = false;
        for value in WRONG {
            // Some cannot be damaged so: a key with two rows, a row number that is no number.
            if conn.execute(&format!("UPDATE {table} SET {column} = {value}"), []).is_err() {
                continue;
            }
            // Readers look again only after a commit of their own store.
            commit(&store, vec![put("damaged", &column)]).await;
            for error in everything(&store).await {
                assert!(matches!(error, StoreError::Corrupt { .. }), "{table}.{column} = {value}: {error:?}");
                reported = true;
            }
            conn.execute_batch(&format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM sound"))
                .expect("mends");
        }
        conn.execute_batch("DROP TABLE sound").expect("drops");
        if !reported && !is_never_corrupt(&table, &column) {
            silent.push(format!("{table}.{column}"));
        }
    }
    assert_eq!(silent, Vec::<String>::new(), "damage that nobody reported");
    commit(&store, vec![put("damaged", "no more")]).await;
    assert!(everything(&store).await.is_empty(), "all is sound after");
}

#[tokio::test]
async fn damage_that_opening_meets_is_corrupt() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = lawless(dir.path()).await;
    let columns = [
        ("replay", "hash_key"),
        ("replay", "boot_id"),
        ("replay", "journal_synced"),
        ("replay", "horizon"),
        ("replay", "mark"),
        ("replay", "unknowable_through"),
        ("nonce", "claim"),
        ("nonce", "stamped_at"),
    ];
    for (table, column) in columns {
        let image = tempfile::tempdir().expect("a folder");
        let copy = image.path().join("countersign.db");
        fs::copy(&file, &copy).expect("copies");
        let damage =
            lawless_connection(&copy).execute(&format!("UPDATE {table} SET {column} = CAST(x'ff' AS TEXT)"), []);
        assert_eq!(damage.expect("damages"), 1);
        match SqliteStore::open(&copy, options()) {
            Err(StoreError::Corrupt { table: named, .. }) => assert_eq!(named, table),
            other => panic!("{table}.{column}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_guard_that_cannot_read_its_row_is_corrupt_and_writes_nothing() {
    for (sql, named) in [
        ("UPDATE fee_rule_head SET version_no = x'00'", "fee_rule_head"),
        ("UPDATE last_paid SET paid_at = x'00'", "last_paid"),
        ("UPDATE delivery SET state = 'lost'", "delivery"),
    ] {
        let dir = tempfile::tempdir().expect("a folder");
        let file = lawless(dir.path()).await;
        lawless_connection(&file).execute(sql, []).expect("damages");
        let store = open(dir.path());
        let errors = guarded(&store).await;
        assert!(matches!(errors[..], [StoreError::Corrupt { table, .. }] if table == named), "{errors:?}");
        commit(&store, vec![put("others", "go on")]).await;
    }
}

#[tokio::test]
async fn an_error_names_the_table_and_the_row() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = lawless(dir.path()).await;
    let conn = Connection::open(&file).expect("opens");
    let damaged = [
        ("UPDATE fee_rule SET r_markup = '1_000' WHERE version_no = 2", "fee_rule", "2"),
        ("UPDATE convert_order SET sell_currency = 'usdt'", "convert_order", "7"),
        ("UPDATE delivery SET state = 'lost'", "delivery", "1"),
        ("UPDATE operator_token SET role = 'root'", "operator_token", "tok_1"),
        ("UPDATE audit SET actor = NULL", "audit", "1"),
    ];
    conn.execute_batch("PRAGMA ignore_check_constraints = ON").expect("sets");
    for (sql, _, _) in damaged {
        conn.execute(sql, []).expect("damages");
    }
    drop(conn);
    let store = open(dir.path());
    let errors = everything(&store).await;
    for (_, table, row) in damaged {
        let named =
            errors.iter().any(|e| matches!(e, StoreError::Corrupt { table: t, row: r } if *t == table && r == row));
        assert!(named, "{table} {row} in {errors:?}");
    }
}

#[tokio::test]
async fn an_expired_order_that_cannot_be_read_keeps_no_other_one_waiting() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = lawless(dir.path()).await;
    let store = open(dir.path());
    for number in [8, 9] {
        commit(&store, vec![insert_payment(payment_order(SUB, number, &format!("T-{number}")))]).await;
    }
    let until = payment_order(SUB, 9, "T-9").order.expires_at;
    let damage = lawless_connection(&file).execute("UPDATE payment_order SET currency = 'usdt' WHERE order_no = 8", []);
    assert_eq!(damage.expect("damages"), 1);
    commit(&store, vec![put("damaged", "an order")]).await;
    let found = store.payment_orders_expired(LaneSet::ALL, until, ExpiredFirst::Oldest, 9).await.expect("reads");
    let numbers: Vec<_> =
        found.iter().filter_map(|row| row.as_ref().ok()).map(|row| row.order.prepay_id.number()).collect();
    let errors: Vec<_> = found.iter().filter_map(|row| row.as_ref().err()).collect();
    assert_eq!(numbers, [9], "{errors:?}");
    assert!(matches!(errors[..], [StoreError::Corrupt { table: "payment_order", row }] if row == "8"), "{errors:?}");
}

#[tokio::test]
async fn a_pending_event_that_cannot_be_read_keeps_no_other_one_waiting() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = lawless(dir.path()).await;
    let store = open(dir.path());
    let other =
        EventRow { tenant: OTHER_TENANT, application: OTHER_APP, client_id: "app_two".to_owned(), ..event(3, "a") };
    commit(&store, vec![enqueue(event(2, "b")), enqueue(event(4, "c"))]).await;
    commit(&store, vec![enqueue(other)]).await;
    let of = vec![(TENANT, APP), (OTHER_TENANT, OTHER_APP)];
    for column in ["seq", "application_no", "tenant_no"] {
        let turn = format!("UPDATE event SET {column} = -{column} WHERE event_no = 2");
        assert_eq!(lawless_connection(&file).execute(&turn, []).expect("damages"), 1);
        commit(&store, vec![put("damaged", column)]).await;
        for (known, limit, readable) in [(None, 9, &[4, 1, 3][..]), (None, 1, &[1, 3]), (Some(2), 1, &[4, 1, 3])] {
            let portion = Portion { of: of.clone(), known: known.map(EventNo).into_iter().collect(), limit };
            let found = store.pending_of(portion).await.expect("reads");
            assert_eq!(found.rows.iter().map(|row| row.no.0).collect::<Vec<_>>(), readable, "{column} {limit}");
            match (&found.unreadable[..], known) {
                ([], Some(_)) => {}
                ([one], None) => {
                    assert_eq!((one.tenant, one.application, one.event), (TENANT, APP, EventNo(2)));
                    assert!(matches!(&one.error, StoreError::Corrupt { table: "event", row } if row == "2"), "{one:?}");
                }
                other => panic!("{column} {limit}: {other:?}"),
            }
        }
        assert_eq!(lawless_connection(&file).execute(&turn, []).expect("mends"), 1);
    }
}

#[tokio::test]
async fn rows_that_are_missing_are_corrupt_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = lawless(dir.path()).await;
    let conn = Connection::open(&file).expect("opens");
    conn.execute_batch(
        "PRAGMA foreign_keys = OFF;
         DELETE FROM fee_rule WHERE version_no = 1; DELETE FROM delivery; DELETE FROM merchant WHERE merchant_id = 'inst';",
    )
    .expect("damages");
    drop(conn);
    let store = open(dir.path());
    let corrupt = |error: Option<StoreError>, named: &str| match error {
        Some(StoreError::Corrupt { table, .. }) => assert_eq!(table, named),
        other => panic!("{other:?}"),
    };
    corrupt(store.rule_head(TENANT, SUB, None).await.err(), "fee_rule_head");
    corrupt(store.event(Asker::Operator, SortedId(1)).await.err(), "delivery");
    corrupt(store.application("app_one").await.err(), "application");
}
