//! Paid orders: walked over by their numbers, page by page.

use std::sync::Arc;

use countersign_domain::ids::{MerchantNo, time_ordered};
use countersign_domain::money::Amount;
use countersign_domain::payment_order::{PaymentOrder, PaymentStatus, PrepayId};
use countersign_domain::time::UnixMillis;
use countersign_store::AnyStore;
use countersign_store::contract::Cursor;
use countersign_store::paid_order::{LATE_MS, PaidOrder, PaidOrders as _, PaidSpan, Payee};
use countersign_store::payment_order::PaymentOrderRow;

use super::payment_orders::{moved, paid};
use crate::fixtures::*;

type Any = Arc<AnyStore>;

/// An order of `merchant` that was made as number `number` and paid at `paid_ms`.
async fn pay(store: &Any, merchant: MerchantNo, number: i64, paid_ms: i64) -> PaymentOrderRow {
    let mut row = payment_order(merchant, number, &format!("T-{number}"));
    if merchant == OTHER {
        (row.tenant, row.application) = (OTHER_TENANT, OTHER_APP);
    }
    commit(&**store, vec![insert_payment(row.clone())]).await;
    let mut row = paid(&row);
    row.order.paid_at = Some(UnixMillis(paid_ms));
    row.order.actual_amount = Some(Amount::from_micros(paid_ms));
    commit(&**store, vec![moved(&row, PaymentStatus::Pending)]).await;
    row
}

const EVER: (i64, i64) = (0, i64::MAX);
/// 2026-01-01T00:00:00Z.
const NEW_YEAR: i64 = 1_767_225_600_000;
const HOUR: i64 = 3_600_000;

const OF_SUB: Payee = Payee::Merchant(TENANT, SUB);
const OF_ALL: Payee = Payee::Tenant(TENANT);

async fn walk(store: &Any, of: Payee, (from, to): (i64, i64), after: Option<PrepayId>, limit: u32) -> Vec<PaidOrder> {
    let span = PaidSpan { of, from: UnixMillis(from), to: UnixMillis(to) };
    store.paid_orders(span, Cursor { after, limit }).await.expect("reads")
}

/// All pages of so many.
async fn pages(store: &Any, of: Payee, span: (i64, i64), limit: u32) -> Vec<PaidOrder> {
    let (mut joined, mut after) = (Vec::new(), None);
    loop {
        let page = walk(store, of, span, after, limit).await;
        assert!(page.len() <= limit as usize);
        let Some(last) = page.last() else { return joined };
        after = Some(last.prepay_id);
        joined.extend(page);
    }
}

fn numbers(found: &[PaidOrder]) -> Vec<i64> {
    found.iter().map(|order| order.prepay_id.number()).collect()
}

pub async fn what_was_paid_is_walked_over_by_number(store: Any) {
    let first = pay(&store, SUB, 1, 30).await;
    for (merchant, number, paid_ms) in [(SUB, 3, 10), (INSTITUTION, 2, 20), (SUB, 4, 40), (OTHER, 5, 15)] {
        pay(&store, merchant, number, paid_ms).await;
    }
    let of_sub = walk(&store, OF_SUB, EVER, None, 9).await;
    assert_eq!(numbers(&of_sub), [1, 3, 4]);
    let PaymentOrder { prepay_id, trade_no, content, actual_amount, paid_at, fee, .. } = first.order;
    let expected = PaidOrder {
        prepay_id,
        merchant_id: "sub-a".to_owned(),
        trade_no,
        currency: content.currency,
        amount: content.amount,
        actual_amount: actual_amount.expect("it is paid"),
        paid_at: paid_at.expect("it is paid"),
        fee,
    };
    assert_eq!(of_sub[0], expected);
    let of_all = walk(&store, OF_ALL, EVER, None, 9).await;
    assert_eq!(numbers(&of_all), [1, 2, 3, 4]);
    assert_eq!(of_all[1].merchant_id, "inst");
    assert_eq!(numbers(&walk(&store, Payee::Merchant(TENANT, INSTITUTION), EVER, None, 9).await), [2]);
    assert_eq!(numbers(&walk(&store, Payee::Tenant(OTHER_TENANT), EVER, None, 9).await), [5]);
    assert!(walk(&store, Payee::Merchant(OTHER_TENANT, SUB), EVER, None, 9).await.is_empty());
}

