//! Merchants that are renamed and disabled, tokens as a list, and what is used of secrets and tokens.

use std::sync::Arc;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, MerchantNo, SortedId};
use countersign_domain::lanes::LaneSet;
use countersign_domain::money::Amount;
use countersign_store::batch::{Conflict, Guard, Key, Write};
use countersign_store::contract::{
    ApplicationRow, Asker, Cursor, MerchantKind, MerchantRow, SecretUses, TokenUse, TurningRow, Uses,
};
use countersign_store::{AnyStore, Store};
use rust_decimal::Decimal;

use crate::fixtures::*;

type Any = Arc<AnyStore>;

const SUB_APP: ApplicationNo = ApplicationNo(101);

fn institution() -> MerchantRow {
    merchant(INSTITUTION, "inst", TENANT, MerchantKind::Institution)
}

fn update(row: MerchantRow) -> Write {
    Write::UpdateMerchant(Box::new(row))
}

fn reassess(merchant: Option<MerchantNo>, ms: i64) -> Write {
    Write::Reassess { tenant: TENANT, merchant, due_at: at(ms) }
}

pub async fn a_merchant_changes_by_revision(store: Any) {
    let (base_r, base_f) = (Decimal::new(125, 2), Amount::from_micros(7));
    let changed =
        MerchantRow { name: "another".to_owned(), enabled: false, base_r, base_f, revision: 2, ..institution() };
    let ignored = MerchantRow { merchant_id: "inst".to_owned(), user_id: 7, created_at: at(9), ..changed.clone() };
    commit(&*store, vec![update(ignored)]).await;
    assert_eq!(store.merchant("inst").await.expect("reads"), Some(changed.clone()));
    let moved = Conflict::Moved(Key::Merchant("inst".to_owned()));
    for revision in [2, 4] {
        assert_eq!(conflict(&*store, vec![update(MerchantRow { revision, ..changed.clone() })]).await, moved);
    }
    let nobody = MerchantRow { no: MerchantNo(404), ..changed.clone() };
    assert_eq!(conflict(&*store, vec![update(nobody)]).await, moved);
    unfit(&*store, vec![update(MerchantRow { revision: 1, ..changed })]).await;
    let later = MerchantRow { revision: 2, ..sub(12, "sub-c") };
    unfit(&*store, vec![Write::InsertMerchant(Box::new(later))]).await;
    let view = store.application("app_one").await.expect("reads").expect("there");
    assert!(!view.tenant_enabled && !view.merchant.enabled && !view.is_enabled() && view.application.enabled);
}

/// An application of the sub-account, one of the institution without a URL, and an event of each of the three.
async fn furnish_further(store: &Any) {
    let of_sub = application(SUB_APP, "app_sub", SUB, TENANT);
    let silent =
        ApplicationRow { callback_url: None, ..application(ApplicationNo(102), "app_silent", INSTITUTION, TENANT) };
    let of = |no, application, client_id: &str| {
        let mut row = event(no, "a");
        (row.application, row.client_id) = (application, client_id.to_owned());
        enqueue(row)
    };
    commit(
        &**store,
        vec![
            Write::InsertApplication(Box::new(of_sub)),
            Write::InsertApplication(Box::new(silent)),
            of(1, APP, "app_one"),
            of(2, SUB_APP, "app_sub"),
            of(3, ApplicationNo(102), "app_silent"),
        ],
    )
    .await;
}

async fn states(store: &Any) -> [(DeliveryState, Option<i64>); 3] {
    let mut found = [(DeliveryState::Dead, None); 3];
    for (place, id) in found.iter_mut().zip(1..) {
        let (row, _) = store.event(Asker::Operator, SortedId(id)).await.expect("reads").expect("there");
        *place = (row.state, row.due_at.map(|due| due.0 - at(0).0));
    }
    found
}

async fn revisions(store: &Any) -> [i64; 4] {
    let mut found = [0; 4];
    for (place, id) in found.iter_mut().zip(["app_one", "app_sub", "app_silent", "app_two"]) {
        *place = store.application_revision(id).await.expect("reads").expect("there");
    }
    found
}

