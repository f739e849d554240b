//! Payment orders: one for a trade number, moved by revision, listed in bounded looks, found when they have expired.

use std::sync::Arc;

use countersign_domain::fees::{self, MarkupUnit};
use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo, time_ordered};
use countersign_domain::lanes::{Lane, LaneSet};
use countersign_domain::money::Amount;
use countersign_domain::payment_order::{PaymentOrder, PaymentStatus, PrepayId};
use countersign_store::batch::{Conflict, Guard, Key, TimeSource, Write};
use countersign_store::contract::{Asker, Cursor};
use countersign_store::payment_order::{
    ExpiredFirst, OrderName, PaymentMoveRow, PaymentOrderFilter, PaymentOrderRow, PaymentOrderWrite, PaymentOrders as _,
};
use countersign_store::{AnyStore, Store as _};

use crate::fixtures::*;

type Any = Arc<AnyStore>;

/// Paid, under a rule, by the back end.
pub fn paid(row: &PaymentOrderRow) -> PaymentOrderRow {
    let order = &row.order;
    let fee = fees::fix(order.content.amount, &order.content.currency, Some(&version(1)), MarkupUnit::Percent);
    let order = PaymentOrder {
        status: PaymentStatus::Paid,
        revision: order.revision + 1,
        actual_amount: Some(order.content.amount),
        transact_at: Some(at(7)),
        paid_at: Some(at(8)),
        fee: Some(fee.expect("within bounds")),
        ..order.clone()
    };
    PaymentOrderRow { order, ..row.clone() }
}

fn closed(row: &PaymentOrderRow) -> PaymentOrderRow {
    let order = PaymentOrder { status: PaymentStatus::Closed, revision: row.order.revision + 1, ..row.order.clone() };
    PaymentOrderRow { order, ..row.clone() }
}

pub fn moved(row: &PaymentOrderRow, was: PaymentStatus) -> Write {
    Write::PaymentOrder(Box::new(PaymentOrderWrite::Move { row: row.clone(), entry: entry(row, was) }))
}

fn entry(row: &PaymentOrderRow, was: PaymentStatus) -> PaymentMoveRow {
    PaymentMoveRow {
        revision: row.order.revision,
        was,
        status: row.order.status,
        at: at(9),
        actor: "token:tok_1".to_owned(),
        request_id: "req2".to_owned(),
    }
}

async fn find(store: &Any, tenant: TenantNo, of: MerchantNo, name: OrderName) -> Option<PaymentOrderRow> {
    store.payment_order(tenant, of, name).await.expect("reads")
}

async fn stored(store: &Any, row: &PaymentOrderRow) -> PaymentOrderRow {
    find(store, row.tenant, row.merchant, OrderName::Prepay(row.order.prepay_id)).await.expect("is there")
}

pub async fn a_payment_order_is_seen_by_its_owner_only(store: Any) {
    let row = payment_order(SUB, 7, "T-7");
    commit(&*store, vec![insert_payment(row.clone())]).await;
    let (id, no) = (OrderName::Prepay(row.order.prepay_id), OrderName::TradeNo("T-7".to_owned()));
    for name in [&id, &no] {
        assert_eq!(find(&store, TENANT, SUB, name.clone()).await, Some(row.clone()));
        assert_eq!(find(&store, TENANT, INSTITUTION, name.clone()).await, None);
        assert_eq!(find(&store, OTHER_TENANT, SUB, name.clone()).await, None);
    }
    let other_tail = PrepayId::new(row.order.prepay_id.number(), 8);
    assert_eq!(find(&store, TENANT, SUB, OrderName::Prepay(other_tail)).await, None, "all of its number counts");
    assert_eq!(store.payment_order_owner(other_tail).await.expect("reads"), None);
    let (owner, found) = store.payment_order_owner(row.order.prepay_id).await.expect("reads").expect("is there");
    assert_eq!((owner.merchant_id.as_str(), found), ("sub-a", row.clone()));
    let received = store.payment_order_received(TENANT, SUB, row.order.prepay_id).await.expect("reads");
    assert_eq!(received, Some(request()));
    assert_eq!(store.payment_order_received(TENANT, INSTITUTION, row.order.prepay_id).await.expect("reads"), None);
}

