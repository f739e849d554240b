//! Rates, quotes, and orders that are made of them: each quote once, each request one order.

use std::sync::Arc;

use countersign_domain::conversion::{Limits, Pair, Quote};
use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::ids::{MerchantNo, OrderId, TenantNo};
use countersign_domain::money::Amount;
use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::contract::{Asker, CommitError, Cursor};
use countersign_store::conversion::{
    ConvertMove, ConvertOrderFilter, ConvertOrderPage, ConvertWrite, QUOTES_FORGOTTEN_MAX, RateRow,
};
use countersign_store::{AnyStore, ConvertStore as _, Store as _};

use crate::fixtures::*;

type Any = Arc<AnyStore>;

fn pair(text: &str) -> Pair {
    Pair::parse(text).expect("a pair")
}

async fn rate_of(store: &Any, text: &str) -> Option<RateRow> {
    store.rate(&pair(text)).await.expect("reads")
}

async fn quote_of(store: &Any, id: &str) -> Option<Quote> {
    store.quote(TENANT, SUB, id).await.expect("reads")
}

fn moved(text: &str) -> Conflict {
    Conflict::Moved(Key::Rate(text.to_owned()))
}

fn tell(text: &str, revision: i64) -> Write {
    Write::Convert(Box::new(ConvertWrite::TellStale { pair: pair(text), revision }))
}

/// Makes an order of a quote, for a tenant.
pub fn of(tenant: TenantNo) -> Write {
    let (client_req_id, order) = ("req".to_owned(), order(9));
    Write::Convert(Box::new(ConvertWrite::Execute { tenant, merchant: SUB, client_req_id, order }))
}

pub async fn a_rate_changes_by_revision_and_comes_back_digit_for_digit(store: Any) {
    assert_eq!(rate_of(&store, "GT_USDT").await, None);
    assert_eq!(conflict(&*store, vec![put_rate(rate("GT_USDT", 2))]).await, moved("GT_USDT"));
    commit(&*store, vec![put_rate(rate("GT_USDT", 1)), audit_of(None, 0, "rate.put")]).await;
    assert_eq!(rate_of(&store, "GT_USDT").await, Some(rate("GT_USDT", 1)));
    assert_eq!(conflict(&*store, vec![put_rate(rate("GT_USDT", 1))]).await, moved("GT_USDT"));
    let fine = RateRow {
        rate: "0.0000000000000000001".parse().expect("a number"),
        limits: Limits { base_max: Some(Amount::from_micros(i64::MAX)), ..Limits::default() },
        updated_at: at(9),
        ..rate("GT_USDT", 2)
    };
    commit(&*store, vec![put_rate(fine.clone())]).await;
    for revision in [2, 4] {
        assert_eq!(conflict(&*store, vec![put_rate(rate("GT_USDT", revision))]).await, moved("GT_USDT"), "{revision}");
    }
    assert_eq!(rate_of(&store, "GT_USDT").await, Some(fine));
    assert_eq!(rate_of(&store, "USDT_GT").await, None, "the other way round is another pair");
    unfit(&*store, vec![put_rate(RateRow { rate: rust_decimal::Decimal::ZERO, ..rate("GT_USDT", 3) })]).await;
}

pub async fn rates_are_listed_by_pair(store: Any) {
    for name in ["GT_USDT", "BTC_USDT", "GT_BTC"] {
        commit(&*store, vec![put_rate(rate(name, 1))]).await;
    }
    let list = async |after: Option<&str>, limit| -> Vec<String> {
        let page = Cursor { after: after.map(str::to_owned), limit };
        store.rates(page).await.expect("reads").iter().map(|row| row.pair.to_string()).collect()
    };
    assert_eq!(list(None, 9).await, ["BTC_USDT", "GT_BTC", "GT_USDT"]);
    assert_eq!(list(None, 1).await, ["BTC_USDT"]);
    assert_eq!(list(Some("BTC_USDT"), 1).await, ["GT_BTC"]);
    assert_eq!(list(Some("GT_USDT"), 1).await, [] as [&str; 0]);
}

