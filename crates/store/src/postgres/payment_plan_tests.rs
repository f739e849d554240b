//! Plans of the lists of payment orders, whose texts are made for what is asked.

use super::plan_tests::{empty, lines, pages};
use crate::postgres::payment_sql::PAYMENT_ORDERS_EDGE;
use countersign_domain::ids::{MerchantNo, TenantNo, time_ordered};
use countersign_domain::money::Amount;
use countersign_domain::payment_order::{PaymentStatus, PrepayId};
use countersign_domain::time::UnixMillis;

use crate::payment_listing::{Listing, StatementEnd, Value};
use crate::payment_order::PaymentOrderFilter;

/// An instant a few days after the first number.
const BEGAN: i64 = 1_736_000_000_000;

/// Three institutions; and a sub-account of the first.
const MERCHANTS: &str = "
    INSERT INTO merchant (merchant_no, tenant_no, merchant_id, kind, name, base_r, base_f, user_id, enabled, revision, created_at)
      SELECT n, CASE n WHEN 4 THEN 1 ELSE n END, 'm' || n, CASE n WHEN 4 THEN 'sub_account' ELSE 'institution' END, 'm', '0', 0, n, true, 1, 0
      FROM generate_series(1, 4) n;";

/// Orders of those merchants that `of` says, one in each minute: every twentieth is pending, the others are closed. The sub-account has ten.
fn orders(of: &str) -> String {
    format!(
        "INSERT INTO payment_order (tenant_no, order_no, tail, merchant_no, application_no, client_id, trade_no, kind, currency, amount, status,
           created_at, expire_at, paid_at, revision, actor, request_id)
           SELECT m.tenant_no, (({BEGAN} + n::bigint * 60000 - 1735689600000) << 19) + m.merchant_no, 0, m.merchant_no, 1, 'app', 'T-' || n,
             'order', 'USDT', 1, CASE n % 20 WHEN 0 THEN 'PENDING' ELSE 'CLOSED' END, {BEGAN} + n::bigint * 60000, {BEGAN} * 2, NULL, 2, '', ''
           FROM generate_series(1, 12000) n JOIN merchant m ON m.merchant_no < 4 OR n % 1200 = 0 WHERE m.merchant_no {of}"
    )
}

/// So many orders are looked at for a page.
const LOOKED: u32 = 100;
/// And at so many pages, of the hundred that a merchant's index has. Orders of one merchant lie together.
const PAGES_MAX: usize = 15;

async fn plan(client: &tokio_postgres::Client, begin: &str, (end, asked): StatementEnd) -> Vec<String> {
    let values = asked.iter().map(|value| match value {
        Value::Int(value) => value.to_string(),
        Value::Text(value) => format!("'{value}'"),
    });
    let values: Vec<String> = values.collect();
    let types: Vec<&str> =
        asked.iter().map(|value| if matches!(value, Value::Int(_)) { "bigint" } else { "text" }).collect();
    client.batch_execute(&format!("PREPARE asked ({}) AS {begin}{end}", types.join(", "))).await.expect("is prepared");
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS, COSTS off, TIMING off) EXECUTE asked({})", values.join(", "));
    let plan = lines(client, &explain).await;
    client.batch_execute("DEALLOCATE asked").await.expect("is let go");
    plan
}

/// Lists of all, of a merchant with most orders and of one with few: in each state, of a day and of an amount.
fn filters() -> Vec<PaymentOrderFilter> {
    let whose = [None, Some((TenantNo(1), MerchantNo(1))), Some((TenantNo(1), MerchantNo(4)))];
    let of = |of| {
        let whole = PaymentOrderFilter { of, ..PaymentOrderFilter::default() };
        let day = (Some(UnixMillis(BEGAN + 5_000 * 60_000)), Some(UnixMillis(BEGAN + 5_100 * 60_000)));
        let span = PaymentOrderFilter { from: day.0, to: day.1, ..whole.clone() };
        let dear = PaymentOrderFilter { amount_from: Some(Amount::from_micros(2)), ..whole.clone() };
        let in_state = PaymentStatus::ALL.map(|status| PaymentOrderFilter { status: Some(status), ..whole.clone() });
        let of_span = PaymentOrderFilter { status: Some(PaymentStatus::Process), ..span.clone() };
        in_state.into_iter().chain([whole, span, of_span, dear])
    };
    whose.into_iter().flat_map(of).collect()
}

#[tokio::test]
async fn a_list_of_payment_orders_is_walked_from_where_a_page_begins_to_where_it_ends() {
    let (_database, session) = empty().await;
    let client = session.client();
    let number = |n: i64| PrepayId::new(time_ordered(UnixMillis(BEGAN + n * 60_000), 0), 0);
    client.batch_execute(MERCHANTS).await.expect("is done");
    // Nothing, and nothing known; one merchant's, then of others, of whom nothing is known yet.
    let analyze = "ANALYZE payment_order, merchant".to_owned();
    for step in ["SELECT 1".to_owned(), orders("= 1"), analyze.clone(), orders("> 1"), analyze] {
        client.batch_execute(&step).await.expect("is done");
        for (filter, after) in filters().into_iter().flat_map(|of| [(of.clone(), None), (of, Some(number(9_000)))]) {
            let listing = Listing::new(&filter, UnixMillis(BEGAN), after, '$');
            let index = if filter.of.is_some() { "payment_order_pkey" } else { "payment_order_by_no" };
            // Where a look over the merchant's newest ends, or over all.
            let per_minute = if filter.of.is_some() { 1 } else { 3 };
            let newest = after.map_or(12_000, |_| 9_000);
            let end = listing.edge(LOOKED).map(|_| number(newest - i64::from(LOOKED) / per_minute));
            let look = listing.edge(LOOKED).map(|asked| (PAYMENT_ORDERS_EDGE, asked));
            for (begin, asked) in look.into_iter().chain([(PAYMENT_ORDERS_EDGE, listing.rows(end, 20))]) {
                let plan = plan(client, begin, asked).await;
                let walk = format!(" using {index} on payment_order p");
                assert!(plan.iter().any(|line| line.contains(&walk)), "{filter:?}: {plan:#?}");
                // What has both ends may be sorted.
                let sorts =
                    end.is_none() && filter.from.is_none() && plan.iter().any(|line| line.contains("->  Sort ("));
                assert!(!sorts, "{filter:?}: {plan:#?}");
                let apart = if filter.of.is_some() { 0 } else { LOOKED as usize };
                assert!(pages(&plan, &walk) <= PAGES_MAX + apart, "{filter:?}: {plan:#?}");
            }
        }
    }
}