/// What the dispatcher does: portions for every application that has a note, as its callbacks go out or not.
async fn turn_all(store: &Any) -> Vec<String> {
    let notes = store.turning(LaneSet::ALL, Cursor { after: None, limit: 10 }).await.expect("reads");
    for TurningRow { tenant, application, client_id, due_at } in &notes {
        let (tenant, application) = (*tenant, *application);
        let view = store.application(client_id).await.expect("reads").expect("there");
        let hold = Write::HoldPending { tenant, application };
        let release = Write::ReleaseHeld { tenant, application, due_at: *due_at };
        commit(&**store, vec![if view.goes_out() { release } else { hold }]).await;
    }
    notes.into_iter().map(|note| note.client_id).collect()
}

pub async fn what_a_merchant_may_do_decides_what_is_held(store: Any) {
    use DeliveryState::{Held, Pending};
    furnish_further(&store).await;
    let off = MerchantRow { enabled: false, revision: 2, ..sub(SUB.0, "sub-a") };
    commit(&*store, vec![update(off.clone()), reassess(Some(SUB), 5)]).await;
    assert_eq!(revisions(&store).await, [1, 2, 1, 1]);
    assert_eq!(turn_all(&store).await, ["app_sub"]);
    assert_eq!(states(&store).await, [(Pending, Some(0)), (Held, None), (Pending, Some(0))]);

    let institution_off = MerchantRow { enabled: false, revision: 2, ..institution() };
    commit(&*store, vec![update(institution_off), reassess(None, 6)]).await;
    assert_eq!(revisions(&store).await, [2, 3, 2, 1], "another tenant's applications stay as they are");
    assert_eq!(turn_all(&store).await, ["app_one", "app_sub", "app_silent"]);
    assert_eq!(states(&store).await, [(Held, None); 3]);

    // The sub-account is enabled again, but the institution over it is not.
    commit(&*store, vec![update(MerchantRow { enabled: true, revision: 3, ..off.clone() }), reassess(Some(SUB), 7)])
        .await;
    turn_all(&store).await;
    assert_eq!(states(&store).await, [(Held, None); 3]);
    commit(&*store, vec![update(MerchantRow { enabled: false, revision: 4, ..off }), reassess(Some(SUB), 7)]).await;
    commit(&*store, vec![update(MerchantRow { revision: 3, ..institution() }), reassess(None, 8)]).await;
    turn_all(&store).await;
    assert_eq!(
        states(&store).await,
        [(Pending, Some(8)), (Held, None), (Held, None)],
        "the sub-account is disabled itself, and the third has no URL"
    );
    assert_eq!(turn_all(&store).await, [] as [&str; 0], "notes go with the last portion");
    let view = store.application("app_sub").await.expect("reads").expect("there");
    assert!(view.tenant_enabled && !view.merchant.enabled && !view.is_enabled() && !view.goes_out());
}

pub async fn an_application_without_open_events_gets_no_note_from_its_merchant(store: Any) {
    furnish_further(&store).await;
    for no in 1..=3 {
        commit(&*store, vec![attempt(no, 1, DeliveryState::Dead, None)]).await;
    }
    commit(&*store, vec![reassess(None, 5)]).await;
    assert_eq!(turn_all(&store).await, [] as [&str; 0]);
}

pub async fn what_was_decided_before_a_merchant_changed_is_refused(store: Any) {
    commit(&*store, vec![reassess(None, 5)]).await;
    let row = application(APP, "app_one", INSTITUTION, TENANT);
    let late = Write::UpdateApplication(Box::new(ApplicationRow { revision: 2, ..row }));
    assert_eq!(conflict(&*store, vec![late]).await, Conflict::Moved(Key::Application("app_one".to_owned())));
    commit(&*store, vec![reassess(None, 5), reassess(Some(INSTITUTION), 5)]).await;
    let twice = store.application("app_one").await.expect("reads").expect("there").application;
    assert_eq!(twice.revision, 4, "each of two in one batch counts");
}

fn uses(secret_id: &str, minute: i64, uses: i64, last_ms: i64) -> SecretUses {
    SecretUses { secret_id: secret_id.to_owned(), minute, uses, last_used_at: at(last_ms) }
}

fn add(secrets: Vec<SecretUses>, forget_before: i64) -> Write {
    Write::AddUses(Box::new(Uses { secrets, forget_before, ..Uses::default() }))
}