pub async fn that_a_rate_is_too_old_is_told_once_for_each_revision(store: Any) {
    assert_eq!(conflict(&*store, vec![tell("GT_USDT", 1)]).await, moved("GT_USDT"));
    commit(&*store, vec![put_rate(rate("GT_USDT", 1))]).await;
    commit(&*store, vec![tell("GT_USDT", 1)]).await;
    assert_eq!(rate_of(&store, "GT_USDT").await.map(|row| row.stale_told), Some(1));
    assert_eq!(conflict(&*store, vec![tell("GT_USDT", 1)]).await, moved("GT_USDT"));
    commit(&*store, vec![put_rate(rate("GT_USDT", 2))]).await;
    assert_eq!(rate_of(&store, "GT_USDT").await.map(|row| row.stale_told), Some(1), "a new rate does not change it");
    assert_eq!(conflict(&*store, vec![tell("GT_USDT", 1)]).await, moved("GT_USDT"), "it has come anew meanwhile");
    commit(&*store, vec![put_rate(rate("GT_USDT", 3))]).await;
    assert_eq!(
        conflict(&*store, vec![tell("GT_USDT", 2)]).await,
        moved("GT_USDT"),
        "nor is one told of that is no more"
    );
    commit(&*store, vec![tell("GT_USDT", 3)]).await;
}

pub async fn a_quote_is_seen_by_its_merchant_only(store: Any) {
    commit(&*store, vec![add_quote(quote("PAY-1", 30))]).await;
    assert_eq!(quote_of(&store, "PAY-1").await, Some(quote("PAY-1", 30)));
    for (tenant, merchant) in [(TENANT, INSTITUTION), (OTHER_TENANT, SUB), (OTHER_TENANT, OTHER)] {
        assert_eq!(store.quote(tenant, merchant, "PAY-1").await.expect("reads"), None);
    }
    let taken = Conflict::Taken(Key::Quote("PAY-1".to_owned()));
    assert_eq!(conflict(&*store, vec![add_quote(quote("PAY-1", 40))]).await, taken);
    // What is one merchant's does not stand in another's way.
    let of_other =
        |merchant| ConvertWrite::AddQuote { tenant: TENANT, merchant, quote: quote("PAY-1", 50), ended_before: at(0) };
    commit(&*store, vec![Write::Convert(Box::new(of_other(INSTITUTION)))]).await;
    assert_eq!(quote_of(&store, "PAY-1").await.map(|quote| quote.expires_at), Some(at(30)));
    unfit(&*store, vec![Write::Convert(Box::new(of_other(OTHER)))]).await;
    unfit(&*store, vec![Write::Convert(Box::new(of_other(MerchantNo(99))))]).await;
    unfit(&*store, vec![add_quote(Quote { order: OrderId::new(7), ..quote("PAY-2", 30) })]).await;
}

pub async fn quotes_that_ended_are_forgotten_a_few_with_each_new_one(store: Any) {
    let old = i64::try_from(2 * QUOTES_FORGOTTEN_MAX).expect("few");
    for n in 0..old {
        commit(&*store, vec![add_quote(quote(&format!("PAY-{n:02}"), n))]).await;
    }
    let kept = async || {
        let mut kept = Vec::new();
        for n in 0..old {
            kept.extend(quote_of(&store, &format!("PAY-{n:02}")).await.map(|_| n));
        }
        kept
    };
    let add = |id: &str, ended_before| {
        let (tenant, merchant) = (TENANT, SUB);
        let write = ConvertWrite::AddQuote { tenant, merchant, quote: quote(id, 99), ended_before: at(ended_before) };
        vec![Write::Convert(Box::new(write))]
    };
    assert_eq!(kept().await.len(), 2 * QUOTES_FORGOTTEN_MAX, "none is too old");
    commit(&*store, add("new", 3)).await;
    assert_eq!(kept().await, (3..old).collect::<Vec<_>>(), "only what ended before the instant");
    commit(&*store, add("newer", 99)).await;
    let most = i64::try_from(QUOTES_FORGOTTEN_MAX).expect("few");
    assert_eq!(kept().await, (3 + most..old).collect::<Vec<_>>(), "the oldest, and not all at once");
    let foreign =
        ConvertWrite::AddQuote { tenant: OTHER_TENANT, merchant: OTHER, quote: quote("new", 99), ended_before: at(99) };
    commit(&*store, vec![Write::Convert(Box::new(foreign))]).await;
    assert_eq!(kept().await.len(), usize::try_from(old - 3 - most).expect("few"), "another tenant's are left alone");
}

