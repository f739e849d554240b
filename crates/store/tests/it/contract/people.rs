//! Merchants, applications, secrets, tokens, and convert orders.

use std::sync::Arc;

use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::delivery::Schedule;
use countersign_domain::ids::{ApplicationNo, MerchantNo, OrderId, TenantNo};
use countersign_store::batch::{Conflict, Key, Write};
use countersign_store::contract::{
    ApplicationFilter, ApplicationRow, Asker, Cursor, EndpointSettings, MerchantKind, Role, SecretRow,
    SignatureEncoding, TokenRow, Vocabulary,
};
use countersign_store::public_ids::PublicIds as _;
use countersign_store::{AnyStore, Store};

use crate::fixtures::*;

type Any = Arc<AnyStore>;

pub async fn merchant_ids_and_numbers_are_new(store: Any) {
    for row in [sub(11, "sub-a"), sub(SUB.0, "sub-z")] {
        let id = row.merchant_id.clone();
        let refused = conflict(&*store, vec![Write::InsertMerchant(Box::new(row))]).await;
        assert_eq!(refused, Conflict::Taken(Key::Merchant(id)));
    }
    assert_eq!(store.merchant("sub-z").await.expect("reads"), None);
    assert_eq!(store.merchant("sub-a").await.expect("reads"), Some(sub(SUB.0, "sub-a")));
}

pub async fn merchants_are_listed_by_number(store: Any) {
    let plain = merchant(MerchantNo(5), "plain", TenantNo(5), MerchantKind::Merchant);
    commit(&*store, vec![Write::InsertMerchant(Box::new(plain.clone()))]).await;
    let ids = |tenant, kind, after, limit| {
        let store = Arc::clone(&store);
        async move {
            let rows = store.merchants(tenant, kind, Cursor { after, limit }).await.expect("reads");
            rows.into_iter().map(|m| m.merchant_id).collect::<Vec<_>>()
        }
    };
    assert_eq!(ids(None, None, None, 10).await, ["inst", "other", "plain", "sub-a"]);
    assert_eq!(ids(None, None, Some(1), 2).await, ["other", "plain"]);
    assert_eq!(ids(Some(TENANT), None, None, 10).await, ["inst", "sub-a"]);
    assert_eq!(ids(Some(TENANT), None, Some(10), 10).await, Vec::<String>::new());
    assert_eq!(ids(None, Some(MerchantKind::Institution), None, 10).await, ["inst", "other"]);
    assert_eq!(ids(Some(TENANT), Some(MerchantKind::SubAccount), None, 10).await, ["sub-a"]);
    assert_eq!(store.merchant("plain").await.expect("reads"), Some(plain));
}

pub async fn an_application_is_seen_with_its_merchant_and_live_secrets(store: Any) {
    assert!(store.application("app_none").await.expect("reads").is_none());
    commit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_1", APP, 1)))]).await;
    commit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_3", APP, 3)))]).await;
    commit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_2", APP, 2)))]).await;
    commit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_theirs", OTHER_APP, 2)))]).await;
    let revoked = SecretRow { revoked_at: Some(at(9)), ..secret("sec_2", APP, 2) };
    commit(&*store, vec![Write::UpdateSecret(Box::new(revoked))]).await;
    let view = store.application("app_one").await.expect("reads").expect("there");
    assert_eq!(view.application, application(APP, "app_one", INSTITUTION, TENANT));
    assert_eq!(view.merchant, merchant(INSTITUTION, "inst", TENANT, MerchantKind::Institution));
    assert_eq!(view.tenant_id, "inst");
    assert_eq!(view.secrets, [secret("sec_3", APP, 3), secret("sec_1", APP, 1)]);

    let of_sub = application(ApplicationNo(101), "app_sub", SUB, TENANT);
    commit(&*store, vec![Write::InsertApplication(Box::new(of_sub))]).await;
    let view = store.application("app_sub").await.expect("reads").expect("there");
    assert_eq!((view.merchant.merchant_id.as_str(), view.tenant_id.as_str()), ("sub-a", "inst"));
}

pub async fn client_ids_and_application_numbers_are_new(store: Any) {
    for (no, id) in [(ApplicationNo(101), "app_one"), (APP, "app_three")] {
        let row = application(no, id, INSTITUTION, TENANT);
        let refused = conflict(&*store, vec![Write::InsertApplication(Box::new(row))]).await;
        assert_eq!(refused, Conflict::Taken(Key::Application(id.to_owned())));
    }
    assert!(store.application("app_three").await.expect("reads").is_none());
}