pub async fn uses_of_a_secret_add_up_and_are_forgotten_by_age(store: Any) {
    for (id, of) in [("sec_1", APP), ("sec_2", APP), ("sec_theirs", OTHER_APP)] {
        commit(&*store, vec![Write::InsertSecret(Box::new(secret(id, of, 1)))]).await;
    }
    let read = |since| {
        let store = Arc::clone(&store);
        async move { store.secret_uses(APP, since).await.expect("reads") }
    };
    let of = |id: &str, count: i64| (id.to_owned(), count);
    assert_eq!(read(0).await, []);
    commit(&*store, vec![add(vec![uses("sec_1", 100, 3, 20), uses("sec_theirs", 100, 9, 1)], 0)]).await;
    commit(&*store, vec![add(vec![uses("sec_1", 100, 4, 10), uses("sec_2", 101, 1, 5)], 0)]).await;
    commit(&*store, vec![add(vec![uses("sec_1", 160, 1, 30), uses("sec_nobody", 160, 1, 30)], 0)]).await;
    assert_eq!(read(100).await, [of("sec_1", 8), of("sec_2", 1)]);
    assert_eq!(read(101).await, [of("sec_1", 1), of("sec_2", 1)]);
    assert_eq!(read(161).await, []);
    let last = |view: countersign_store::contract::ApplicationView| {
        view.secrets.into_iter().map(|s| (s.secret_id, s.last_used_at)).collect::<Vec<_>>()
    };
    let view = store.application("app_one").await.expect("reads").expect("there");
    assert_eq!(
        last(view),
        [("sec_2".to_owned(), Some(at(5))), ("sec_1".to_owned(), Some(at(30)))],
        "the latest, in whatever order they are told"
    );
    commit(&*store, vec![add(Vec::new(), 101)]).await;
    assert_eq!(read(0).await, [of("sec_1", 1), of("sec_2", 1)]);
    unfit(&*store, vec![add(vec![uses("sec_1", 160, 0, 30)], 0)]).await;
    let changed = countersign_store::contract::SecretRow { not_after: Some(at(99)), ..secret("sec_1", APP, 1) };
    commit(&*store, vec![Write::UpdateSecret(Box::new(changed))]).await;
    let view = store.application("app_one").await.expect("reads").expect("there");
    assert_eq!(view.secrets[1].last_used_at, Some(at(30)), "a change of a secret says nothing of its use");
    assert_eq!(view.application.revision, 1, "nor its use of the application");
}

