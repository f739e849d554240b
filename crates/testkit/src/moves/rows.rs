//! A deployment with many rows of every kind, written through the store in large batches.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use countersign_domain::conversion::{Limits, Pair, Quote};
use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::delivery::{DeliveryState, Outcome, Schedule};
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::Fence;
use countersign_domain::money::{Amount, Currency};
use countersign_domain::rules::{Markup, RuleVersion};
use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::{AttemptBytes, Phases};
use countersign_store::contract::{
    ApplicationRow, AttemptRow, AuditRow, EndpointSettings, EventRow, IdempotencyRow, MerchantKind, MerchantRow,
    NewAnswer, SecretRow, SecretUses, Uses,
};
use countersign_store::conversion::{ConvertWrite, RateRow};
use countersign_store::redelivery::{DiedOf, RedeliveryRow, RedeliveryState, RedeliveryWrite, Sought};
use countersign_store::testing::rows;
use countersign_store::{Batch, SqliteOptions, SqliteStore, Store as _, Write};
use rust_decimal::Decimal;

mod payments;

/// 2026-01-02T00:00:00Z.
const BEGIN: i64 = 1_767_312_000_000;
/// Sub-accounts of each institution.
const SUBS: i64 = 4;
/// Pieces of business in one batch.
const PIECES_PER_BATCH: i64 = 400;
/// Rows that one piece of business leaves, about.
const ROWS_PER_PIECE: i64 = 9;
/// Pieces of business for one institution.
const PIECES_PER_TENANT: i64 = 2000;

fn at(n: i64) -> UnixMillis {
    UnixMillis(BEGIN + n)
}

fn id(kind: i64, n: i64) -> SortedId {
    SortedId::new(at(n), u128::from(n.unsigned_abs()) << 8 | u128::from(kind.unsigned_abs()))
}

/// Fills the database of an initialised data folder with about so many rows.
pub(super) async fn fill(data: &Path, rows: u64) -> Result<()> {
    let store = SqliteStore::open(&data.join("countersign.db"), SqliteOptions::new([7; 16], "generated"))?;
    let key = store.setting("master_key_id").await?.context("an initialised folder names its master key")?;
    let pieces = i64::try_from(rows)? / ROWS_PER_PIECE;
    let mut tenant = None;
    let mut next = 0;
    while next < pieces {
        let (of, end) = (next / PIECES_PER_TENANT, (next + PIECES_PER_BATCH).min(pieces));
        let mut writes = Vec::new();
        if tenant.replace(of) != Some(of) {
            people(of, &key, &mut writes)?;
        }
        while next < end && next / PIECES_PER_TENANT == of {
            business(of, next, &mut writes)?;
            next += 1;
        }
        store.commit(Batch(writes)).await.context("rows are written")?;
    }
    store.close().context("the file is closed")
}

fn tenant_no(of: i64) -> TenantNo {
    TenantNo(1000 * (of + 1))
}

fn people(of: i64, key: &str, writes: &mut Vec<Write>) -> Result<()> {
    let tenant = tenant_no(of);
    for n in 0..=SUBS {
        let kind = if n == 0 { MerchantKind::Institution } else { MerchantKind::SubAccount };
        writes.push(Write::InsertMerchant(Box::new(MerchantRow {
            name: format!("N\u{ba} {n} of {of}"),
            base_r: Decimal::new(5, 1),
            base_f: Amount::from_micros(100_000),
            user_id: n,
            created_at: at(of),
            ..rows::merchant(MerchantNo(tenant.0 + n), &format!("bank-{of}-{n}"), tenant, kind)
        })));
    }
    let application = ApplicationNo(tenant.0);
    writes.push(Write::InsertApplication(Box::new(ApplicationRow {
        name: "generated".to_owned(),
        enabled: of % 3 != 0,
        callback_url: (of % 2 == 0).then(|| "https://shop.example/callbacks".to_owned()),
        callback_gone_at: (of % 4 == 0).then_some(at(of)),
        endpoint: EndpointSettings {
            rate_per_s: (of % 2 == 0).then_some(9),
            concurrency: (of % 3 == 0).then_some(4),
            schedule: (of % 5 == 0).then(Schedule::default),
        },
        created_at: at(of),
        ..rows::application(application, &format!("app_{of}"), MerchantNo(tenant.0), tenant)
    })));
    writes.push(Write::Turn { tenant, application, due_at: at(of) });
    writes.push(Write::Redelivery(Box::new(RedeliveryWrite::Start(redelivery(of)))));
    writes.push(Write::Convert(Box::new(ConvertWrite::PutRate(rate(of)?))));
    writes.push(Write::InsertSecret(Box::new(SecretRow {
        key_id: key.to_owned(),
        sealed: vec![u8::try_from(of % 256)?; 60],
        signs_callbacks: true,
        created_at: at(of),
        ..rows::secret(&format!("sec_{of}"), application)
    })));
    let secrets = (0..60).map(|minute| SecretUses {
        secret_id: format!("sec_{of}"),
        minute: at(0).0 / 60_000 + minute,
        uses: of + minute + 1,
        last_used_at: at(minute),
    });
    writes.push(Write::AddUses(Box::new(Uses { secrets: secrets.collect(), ..Uses::default() })));
    Ok(())
}