pub async fn an_order_uses_its_quote_up_and_answers_its_request_for_ever(store: Any) {
    commit(&*store, vec![add_quote(quote("PAY-1", 30)), add_quote(quote("PAY-2", 30))]).await;
    commit(&*store, vec![claim("n", 0), execute("req", 7, "PAY-1"), audit("convert_order.create")]).await;
    assert_eq!(quote_of(&store, "PAY-1").await.and_then(|quote| quote.order), OrderId::new(7));
    let order = ConvertOrder { quote_id: "PAY-1".to_owned(), ..order(7) };
    assert_eq!(store.convert_request(TENANT, SUB, "req").await.expect("reads"), Some(order.clone()));
    assert_eq!(store.convert_order(TENANT, SUB, order.order_id).await.expect("reads"), Some(order.clone()));
    for (tenant, merchant, request) in
        [(TENANT, SUB, "re"), (TENANT, SUB, "REQ"), (TENANT, INSTITUTION, "req"), (OTHER_TENANT, SUB, "req")]
    {
        assert_eq!(store.convert_request(tenant, merchant, request).await.expect("reads"), None);
    }
    // Each guard for itself, and nothing of a refused batch stays.
    let refused = [
        (execute("req", 8, "PAY-2"), Conflict::Taken(Key::ConvertRequest("req".to_owned()))),
        (execute("other", 8, "PAY-1"), Conflict::Moved(Key::Quote("PAY-1".to_owned()))),
        (execute("other", 8, "PAY-3"), Conflict::Moved(Key::Quote("PAY-3".to_owned()))),
        (execute("other", 7, "PAY-2"), Conflict::Taken(Key::ConvertOrder(order.order_id))),
    ];
    for (write, expected) in refused {
        assert_eq!(conflict(&*store, vec![claim("m", 0), write]).await, expected);
    }
    assert_eq!(store.convert_request(TENANT, SUB, "other").await.expect("reads"), None);
    assert_eq!(store.convert_order_owner(OrderId::new(8).expect("in range")).await.expect("reads"), None);
    assert_eq!(quote_of(&store, "PAY-2").await.and_then(|quote| quote.order), None);
    commit(&*store, vec![claim("m", 0), execute("other", 8, "PAY-2")]).await;
    // A request stands for the order as it is now.
    let done = ConvertOrder { status: ConvertStatus::Success, revision: 2, ..order };
    commit(&*store, vec![Write::MoveConvertOrder { tenant: TENANT, order: Box::new(done.clone()), at: at(9) }]).await;
    assert_eq!(store.convert_request(TENANT, SUB, "req").await.expect("reads"), Some(done));
}

pub async fn an_order_is_made_of_a_merchants_own_quote_only(store: Any) {
    commit(&*store, vec![add_quote(quote("PAY-1", 30))]).await;
    let by = |tenant, merchant| {
        let (client_req_id, order) = ("req".to_owned(), ConvertOrder { quote_id: "PAY-1".to_owned(), ..order(7) });
        vec![Write::Convert(Box::new(ConvertWrite::Execute { tenant, merchant, client_req_id, order }))]
    };
    let moved = Conflict::Moved(Key::Quote("PAY-1".to_owned()));
    assert_eq!(conflict(&*store, by(TENANT, INSTITUTION)).await, moved);
    assert_eq!(conflict(&*store, by(OTHER_TENANT, OTHER)).await, moved);
    unfit(&*store, by(OTHER_TENANT, SUB)).await;
    assert_eq!(quote_of(&store, "PAY-1").await, Some(quote("PAY-1", 30)));
    commit(&*store, by(TENANT, SUB)).await;
}

