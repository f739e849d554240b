//! What is kept of callers, and for how long.

use std::future::Future as _;
use std::task::Poll;

use countersign_domain::ids::ApplicationNo;
use countersign_store::contract::{ApplicationRow, MerchantKind};
use countersign_store::testing::rows;

use super::*;
use crate::app::fixtures::{Deployment, application};

fn callers(is_shared: bool) -> Callers {
    Callers::new(&Chance::default(), &Vault::new(&zeroize::Zeroizing::new([7; 32])), is_shared)
}

fn known(revision: i64) -> Arc<KnownApplication> {
    let (tenant, no) = (TenantNo(1), MerchantNo(1));
    let application = ApplicationRow { revision, ..rows::application(ApplicationNo(1), "app_1", no, tenant) };
    let merchant = rows::merchant(no, "m", tenant, MerchantKind::Merchant);
    let tenant_id = "m".to_owned();
    let (is_enabled, goes_out) = (true, false);
    Arc::new(KnownApplication {
        application,
        merchant,
        tenant_id,
        is_enabled,
        goes_out,
        keys: Vec::new(),
        holds_from: UnixMillis(i64::MIN),
        limiter: None,
    })
}

#[test]
fn a_bucket_stays_as_full_as_it_is_while_its_rate_stays() {
    let callers = callers(false);
    let limiter = |rate| callers.limiter("app_1", rate).expect("a rate");
    // What never fits, however full it is: so much it takes at the most.
    let most = |limiter: &DefaultDirectRateLimiter| limiter.check_n(NonZeroU32::MAX).expect_err("too many").0;
    let first = limiter(1);
    assert_eq!(most(&first), 2, "two seconds' worth");
    callers.forget("app_1");
    callers.forget_all();
    assert!(Arc::ptr_eq(&first, &limiter(1)), "a change of the application is no new bucket");
    let other = limiter(2);
    assert!(!Arc::ptr_eq(&first, &other) && most(&other) == 4, "another rate is");
    assert!(callers.limiter("app_1", 0).is_none());
}

#[test]
fn a_change_of_a_merchant_forgets_its_applications_and_no_other() {
    let callers = callers(false);
    let keep = || callers.keep(&known(1), callers.changes("app_1"));
    for (tenant, merchant, stays) in [(2, None, true), (1, Some(2), true), (1, Some(1), false), (1, None, false)] {
        keep();
        callers.forget_of(TenantNo(tenant), merchant.map(MerchantNo));
        assert_eq!(callers.get("app_1").is_some(), stays, "{tenant} {merchant:?}");
    }
}

#[test]
fn what_was_read_before_a_change_is_not_kept_after_it() {
    let callers = callers(false);
    let before = callers.changes("app_1");
    callers.keep(&known(1), before);
    assert!(callers.get("app_1").is_some());
    let slow = callers.changes("app_1");
    callers.forget("app_1");
    callers.keep(&known(1), slow);
    assert!(callers.get("app_1").is_none(), "a revoked secret would live on");
    callers.keep(&known(2), callers.changes("app_1"));
    assert_eq!(callers.get("app_1").expect("is kept").application.revision, 2);
}

#[test]
fn what_is_kept_is_believed_for_a_while_after_a_look_at_the_changes_and_no_longer() {
    let alone = callers(false);
    assert!(alone.is_still(alone.freshness()), "nobody else changes anything");
    let callers = callers(true);
    assert!(!callers.is_still(callers.freshness()), "nobody has looked yet");
    let looked = callers.began + FRESH;
    callers.checked(looked);
    let freshness = callers.freshness();
    let end = looked + FRESH;
    assert!(callers.is_still_at(end.checked_sub(Duration::from_millis(1)).expect("later"), freshness));
    assert!(!callers.is_still_at(end, freshness), "the look is too old");
    callers.checked(end);
    assert!(callers.is_still_at(end, callers.freshness()));
    assert!(
        !callers.is_still_at(looked, freshness),
        "another look came in between: it may have forgotten what was read before it"
    );
    let before = callers.freshness();
    callers.checked(callers.began);
    assert_eq!(callers.freshness(), before, "a look that took long does not undo a later one");
    let now = Callers { began: Instant::now(), ..callers };
    now.checked(now.began + Duration::from_secs(3_600));
    assert!(now.is_still(now.freshness()), "by the machine's clock");
}

