//! Random histories on both stores: equal answers, equal reads.

use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::{Fence, LaneSet};
use countersign_domain::rules::{Markup, RuleVersion};
use countersign_store::attempt_log::{OldRows as _, TooOld};
use countersign_store::batch::{Batch, Guard, Write};
use countersign_store::contract::{
    ApplicationFilter, ApplicationRow, Asker, ClaimKey, CommitError, Cursor, EventFilter, EventRow, Portion,
    RuleFilter, SecretRow, StoreError, TokenRow,
};
use countersign_store::conversion::{ConvertOrderFilter, ConvertWrite};
use countersign_store::payment_order::{PaymentOrderFilter, PaymentOrders as _};
use countersign_store::{AnyStore, ConvertStore as _, Store};
use proptest::prelude::*;
use rust_decimal::Decimal;

use crate::contract::last_paid::pay;
use crate::fixtures::*;
use countersign_store::testing::Database;

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Write>),
    Reserve(ClaimKey),
    Settle(ClaimKey),
    Release(ClaimKey),
    Purge(i64),
}

fn tenant_of(application: ApplicationNo) -> TenantNo {
    if application == APP { TENANT } else { OTHER_TENANT }
}

fn claim_key() -> impl Strategy<Value = ClaimKey> {
    (prop_oneof![Just(APP), Just(OTHER_APP)], 0..4u8, 0..20i64).prop_map(|(application, text, ms)| ClaimKey {
        tenant: tenant_of(application),
        application,
        nonce: format!("n{text}"),
        stamped_at: at(ms),
    })
}

fn sub_account() -> impl Strategy<Value = MerchantNo> {
    prop_oneof![Just(SUB), Just(MerchantNo(11))]
}

fn rule() -> impl Strategy<Value = Write> {
    let times = (0..9_000i64, proptest::option::of(0..9_000i64));
    (sub_account(), 1..7i64, proptest::option::of(1..6i64), 0..10_000i64, times).prop_map(
        |(merchant, no, base, markup, (effective, due))| {
            let markup = Markup::new(Decimal::new(markup, 3), Decimal::new(markup, 4)).expect("within limits");
            append(
                merchant,
                RuleVersion {
                    base_version_no: base,
                    markup,
                    effective_at: at(effective),
                    due_at: due.map(at),
                    ..version(no)
                },
            )
        },
    )
}

fn people() -> impl Strategy<Value = Write> {
    let app = |no: i64, id: u8, revision| ApplicationRow {
        revision,
        name: format!("revision {revision}"),
        ..application(ApplicationNo(no), &format!("app_{id}"), SUB, TENANT)
    };
    prop_oneof![
        (12..16i64, 0..4u8).prop_map(|(no, id)| Write::InsertMerchant(Box::new(sub(no, &format!("m{id}"))))),
        (101..104i64, 0..3u8).prop_map(move |(no, id)| Write::InsertApplication(Box::new(app(no, id, 1)))),
        (101..104i64, 0..3u8, 2..5i64)
            .prop_map(move |(no, id, revision)| Write::UpdateApplication(Box::new(app(no, id, revision)))),
        (0..3u8, 0..5i64).prop_map(|(id, ms)| Write::InsertSecret(Box::new(secret(&format!("s{id}"), APP, ms)))),
        (0..3u8, proptest::option::of(0..5i64)).prop_map(|(id, revoked)| {
            let row = SecretRow { revoked_at: revoked.map(at), ..secret(&format!("s{id}"), APP, 0) };
            Write::UpdateSecret(Box::new(row))
        }),
        (0..3u8, 0..3u8).prop_map(|(id, digest)| Write::InsertToken(Box::new(token(&format!("t{id}"), digest)))),
        (0..3u8).prop_map(|id| Write::RevokeToken { token_id: format!("t{id}"), at: at(5) }),
        (0..3u8).prop_map(|id| Write::Guard(Guard::Token { token_id: format!("t{id}") })),
        (sub_account(), 1..4i64).prop_map(|(merchant, id)| insert_order(merchant, id)),
        (1..4i64, 2..4i64, prop_oneof![Just(ConvertStatus::Success), Just(ConvertStatus::Failed)]).prop_map(
            |(id, revision, status)| {
                let order = ConvertOrder { revision, status, ..order(id) };
                Write::MoveConvertOrder { tenant: TENANT, order: Box::new(order), at: at(revision) }
            }
        ),
    ]
}

