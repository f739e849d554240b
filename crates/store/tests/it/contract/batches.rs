//! Batches as a whole, and the small tables.

use std::sync::Arc;

use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::payment_order::{PaymentOrder, PaymentStatus};
use countersign_store::batch::{Committed, Conflict, Guard, Key, Write};
use countersign_store::contract::{
    ApplicationRow, Asker, AttemptRow, AuditRow, ClaimKey, Claimed, Cursor, EventFilter, EventRow, IdempotencyRow,
    NewAnswer,
};
use countersign_store::payment_order::{OrderName, PaymentOrderRow, PaymentOrders as _};
use countersign_store::{AnyStore, Batch, CommitError, Store, StoreError};

use super::{conversion, payment_orders, redelivery};
use crate::fixtures::*;

type Any = Arc<AnyStore>;

/// One write of nearly every kind, none depending on another.
fn many_writes() -> Vec<Write> {
    vec![
        claim("n", 0),
        append(SUB, version(1)),
        Write::InsertMerchant(Box::new(sub(11, "sub-b"))),
        Write::InsertApplication(Box::new(application(ApplicationNo(101), "app_three", INSTITUTION, TENANT))),
        Write::InsertSecret(Box::new(secret("sec_1", APP, 1))),
        Write::InsertToken(Box::new(token("tok_1", 1))),
        insert_order(SUB, 7),
        insert_payment(payment_order(SUB, 7, "T-7")),
        enqueue(event(1, "a")),
        remember(answer("k")),
        audit("everything"),
        put("a", "1"),
    ]
}

async fn nothing_of_it_is_there(store: &Any) {
    assert_eq!(store.rule_head(TENANT, SUB, None).await.expect("reads"), None);
    assert_eq!(store.merchant("sub-b").await.expect("reads"), None);
    assert!(store.application("app_three").await.expect("reads").is_none());
    assert!(store.application("app_one").await.expect("reads").expect("there").secrets.is_empty());
    assert_eq!(store.token(&[1; 32]).await.expect("reads"), None);
    assert_eq!(store.convert_order_owner(OrderId::new(7).expect("in range")).await.expect("reads"), None);
    let trade_no = OrderName::TradeNo("T-7".to_owned());
    assert_eq!(store.payment_order(TENANT, SUB, trade_no).await.expect("reads"), None);
    assert!(store.events(EventFilter::default(), all(), 9).await.expect("reads").events.is_empty());
    assert_eq!(store.remembered(&answer("k").scope, "k").await.expect("reads"), None);
    assert!(store.audit(all()).await.expect("reads").is_empty());
    assert_eq!(store.setting("a").await.expect("reads"), None);
}

pub async fn a_refused_batch_leaves_no_trace(store: Any) {
    let mut writes = many_writes();
    writes.push(Write::Redeliver { tenant: TENANT, event: EventNo(404), attempts: 1, due_at: at(0) });
    // The same without a second write about events: refused by its last guard, before anything is written.
    let mut apart: Vec<_> = many_writes().into_iter().filter(|w| !matches!(w, Write::EnqueueEvent(_))).collect();
    apart.push(Write::Redeliver { tenant: TENANT, event: EventNo(404), attempts: 1, due_at: at(0) });
    for writes in [writes, apart] {
        assert_eq!(conflict(&*store, writes).await, Conflict::Moved(Key::Delivery(EventNo(404))));
        nothing_of_it_is_there(&store).await;
        assert_eq!(store.reserve(&nonce("n", 0)).await.expect("answers"), Claimed::Fresh);
        store.release(&nonce("n", 0));
    }
    commit(&*store, many_writes()).await;
    assert_eq!(store.setting("a").await.expect("reads").as_deref(), Some("1"));
    assert_eq!(store.reserve(&nonce("n", 0)).await.expect("answers"), Claimed::Used);
}