#[test]
fn after_all_were_forgotten_nothing_that_was_read_before_is_kept() {
    let callers = callers(true);
    let slow = callers.changes("app_1");
    callers.forget_all();
    callers.keep(&known(1), slow);
    assert!(callers.get("app_1").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_start_it_is_learnt_which_applications_there_are() {
    let deployment = Deployment::on_sqlite().await.in_real_time();
    let app = deployment.open().await;
    let client_id = application(&app, "till", None).await;
    assert!(app.callers.existing.has(&client_id), "it was made here");
    Deployment::close(&app);
    let mut again = deployment.open().await;
    assert!(!again.callers.existing.has(&client_id));
    again.look_up_beside().await.expect("reads");
    assert!(again.callers.existing.has(&client_id) && !again.callers.existing.has("app_nobody"));
    // A look at the directory went back: whatever was made on another node may have been missed.
    Arc::get_mut(&mut again).expect("nobody else has it").callers.existing = ExistingClients::default();
    again.look_up_beside().await.expect("reads");
    again.callers.forget_all();
    again.look_up_beside().await.expect("reads again, and waits for nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_was_made_or_was_kept_and_has_changed_is_read_before_the_next_request() {
    let deployment = Deployment::on_sqlite().await.in_real_time();
    let app = deployment.open().await;
    app.look_up_beside().await.expect("learns who there is");
    let client_id = application(&app, "till", None).await;
    let is_read_beside = async || {
        assert!(app.callers.get(&client_id).is_none());
        // Else it would be waited for without end.
        assert!(!app.callers.existing.wants_nobody());
        app.look_up_beside().await.expect("reads");
        app.callers.get(&client_id).is_some()
    };
    assert!(is_read_beside().await, "it was made");
    app.callers.forget(&client_id);
    assert!(is_read_beside().await, "it has changed");
    let row = app.callers.get(&client_id).expect("is kept").application.clone();
    app.callers.forget_of(row.tenant, Some(row.merchant));
    assert!(is_read_beside().await, "its merchant has changed");
    // Whoever is not kept does not ask for anything: nodes hear of the changes of all applications.
    app.callers.forget(&client_id);
    app.look_up_beside().await.expect("reads");
    app.callers.shard(&client_id).write().unwrap_or_else(PoisonError::into_inner).known.clear();
    app.callers.forget(&client_id);
    assert!(app.callers.existing.wants_nobody());
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_changes_while_they_are_looked_up_beside_is_looked_up_again() {
    let deployment = Deployment::on_postgres().await.in_real_time();
    let app = deployment.open().await;
    app.look_up_beside().await.expect("learns who there is");
    let client_id = application(&app, "till", None).await;
    // Else the answer may be there before the look has waited for it.
    let held = deployment.database().hold_table("application").await;
    let mut looked_up = Box::pin(app.look_up_beside());
    let is_under_way = std::future::poll_fn(|cx| Poll::Ready(looked_up.as_mut().poll(cx).is_pending())).await;
    assert!(is_under_way && app.callers.existing.wants_nobody());
    // As when this node hears of its own change: nobody is kept yet who would be wanted for it.
    app.callers.forget(&client_id);
    drop(held);
    looked_up.await.expect("reads");
    assert!(!app.callers.keeps(&client_id), "it may be what it was before the change");
    assert!(!app.callers.existing.wants_nobody());
    app.look_up_beside().await.expect("reads");
    assert!(app.callers.keeps(&client_id));
    Deployment::close(&app);
}
