//! Batches as a whole, and the small tables.

use std::sync::Arc;

use countersign_domain::convert::{ConvertOrder, ConvertStatus};
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId};
use countersign_store::batch::{Conflict, Key, Write};
use countersign_store::contract::{ApplicationRow, Claimed, Cursor, EventFilter, IdempotencyRow};
use countersign_store::{AnyStore, Store};

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
        enqueue(event(1, "a")),
        Write::RememberAnswer(Box::new(answer("k"))),
        audit("everything"),
        put("a", "1"),
    ]
}

async fn nothing_of_it_is_there(store: &Any) {
    assert_eq!(store.rule_head(SUB, None).await.expect("reads"), None);
    assert_eq!(store.merchant("sub-b").await.expect("reads"), None);
    assert!(store.application("app_three").await.expect("reads").is_none());
    assert!(store.application("app_one").await.expect("reads").expect("there").secrets.is_empty());
    assert_eq!(store.token(&[1; 32]).await.expect("reads"), None);
    assert_eq!(store.convert_order_owner(OrderId::new(7).expect("in range")).await.expect("reads"), None);
    assert!(store.events(EventFilter::default(), all()).await.expect("reads").is_empty());
    assert_eq!(store.remembered(&answer("k").scope, "k").await.expect("reads"), None);
    assert!(store.audit(all()).await.expect("reads").is_empty());
    assert_eq!(store.setting("a").await.expect("reads"), None);
}

pub async fn a_refused_batch_leaves_no_trace(store: Any) {
    let mut writes = many_writes();
    writes.push(Write::Redeliver { event: EventNo(404), due_at: at(0) });
    // The same without a second write about events: refused by its last guard, before anything is written.
    let mut apart: Vec<_> = many_writes().into_iter().filter(|w| !matches!(w, Write::EnqueueEvent(_))).collect();
    apart.push(Write::Redeliver { event: EventNo(404), due_at: at(0) });
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
            Write::Redeliver { event: EventNo(1), due_at: at(5) },
            Write::HoldPending { application: APP },
        ],
    )
    .await;
    let view = store.application("app_three").await.expect("reads").expect("there");
    assert_eq!(view.application, ApplicationRow { enabled: false, revision: 2, ..row });
    assert_eq!(store.rule_versions(MerchantNo(11), all()).await.expect("reads").len(), 2);
    assert_eq!(store.convert_order(MerchantNo(11), moved.order_id).await.expect("reads"), Some(moved));
    let (stored, attempts) = store.event(SortedId(1)).await.expect("reads").expect("there");
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

pub async fn an_empty_batch_does_nothing(store: Any) {
    assert_eq!(commit(&*store, Vec::new()).await, countersign_store::Committed::default());
}

pub async fn an_answer_is_remembered_once(store: Any) {
    commit(&*store, vec![Write::RememberAnswer(Box::new(answer("k")))]).await;
    let again = vec![Write::RememberAnswer(Box::new(answer("k")))];
    assert_eq!(conflict(&*store, again).await, Conflict::Taken(Key::Idempotency));
    let scope = answer("k").scope;
    assert_eq!(store.remembered(&scope, "k").await.expect("reads"), Some(answer("k")));
    assert_eq!(store.remembered(&scope, "j").await.expect("reads"), None);
    assert_eq!(store.remembered("another", "k").await.expect("reads"), None);
}

pub async fn answers_are_forgotten_by_age(store: Any) {
    let kept =
        |key: &str, ms: i64| Write::RememberAnswer(Box::new(IdempotencyRow { created_at: at(ms), ..answer(key) }));
    commit(&*store, vec![kept("old", 1), kept("older", 0), kept("new", 2)]).await;
    commit(&*store, vec![Write::ForgetAnswers { kept_before: at(2) }]).await;
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
                store.commit(countersign_store::Batch(writes)).await.is_ok()
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("ends");
    }
    let lines = store.audit(all()).await.expect("reads");
    assert!(lines.iter().map(|l| l.no).eq((1..=48).rev()));
    assert!(lines.iter().rev().map(|l| l.action.as_str()).eq(["one", "two"].into_iter().cycle().take(48)));
    let page = store.audit(Cursor { after: Some(10), limit: 3 }).await.expect("reads");
    assert!(page.iter().map(|l| l.no).eq([9, 8, 7]));
}

pub async fn a_setting_is_replaced(store: Any) {
    assert_eq!(store.setting("a").await.expect("reads"), None);
    for value in ["1", "2"] {
        commit(&*store, vec![put("a", value)]).await;
        assert_eq!(store.setting("a").await.expect("reads").as_deref(), Some(value));
    }
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