pub async fn a_quote_is_left_where_it_is_the_merchants_and_not_used_and_nothing_is_written(store: Any) {
    commit(&*store, vec![add_quote(quote("PAY-1", 30))]).await;
    let leave = |tenant, merchant, quote_id: &str| {
        let quote_id = quote_id.to_owned();
        vec![Write::Guard(Guard::UnusedQuote { tenant, merchant, quote_id })]
    };
    let moved = |quote_id: &str| Conflict::Moved(Key::Quote(quote_id.to_owned()));
    commit(&*store, leave(TENANT, SUB, "PAY-1")).await;
    assert_eq!(quote_of(&store, "PAY-1").await, Some(quote("PAY-1", 30)));
    assert_eq!(conflict(&*store, leave(TENANT, INSTITUTION, "PAY-1")).await, moved("PAY-1"));
    assert_eq!(conflict(&*store, leave(OTHER_TENANT, OTHER, "PAY-1")).await, moved("PAY-1"));
    assert_eq!(conflict(&*store, leave(TENANT, SUB, "PAY-2")).await, moved("PAY-2"));
    commit(&*store, vec![execute("req", 7, "PAY-1")]).await;
    assert_eq!(conflict(&*store, leave(TENANT, SUB, "PAY-1")).await, moved("PAY-1"));
}