fn conversions() -> impl Strategy<Value = Write> {
    let name = |which: bool| if which { "BTC_USDT" } else { "GT_USDT" };
    prop_oneof![
        1 => (any::<bool>(), 1..4i64).prop_map(move |(which, revision)| put_rate(rate(name(which), revision))),
        1 => (any::<bool>(), 1..4i64).prop_map(move |(which, revision)| {
            let pair = rate(name(which), revision).pair;
            Write::Convert(Box::new(ConvertWrite::TellStale { pair, revision }))
        }),
        2 => (0..4u8, 0..9i64, 0..9i64).prop_map(|(id, until, ended)| {
            let (tenant, merchant, quote) = (TENANT, SUB, quote(&format!("PAY-{id}"), until));
            Write::Convert(Box::new(ConvertWrite::AddQuote { tenant, merchant, quote, ended_before: at(ended) }))
        }),
        2 => (0..3u8, 1..4i64, 0..4u8)
            .prop_map(|(request, id, quote)| execute(&format!("req{request}"), id, &format!("PAY-{quote}"))),
    ]
}

fn payments() -> impl Strategy<Value = Write> {
    // Some at the very instants at which versions are made.
    let paid_at = prop_oneof![Just(1_000i64), Just(2_000), 0..4_000i64];
    prop_oneof![
        1 => (sub_account(), 7..9i64).prop_map(|(of, n)| insert_payment(payment_order(of, n, &format!("T-{n}")))),
        2 => (sub_account(), 7..9i64, paid_at).prop_map(|(of, n, ms)| pay(&payment_order(of, n, &format!("T-{n}")), ms)),
        1 => (sub_account(), 0..3i64)
            .prop_map(|(merchant, version_no)| Write::Guard(Guard::RuleHead { tenant: TENANT, merchant, version_no })),
        1 => (sub_account(), 7..9i64, 1..3i64).prop_map(|(merchant, n, revision)| {
            let id = payment_order(merchant, n, "").order.prepay_id;
            Write::Guard(Guard::PaymentOrder { tenant: TENANT, merchant, id, revision })
        }),
    ]
}

fn state() -> impl Strategy<Value = (DeliveryState, Option<i64>)> {
    prop_oneof![
        3 => (0..50i64).prop_map(|due| (DeliveryState::Pending, Some(due))),
        // What is sent sooner must be due when it was.
        2 => Just((DeliveryState::Pending, Some(40))),
        2 => Just((DeliveryState::Held, None)),
        2 => Just((DeliveryState::Delivered, None)),
        2 => Just((DeliveryState::Dead, None)),
        1 => Just((DeliveryState::Pending, None)),
    ]
}