/// Orders of six days: paid at once, as late as is not late yet and a millisecond later, days later, and on a clock that stood before the one that
/// drew their number.
async fn six_days(store: &Any) -> Vec<(MerchantNo, i64, i64)> {
    const DELAYS: [i64; 8] = [0, 1, HOUR, LATE_MS, LATE_MS + 1, 72 * HOUR, -1, -2 * HOUR];
    let mut paid = Vec::new();
    for n in 0..96 {
        let merchant = [SUB, SUB, INSTITUTION, OTHER][(n / 5) % 4];
        let drawn = NEW_YEAR + i64::try_from(n).expect("small") * 3 * HOUR / 2;
        // Some numbers are the first of their millisecond, some the last.
        let number = time_ordered(UnixMillis(drawn), if n % 3 == 0 { u64::MAX } else { 0 });
        let paid_ms = drawn + DELAYS[(n * 5 + n / 8) % DELAYS.len()];
        pay(store, merchant, number, paid_ms).await;
        paid.push((merchant, number, paid_ms));
    }
    paid
}

pub async fn pages_of_paid_orders_join_whenever_they_were_paid(store: Any) {
    let all = six_days(&store).await;
    let day = 24 * HOUR;
    let mut spans = vec![
        (i64::MIN, i64::MAX),
        (NEW_YEAR, NEW_YEAR + 9 * day),
        (NEW_YEAR + day, NEW_YEAR + 2 * day),
        (NEW_YEAR + 3 * day + 7 * HOUR, NEW_YEAR + 4 * day),
        (NEW_YEAR - 40 * day, NEW_YEAR + HOUR),
        (NEW_YEAR + 8 * day, NEW_YEAR + 90 * day),
    ];
    // And some that begin or end at the very millisecond of a payment, one of each delay among them.
    spans.extend(all[40..56].iter().map(|(_, _, paid_ms)| (*paid_ms, paid_ms + 1)));
    spans.extend(all[40..48].iter().flat_map(|(_, _, at)| [(*at, at + 5 * HOUR), (at - 5 * HOUR, *at)]));
    let mut found = 0;
    for (of, whose) in [(OF_SUB, &[SUB][..]), (OF_ALL, &[INSTITUTION, SUB][..])] {
        for span @ (from, to) in spans.iter().copied() {
            let is_in = |paid: &&(MerchantNo, i64, i64)| whose.contains(&paid.0) && (from..to).contains(&paid.2);
            let expected: Vec<i64> = all.iter().filter(is_in).map(|(_, number, _)| *number).collect();
            found += expected.len();
            for limit in [1, 2, 7, 99] {
                let joined = pages(&store, of, span, limit).await;
                assert_eq!(numbers(&joined), expected, "{of:?} {span:?} {limit}");
            }
        }
    }
    assert!(found > 250, "{found}");
}

pub async fn what_is_not_paid_or_not_in_the_span_is_not_walked_over(store: Any) {
    let made = |n: i64| time_ordered(UnixMillis(NEW_YEAR + n), 0);
    commit(&*store, vec![insert_payment(payment_order(SUB, made(9), "T-99"))]).await;
    for n in 1..=4 {
        pay(&store, SUB, made(n), NEW_YEAR + n * 10).await;
    }
    for of in [OF_SUB, OF_ALL] {
        let within = async |from: i64, to: i64| walk(&store, of, (NEW_YEAR + from, NEW_YEAR + to), None, 9).await;
        assert_eq!(numbers(&walk(&store, of, EVER, None, 9).await), [1, 2, 3, 4].map(made));
        assert_eq!(numbers(&within(20, 40).await), [2, 3].map(made), "from is in, to is out");
        assert_eq!(numbers(&within(20, 21).await), [2].map(made));
        assert!(within(20, 20).await.is_empty() && within(40, 20).await.is_empty());
        // A place before the span does not widen it.
        let before = Some(PrepayId::new(made(1), 7));
        assert_eq!(numbers(&walk(&store, of, (NEW_YEAR + 20, NEW_YEAR + 40), before, 9).await), [2, 3].map(made));
    }
}
