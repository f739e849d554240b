//! Stores and rows to test with.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::conversion::{Limits, Pair, Quote};
use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::Fence;
use countersign_domain::money::{Amount, Currency};
use countersign_domain::payment_order::{Content, PaymentKind, PaymentOrder, PaymentStatus, PrepayId};
use countersign_domain::rules::{Markup, RuleVersion};
use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::{AttemptBytes, Phases, TooOld};
use countersign_store::batch::{Batch, Committed, Conflict, Write};
use countersign_store::contract::{
    ApplicationRow, AttemptRow, AuditRow, ClaimKey, CommitError, Cursor, EventRow, IdempotencyRow, MerchantKind,
    MerchantRow, NewAnswer, Role, SecretRow, StoreError, TokenRow,
};
use countersign_store::conversion::{ConvertWrite, RateRow};
use countersign_store::nodes::NodeId;
use countersign_store::payment_order::{PaymentOrderRow, PaymentOrderWrite, Received};
use countersign_store::redelivery::{RedeliveryRow, RedeliveryState, RedeliveryWrite, Sought};
use countersign_store::{AnyStore, ModelStore, PostgresOptions, PostgresStore, SqliteOptions, SqliteStore, Store};
use rust_decimal::Decimal;
use tempfile::TempDir;

use countersign_store::testing::{Database, rows};

/// A store that was just made, and the folder or database it may live in.
pub struct Fresh {
    pub store: Arc<AnyStore>,
    pub dir: Option<TempDir>,
    /// Kept: it goes when this is dropped.
    pub database: Option<Database>,
    is_watched: bool,
}

pub async fn model() -> Fresh {
    Fresh { store: Arc::new(AnyStore::Model(ModelStore::new())), dir: None, database: None, is_watched: false }
}

pub async fn sqlite() -> Fresh {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Arc::new(AnyStore::Sqlite(open(dir.path())));
    Fresh { store, dir: Some(dir), database: None, is_watched: false }
}

pub async fn postgres() -> Fresh {
    let database = Database::with_schema().await;
    let store = Arc::new(AnyStore::Postgres(open_postgres(&database, 1).await));
    Fresh { store, dir: None, database: Some(database), is_watched: false }
}

/// PostgreSQL with transactions of one tenant each, and a watch that counts those of two.
pub async fn postgres_by_tenant() -> Fresh {
    let database = Database::with_schema().await;
    let options = PostgresOptions { group_by_tenant: true, ..postgres_options(&database, 1) };
    let store = PostgresStore::open(options).await.expect("opens");
    crate::tenancy::watch(&database).await;
    Fresh { store: Arc::new(AnyStore::Postgres(store)), dir: None, database: Some(database), is_watched: true }
}

impl Fresh {
    /// What must hold whatever was done: no transaction touched two tenants, where that is promised.
    pub async fn check(&self) {
        if let (Some(database), true) = (&self.database, self.is_watched) {
            assert_eq!(crate::tenancy::violations(database).await, 0, "transactions that touched two tenants");
        }
    }

    /// Drops the store as a kill would leave it, and opens its file again.
    pub fn reopen(&mut self) {
        self.store = Arc::new(AnyStore::Model(ModelStore::new()));
        let dir = self.dir.as_ref().expect("a store that lives in a folder");
        self.store = Arc::new(AnyStore::Sqlite(open(dir.path())));
    }
}

pub fn options() -> SqliteOptions {
    SqliteOptions::new([7; 16], "this boot")
}

pub fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(&dir.join("countersign.db"), options()).expect("opens")
}

/// The unit of limits that no test waits for: a loaded machine may stand still for seconds.
pub const LONG_SECOND: Duration = Duration::from_secs(10);

/// Options of a node; no two nodes have the same number. Whoever waits for a limit has a unit of his own.
pub fn postgres_options(database: &Database, node: u8) -> PostgresOptions {
    PostgresOptions { second: LONG_SECOND, ..PostgresOptions::new(database.url(), [node; 16], [node; 16]) }
}

pub async fn open_postgres(database: &Database, node: u8) -> PostgresStore {
    PostgresStore::open(postgres_options(database, node)).await.expect("opens")
}

/// 2026-01-02T00:00:00Z and so many milliseconds.
pub const fn at(ms: i64) -> UnixMillis {
    UnixMillis(1_767_312_000_000 + ms)
}

/// Events that are over and were made before an instant; those that are held stay for ever.
pub const fn too_old(before: UnixMillis) -> TooOld {
    TooOld { made_before: before, held_before: UnixMillis(i64::MIN) }
}