pub async fn a_trade_number_is_one_order_of_its_merchant_for_ever(store: Any) {
    let row = payment_order(SUB, 7, "T-7");
    commit(&*store, vec![insert_payment(row.clone())]).await;
    commit(&*store, vec![moved(&closed(&row), PaymentStatus::Pending)]).await;
    let again = payment_order(SUB, 8, "T-7");
    let taken = Conflict::Taken(Key::TradeNo(SUB, "T-7".to_owned()));
    assert_eq!(conflict(&*store, vec![claim("n", 0), insert_payment(again.clone()), audit("no")]).await, taken);
    assert_eq!(find(&store, TENANT, SUB, OrderName::Prepay(again.order.prepay_id)).await, None);
    assert!(store.audit(all()).await.expect("reads").is_empty(), "a refused batch leaves no trace");
    // Another merchant's is another number, and so is the same in other letters.
    commit(&*store, vec![insert_payment(payment_order(INSTITUTION, 9, "T-7"))]).await;
    commit(&*store, vec![insert_payment(payment_order(SUB, 10, "t-7"))]).await;
    let same_number = payment_order(SUB, 7, "T-8");
    let taken = Conflict::Taken(Key::PaymentOrder(same_number.order.prepay_id));
    assert_eq!(conflict(&*store, vec![insert_payment(same_number)]).await, taken);
    let twice = vec![insert_payment(payment_order(SUB, 11, "T-9")), insert_payment(payment_order(SUB, 12, "T-9"))];
    assert_eq!(conflict(&*store, twice).await, Conflict::Taken(Key::TradeNo(SUB, "T-9".to_owned())));
}

pub async fn of_64_that_add_one_trade_number_at_once_one_does(store: Any) {
    for round in 0..4 {
        let no = format!("T-{round}");
        let tasks: Vec<_> = (0..64)
            .map(|n| {
                let (store, row) = (Arc::clone(&store), payment_order(SUB, 1 + round * 100 + n, &no));
                tokio::spawn(async move { store.commit(countersign_store::Batch(vec![insert_payment(row)])).await })
            })
            .collect();
        let mut added = 0;
        for task in tasks {
            match task.await.expect("ends") {
                Ok(_) => added += 1,
                Err(error) => assert!(
                    matches!(
                        error,
                        countersign_store::CommitError::Conflict(Conflict::Taken(Key::TradeNo(of, ref taken)))
                            if of == SUB && *taken == no
                    ),
                    "{error:?}"
                ),
            }
        }
        assert_eq!(added, 1);
        assert!(find(&store, TENANT, SUB, OrderName::TradeNo(no)).await.is_some());
    }
}

pub async fn a_payment_order_moves_by_revision_and_keeps_its_history(store: Any) {
    let row = payment_order(SUB, 7, "T-7");
    let process = PaymentOrder { status: PaymentStatus::Process, revision: 2, ..row.order.clone() };
    let process = PaymentOrderRow { order: process, ..row.clone() };
    let paid = paid(&process);
    // Made and moved in one batch, moved twice in another.
    commit(&*store, vec![insert_payment(row.clone()), moved(&process, PaymentStatus::Pending)]).await;
    let stale = Conflict::Moved(Key::PaymentOrder(row.order.prepay_id));
    assert_eq!(conflict(&*store, vec![moved(&process, PaymentStatus::Pending)]).await, stale);
    for (tenant, merchant) in [(OTHER_TENANT, SUB), (TENANT, INSTITUTION)] {
        let foreign = PaymentOrderRow { tenant, merchant, ..paid.clone() };
        assert_eq!(conflict(&*store, vec![moved(&foreign, PaymentStatus::Process)]).await, stale);
    }
    // Nor in the batch that adds it.
    let fresh = payment_order(SUB, 9, "T-9");
    let foreign = PaymentOrderRow { merchant: INSTITUTION, ..closed(&fresh) };
    let together = vec![insert_payment(fresh.clone()), moved(&foreign, PaymentStatus::Pending)];
    assert_eq!(conflict(&*store, together).await, Conflict::Moved(Key::PaymentOrder(fresh.order.prepay_id)));
    commit(&*store, vec![moved(&paid, PaymentStatus::Process), enqueue(event(1, "a"))]).await;
    assert_eq!(stored(&store, &row).await, paid);
    let history = store.payment_order_moves(TENANT, row.order.prepay_id).await.expect("reads");
    assert_eq!(history, [entry(&process, PaymentStatus::Pending), entry(&paid, PaymentStatus::Process)]);
    assert!(store.payment_order_moves(OTHER_TENANT, row.order.prepay_id).await.expect("reads").is_empty());
    let nobodys = payment_order(SUB, 404, "T-404");
    let stale = Conflict::Moved(Key::PaymentOrder(nobodys.order.prepay_id));
    assert_eq!(conflict(&*store, vec![moved(&closed(&nobodys), PaymentStatus::Pending)]).await, stale);
}