/// Dead events that are sent again: the deployment was stopped in the middle of it.
fn redelivery(of: i64) -> RedeliveryRow {
    let (tenant, application) = (tenant_no(of), ApplicationNo(tenant_no(of).0));
    let biz_id = (of % 2 == 0).then(|| format!("b{of}"));
    RedeliveryRow {
        id: id(9, of),
        client_id: format!("app_{of}"),
        sought: Sought {
            tenant,
            application,
            state: DeliveryState::Dead,
            biz_id,
            from: None,
            to: Some(at(of)),
            died_of: DiedOf { outcome: Some(Outcome::HttpStatus), http_status: Some(503) },
        },
        rate_per_s: 50,
        from_seq: of,
        through_seq: 0,
        cursor_seq: of,
        count: of,
        is_at_least: of % 2 == 0,
        done: 0,
        state: RedeliveryState::Running,
        created_at: at(of),
        ended_at: None,
    }
}

/// An order that was made, perhaps moved, told about and audited; now and then a rule and an answer that is kept.
fn business(of: i64, n: i64, writes: &mut Vec<Write>) -> Result<()> {
    let tenant = tenant_no(of);
    let merchant = MerchantNo(tenant.0 + 1 + n % SUBS);
    let order = order(n)?;
    writes.push(Write::InsertConvertOrder { tenant, merchant, order: Box::new(order.clone()) });
    if n % 5 == 0 {
        let (client_req_id, quote) = (format!("req-{n}"), quote(n)?);
        let made =
            ConvertOrder { quote_id: quote.quote_id.clone(), order_id: order_id(500_000_000 + n)?, ..order.clone() };
        let ended_before = UnixMillis(0);
        writes.push(Write::Convert(Box::new(ConvertWrite::AddQuote { tenant, merchant, quote, ended_before })));
        let execute = ConvertWrite::Execute { tenant, merchant, client_req_id, order: made };
        writes.push(Write::Convert(Box::new(execute)));
    }
    if n % 2 == 0 {
        let moved = ConvertOrder { revision: 2, status: ConvertStatus::Success, ..order };
        writes.push(Write::MoveConvertOrder { tenant, order: Box::new(moved), at: at(n + 1) });
    }
    if n % 3 == 0 {
        payments::pay(tenant, merchant, n, writes)?;
    }
    writes.push(Write::EnqueueEvent(Arc::new(event(of, n))));
    writes.push(attempt(tenant, n));
    if n % 4 == 0 {
        // Each sub-account has one rule in four pieces of its institution's business: they take turns.
        let (merchant, made) = (MerchantNo(tenant.0 + 1 + (n / 4) % SUBS), n % PIECES_PER_TENANT / (4 * SUBS));
        writes.push(Write::AppendRule { tenant, merchant, version: Box::new(version(of, merchant.0, made + 1, n)?) });
    }
    if n % 8 == 0 {
        let row = IdempotencyRow {
            scope: "tok_1 POST /events".to_owned(),
            key: format!("key {n}"),
            body_digest: [9; 32],
            status: 201,
            answer: "{\"event_id\":\"evt_1\"}".to_owned(),
            created_at: at(n),
        };
        writes.push(Write::RememberAnswer(Box::new(NewAnswer { row, ended_before: at(0) })));
    }
    writes.push(Write::RecordAudit(Box::new(AuditRow {
        no: 0,
        tenant: Some(tenant),
        at: at(n),
        actor: "token:tok_1".to_owned(),
        source: "127.0.0.1".to_owned(),
        action: "convert_order.create".to_owned(),
        subject: n.to_string(),
        before: String::new(),
        after: "{\"status\":1}".to_owned(),
        request_id: format!("req{n}"),
    })));
    Ok(())
}

fn order_id(n: i64) -> Result<OrderId> {
    OrderId::new(n).context("in range")
}

/// A pair of this institution's alone, so that there are as many as institutions.
fn rate(of: i64) -> Result<RateRow> {
    Ok(RateRow {
        pair: Pair::parse(&format!("C{of}_USDT")).context("a pair")?,
        rate: Decimal::new(6_723_457 + of, 2),
        limits: Limits { base_min: Some(Amount::from_micros(100 + of)), ..Limits::default() },
        revision: 1,
        stale_told: 0,
        updated_at: at(of),
    })
}