/// Who asks where that does not matter.
pub const NOBODY: NodeId = NodeId([0; 16]);
pub const INSTITUTION: MerchantNo = MerchantNo(1);
pub const TENANT: TenantNo = TenantNo(1);
pub const SUB: MerchantNo = MerchantNo(10);
pub const OTHER: MerchantNo = MerchantNo(2);
pub const OTHER_TENANT: TenantNo = TenantNo(2);
pub const APP: ApplicationNo = ApplicationNo(100);
pub const OTHER_APP: ApplicationNo = ApplicationNo(200);

pub fn merchant(no: MerchantNo, id: &str, tenant: TenantNo, kind: MerchantKind) -> MerchantRow {
    MerchantRow {
        name: format!("name of {id}"),
        base_r: Decimal::new(5, 1),
        base_f: Amount::from_micros(100_000),
        user_id: 42,
        created_at: at(0),
        ..rows::merchant(no, id, tenant, kind)
    }
}

pub fn sub(no: i64, id: &str) -> MerchantRow {
    merchant(MerchantNo(no), id, TENANT, MerchantKind::SubAccount)
}

pub fn application(no: ApplicationNo, client_id: &str, merchant: MerchantNo, tenant: TenantNo) -> ApplicationRow {
    ApplicationRow {
        name: "an application".to_owned(),
        callback_url: Some("https://example.com/callback".to_owned()),
        rate_limit_per_s: Some(50),
        created_at: at(0),
        ..rows::application(no, client_id, merchant, tenant)
    }
}

pub fn secret(id: &str, application: ApplicationNo, created_ms: i64) -> SecretRow {
    SecretRow { signs_callbacks: true, created_at: at(created_ms), ..rows::secret(id, application) }
}

pub fn token(id: &str, digest: u8) -> TokenRow {
    TokenRow {
        token_id: id.to_owned(),
        name: "somebody".to_owned(),
        digest: [digest; 32],
        role: Role::Operator,
        created_at: at(0),
        expires_at: Some(at(1_000_000)),
        revoked_at: None,
        last_used_at: None,
    }
}

/// Version `no` of a sub-account, made at `no` seconds and effective at once.
pub fn version(no: i64) -> RuleVersion {
    let id = |no: i64| SortedId::new(at(no * 1000), u128::try_from(no).expect("not negative"));
    RuleVersion {
        version_no: no,
        config_id: id(no),
        previous: (no > 1).then(|| id(no - 1)),
        base_version_no: (no > 1).then_some(no - 1),
        markup: Markup::new(Decimal::new(no, 2), Decimal::ONE).expect("within limits"),
        effective_at: at(no * 1000),
        due_at: None,
        created_at: at(no * 1000),
    }
}

pub fn append(merchant: MerchantNo, version: RuleVersion) -> Write {
    Write::AppendRule { tenant: TENANT, merchant, version: Box::new(version) }
}

pub fn order(id: i64) -> ConvertOrder {
    ConvertOrder {
        order_id: OrderId::new(id).expect("in range"),
        user_id: 42,
        sell_currency: Currency::parse("BTC").expect("a code"),
        buy_currency: Currency::parse("USDT").expect("a code"),
        sell_amount: Amount::from_micros(500_000),
        buy_amount: Amount::from_micros(33_617_285_000),
        status: ConvertStatus::Created,
        rate: "67234.57".parse().expect("a number"),
        quote_id: "PAY-0badcafe".to_owned(),
        created_at: at(0),
        revision: 1,
    }
}

pub fn insert_order(merchant: MerchantNo, id: i64) -> Write {
    Write::InsertConvertOrder { tenant: TENANT, merchant, order: Box::new(order(id)) }
}

/// A pair's rate with limits on both sides, as of its revision.
pub fn rate(pair: &str, revision: i64) -> RateRow {
    RateRow {
        pair: Pair::parse(pair).expect("a pair"),
        rate: "22.38741462".parse().expect("a number"),
        limits: Limits {
            base_min: Some(Amount::from_micros(revision)),
            base_max: Some(Amount::from_micros(31_000_000)),
            quote_min: None,
            quote_max: Some(Amount::from_micros(1_980_000_000_000)),
        },
        revision,
        stale_told: 0,
        updated_at: at(revision),
    }
}

pub fn put_rate(row: RateRow) -> Write {
    Write::Convert(Box::new(ConvertWrite::PutRate(row)))
}

