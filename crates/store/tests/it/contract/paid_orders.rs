//! Paid orders: walked over in the order of their payment, page by page.

use std::sync::Arc;

use countersign_domain::ids::MerchantNo;
use countersign_domain::money::Amount;
use countersign_domain::payment_order::{PaymentOrder, PaymentStatus};
use countersign_store::AnyStore;
use countersign_store::contract::Cursor;
use countersign_store::paid_order::{PaidOrder, PaidOrders as _, PaidPlace, PaidSpan, Payee};
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
    row.order.paid_at = Some(at(paid_ms));
    row.order.actual_amount = Some(Amount::from_micros(number));
    commit(&**store, vec![moved(&row, PaymentStatus::Pending)]).await;
    row
}

const EVER: (i64, i64) = (0, 1_000);

async fn walk(store: &Any, of: Payee, (from, to): (i64, i64), after: Option<PaidPlace>, limit: u32) -> Vec<PaidOrder> {
    let span = PaidSpan { of, from: at(from), to: at(to) };
    store.paid_orders(span, Cursor { after, limit }).await.expect("reads")
}

fn numbers(found: &[PaidOrder]) -> Vec<i64> {
    found.iter().map(|order| order.prepay_id.number()).collect()
}

pub async fn what_was_paid_is_walked_over_in_the_order_of_payment(store: Any) {
    let first = pay(&store, SUB, 3, 10).await;
    for (merchant, number, paid_ms) in [(SUB, 1, 30), (INSTITUTION, 2, 20), (SUB, 4, 40), (OTHER, 5, 15)] {
        pay(&store, merchant, number, paid_ms).await;
    }
    let of_sub = walk(&store, Payee::Merchant(TENANT, SUB), EVER, None, 9).await;
    assert_eq!(numbers(&of_sub), [3, 1, 4]);
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
    let of_all = walk(&store, Payee::Tenant(TENANT), EVER, None, 9).await;
    assert_eq!(numbers(&of_all), [3, 2, 1, 4]);
    assert_eq!(of_all[1].merchant_id, "inst");
    assert_eq!(numbers(&walk(&store, Payee::Merchant(TENANT, INSTITUTION), EVER, None, 9).await), [2]);
    assert_eq!(numbers(&walk(&store, Payee::Tenant(OTHER_TENANT), EVER, None, 9).await), [5]);
    assert!(walk(&store, Payee::Merchant(OTHER_TENANT, SUB), EVER, None, 9).await.is_empty());
}

pub async fn pages_of_paid_orders_join_also_where_many_were_paid_in_one_millisecond(store: Any) {
    // Numbers fall while instants rise, so that neither alone gives the order.
    for number in 1..=9 {
        pay(&store, if number % 3 == 0 { INSTITUTION } else { SUB }, number, 10 + (9 - number) / 4).await;
    }
    for of in [Payee::Merchant(TENANT, SUB), Payee::Tenant(TENANT)] {
        let whole = walk(&store, of, EVER, None, 99).await;
        assert!(whole.is_sorted_by_key(PaidOrder::place) && whole.len() >= 6);
        for limit in [1, 2, 4] {
            let (mut joined, mut after) = (Vec::new(), None);
            loop {
                let page = walk(&store, of, EVER, after, limit).await;
                assert!(page.len() <= limit as usize);
                let Some(last) = page.last() else { break };
                after = Some(last.place());
                joined.extend(page);
            }
            assert_eq!(joined, whole, "{of:?} {limit}");
        }
    }
}

pub async fn what_is_not_paid_or_not_in_the_span_is_not_walked_over(store: Any) {
    commit(&*store, vec![insert_payment(payment_order(SUB, 99, "T-99"))]).await;
    for number in 1..=4 {
        pay(&store, SUB, number, number * 10).await;
    }
    for of in [Payee::Merchant(TENANT, SUB), Payee::Tenant(TENANT)] {
        assert_eq!(numbers(&walk(&store, of, EVER, None, 9).await), [1, 2, 3, 4]);
        assert_eq!(numbers(&walk(&store, of, (20, 40), None, 9).await), [2, 3], "from is in, to is out");
        assert_eq!(numbers(&walk(&store, of, (20, 21), None, 9).await), [2]);
        assert!(
            walk(&store, of, (20, 20), None, 9).await.is_empty()
                && walk(&store, of, (40, 20), None, 9).await.is_empty()
        );
        // A place before the span does not widen it.
        let before = Some(PaidPlace(at(5), 1));
        assert_eq!(numbers(&walk(&store, of, (20, 40), before, 9).await), [2, 3]);
        let span = PaidSpan { of, from: countersign_domain::time::UnixMillis(i64::MIN), to: at(11) };
        let found = store.paid_orders(span, Cursor { after: None, limit: 9 }).await.expect("reads");
        assert_eq!(numbers(&found), [1], "from the beginning of time");
    }
}