pub async fn a_fee_without_a_rule_is_kept_as_such(store: Any) {
    let row = payment_order(SUB, 7, "T-7");
    let mut paid = paid(&row);
    let (amount, currency) = (row.order.content.amount, row.order.content.currency.clone());
    paid.order.fee = Some(fees::fix(amount, &currency, None, MarkupUnit::Percent).expect("within bounds"));
    commit(&*store, vec![insert_payment(row.clone())]).await;
    commit(&*store, vec![moved(&paid, PaymentStatus::Pending)]).await;
    assert_eq!(stored(&store, &row).await, paid);
}

pub async fn what_is_no_order_or_no_move_is_refused(store: Any) {
    let row = payment_order(SUB, 7, "T-7");
    let begun = PaymentOrder { revision: 2, ..row.order.clone() };
    unfit(&*store, vec![insert_payment(PaymentOrderRow { order: begun, ..row.clone() })]).await;
    unfit(&*store, vec![insert_payment(paid(&row))]).await;
    unfit(&*store, vec![insert_payment(PaymentOrderRow { merchant: MerchantNo(404), ..row.clone() })]).await;
    let never_paid = PaymentOrder { status: PaymentStatus::Paid, revision: 2, ..row.order.clone() };
    unfit(&*store, vec![moved(&PaymentOrderRow { order: never_paid, ..row }, PaymentStatus::Pending)]).await;
}

pub async fn a_batch_may_rest_on_a_rule_head(store: Any) {
    let rests_on = |version_no| Write::Guard(Guard::RuleHead { tenant: TENANT, merchant: SUB, version_no });
    let stale = Conflict::Moved(Key::RuleHead(SUB));
    commit(&*store, vec![rests_on(0), audit("yes")]).await;
    assert_eq!(conflict(&*store, vec![rests_on(1), audit("no")]).await, stale);
    commit(&*store, vec![append(SUB, version(1))]).await;
    commit(&*store, vec![rests_on(1), audit("yes")]).await;
    assert_eq!(conflict(&*store, vec![rests_on(0), audit("no")]).await, stale);
    commit(&*store, vec![append(SUB, version(2)), rests_on(2)]).await;
    assert_eq!(store.audit(all()).await.expect("reads").len(), 2);
}

/// Trade numbers of a page, and where the next one goes on.
async fn list(
    store: &Any,
    filter: PaymentOrderFilter,
    now_ms: i64,
    (after, limit, looked_max): (Option<PrepayId>, u32, u32),
) -> (Vec<String>, Option<PrepayId>) {
    let page = store
        .payment_orders(Asker::Operator, filter, at(now_ms), Cursor { after, limit }, looked_max)
        .await
        .expect("reads");
    (page.orders.into_iter().map(|(owner, row)| format!("{owner} {}", row.order.trade_no)).collect(), page.next)
}

/// Seven orders of three merchants in two tenants; the third is closed, the fifth expires at 50.
async fn seven(store: &Any) {
    for n in 1..=7 {
        let number = time_ordered(at(n), 0);
        let mut row = payment_order(if n % 2 == 0 { SUB } else { INSTITUTION }, number, &format!("T-{n}"));
        row.order.created_at = at(n);
        row.order.content.amount = Amount::from_micros(n * 1_000_000);
        row.order.expires_at = at(if n == 5 { 50 } else { 9_000 });
        if n == 7 {
            (row.tenant, row.merchant, row.application) = (OTHER_TENANT, OTHER, OTHER_APP);
            "T-1".clone_into(&mut row.order.trade_no);
        }
        commit(&**store, vec![insert_payment(row.clone())]).await;
        if n == 3 {
            commit(&**store, vec![moved(&closed(&row), PaymentStatus::Pending)]).await;
        }
    }
}