pub async fn a_batch_that_depends_on_itself_is_applied_in_order(store: Any) {
    let row = application(ApplicationNo(101), "app_three", MerchantNo(11), TENANT);
    let moved = ConvertOrder { status: ConvertStatus::Failed, revision: 2, ..order(7) };
    commit(
        &*store,
        vec![
            Write::InsertMerchant(Box::new(sub(11, "sub-b"))),
            Write::InsertApplication(Box::new(row.clone())),
            Write::UpdateApplication(Box::new(ApplicationRow { enabled: false, revision: 2, ..row.clone() })),
            append(MerchantNo(11), version(1)),
            append(MerchantNo(11), version(2)),
            insert_order(MerchantNo(11), 7),
            Write::MoveConvertOrder { tenant: TENANT, order: Box::new(moved.clone()), at: at(1) },
            enqueue(event(1, "a")),
            attempt(1, 1, DeliveryState::Dead, None),
            Write::Redeliver { tenant: TENANT, event: EventNo(1), attempts: 1, due_at: at(5) },
            Write::HoldPending { tenant: TENANT, application: APP },
        ],
    )
    .await;
    let view = store.application("app_three").await.expect("reads").expect("there");
    assert_eq!(view.application, ApplicationRow { enabled: false, revision: 2, ..row });
    assert_eq!(store.rule_versions(TENANT, MerchantNo(11), all()).await.expect("reads").len(), 2);
    assert_eq!(store.convert_order(TENANT, MerchantNo(11), moved.order_id).await.expect("reads"), Some(moved));
    let (stored, attempts) = store.event(Asker::Operator, SortedId(1)).await.expect("reads").expect("there");
    assert_eq!((stored.state, stored.due_at, attempts.len()), (DeliveryState::Held, None, 1));
}

pub async fn a_refused_batch_that_depends_on_itself_leaves_no_trace(store: Any) {
    let mut writes = many_writes();
    writes.extend([append(SUB, version(2)), append(SUB, version(2))]);
    assert_eq!(conflict(&*store, writes).await, Conflict::Moved(Key::RuleHead(SUB)));
    nothing_of_it_is_there(&store).await;
    assert_eq!(store.reserve(&nonce("n", 0)).await.expect("answers"), Claimed::Fresh);
}

pub async fn a_batch_of_two_tenants_is_refused(store: Any) {
    let mut theirs = event(1, "a");
    theirs.tenant = OTHER_TENANT;
    theirs.application = OTHER_APP;
    unfit(&*store, vec![put("a", "1"), append(SUB, version(1)), enqueue(theirs)]).await;
    nothing_of_it_is_there(&store).await;
}

/// That somebody's attempt was the last.
fn record(tenant: TenantNo, attempt: Arc<AttemptRow>) -> Write {
    Write::RecordAttempt { tenant, application: APP, attempt, bytes: None, state: DeliveryState::Dead, due_at: None }
}

pub async fn every_pair_of_writes_of_two_tenants_is_refused(store: Any) {
    let moved = ConvertOrder { revision: 2, ..order(7) };
    let pending = payment_order(SUB, 7, "T-7").order;
    let of = |tenant| -> Vec<Write> {
        let mut row = event(1, "a");
        row.tenant = tenant;
        let Write::RecordAttempt { attempt, .. } = attempt(1, 1, DeliveryState::Dead, None) else {
            panic!("an attempt")
        };
        vec![
            Write::ClaimNonce(ClaimKey { tenant, ..nonce("n", 0) }),
            Write::AppendRule { tenant, merchant: SUB, version: Box::new(version(1)) },
            Write::InsertConvertOrder { tenant, merchant: SUB, order: Box::new(order(7)) },
            Write::MoveConvertOrder { tenant, order: Box::new(moved.clone()), at: at(1) },
            enqueue(row),
            record(tenant, attempt),
            Write::ForgetBytes { tenant, begun_before: at(1) },
            Write::ForgetEvents { tenant, application: APP, old: too_old(at(1)) },
            Write::Turn { tenant, application: APP, due_at: at(1) },
            Write::ReleaseHeld { tenant, application: APP, due_at: at(1) },
            Write::HoldPending { tenant, application: APP },
            Write::Reassess { tenant, merchant: None, due_at: at(1) },
            Write::Redeliver { tenant, event: EventNo(1), attempts: 1, due_at: at(1) },
            Write::SendNow { tenant, event: EventNo(1), attempts: 0, was_due: at(1), due_at: at(1) },
            Write::Defer { tenant, event: EventNo(1), behind: EventNo(2), until: at(1) },
            redelivery::stop_of(tenant),
            conversion::of(tenant),
            insert_payment(PaymentOrderRow { tenant, ..payment_order(SUB, 7, "T-7") }),
            payment_orders::moved(
                &PaymentOrderRow {
                    tenant,
                    order: PaymentOrder { revision: 2, ..pending.clone() },
                    ..payment_order(SUB, 7, "T-7")
                },
                PaymentStatus::Pending,
            ),
            Write::Guard(Guard::RuleHead { tenant, merchant: SUB, version_no: 0 }),
            audit_of(Some(tenant), 0, "audit"),
        ]
    };
    for one in of(TENANT) {
        for other in of(OTHER_TENANT) {
            unfit(&*store, vec![put("a", "1"), one.clone(), other]).await;
        }
        unfit(&*store, vec![audit_of(None, 0, "the system's own"), one]).await;
    }
    nothing_of_it_is_there(&store).await;
}