pub async fn an_application_changes_by_revision(store: Any) {
    let changed = ApplicationRow {
        name: "another name".to_owned(),
        enabled: false,
        callback_url: None,
        callback_enabled: false,
        callback_gone_at: Some(at(77)),
        callback_encoding: SignatureEncoding::Base64,
        callback_vocabulary: Vocabulary::Family,
        timestamp_tolerance_ms: Some(30_000),
        tolerance_before_ms: Some(1_000),
        tolerance_raised_at: Some(at(7)),
        rate_limit_per_s: None,
        endpoint: EndpointSettings {
            rate_per_s: Some(0),
            concurrency: Some(3),
            schedule: Schedule::parse(&["1500ms", "2m", "24h"]).ok(),
        },
        revision: 2,
        ..application(APP, "app_one", INSTITUTION, TENANT)
    };
    commit(&*store, vec![Write::UpdateApplication(Box::new(changed.clone()))]).await;
    assert_eq!(store.application("app_one").await.expect("reads").expect("there").application, changed);
    let moved = Conflict::Moved(Key::Application("app_one".to_owned()));
    for revision in [2, 4] {
        let row = ApplicationRow { revision, ..changed.clone() };
        assert_eq!(conflict(&*store, vec![Write::UpdateApplication(Box::new(row))]).await, moved);
    }
    let nobody = ApplicationRow { no: ApplicationNo(404), ..changed };
    assert_eq!(conflict(&*store, vec![Write::UpdateApplication(Box::new(nobody))]).await, moved);
}

pub async fn what_cannot_change_in_an_application_stays(store: Any) {
    let row = ApplicationRow { revision: 2, created_at: at(77), ..application(APP, "app_new", OTHER, OTHER_TENANT) };
    commit(&*store, vec![Write::UpdateApplication(Box::new(row))]).await;
    let stored = store.application("app_one").await.expect("reads").expect("there").application;
    assert_eq!(stored, ApplicationRow { revision: 2, ..application(APP, "app_one", INSTITUTION, TENANT) });
    assert_eq!(store.application_revision("app_one").await.expect("reads"), Some(2));
    assert_eq!(store.application_revision("app_nine").await.expect("reads"), None);
}

pub async fn applications_are_listed_by_number(store: Any) {
    let third = application(ApplicationNo(150), "app_three", INSTITUTION, TENANT);
    commit(&*store, vec![Write::InsertApplication(Box::new(third))]).await;
    commit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_1", APP, 1)))]).await;
    let fourth = ApplicationRow { callback_enabled: false, ..application(ApplicationNo(160), "app_four", SUB, TENANT) };
    commit(&*store, vec![Write::InsertApplication(Box::new(fourth))]).await;
    let list = |merchant, callback_enabled, after, limit| {
        let (store, filter) = (Arc::clone(&store), ApplicationFilter { merchant, callback_enabled });
        async move { store.applications(Asker::Operator, filter, Cursor { after, limit }).await.expect("reads") }
    };
    let ids = |views: Vec<countersign_store::contract::ApplicationView>| {
        views.into_iter().map(|v| (v.application.client_id, v.secrets.len())).collect::<Vec<_>>()
    };
    let entry = |id: &str, secrets| (id.to_owned(), secrets);
    let everything = [entry("app_one", 1), entry("app_three", 0), entry("app_four", 0), entry("app_two", 0)];
    assert_eq!(ids(list(None, None, None, 10).await), everything);
    assert_eq!(ids(list(None, None, Some(100), 1).await), everything[1..2]);
    assert_eq!(ids(list(Some(INSTITUTION), None, None, 10).await), everything[..2]);
    assert_eq!(ids(list(Some(INSTITUTION), None, Some(100), 10).await), everything[1..2]);
    assert_eq!(ids(list(None, Some(false), None, 10).await), everything[2..3]);
    assert!(list(None, Some(false), Some(160), 10).await.is_empty());
    assert_eq!(ids(list(None, Some(true), Some(100), 10).await), [everything[1].clone(), everything[3].clone()]);
    assert_eq!(ids(list(Some(SUB), Some(false), None, 10).await), everything[2..3]);
    assert!(list(Some(SUB), Some(true), None, 10).await.is_empty());
    assert!(list(Some(INSTITUTION), Some(false), None, 10).await.is_empty());
}