pub async fn payment_orders_are_listed_newest_first_by_filter(store: Any) {
    seven(&store).await;
    let of = |filter: PaymentOrderFilter, now_ms| list(&store, filter, now_ms, (None, 9, 100));
    let plain = PaymentOrderFilter::default;
    let all_of_them =
        ["other T-1", "sub-a T-6", "inst T-5", "sub-a T-4", "inst T-3", "sub-a T-2", "inst T-1"].map(str::to_owned);
    assert_eq!(of(plain(), 10).await, (all_of_them.to_vec(), None));
    let check = async |filter, now_ms, expected: &[&str]| {
        let (found, next) = of(filter, now_ms).await;
        assert_eq!((found, next), (expected.iter().map(|text| (*text).to_owned()).collect(), None));
    };
    check(PaymentOrderFilter { of: Some((TENANT, SUB)), ..plain() }, 10, &["sub-a T-6", "sub-a T-4", "sub-a T-2"])
        .await;
    check(PaymentOrderFilter { of: Some((OTHER_TENANT, SUB)), ..plain() }, 10, &[]).await;
    let no = Some("T-1".to_owned());
    check(PaymentOrderFilter { trade_no: no.clone(), ..plain() }, 10, &["other T-1", "inst T-1"]).await;
    let own = PaymentOrderFilter { trade_no: no, of: Some((TENANT, INSTITUTION)), ..plain() };
    check(own, 10, &["inst T-1"]).await;
    let between = PaymentOrderFilter { from: Some(at(2)), to: Some(at(4)), ..plain() };
    check(between, 10, &["inst T-3", "sub-a T-2"]).await;
    let amounts = |least, most| PaymentOrderFilter {
        amount_from: Some(Amount::from_micros(least)),
        amount_to: Some(Amount::from_micros(most)),
        ..plain()
    };
    check(amounts(2_000_000, 3_000_000), 10, &["inst T-3", "sub-a T-2"]).await;
    let status = |status| PaymentOrderFilter { status: Some(status), ..plain() };
    check(status(PaymentStatus::Closed), 10, &["inst T-3"]).await;
    check(status(PaymentStatus::Expired), 49, &[]).await;
    check(status(PaymentStatus::Expired), 50, &["inst T-5"]).await;
    let pending = ["other T-1", "sub-a T-6", "sub-a T-4", "sub-a T-2", "inst T-1"];
    check(status(PaymentStatus::Pending), 50, &pending).await;
    let of_inst = PaymentOrderFilter { of: Some((TENANT, INSTITUTION)), ..status(PaymentStatus::Pending) };
    check(of_inst, 49, &["inst T-5", "inst T-1"]).await;
}

pub async fn pages_of_payment_orders_join_without_gap_whatever_is_looked_at(store: Any) {
    seven(&store).await;
    let filters = [
        PaymentOrderFilter::default(),
        PaymentOrderFilter { status: Some(PaymentStatus::Pending), ..PaymentOrderFilter::default() },
        PaymentOrderFilter { of: Some((TENANT, INSTITUTION)), ..PaymentOrderFilter::default() },
        PaymentOrderFilter { amount_to: Some(Amount::from_micros(1_000_000)), ..PaymentOrderFilter::default() },
        // What was made just outside of a time is looked at, too.
        PaymentOrderFilter {
            amount_to: Some(Amount::from_micros(1_000_000)),
            to: Some(at(2)),
            ..PaymentOrderFilter::default()
        },
    ];
    for filter in filters {
        let (whole, next) = list(&store, filter.clone(), 10, (None, 9, 100)).await;
        assert_eq!(next, None);
        for (limit, looked_max) in [(1, 100), (2, 100), (1, 1), (2, 1), (2, 3), (9, 2)] {
            let (mut joined, mut after, mut pages) = (Vec::new(), None, 0);
            loop {
                let (page, next) = list(&store, filter.clone(), 10, (after, limit, looked_max)).await;
                assert!(page.len() <= limit as usize);
                joined.extend(page);
                pages += 1;
                let Some(next) = next else { break };
                assert!(after.is_none_or(|after| next < after), "a list goes on");
                after = Some(next);
            }
            assert_eq!(joined, whole, "{filter:?} {limit} {looked_max}");
            let is_bounded = filter.amount_to.is_some() && looked_max == 1;
            assert!(!is_bounded || pages >= 7, "one was looked at for each page");
        }
    }
}