/// A quote of the sub-account's, good until then.
pub fn quote(id: &str, until: i64) -> Quote {
    Quote {
        quote_id: id.to_owned(),
        pair: Pair::parse("BTC_USDT").expect("a pair"),
        sell_currency: Currency::parse("BTC").expect("a code"),
        buy_currency: Currency::parse("USDT").expect("a code"),
        sell_amount: Amount::from_micros(500_000),
        buy_amount: Amount::from_micros(33_617_285_000),
        rate: "67234.57".parse().expect("a number"),
        created_at: at(0),
        expires_at: at(until),
        order: None,
    }
}

pub fn add_quote(quote: Quote) -> Write {
    let (tenant, merchant, ended_before) = (TENANT, SUB, at(0));
    Write::Convert(Box::new(ConvertWrite::AddQuote { tenant, merchant, quote, ended_before }))
}

/// Makes an order of a quote of the sub-account's.
pub fn execute(request: &str, id: i64, quote_id: &str) -> Write {
    let (client_req_id, order) = (request.to_owned(), ConvertOrder { quote_id: quote_id.to_owned(), ..order(id) });
    Write::Convert(Box::new(ConvertWrite::Execute { tenant: TENANT, merchant: SUB, client_req_id, order }))
}

/// A pending order of a merchant of the first tenant, made by its application.
pub fn payment_order(merchant: MerchantNo, number: i64, trade_no: &str) -> PaymentOrderRow {
    let content = Content {
        kind: PaymentKind::Order,
        currency: Currency::parse("USDT").expect("a code"),
        amount: Amount::from_micros(10_500_000),
        merchant_user_id: Some("payer 7".to_owned()),
        channel_id: None,
        goods_name: Some("Tea, \u{8336}".to_owned()),
        goods_detail: None,
    };
    let order = PaymentOrder {
        prepay_id: PrepayId::new(number, 7),
        trade_no: trade_no.to_owned(),
        content,
        terminal_type: Some("APP".to_owned()),
        return_url: Some("https://shop.example/thanks".to_owned()),
        cancel_url: None,
        status: PaymentStatus::Pending,
        created_at: at(0),
        expires_at: at(3_600_000),
        actual_amount: None,
        transact_at: None,
        paid_at: None,
        fee: None,
        revision: 1,
    };
    PaymentOrderRow {
        tenant: TENANT,
        merchant,
        application: APP,
        client_id: "app_one".to_owned(),
        actor: "application:app_one".to_owned(),
        request_id: "req1".to_owned(),
        order,
    }
}

/// What every order was asked for with.
pub fn request() -> Received {
    Received { head: "POST /v1/pay/order\nx-service-nonce: n".to_owned(), body: b"{\"a\":1}\xff".to_vec() }
}

pub fn insert_payment(row: PaymentOrderRow) -> Write {
    Write::PaymentOrder(Box::new(PaymentOrderWrite::Insert { row, received: Arc::new(request()) }))
}

/// A pending event, due at once.
pub fn event(no: i64, biz_id: &str) -> EventRow {
    EventRow {
        no: EventNo(no),
        tenant: TENANT,
        application: APP,
        client_id: "app_one".to_owned(),
        event_id: SortedId(u128::try_from(no).expect("not negative")),
        seq: 0,
        sequence: 0,
        biz_type: "CONVERT".to_owned(),
        biz_id: biz_id.to_owned(),
        biz_status: "SUCCESS".to_owned(),
        data: "{}".to_owned(),
        body: b"{\"a\":1}".to_vec(),
        created_at: at(0),
        state: DeliveryState::Pending,
        attempts: 0,
        due_at: Some(at(0)),
        behind: None,
        by_hand: false,
    }
}

pub fn defer(event: i64, behind: i64, until: i64) -> Write {
    Write::Defer { tenant: TENANT, event: EventNo(event), behind: EventNo(behind), until: at(until) }
}

pub fn enqueue(event: EventRow) -> Write {
    Write::EnqueueEvent(Arc::new(event))
}

pub fn attempt(event: i64, attempt: i64, state: DeliveryState, due_at: Option<UnixMillis>) -> Write {
    let row = AttemptRow {
        event: EventNo(event),
        attempt,
        at: at(attempt),
        outcome: Outcome::HttpStatus,
        http_status: Some(502),
        duration_ms: 12,
        address: Some("192.0.2.1:443".to_owned()),
        detail: "status 502".to_owned(),
        fence: Fence(0),
        phases: Phases {
            dns_us: Some(attempt),
            connect_us: Some(20),
            tls_us: None,
            first_byte_us: Some(400),
            total_us: Some(12_345),
            reused: Some(attempt % 2 == 0),
        },
    };
    let bytes = Some(Arc::new(wire(attempt)));
    Write::RecordAttempt { tenant: TENANT, application: APP, attempt: Arc::new(row), bytes, state, due_at }
}