pub async fn public_ids_are_read_by_the_numbers_behind_them(store: Any) {
    let third = application(ApplicationNo(150), "app_three", INSTITUTION, TENANT);
    commit(&*store, vec![Write::InsertApplication(Box::new(third))]).await;
    let clients = async |after, limit| {
        let found = store.client_ids(Cursor { after, limit }).await.expect("reads");
        found.into_iter().map(|(no, id)| (no.0, id)).collect::<Vec<_>>()
    };
    let all = [(APP.0, "app_one"), (150, "app_three"), (OTHER_APP.0, "app_two")].map(|(no, id)| (no, id.to_owned()));
    assert_eq!(clients(None, 10).await, all);
    assert_eq!(clients(None, 2).await, all[..2]);
    assert_eq!(clients(Some(all[0].0), 1).await, all[1..2]);
    assert!(clients(Some(all[2].0), 10).await.is_empty());

    let named = async |tenants: &[TenantNo]| store.tenant_ids(tenants.to_vec()).await.expect("reads");
    let merchant_of = async |id: &str| store.merchant(id).await.expect("reads").expect("is there");
    let (institution, sub) = (merchant_of("inst").await, merchant_of("sub-a").await);
    assert_eq!(institution.tenant, sub.tenant);
    // A sub-account is no tenant, and nobody has the last number.
    let asked = [institution.tenant, OTHER_TENANT, TenantNo(sub.no.0), TenantNo(999_999)];
    let found = named(&asked).await;
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [TENANT, OTHER_TENANT]);
    assert_eq!(found[&TENANT], "inst");
    assert!(named(&[]).await.is_empty());
    for tenant in asked {
        assert_eq!(store.tenant_id(tenant).await.expect("reads").as_ref(), found.get(&tenant));
    }
}

pub async fn secret_ids_are_new(store: Any) {
    commit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_1", APP, 1)))]).await;
    let refused = conflict(&*store, vec![Write::InsertSecret(Box::new(secret("sec_1", OTHER_APP, 2)))]).await;
    assert_eq!(refused, Conflict::Taken(Key::Secret("sec_1".to_owned())));
}

pub async fn a_secret_changes_only_if_it_is_there(store: Any) {
    commit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_1", APP, 1)))]).await;
    let changed = SecretRow { not_after: Some(at(500)), signs_callbacks: false, ..secret("sec_1", APP, 1) };
    let ignored = SecretRow { sealed: vec![9], last4: "zzzz".to_owned(), ..changed.clone() };
    commit(&*store, vec![Write::UpdateSecret(Box::new(ignored))]).await;
    assert_eq!(store.application("app_one").await.expect("reads").expect("there").secrets, [changed]);
    let refused = conflict(&*store, vec![Write::UpdateSecret(Box::new(secret("sec_9", APP, 1)))]).await;
    assert_eq!(refused, Conflict::Moved(Key::Secret("sec_9".to_owned())));
}

fn rewrap(id: &str, from: &str, key_id: &str) -> Write {
    Write::RewrapSecret {
        secret_id: id.to_owned(),
        from: from.to_owned(),
        key_id: key_id.to_owned(),
        sealed: vec![7, 7],
    }
}

pub async fn a_secret_is_sealed_again_once(store: Any) {
    commit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_1", APP, 1)))]).await;
    commit(&*store, vec![rewrap("sec_1", "k1", "k2")]).await;
    let again = SecretRow { key_id: "k2".to_owned(), sealed: vec![7, 7], ..secret("sec_1", APP, 1) };
    assert_eq!(store.application("app_one").await.expect("reads").expect("there").secrets, [again]);
    for (id, from) in [("sec_1", "k1"), ("sec_9", "k1")] {
        let refused = conflict(&*store, vec![rewrap(id, from, "k3")]).await;
        assert_eq!(refused, Conflict::Moved(Key::Secret(id.to_owned())));
    }
}

pub async fn secrets_under_another_master_key_are_listed_with_those_that_are_revoked(store: Any) {
    let revoked = SecretRow { revoked_at: Some(at(9)), ..secret("sec_3", APP, 3) };
    for row in [secret("sec_1", APP, 1), secret("sec_2", APP, 2), revoked] {
        commit(&*store, vec![Write::InsertSecret(Box::new(row))]).await;
    }
    let ids = async |key: &str, after: Option<&str>, limit: u32| {
        let found = store.secrets_not_under(key, after.map(str::to_owned), limit).await.expect("reads");
        assert!(found.iter().all(|secret| secret.client_id == "app_one"));
        found.into_iter().map(|secret| secret.row.secret_id).collect::<Vec<_>>()
    };
    assert_eq!(ids("k2", None, 9).await, ["sec_1", "sec_2", "sec_3"]);
    assert_eq!(ids("k2", Some("sec_1"), 1).await, ["sec_2"]);
    assert_eq!(ids("k1", None, 9).await, [""; 0]);
    commit(&*store, vec![rewrap("sec_2", "k1", "k2")]).await;
    assert_eq!(ids("k2", None, 9).await, ["sec_1", "sec_3"]);
    assert_eq!(ids("k1", None, 9).await, ["sec_2"]);
}