pub async fn what_has_expired_is_found_until_it_is_moved(store: Any) {
    let mut rows = Vec::new();
    for (number, expires_ms) in [(1, 30), (2, 10), (3, 20), (4, 99)] {
        let mut row = payment_order(SUB, number, &format!("T-{number}"));
        row.order.expires_at = at(expires_ms);
        commit(&*store, vec![insert_payment(row.clone())]).await;
        rows.push(row);
    }
    let expired_from = async |first, now_ms, limit| -> Vec<i64> {
        let found = store.payment_orders_expired(LaneSet::ALL, at(now_ms), first, limit).await.expect("reads");
        found.into_iter().map(|row| row.expect("reads").order.prepay_id.number()).collect()
    };
    let expired = async |now_ms, limit| expired_from(ExpiredFirst::Oldest, now_ms, limit).await;
    assert_eq!(expired(9, 9).await, [] as [i64; 0]);
    assert_eq!(expired(10, 9).await, [2]);
    assert_eq!(expired(30, 9).await, [2, 3, 1]);
    assert_eq!(expired(30, 2).await, [2, 3], "the longest expired first");
    assert_eq!(expired_from(ExpiredFirst::Newest, 30, 2).await, [1, 3], "the last expired first");
    let neighbour = ApplicationNo(APP.0 + 1);
    let mut elsewhere = PaymentOrderRow { application: neighbour, ..payment_order(SUB, 5, "T-5") };
    elsewhere.order.expires_at = at(15);
    let neighbour = application(neighbour, "app_three", SUB, TENANT);
    commit(&*store, vec![Write::InsertApplication(Box::new(neighbour))]).await;
    commit(&*store, vec![insert_payment(elsewhere.clone())]).await;
    assert_eq!(expired(30, 2).await, [2, 5], "of all lanes together no more than were asked for");
    assert_eq!(expired_from(ExpiredFirst::Newest, 30, 2).await, [1, 3]);
    let order = PaymentOrder { status: PaymentStatus::Expired, revision: 2, ..elsewhere.order.clone() };
    commit(&*store, vec![moved(&PaymentOrderRow { order, ..elsewhere }, PaymentStatus::Pending)]).await;
    let lane = LaneSet::NONE.with(Lane::of(APP));
    let found = store.payment_orders_expired(lane, at(10), ExpiredFirst::Oldest, 9).await.expect("reads");
    assert_eq!(found.into_iter().map(|row| row.expect("reads")).collect::<Vec<_>>(), [rows[1].clone()]);
    if store.is_shared() {
        let others = Lane::all().filter(|lane| *lane != Lane::of(APP)).collect();
        assert!(store.payment_orders_expired(others, at(30), ExpiredFirst::Newest, 9).await.expect("reads").is_empty());
    }
    let order = PaymentOrder { status: PaymentStatus::Expired, revision: 2, ..rows[1].order.clone() };
    let over = PaymentOrderRow { order, ..rows[1].clone() };
    commit(&*store, vec![moved(&over, PaymentStatus::Pending)]).await;
    commit(&*store, vec![moved(&paid(&rows[2]), PaymentStatus::Pending)]).await;
    assert_eq!(expired(30, 9).await, [1]);
}

/// A guard that holds until `until_ms`, by a clock that stands at `now_ms`.
fn before(now_ms: i64, until_ms: i64) -> Write {
    Write::Guard(Guard::Before { instant: at(until_ms), time: TimeSource::new(move || at(now_ms)) })
}