pub async fn of_64_that_add_uses_at_once_none_is_lost(store: Any) {
    for n in 0..8 {
        commit(&*store, vec![Write::InsertSecret(Box::new(secret(&format!("sec_{n}"), APP, n)))]).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..64 {
        let store = Arc::clone(&store);
        let mut all: Vec<SecretUses> = (0..8).map(|id| uses(&format!("sec_{id}"), 100, 1, n)).collect();
        // In whatever order.
        all.rotate_left(usize::try_from(n % 8).expect("below 8"));
        tasks.spawn(async move { commit(&*store, vec![add(all, 0)]).await });
    }
    tasks.join_all().await;
    let all = store.secret_uses(APP, 0).await.expect("reads");
    assert_eq!((all.len(), all.iter().map(|(_, uses)| uses).sum::<i64>()), (8, 512));
}

pub async fn tokens_are_listed_by_id_with_their_last_use(store: Any) {
    for (id, digest) in [("tok_2", 2), ("tok_1", 1), ("tok_3", 3)] {
        commit(&*store, vec![Write::InsertToken(Box::new(token(id, digest)))]).await;
    }
    let list = |after: Option<&str>, limit| {
        let (store, after) = (Arc::clone(&store), after.map(str::to_owned));
        async move {
            let rows = store.tokens(Cursor { after, limit }).await.expect("reads");
            rows.into_iter().map(|t| (t.token_id, t.last_used_at)).collect::<Vec<_>>()
        }
    };
    let of = |id: &str, used| (id.to_owned(), used);
    assert_eq!(list(None, 2).await, [of("tok_1", None), of("tok_2", None)]);
    assert_eq!(list(Some("tok_2"), 2).await, [of("tok_3", None)]);
    let used = |id: &str, ms| TokenUse { token_id: id.to_owned(), last_used_at: at(ms) };
    for tokens in [vec![used("tok_1", 5), used("tok_nobody", 5)], vec![used("tok_1", 3), used("tok_3", 7)]] {
        let uses = Uses { tokens, ..Uses::default() };
        commit(&*store, vec![Write::AddUses(Box::new(uses))]).await;
    }
    assert_eq!(list(None, 9).await, [of("tok_1", Some(at(5))), of("tok_2", None), of("tok_3", Some(at(7)))]);
    assert_eq!(store.token_by_id("tok_2").await.expect("reads"), Some(token("tok_2", 2)));
    assert_eq!(store.token_by_id("tok_9").await.expect("reads"), None);
}

pub async fn a_last_use_of_a_clock_that_was_ahead_gives_way_to_the_next_one(store: Any) {
    // Ahead of the time of a shared store, too.
    const NOW: i64 = 4_000_000_000_000;
    const APART: i64 = countersign_domain::time::CLOCKS_APART_MS_MAX;
    commit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_1", APP, 1)))]).await;
    commit(&*store, vec![Write::InsertToken(Box::new(token("tok_1", 1)))]).await;
    let used = async |ms, noted_at: i64| {
        let tokens = vec![TokenUse { token_id: "tok_1".to_owned(), last_used_at: at(ms) }];
        let secrets = vec![uses("sec_1", 100, 1, ms)];
        let uses = Uses { secrets, tokens, forget_before: 0, noted_at: Some(at(noted_at)) };
        commit(&*store, vec![Write::AddUses(Box::new(uses))]).await;
        let view = store.application("app_one").await.expect("reads").expect("there");
        let token = store.token_by_id("tok_1").await.expect("reads").expect("there");
        assert_eq!(view.secrets[0].last_used_at, token.last_used_at);
        token.last_used_at.expect("it was used").0 - at(0).0
    };
    assert_eq!(used(NOW + APART + 1, NOW + APART + 1).await, NOW + APART + 1, "the first one");
    assert_eq!(used(NOW - 5, NOW + 1).await, NOW + APART + 1, "clocks may be so far apart");
    assert_eq!(used(NOW - 5, NOW).await, NOW, "nobody knows how long ago it was");
    assert_eq!(used(NOW + 7, NOW + 8).await, NOW + 7);
    assert_eq!(used(NOW - 9, NOW + 10).await, NOW + 7, "one that is noted late does not count");
}

pub async fn a_token_stays_revoked_as_it_was_first(store: Any) {
    commit(&*store, vec![Write::InsertToken(Box::new(token("tok_1", 1)))]).await;
    let revoke = |ms| vec![Write::RevokeToken { token_id: "tok_1".to_owned(), at: at(ms) }];
    commit(&*store, revoke(5)).await;
    assert_eq!(conflict(&*store, revoke(9)).await, Conflict::Moved(Key::Token("tok_1".to_owned())));
    assert_eq!(store.token_by_id("tok_1").await.expect("reads").expect("there").revoked_at, Some(at(5)));
}

pub async fn a_batch_may_rest_on_a_token(store: Any) {
    let rests_on = |id: &str| Write::Guard(Guard::Token { token_id: id.to_owned() });
    assert_eq!(conflict(&*store, vec![rests_on("tok_1"), audit("no")]).await, Conflict::TokenRevoked);
    for (id, digest) in [("tok_1", 1), ("tok_2", 2)] {
        commit(&*store, vec![Write::InsertToken(Box::new(token(id, digest)))]).await;
    }
    let revoke = Write::RevokeToken { token_id: "tok_2".to_owned(), at: at(5) };
    commit(&*store, vec![rests_on("tok_1"), audit("yes")]).await;
    // In a group, and alone.
    commit(&*store, vec![rests_on("tok_1"), rests_on("tok_2"), revoke, audit("yes")]).await;
    for (rare, refused) in [vec![], vec![put("a", "1")]].into_iter().zip(["no", "neither"]) {
        let batch = [vec![rests_on("tok_1"), rests_on("tok_2"), audit(refused)], rare].concat();
        assert_eq!(conflict(&*store, batch).await, Conflict::TokenRevoked);
    }
    commit(&*store, vec![rests_on("tok_1"), put("b", "1"), audit("yes")]).await;
    let lines = store.audit(all()).await.expect("reads");
    assert_eq!(lines.iter().map(|line| line.action.as_str()).collect::<Vec<_>>(), ["yes"; 3]);
    assert_eq!(store.setting("a").await.expect("reads"), None, "a refused batch leaves no trace");
}