pub async fn a_token_is_found_by_its_digest(store: Any) {
    for (id, digest, role) in [("tok_1", 1, Role::Viewer), ("tok_2", 2, Role::Security)] {
        let row = TokenRow { role, ..token(id, digest) };
        commit(&*store, vec![Write::InsertToken(Box::new(row.clone()))]).await;
        assert_eq!(store.token(&[digest; 32]).await.expect("reads"), Some(row));
    }
    assert_eq!(store.token(&[3; 32]).await.expect("reads"), None);
    let refused = conflict(&*store, vec![Write::InsertToken(Box::new(token("tok_1", 3)))]).await;
    assert_eq!(refused, Conflict::Taken(Key::Token("tok_1".to_owned())));
}

pub async fn a_token_is_revoked_only_if_it_is_there(store: Any) {
    commit(&*store, vec![Write::InsertToken(Box::new(token("tok_1", 1)))]).await;
    commit(&*store, vec![Write::RevokeToken { token_id: "tok_1".to_owned(), at: at(5) }]).await;
    assert_eq!(store.token(&[1; 32]).await.expect("reads").expect("there").revoked_at, Some(at(5)));
    let refused = conflict(&*store, vec![Write::RevokeToken { token_id: "tok_9".to_owned(), at: at(5) }]).await;
    assert_eq!(refused, Conflict::Moved(Key::Token("tok_9".to_owned())));
}

fn order_id(id: i64) -> OrderId {
    OrderId::new(id).expect("in range")
}

pub async fn a_convert_order_is_seen_by_its_owner_only(store: Any) {
    commit(&*store, vec![insert_order(SUB, 7)]).await;
    assert_eq!(store.convert_order(TENANT, SUB, order_id(7)).await.expect("reads"), Some(order(7)));
    assert_eq!(store.convert_order(TENANT, INSTITUTION, order_id(7)).await.expect("reads"), None);
    assert_eq!(store.convert_order(TENANT, SUB, order_id(8)).await.expect("reads"), None);
    let owner = store.convert_order_owner(order_id(7)).await.expect("reads");
    assert_eq!(owner, Some((sub(SUB.0, "sub-a"), order(7))));
    assert_eq!(store.convert_order_owner(order_id(8)).await.expect("reads"), None);
}

pub async fn a_convert_order_number_is_new(store: Any) {
    commit(&*store, vec![insert_order(SUB, 7)]).await;
    let refused = conflict(&*store, vec![insert_order(INSTITUTION, 7)]).await;
    assert_eq!(refused, Conflict::Taken(Key::ConvertOrder(order_id(7))));
    let later = ConvertOrder { revision: 2, ..order(8) };
    unfit(&*store, vec![Write::InsertConvertOrder { tenant: TENANT, merchant: SUB, order: Box::new(later) }]).await;
    let nobody = MerchantNo(404);
    unfit(&*store, vec![insert_order(nobody, 9)]).await;
}

pub async fn a_convert_order_moves_by_revision(store: Any) {
    commit(&*store, vec![insert_order(SUB, 7)]).await;
    let to = |revision, status| {
        let order = ConvertOrder { status, revision, ..order(7) };
        Write::MoveConvertOrder { tenant: TENANT, order: Box::new(order), at: at(3) }
    };
    let moved = Conflict::Moved(Key::ConvertOrder(order_id(7)));
    assert_eq!(conflict(&*store, vec![to(3, ConvertStatus::Success)]).await, moved);
    commit(&*store, vec![to(2, ConvertStatus::Success)]).await;
    assert_eq!(conflict(&*store, vec![to(2, ConvertStatus::Failed)]).await, moved);
    let stored = store.convert_order(TENANT, SUB, order_id(7)).await.expect("reads").expect("there");
    assert_eq!(stored, ConvertOrder { status: ConvertStatus::Success, revision: 2, ..order(7) });
    let nobody = ConvertOrder { revision: 2, ..order(8) };
    let nobody = Write::MoveConvertOrder { tenant: TENANT, order: Box::new(nobody), at: at(3) };
    assert_eq!(conflict(&*store, vec![nobody]).await, Conflict::Moved(Key::ConvertOrder(order_id(8))));
}

pub async fn an_application_of_nobody_is_refused(store: Any) {
    let row = application(ApplicationNo(300), "app_x", MerchantNo(404), TENANT);
    unfit(&*store, vec![Write::InsertApplication(Box::new(row))]).await;
    unfit(&*store, vec![Write::InsertSecret(Box::new(secret("sec_x", ApplicationNo(404), 1)))]).await;
    assert!(store.application("app_x").await.expect("reads").is_none());
}