fn quote(n: i64) -> Result<Quote> {
    let order = order(n)?;
    Ok(Quote {
        quote_id: format!("PAY-{n:08x}"),
        pair: Pair::of(order.sell_currency.clone(), order.buy_currency.clone()).context("a pair")?,
        sell_currency: order.sell_currency,
        buy_currency: order.buy_currency,
        sell_amount: order.sell_amount,
        buy_amount: order.buy_amount,
        rate: order.rate,
        created_at: at(n),
        expires_at: at(n + 30_000),
        order: None,
    })
}

fn order(n: i64) -> Result<ConvertOrder> {
    Ok(ConvertOrder {
        order_id: OrderId::new(100_000_000 + n).context("in range")?,
        user_id: n % 1000,
        sell_currency: Currency::parse("BTC").context("a code")?,
        buy_currency: Currency::parse("USDT").context("a code")?,
        sell_amount: Amount::from_micros(500_000 + n),
        buy_amount: Amount::from_micros(33_617_285_000 + n),
        status: ConvertStatus::Created,
        rate: Decimal::new(6_723_457 + n, 2),
        quote_id: format!("PAY-{n:08x}"),
        created_at: at(n),
        revision: 1,
    })
}

fn event(of: i64, n: i64) -> EventRow {
    let data = format!("{{\"merchantTradeNo\":\"T-{n}\",\"amount\":\"{n}.50\"}}");
    EventRow {
        no: EventNo(n + 1),
        tenant: tenant_no(of),
        application: ApplicationNo(tenant_no(of).0),
        client_id: format!("app_{of}"),
        event_id: id(1, n),
        seq: 0,
        sequence: 0,
        biz_type: "CONVERT".to_owned(),
        biz_id: (n / 2).to_string(),
        biz_status: "SUCCESS".to_owned(),
        body: format!("{{\"bizType\":\"CONVERT\",\"bizId\":\"{n}\",\"data\":{data}}}").into_bytes(),
        data,
        created_at: at(n),
        state: DeliveryState::Pending,
        attempts: 0,
        due_at: Some(at(n)),
        behind: None,
        by_hand: false,
    }
}

fn attempt(tenant: TenantNo, n: i64) -> Write {
    let application = ApplicationNo(tenant.0);
    let state = match n % 4 {
        0 => DeliveryState::Pending,
        1 => DeliveryState::Dead,
        2 => DeliveryState::Held,
        _ => DeliveryState::Delivered,
    };
    let attempt = AttemptRow {
        event: EventNo(n + 1),
        attempt: 1,
        at: at(n),
        outcome: if state == DeliveryState::Delivered { Outcome::Delivered } else { Outcome::HttpStatus },
        http_status: Some(if state == DeliveryState::Delivered { 200 } else { 502 }),
        duration_ms: n % 900,
        address: Some("192.0.2.1:443".to_owned()),
        detail: String::new(),
        fence: Fence(0),
        phases: Phases {
            dns_us: Some(n % 700),
            connect_us: Some(n % 90_000),
            tls_us: (n % 3 == 0).then_some(n % 50_000),
            first_byte_us: Some(n % 9_000),
            total_us: Some(1_000 * (n % 900)),
            reused: Some(n % 5 == 0),
        },
    };
    let bytes = Arc::new(AttemptBytes {
        sent_head: format!("POST /callbacks/{n} HTTP/1.1\r\n\r\n").into_bytes(),
        answer_head: b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
        answer_body: n.to_be_bytes().to_vec(),
        answer_length: 8,
        is_cut: n % 7 == 0,
    });
    let due_at = (state == DeliveryState::Pending).then(|| at(n + 5000));
    Write::RecordAttempt { tenant, application, attempt: Arc::new(attempt), bytes: Some(bytes), state, due_at }
}

/// Made later than whatever was paid in this piece of business and those before it.
fn version(of: i64, merchant: i64, no: i64, piece: i64) -> Result<RuleVersion> {
    let config = |no: i64| id(2, 1_000_000 * of + 10_000 * (merchant % 1000) + no);
    Ok(RuleVersion {
        version_no: no,
        config_id: config(no),
        previous: (no > 1).then(|| config(no - 1)),
        base_version_no: (no > 1).then_some(no - 1),
        markup: Markup::new(Decimal::new(no, 3), Decimal::ONE).context("within limits")?,
        effective_at: at(no),
        due_at: None,
        created_at: at(piece + 3),
    })
}