pub async fn what_is_another_tenants_is_not_there(store: Any) {
    commit(&*store, vec![append(SUB, version(1)), insert_order(SUB, 7), enqueue(event(1, "a"))]).await;
    commit(&*store, vec![enqueue(event(2, "a")), attempt(2, 1, DeliveryState::Dead, None)]).await;
    let id = OrderId::new(7).expect("in range");
    assert_eq!(store.rule_head(OTHER_TENANT, SUB, None).await.expect("reads"), None);
    assert_eq!(store.rule_head(OTHER_TENANT, SUB, Some(at(9_000))).await.expect("reads"), None);
    assert!(store.rule_versions(OTHER_TENANT, SUB, all()).await.expect("reads").is_empty());
    assert_eq!(store.convert_order(OTHER_TENANT, SUB, id).await.expect("reads"), None);
    assert!(store.events_after(OTHER_TENANT, APP, 0, 10).await.expect("reads").is_empty());

    let tenant = OTHER_TENANT;
    let rule = |no| Write::AppendRule { tenant, merchant: SUB, version: Box::new(version(no)) };
    assert_eq!(conflict(&*store, vec![rule(2)]).await, Conflict::Moved(Key::RuleHead(SUB)));
    unfit(&*store, vec![rule(1)]).await;
    unfit(&*store, vec![Write::InsertConvertOrder { tenant, merchant: SUB, order: Box::new(order(8)) }]).await;
    unfit(&*store, vec![enqueue(EventRow { tenant, ..event(3, "a") })]).await;
    let moved = ConvertOrder { revision: 2, status: ConvertStatus::Failed, ..order(7) };
    let refused = conflict(&*store, vec![Write::MoveConvertOrder { tenant, order: Box::new(moved), at: at(1) }]).await;
    assert_eq!(refused, Conflict::Moved(Key::ConvertOrder(id)));
    let Write::RecordAttempt { attempt, .. } = attempt(1, 1, DeliveryState::Dead, None) else { panic!("an attempt") };
    assert_eq!(conflict(&*store, vec![record(tenant, attempt)]).await, Conflict::Moved(Key::Delivery(EventNo(1))));
    let again = Write::Redeliver { tenant, event: EventNo(2), attempts: 1, due_at: at(1) };
    assert_eq!(conflict(&*store, vec![again]).await, Conflict::Moved(Key::Delivery(EventNo(2))));
    let was_due = event(1, "a").due_at.expect("it is pending");
    let now = Write::SendNow { tenant, event: EventNo(1), attempts: 0, was_due, due_at: at(1) };
    assert_eq!(conflict(&*store, vec![now]).await, Conflict::Moved(Key::Delivery(EventNo(1))));
    commit(&*store, vec![Write::HoldPending { tenant, application: APP }]).await;
    assert_eq!(
        store.event(Asker::Operator, SortedId(1)).await.expect("reads").expect("there").0.state,
        DeliveryState::Pending
    );
    commit(&*store, vec![Write::HoldPending { tenant: TENANT, application: APP }]).await;
    commit(&*store, vec![Write::ReleaseHeld { tenant, application: APP, due_at: at(9) }]).await;
    assert_eq!(
        store.event(Asker::Operator, SortedId(1)).await.expect("reads").expect("there").0.state,
        DeliveryState::Held
    );

    assert_eq!(store.rule_versions(TENANT, SUB, all()).await.expect("reads"), [version(1)]);
    assert_eq!(store.convert_order(TENANT, SUB, id).await.expect("reads"), Some(order(7)));
    assert_eq!(store.events_after(TENANT, APP, 0, 10).await.expect("reads").len(), 2);
}

pub async fn an_empty_batch_does_nothing(store: Any) {
    assert_eq!(commit(&*store, Vec::new()).await, Committed::default());
}