pub async fn of_64_with_one_request_at_once_one_makes_an_order(store: Any) {
    let mut quotes: Vec<Write> = (0..64).map(|n| add_quote(quote(&format!("PAY-{n:02}"), 30))).collect();
    quotes.push(add_quote(quote("PAY-one", 30)));
    for quote in quotes {
        commit(&*store, vec![quote]).await;
    }
    for (round, same_quote) in [(0, false), (1, true)] {
        let tasks: Vec<_> = (0..64)
            .map(|n| {
                let store = Arc::clone(&store);
                // First one request and a quote for each; then a request for each and one quote.
                let (request, of) = if same_quote {
                    (format!("req-{n}"), "PAY-one".to_owned())
                } else {
                    ("req".to_owned(), format!("PAY-{n:02}"))
                };
                let write = execute(&request, 1_000 * (round + 1) + n, &of);
                tokio::spawn(async move { store.commit(Batch(vec![claim(&format!("n{round}-{n}"), 0), write])).await })
            })
            .collect();
        let mut made = 0;
        for task in tasks {
            match task.await.expect("does not panic") {
                Ok(_) => made += 1,
                Err(CommitError::Conflict(
                    Conflict::Taken(Key::ConvertRequest(_)) | Conflict::Moved(Key::Quote(_)),
                )) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert_eq!(made, 1, "of one {}", if same_quote { "quote" } else { "request" });
    }
    let of_request = store.convert_request(TENANT, SUB, "req").await.expect("reads").expect("is there");
    let used = quote_of(&store, &of_request.quote_id).await.and_then(|quote| quote.order);
    assert_eq!(used, Some(of_request.order_id));
    let orders = quote_of(&store, "PAY-one").await.and_then(|quote| quote.order);
    assert!(orders.is_some_and(|order| order.get() >= 2_000));
}

pub async fn every_state_of_an_order_is_in_its_history(store: Any) {
    commit(&*store, vec![add_quote(quote("PAY-1", 30)), execute("req", 7, "PAY-1"), insert_order(SUB, 8)]).await;
    let failed = ConvertOrder { status: ConvertStatus::Failed, revision: 2, ..order(7) };
    let step = || vec![Write::MoveConvertOrder { tenant: TENANT, order: Box::new(failed.clone()), at: at(9) }];
    commit(&*store, step()).await;
    conflict(&*store, step()).await;
    let moves = async |tenant, order: i64| {
        store.convert_moves(tenant, OrderId::new(order).expect("in range")).await.expect("reads")
    };
    let first = ConvertMove { revision: 1, status: ConvertStatus::Created, at: at(0) };
    let last = ConvertMove { revision: 2, status: ConvertStatus::Failed, at: at(9) };
    assert_eq!(moves(TENANT, 7).await, [first, last]);
    assert_eq!(moves(TENANT, 8).await, [first]);
    assert_eq!(moves(OTHER_TENANT, 7).await, []);
    assert_eq!(moves(TENANT, 9).await, []);
}

/// What a list holds, as a person would say it: of those that are led to, below the cursor, at most so many are looked at if they are looked
/// through; of those the meant ones are shown, as many as were asked for.
fn said(
    orders: &[(&str, ConvertOrder)],
    (merchant_id, status): (Option<&str>, Option<ConvertStatus>),
    cursor: &Cursor<OrderId>,
    looked_max: usize,
) -> ConvertOrderPage {
    let mut led_to: Vec<&(&str, ConvertOrder)> = orders
        .iter()
        .filter(|(of, _)| merchant_id.is_none_or(|asked| asked == *of))
        .filter(|(_, order)| cursor.after.is_none_or(|after| order.order_id < after))
        .collect();
    led_to.sort_by_key(|(_, order)| std::cmp::Reverse(order.order_id));
    let is_through = status.is_some() && (merchant_id, status) != (None, Some(ConvertStatus::Created));
    let looked = if is_through { looked_max.min(led_to.len()) } else { led_to.len() };
    let (now, later) = led_to.split_at(looked);
    let meant: Vec<_> = now.iter().filter(|(_, order)| status.is_none_or(|asked| asked == order.status)).collect();
    let shown: Vec<_> =
        meant.iter().take(cursor.limit as usize).map(|(of, order)| ((*of).to_owned(), order.clone())).collect();
    let next = if meant.len() > shown.len() {
        shown.last().map(|(_, order)| order.order_id)
    } else {
        later.first().and_then(|(_, order)| OrderId::new(order.order_id.get() + 1))
    };
    ConvertOrderPage { orders: shown, next }
}

pub async fn orders_are_listed_by_number_in_pages_that_look_at_so_many(store: Any) {
    let mut orders = Vec::new();
    for n in 1..=30 {
        let (merchant_id, tenant, of) = match n % 5 {
            0 => ("other", OTHER_TENANT, OTHER),
            1 | 2 => ("inst", TENANT, INSTITUTION),
            _ => ("sub-a", TENANT, SUB),
        };
        let made = order(n * 7 % 31 * 1_000_000_007);
        commit(&*store, vec![Write::InsertConvertOrder { tenant, merchant: of, order: Box::new(made.clone()) }]).await;
        let status = [ConvertStatus::Created, ConvertStatus::Success, ConvertStatus::Success, ConvertStatus::Failed];
        let order = match status[usize::try_from(n / 2 % 4).expect("small")] {
            ConvertStatus::Created => made,
            status => {
                let moved = ConvertOrder { status, revision: 2, ..made };
                let step = Write::MoveConvertOrder { tenant, order: Box::new(moved.clone()), at: at(9) };
                commit(&*store, vec![step]).await;
                moved
            }
        };
        orders.push((merchant_id, order));
    }
    let merchants =
        [(None, None), (Some("inst"), Some((TENANT, INSTITUTION))), (Some("other"), Some((OTHER_TENANT, OTHER)))];
    let statuses = [None, Some(ConvertStatus::Created), Some(ConvertStatus::Success), Some(ConvertStatus::Failed)];
    for (merchant_id, of) in merchants {
        for status in statuses {
            for (limit, looked_max) in [(1, 1), (2, 3), (3, 100), (100, 4), (100, 30), (100, 29)] {
                let (filter, mut after, mut pages) = (ConvertOrderFilter { status, of }, None, 0);
                loop {
                    let page = || Cursor { after, limit };
                    let found = store.convert_orders(Asker::Merchant, filter, page(), looked_max).await.expect("reads");
                    let asked = (merchant_id, status);
                    assert_eq!(found, said(&orders, asked, &page(), looked_max as usize), "{asked:?} {:?}", page());
                    pages += 1;
                    after = found.next;
                    if after.is_none() {
                        break;
                    }
                    assert!(pages < 40, "it comes to an end");
                }
            }
        }
    }
    let foreign = ConvertOrderFilter { status: None, of: Some((OTHER_TENANT, SUB)) };
    assert_eq!(
        store.convert_orders(Asker::Merchant, foreign, all(), 99).await.expect("reads"),
        ConvertOrderPage::default()
    );
}