fn events() -> impl Strategy<Value = Write> {
    prop_oneof![
        4 => (1..9i64, 1..9u128, 0..2u8, state()).prop_map(|(no, id, biz, (state, due))| enqueue(EventRow {
            event_id: SortedId(id),
            state,
            due_at: due.map(at),
            ..event(no, &format!("biz{biz}"))
        })),
        4 => (1..9i64, 1..4i64, state()).prop_map(|(no, number, (state, due))| attempt(no, number, state, due.map(at))),
        1 => (0..50i64).prop_map(|due| Write::ReleaseHeld { tenant: TENANT, application: APP, due_at: at(due) }),
        1 => Just(Write::HoldPending { tenant: TENANT, application: APP }),
        1 => (0..50i64).prop_map(|due| Write::Turn { tenant: TENANT, application: APP, due_at: at(due) }),
        1 => (0..50i64).prop_map(|due| Write::Reassess { tenant: TENANT, merchant: None, due_at: at(due) }),
        1 => (0..2i64).prop_map(|f| Write::Guard(Guard::Lane { application: APP, fence: Fence(f) })),
        1 => (1..4i64, any::<bool>()).prop_map(|(revision, holds_changes)| Write::Guard(Guard::Application {
            application: APP,
            client_id: "app_one".to_owned(),
            revision,
            holds_changes,
        })),
        1 => (0..2i64).prop_map(|ms| Write::ForgetAnswers { kept_before: at(ms) }),
        2 => (1..9i64, 1..9i64, 0..50i64).prop_map(|(no, behind, until)| defer(no, behind, until)),
        1 => (0..5i64).prop_map(|ms| Write::ForgetBytes { tenant: TENANT, begun_before: at(ms) }),
        1 => (0..2i64, 0..2i64).prop_map(|(made, held)| Write::ForgetEvents {
            tenant: TENANT,
            application: APP,
            old: TooOld { made_before: at(made), held_before: at(held) },
        }),
        3 => (1..9i64, 0..2i64, 39..41i64, 0..50i64).prop_map(|(no, attempts, was, due)| {
            Write::SendNow { tenant: TENANT, event: EventNo(no), attempts, was_due: at(was), due_at: at(due) }
        }),
        2 => (1..9i64, 0..3i64, 0..50i64).prop_map(|(no, attempts, due)| {
            Write::Redeliver { tenant: TENANT, event: EventNo(no), attempts, due_at: at(due) }
        }),
    ]
}

pub fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        2 => claim_key().prop_map(Write::ClaimNonce),
        3 => rule(),
        5 => people(),
        5 => events(),
        1 => (0..3u8).prop_map(|key| remember(answer(&format!("k{key}")))),
        2 => (proptest::option::of(Just(TENANT)), 0..4i64, 0..9u8)
            .prop_map(|(tenant, ms, n)| audit_of(tenant, ms, &format!("action {n}"))),
        1 => (0..3u8, proptest::option::of(0..3u8), 0..3u8).prop_map(|(name, from, to)| Write::MoveSetting {
            name: format!("s{name}"),
            from: from.map(|from| from.to_string()),
            to: to.to_string(),
        }),
        1 => (0..3u8, 0..3u8)
            .prop_map(|(name, value)| Write::Guard(Guard::Setting { name: format!("s{name}"), value: value.to_string() })),
        4 => conversions(),
        8 => payments(),
        1 => (0..3u8, 0..9u8).prop_map(|(name, value)| put(&format!("s{name}"), &value.to_string())),
    ]
}

/// Nobody guards an application by what the same batch makes of it: a batch is decided by what was read before it.
fn guards_first(mut writes: Vec<Write>) -> Vec<Write> {
    writes.sort_by_key(|write| !matches!(write, Write::Guard(Guard::Application { .. })));
    writes
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => proptest::collection::vec(write(), 1..5).prop_map(guards_first).prop_map(Step::Commit),
        2 => claim_key().prop_map(Step::Reserve),
        2 => claim_key().prop_map(Step::Settle),
        1 => claim_key().prop_map(Step::Release),
        1 => (0..12i64).prop_map(Step::Purge),
    ]
}

/// What a step answered, in words.
async fn answer_of(store: &AnyStore, step: Step) -> String {
    match step {
        Step::Commit(writes) => match store.commit(Batch(writes)).await {
            Ok(committed) => format!("{committed:?}"),
            Err(CommitError::Conflict(conflict)) => format!("{conflict:?}"),
            Err(CommitError::Store(StoreError::Unfit(_))) => "unfit".to_owned(),
            Err(other) => format!("not expected: {other:?}"),
        },
        Step::Reserve(claim) => format!("{:?}", store.reserve(&claim).await.expect("answers")),
        Step::Settle(claim) => format!("{:?}", store.settle(claim).await.expect("answers")),
        Step::Release(claim) => {
            store.release(&claim);
            String::new()
        }
        Step::Purge(ms) => format!("{:?}", store.purge_nonces(at(ms)).await.is_ok()),
    }
}