pub async fn batches_that_are_handed_over_together_are_each_answered_for_themselves(store: Any) {
    commit(&*store, vec![enqueue(event(1, "a"))]).await;
    let answers = store
        .commit_each(vec![
            Batch(vec![put("a", "1"), enqueue(event(2, "a"))]),
            Batch(vec![put("b", "1"), enqueue(event(1, "a"))]),
            Batch(vec![append(SUB, version(1)), enqueue(EventRow { tenant: OTHER_TENANT, ..event(3, "a") })]),
            Batch(Vec::new()),
            Batch(vec![enqueue(event(4, "a"))]),
        ])
        .await;
    let [first, taken, unfit, empty, last] = &answers[..] else { panic!("five answers: {answers:?}") };
    assert!(matches!(taken, Err(CommitError::Conflict(Conflict::Taken(Key::Event(_))))), "{taken:?}");
    assert!(matches!(unfit, Err(CommitError::Store(StoreError::Unfit(_)))), "{unfit:?}");
    assert_eq!(empty.as_ref().expect("done").events, []);
    // Which of them is first is the store's to say.
    let numbers = |answer: &Result<Committed, CommitError>| answer.as_ref().expect("done").events[0].seq;
    let mut both = [numbers(first), numbers(last)];
    both.sort_unstable();
    assert_eq!(both, [2, 3]);
    assert_eq!(store.setting("a").await.expect("reads").as_deref(), Some("1"));
    assert_eq!(store.setting("b").await.expect("reads"), None, "it was refused whole");
    assert!(store.commit_each(Vec::new()).await.is_empty());
}

pub async fn an_answer_is_remembered_once(store: Any) {
    commit(&*store, vec![remember(answer("k"))]).await;
    let again = vec![remember(answer("k"))];
    assert_eq!(conflict(&*store, again).await, Conflict::Taken(Key::Idempotency));
    let scope = answer("k").scope;
    assert_eq!(store.remembered(&scope, "k").await.expect("reads"), Some(answer("k")));
    assert_eq!(store.remembered(&scope, "j").await.expect("reads"), None);
    assert_eq!(store.remembered("another", "k").await.expect("reads"), None);
}

pub async fn an_answer_that_has_ended_is_replaced_and_no_other(store: Any) {
    let again = |ms: i64, ended_before: i64| {
        let row = IdempotencyRow { created_at: at(ms), answer: format!("of {ms}"), ..answer("k") };
        vec![Write::RememberAnswer(Box::new(NewAnswer { row, ended_before: at(ended_before) }))]
    };
    commit(&*store, again(10, 0)).await;
    assert_eq!(conflict(&*store, again(20, 10)).await, Conflict::Taken(Key::Idempotency), "it ends at that instant");
    let scope = answer("k").scope;
    let kept = async || store.remembered(&scope, "k").await.expect("reads").expect("is there");
    assert_eq!(kept().await.answer, "of 10");
    commit(&*store, again(20, 11)).await;
    assert_eq!((kept().await.answer, kept().await.created_at), ("of 20".to_owned(), at(20)));
    let two = [again(30, 21), again(31, 22)].concat();
    assert_eq!(conflict(&*store, two).await, Conflict::Taken(Key::Idempotency), "the second meets the first");
    assert_eq!(kept().await.answer, "of 20");
}

pub async fn answers_are_forgotten_by_age(store: Any) {
    let kept = |key: &str, ms: i64| remember(IdempotencyRow { created_at: at(ms), ..answer(key) });
    commit(&*store, vec![kept("old", 1), kept("older", 0), kept("new", 2)]).await;
    let forget = || vec![Write::ForgetAnswers { kept_before: at(2) }];
    assert_eq!(commit(&*store, forget()).await.answers_forgotten, 2);
    assert_eq!(commit(&*store, forget()).await.answers_forgotten, 0, "none is left");
    let scope = answer("").scope;
    for (key, there) in [("old", false), ("older", false), ("new", true)] {
        assert_eq!(store.remembered(&scope, key).await.expect("reads").is_some(), there, "{key}");
    }
}

pub async fn audit_lines_are_numbered_without_gap(store: Any) {
    let tasks: Vec<_> = (0..32)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut writes = vec![audit("one"), audit("two")];
                if n % 4 == 0 {
                    writes.push(append(SUB, version(9)));
                }
                store.commit(Batch(writes)).await.is_ok()
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("ends");
    }
    let lines = store.audit(all()).await.expect("reads");
    assert!(lines.iter().map(|l| l.no).eq((1..=48).rev()));
    assert!(lines.iter().rev().map(|l| l.action.as_str()).eq(["one", "two"].into_iter().cycle().take(48)));
    assert_eq!(lines[38].no, 10);
    let page = store.audit(Cursor { after: Some(lines[38].key()), limit: 3 }).await.expect("reads");
    assert!(page.iter().map(|l| l.no).eq([9, 8, 7]));
}