/// What went over the wire: other bytes for each attempt, and none that are a text.
pub fn wire(attempt: i64) -> AttemptBytes {
    AttemptBytes {
        sent_head: format!("POST /{attempt} HTTP/1.1\r\n\r\n").into_bytes(),
        answer_head: b"HTTP/1.1 502 Bad\xff Gateway\r\n\r\n".to_vec(),
        answer_body: vec![0, 0xff, b'x'],
        answer_length: 70_000,
        is_cut: true,
    }
}

pub fn audit(action: &str) -> Write {
    audit_of(Some(TENANT), 0, action)
}

pub fn audit_of(tenant: Option<TenantNo>, ms: i64, action: &str) -> Write {
    Write::RecordAudit(Box::new(AuditRow {
        no: 777,
        tenant,
        at: at(ms),
        actor: "system".to_owned(),
        source: String::new(),
        action: action.to_owned(),
        subject: "something".to_owned(),
        before: String::new(),
        after: "{}".to_owned(),
        request_id: "req".to_owned(),
    }))
}

pub fn put(name: &str, value: &str) -> Write {
    Write::PutSetting { name: name.to_owned(), value: value.to_owned() }
}

/// Keeps an answer that replaces none.
pub fn remember(row: IdempotencyRow) -> Write {
    Write::RememberAnswer(Box::new(NewAnswer { row, ended_before: UnixMillis(i64::MIN) }))
}

pub fn answer(key: &str) -> IdempotencyRow {
    IdempotencyRow {
        scope: "tok_1 POST /merchants".to_owned(),
        key: key.to_owned(),
        body_digest: [9; 32],
        status: 201,
        answer: "{\"a\":null}".to_owned(),
        created_at: at(0),
    }
}

pub fn nonce(text: &str, ms: i64) -> ClaimKey {
    ClaimKey { tenant: TENANT, application: APP, nonce: text.to_owned(), stamped_at: at(ms) }
}

pub fn claim(text: &str, ms: i64) -> Write {
    Write::ClaimNonce(nonce(text, ms))
}

pub const fn all<K>() -> Cursor<K> {
    Cursor { after: None, limit: 1000 }
}

pub async fn commit(store: &impl Store, writes: Vec<Write>) -> Committed {
    store.commit(Batch(writes)).await.expect("is applied")
}

pub async fn conflict(store: &impl Store, writes: Vec<Write>) -> Conflict {
    match store.commit(Batch(writes)).await {
        Err(CommitError::Conflict(conflict)) => conflict,
        other => panic!("a conflict was expected, not {other:?}"),
    }
}

pub async fn unfit(store: &impl Store, writes: Vec<Write>) {
    let answer = store.commit(Batch(writes)).await;
    assert!(matches!(answer, Err(CommitError::Store(StoreError::Unfit(_)))), "{answer:?}");
}

/// An institution with one sub-account and an application, and another institution with an application.
pub async fn furnish(store: &impl Store) {
    commit(
        store,
        vec![
            Write::InsertMerchant(Box::new(merchant(INSTITUTION, "inst", TENANT, MerchantKind::Institution))),
            Write::InsertMerchant(Box::new(sub(SUB.0, "sub-a"))),
            Write::InsertApplication(Box::new(application(APP, "app_one", INSTITUTION, TENANT))),
        ],
    )
    .await;
    commit(
        store,
        vec![
            Write::InsertMerchant(Box::new(merchant(OTHER, "other", OTHER_TENANT, MerchantKind::Institution))),
            Write::InsertApplication(Box::new(application(OTHER_APP, "app_two", OTHER, OTHER_TENANT))),
        ],
    )
    .await;
}

/// Dead events of the application, from its first one on.
pub fn redelivery(id: u128) -> RedeliveryRow {
    RedeliveryRow {
        id: SortedId(id),
        client_id: "app_one".to_owned(),
        sought: Sought::every(TENANT, APP, DeliveryState::Dead),
        rate_per_s: 50,
        from_seq: 0,
        through_seq: 0,
        cursor_seq: 0,
        count: 3,
        is_at_least: false,
        done: 0,
        state: RedeliveryState::Running,
        created_at: at(5),
        ended_at: None,
    }
}

pub fn start(row: RedeliveryRow) -> Write {
    Write::Redelivery(Box::new(RedeliveryWrite::Start(row)))
}