/// Lists of events for operators, some of which go on and look at few.
async fn lists_of_events(store: &AnyStore) -> Vec<String> {
    let mut seen = vec![format!("{:?}", store.events(EventFilter::default(), all(), 9).await.expect("reads"))];
    for state in DeliveryState::ALL {
        let filter = EventFilter { state: Some(state), biz_id: Some("biz0".to_owned()), ..EventFilter::default() };
        seen.push(format!("{:?}", store.events(filter, all(), 2).await.expect("reads")));
        let own = EventFilter { state: Some(state), client_id: Some("app_one".to_owned()), ..EventFilter::default() };
        for (after, limit, looked_max) in [(None, 1, 2), (Some(5), 2, 1), (Some(3), 9, 3)] {
            for filter in [own.clone(), EventFilter { client_id: None, ..own.clone() }] {
                let page = store.events(filter, Cursor { after, limit }, looked_max).await.expect("reads");
                seen.push(format!("{page:?}"));
            }
        }
    }
    seen
}

/// What is old where age is looked at.
const OLD: TooOld = TooOld { made_before: at(1), held_before: at(1) };

/// What is old, of one tenant and application.
async fn stretches(store: &AnyStore) -> Vec<String> {
    let (events, bytes) = (Cursor { after: Some(1), limit: 2 }, Cursor { after: None, limit: 2 });
    vec![
        format!("{:?}", store.old_events_of(Asker::Operator, (TENANT, APP), OLD, events).await.expect("reads")),
        format!("{:?}", store.old_bytes_of(Asker::Operator, TENANT, at(3), bytes).await.expect("reads")),
    ]
}