pub async fn what_holds_until_an_instant_is_refused_from_it_on(store: Any) {
    let (one, other) = (payment_order(SUB, 7, "T-7"), payment_order(SUB, 8, "T-8"));
    commit(&*store, vec![insert_payment(one.clone()), insert_payment(other.clone())]).await;
    let pays = |row: &PaymentOrderRow| moved(&paid(row), PaymentStatus::Pending);
    // By itself, and in a batch that no group takes.
    for rare in [vec![], vec![put("a", "1")]] {
        for now in [50, 51] {
            let batch = [vec![pays(&one), audit("no"), before(now, 50)], rare.clone()].concat();
            assert_eq!(conflict(&*store, batch).await, Conflict::Late(at(50)), "{now} {rare:?}");
        }
    }
    assert_eq!(stored(&store, &one).await, one);
    assert_eq!(store.audit(all()).await.expect("reads"), []);
    commit(&*store, vec![pays(&one), before(49, 50)]).await;
    commit(&*store, vec![pays(&other), before(49, 50), put("a", "1")]).await;
    assert_eq!([stored(&store, &one).await, stored(&store, &other).await], [paid(&one), paid(&other)]);
}

pub async fn what_holds_from_an_instant_on_is_refused_before_it(store: Any) {
    let row = payment_order(SUB, 7, "T-7");
    commit(&*store, vec![insert_payment(row.clone())]).await;
    let stands =
        Write::Guard(Guard::PaymentOrder { tenant: TENANT, merchant: SUB, id: row.order.prepay_id, revision: 1 });
    let reached = |now| Write::Guard(Guard::Reached { instant: at(50), time: TimeSource::new(move || at(now)) });
    for rare in [vec![], vec![put("a", "1")]] {
        let batch = [vec![stands.clone(), reached(49)], rare.clone()].concat();
        assert_eq!(conflict(&*store, batch).await, Conflict::Early(at(50)), "{rare:?}");
        for now in [50, 51] {
            commit(&*store, [vec![stands.clone(), reached(now)], rare.clone()].concat()).await;
        }
    }
}

/// Nodes whose clocks differ are of one mind.
pub async fn the_time_of_the_database_decides_where_it_has_one(store: Any) {
    let instant = at(50);
    let time = |now| TimeSource::of_the_database(move || at(now));
    for rare in [vec![], vec![put("a", "1")]] {
        let batch = |guard| [vec![audit("a"), Write::Guard(guard)], rare.clone()].concat();
        // A node that takes it to be 1970 still.
        let (before, reached) = (Guard::Before { instant, time: time(49) }, Guard::Reached { instant, time: time(49) });
        let (holds, refused, why) = if store.is_shared() {
            (reached, before, Conflict::Late(instant))
        } else {
            (before, reached, Conflict::Early(instant))
        };
        assert_eq!(conflict(&*store, batch(refused)).await, why, "{rare:?}");
        commit(&*store, batch(holds)).await;
    }
}

pub async fn whoever_rests_on_an_order_is_refused_once_it_has_moved(store: Any) {
    let row = payment_order(SUB, 7, "T-7");
    let rests_on = |tenant, merchant, revision| {
        Write::Guard(Guard::PaymentOrder { tenant, merchant, id: row.order.prepay_id, revision })
    };
    let refused = Conflict::Moved(Key::PaymentOrder(row.order.prepay_id));
    assert_eq!(conflict(&*store, vec![rests_on(TENANT, SUB, 1)]).await, refused, "it is not there");
    commit(&*store, vec![insert_payment(row.clone())]).await;
    for others in [rests_on(OTHER_TENANT, SUB, 1), rests_on(TENANT, INSTITUTION, 1)] {
        assert_eq!(conflict(&*store, vec![others]).await, refused);
    }
    for rare in [vec![], vec![put("a", "1")]] {
        commit(&*store, [vec![rests_on(TENANT, SUB, 1)], rare].concat()).await;
    }
    // What a batch moves itself counts.
    let pays = moved(&paid(&row), PaymentStatus::Pending);
    assert_eq!(conflict(&*store, vec![pays.clone(), rests_on(TENANT, SUB, 1)]).await, refused);
    commit(&*store, vec![pays, rests_on(TENANT, SUB, 2)]).await;
    for rare in [vec![], vec![put("a", "2")]] {
        assert_eq!(conflict(&*store, [vec![rests_on(TENANT, SUB, 1)], rare].concat()).await, refused);
    }
}