pub async fn audit_lines_of_a_tenant_are_numbered_by_themselves(store: Any) {
    for (no, tenant, ms) in
        [(1, None, 5), (1, Some(TENANT), 1), (1, Some(OTHER_TENANT), 3), (2, Some(TENANT), 3), (2, None, 3)]
    {
        commit(&*store, vec![audit_of(tenant, ms, &format!("{no}"))]).await;
    }
    let refused = vec![audit_of(Some(TENANT), 9, "refused"), append(SUB, version(5)), append(SUB, version(6))];
    conflict(&*store, refused).await;
    commit(&*store, vec![audit_of(Some(TENANT), 2, "3"), audit_of(Some(TENANT), 2, "4")]).await;
    commit(&*store, vec![audit_of(None, 2, "3")]).await;
    // Newest first; of one time the later tenant, then the later number. The system's own are the first of their time.
    let expected = [
        (5, None, 1),
        (3, Some(OTHER_TENANT), 1),
        (3, Some(TENANT), 2),
        (3, None, 2),
        (2, Some(TENANT), 4),
        (2, Some(TENANT), 3),
        (2, None, 3),
        (1, Some(TENANT), 1),
    ];
    let mut after = None;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let page = store.audit(Cursor { after, limit: 3 }).await.expect("reads");
        after = page.last().map(AuditRow::key).or(after);
        seen.extend(page);
    }
    for line in &seen {
        assert_eq!(line.no.to_string(), line.action);
    }
    assert!(seen.iter().map(|line| (line.at.0 - at(0).0, line.tenant, line.no)).eq(expected), "{seen:?}");
}

pub async fn a_setting_is_replaced(store: Any) {
    assert_eq!(store.setting("a").await.expect("reads"), None);
    for value in ["1", "2"] {
        commit(&*store, vec![put("a", value)]).await;
        assert_eq!(store.setting("a").await.expect("reads").as_deref(), Some(value));
    }
}

fn move_setting(from: Option<&str>, to: &str) -> Write {
    Write::MoveSetting { name: "a".to_owned(), from: from.map(str::to_owned), to: to.to_owned() }
}

pub async fn a_setting_moves_from_the_value_it_has(store: Any) {
    let moved = Conflict::Moved(Key::Setting("a".to_owned()));
    assert_eq!(conflict(&*store, vec![move_setting(Some("1"), "2")]).await, moved);
    commit(&*store, vec![move_setting(None, "1")]).await;
    assert_eq!(conflict(&*store, vec![move_setting(None, "2")]).await, moved);
    assert_eq!(conflict(&*store, vec![put("b", "x"), move_setting(Some("2"), "3")]).await, moved);
    commit(&*store, vec![move_setting(Some("1"), "2"), move_setting(Some("2"), "3")]).await;
    assert_eq!(store.setting("a").await.expect("reads").as_deref(), Some("3"));
    assert_eq!(store.setting("b").await.expect("reads"), None, "a refused batch leaves no trace");
}

pub async fn a_batch_may_rest_on_a_setting(store: Any) {
    let rests_on = |value: &str| Write::Guard(Guard::Setting { name: "a".to_owned(), value: value.to_owned() });
    let moved = Conflict::Moved(Key::Setting("a".to_owned()));
    assert_eq!(conflict(&*store, vec![rests_on("1"), audit("no")]).await, moved);
    commit(&*store, vec![put("a", "1")]).await;
    commit(&*store, vec![rests_on("1"), audit("yes")]).await;
    assert_eq!(conflict(&*store, vec![rests_on("2"), audit("no")]).await, moved);
    assert_eq!(conflict(&*store, vec![put("a", "2"), rests_on("1")]).await, moved);
    assert_eq!(store.audit(all()).await.expect("reads").len(), 1);
}

pub async fn everybody_reads_his_own_writes(store: Any) {
    let tasks: Vec<_> = (0..8)
        .map(|who| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let name = format!("of {who}");
                for n in 0..50 {
                    let value = n.to_string();
                    commit(&*store, vec![put(&name, &value)]).await;
                    assert_eq!(store.setting(&name).await.expect("reads"), Some(value));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("reads what it wrote");
    }
}

pub async fn a_store_answers_a_ping(store: Any) {
    store.ping().await.expect("answers");
}