/// Everything that can be read, in words.
pub async fn everything(store: &AnyStore) -> Vec<String> {
    let mut seen = vec![
        format!("{:?}", store.merchants(None, None, all()).await.expect("reads")),
        format!(
            "{:?}",
            store.merchants(Some(TENANT), None, Cursor { after: Some(11), limit: 2 }).await.expect("reads")
        ),
        format!("{:?}", store.applications(Asker::Operator, ApplicationFilter::default(), all()).await.expect("reads")),
        format!("{:?}", store.audit(all()).await.expect("reads")),
        format!("{:?}", store.events_after(TENANT, APP, 1, 3).await.expect("reads")),
        format!("{:?}", store.owed(LaneSet::ALL, Cursor { after: None, limit: 9 }).await.expect("reads")),
        format!(
            "{:?}",
            store
                .pending_of(Portion { of: vec![(TENANT, APP)], known: vec![EventNo(2)], limit: 3 })
                .await
                .expect("reads")
        ),
        format!("{:?}", store.turning(LaneSet::ALL, Cursor { after: None, limit: 9 }).await.expect("reads")),
        format!("{:?}", store.old_bytes(Asker::Operator, at(3), 9, all()).await.expect("reads")),
        format!("{:?}", store.old_events(Asker::Operator, OLD, 9, all()).await.expect("reads")),
        format!("{:?}", store.old_events(Asker::Operator, OLD, 2, all()).await.expect("reads")),
    ];
    seen.extend(stretches(store).await);
    seen.extend(lists_of_events(store).await);
    for now in [0, 2_500, 5_000, 9_000] {
        let page = store.rule_page(TENANT, RuleFilter::default(), at(now), 1, 3).await.expect("reads");
        seen.push(format!("{page:?}"));
    }
    seen.push(format!("{:?}", store.rates(Cursor { after: None, limit: 9 }).await.expect("reads")));
    for n in 0..4 {
        seen.push(format!("{:?}", store.quote(TENANT, SUB, &format!("PAY-{n}")).await.expect("reads")));
        seen.push(format!("{:?}", store.convert_request(TENANT, SUB, &format!("req{n}")).await.expect("reads")));
    }
    let orders = store.payment_orders(Asker::Operator, PaymentOrderFilter::default(), at(9), all(), 99);
    seen.push(format!("{:?}", orders.await.expect("reads")));
    for n in [7, 8] {
        let id = payment_order(SUB, n, "").order.prepay_id;
        seen.push(format!("{:?}", store.payment_order_moves(TENANT, id).await.expect("reads")));
        seen.push(format!("{:?}", store.payment_order_received(TENANT, SUB, id).await.expect("reads")));
    }
    for of in [SUB, MerchantNo(11)] {
        seen.push(format!("{:?}", store.rule_versions(TENANT, of, all()).await.expect("reads")));
        for as_of in [None, Some(at(2_000)), Some(at(3_500))] {
            seen.push(format!("{:?}", store.rule_head(TENANT, of, as_of).await.expect("reads")));
        }
        for id in 1..4 {
            let id = OrderId::new(id).expect("in range");
            seen.push(format!("{:?}", store.convert_order(TENANT, of, id).await.expect("reads")));
            seen.push(format!("{:?}", store.convert_order_owner(id).await.expect("reads")));
            seen.push(format!("{:?}", store.convert_moves(TENANT, id).await.expect("reads")));
        }
        for status in [None, Some(ConvertStatus::Created), Some(ConvertStatus::Failed)] {
            let filter = ConvertOrderFilter { status, of: Some((TENANT, of)) };
            seen.push(format!("{:?}", store.convert_orders(Asker::Operator, filter, all(), 2).await.expect("reads")));
            let of_all = ConvertOrderFilter { of: None, ..filter };
            seen.push(format!("{:?}", store.convert_orders(Asker::Operator, of_all, all(), 2).await.expect("reads")));
        }
    }
    for n in 0..9u8 {
        seen.push(format!("{:?}", store.event(Asker::Operator, SortedId(u128::from(n))).await.expect("reads")));
        seen.push(format!("{:?}", store.token(&TokenRow { ..token("t", n) }.digest).await.expect("reads")));
        seen.push(format!("{:?}", store.setting(&format!("s{n}")).await.expect("reads")));
        seen.push(format!("{:?}", store.remembered(&answer("").scope, &format!("k{n}")).await.expect("reads")));
    }
    seen
}

/// The step with one timestamp for all claims of a nonce. A node that lost a nonce to another one remembers it with the timestamp
/// it was asked with, not with the other's: so it may go on refusing the text for longer, which the model does not.
fn steady(mut step: Step) -> Step {
    let steady = |claim: &mut ClaimKey| {
        let text = claim.nonce.bytes().last().map_or(0, i64::from) % 4;
        claim.stamped_at = at(3 * text);
    };
    match &mut step {
        Step::Commit(writes) => {
            for write in writes {
                if let Write::ClaimNonce(claim) = write {
                    steady(claim);
                }
            }
        }
        Step::Reserve(claim) | Step::Settle(claim) | Step::Release(claim) => steady(claim),
        Step::Purge(_) => {}
    }
    step
}

/// Two nodes on one database: each step goes to one of them. What a node reserves it alone knows, so that is left out.
async fn nodes_against_model(steps: Vec<(bool, Step)>) -> Result<(), TestCaseError> {
    let database = Database::new().await;
    let model = model().await.store;
    let nodes = [1, 2].map(|node| open_postgres(&database, node));
    let [one, two] = nodes;
    let nodes = [AnyStore::Postgres(one.await), AnyStore::Postgres(two.await)];
    for store in [&*model, &nodes[0]] {
        furnish(store).await;
        commit(store, vec![Write::InsertMerchant(Box::new(sub(11, "sub-b")))]).await;
    }
    for (on_other, step) in steps {
        let step = steady(step);
        if matches!(step, Step::Reserve(_) | Step::Release(_)) {
            continue;
        }
        let expected = answer_of(&model, step.clone()).await;
        if matches!(step, Step::Purge(_)) {
            // Every node purges now and then; one that has not yet says no to more, never to less.
            answer_of(&nodes[usize::from(!on_other)], step.clone()).await;
        }
        let found = answer_of(&nodes[usize::from(on_other)], step.clone()).await;
        prop_assert_eq!(&expected, &found, "{:?}", step);
        prop_assert!(!expected.starts_with("not expected"), "{}", expected);
    }
    let expected = everything(&model).await;
    for node in &nodes {
        prop_assert_eq!(&expected, &everything(node).await);
    }
    Ok(())
}

/// One node: every step.
async fn node_against_model(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (model, node) = (model().await, postgres().await);
    for store in [&model.store, &node.store] {
        furnish(&**store).await;
        commit(&**store, vec![Write::InsertMerchant(Box::new(sub(11, "sub-b")))]).await;
    }
    for step in steps {
        let answers = (answer_of(&model.store, step.clone()).await, answer_of(&node.store, step.clone()).await);
        prop_assert_eq!(&answers.0, &answers.1, "{:?}", step);
        prop_assert!(!answers.0.starts_with("not expected"), "{}", answers.0);
    }
    prop_assert_eq!(everything(&model.store).await, everything(&node.store).await);
    Ok(())
}

/// How many random histories a property is tried with: `default`, or what `COUNTERSIGN_TRIALS` says.
#[expect(clippy::disallowed_methods, reason = "a test's own size is no configuration of the product")]
pub fn histories(default: u32) -> ProptestConfig {
    let cases = std::env::var("COUNTERSIGN_TRIALS")
        .map_or(default, |text| text.parse().expect("COUNTERSIGN_TRIALS is a number of cases"));
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(histories(24))]

    #[test]
    fn a_history_on_postgres_gives_the_models_answers_and_reads(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(node_against_model(steps))?;
    }

    #[test]
    fn a_history_spread_over_two_nodes_gives_the_models_answers_and_reads(
        steps in proptest::collection::vec((any::<bool>(), step()), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(nodes_against_model(steps))?;
    }
}

proptest! {
    #![proptest_config(histories(48))]

    #[test]
    fn a_history_gives_equal_answers_and_equal_reads_on_both_stores(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (model, mut sqlite) = (model().await, sqlite().await);
            for store in [&model.store, &sqlite.store] {
                furnish(&**store).await;
                commit(&**store, vec![Write::InsertMerchant(Box::new(sub(11, "sub-b")))]).await;
            }
            let half = steps.len() / 2;
            for (n, step) in steps.into_iter().enumerate() {
                // Restarting in the middle changes nothing but that reservations are forgotten: make them used on both first.
                if n == half {
                    let (expected, found) = (everything(&model.store).await, everything(&sqlite.store).await);
                    prop_assert_eq!(expected, found);
                    for text in 0..4u8 {
                        for application in [APP, OTHER_APP] {
                            let claim = ClaimKey { tenant: tenant_of(application), application, nonce: format!("n{text}"), stamped_at: at(19) };
                            let answers = (answer_of(&model.store, Step::Settle(claim.clone())).await,
                                answer_of(&sqlite.store, Step::Settle(claim)).await);
                            prop_assert_eq!(&answers.0, &answers.1);
                        }
                    }
                    sqlite.reopen();
                }
                let answers = (answer_of(&model.store, step.clone()).await, answer_of(&sqlite.store, step.clone()).await);
                prop_assert_eq!(&answers.0, &answers.1, "{:?}", step);
                prop_assert!(!answers.0.starts_with("not expected"), "{}", answers.0);
            }
            prop_assert_eq!(everything(&model.store).await, everything(&sqlite.store).await);
            Ok(())
        })?;
    }
}
