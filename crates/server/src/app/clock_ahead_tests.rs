//! What a clock leaves behind that was ahead for a while and is right again.

use std::sync::Arc;
use std::time::Instant;

use countersign_domain::conversion::{Given, Limits, Pair, QuoteRefused};
use countersign_domain::money::Amount;
use countersign_domain::payment_order::{PaymentStatus, PrepayId, Step};
use countersign_domain::rules::{Markup, RuleAsk, RuleVersion};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::ApplicationView;
use countersign_store::testing::Database;
use countersign_store::{Batch, Store as _, Write};
use rust_decimal::Decimal;

use super::callers::CallbackKeys;
use super::conversion::{Conversion, PriceAsk, convert, preview};
use super::error::AppError;
use super::fixtures::{Deployment, application, bank, claim, nobody, ordered, terms_of};
use super::identity::{find_application, list_secrets, rotate_secret};
use super::payment_orders::{self, advance, currency};
use super::rates::{self, Wanted};
use super::rules::{Making, RuleChange, change};
use super::{App, evidence, identity, uses};
use crate::clock::Clock;
use crate::config::{Config, Optional};
use crate::evidence::verify;
use crate::run::{initialise, open_app};

const HOUR_MS: i64 = 3_600_000;

async fn upgraded(
    app: &App,
    of: &ApplicationView,
    nonce: &str,
    (effective_at, due_at): (UnixMillis, Option<UnixMillis>),
) -> Result<RuleVersion, AppError> {
    let markup = Markup::new(Decimal::ONE, Decimal::ZERO).expect("a markup");
    let ask = RuleAsk { markup, effective_at, due_at };
    let asked = RuleChange { making: Making::Upgrade, sub_merchant_id: "shop".to_owned(), ask };
    change(app, &of.merchant, &asked, &claim(&of.application, nonce, app.clock.now()), &nobody()).await
}

/// What is exported of an order is true for whoever checks it.
async fn holds(app: &Arc<App>, id: PrepayId) {
    let key = evidence::key(app, &nobody()).await.expect("is there").public();
    let mut lines = evidence::export(app, id, &nobody()).await.expect("begins");
    let mut file = Vec::new();
    while let Some(line) = lines.recv().await {
        file.extend(line.expect("is made").text.into_bytes());
    }
    verify(&file[..], key).expect("holds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_can_be_paid_until_it_expires_whenever_the_newest_rule_says_it_was_made() {
    for deployment in Deployment::on_each_store().await {
        let app = deployment.open().await;
        let (desk, shop) = bank(&app).await;
        app.clock.advance_ms(2 * HOUR_MS);
        let version = upgraded(&app, &desk, "ahead", (app.clock.now(), None)).await.expect("is in force");
        app.clock.advance_ms(-2 * HOUR_MS);

        let now = app.clock.now();
        let of_shop = ApplicationView { merchant: shop, ..desk };
        let order = ordered(&app, &of_shop, "soon").await.order;
        assert!(order.expires_at < version.created_at);
        let paid = Step { to: PaymentStatus::Paid, actual_amount: None, transact_at: None };
        let (_, row) = advance(&app, order.prepay_id, paid, &|_| None, &nobody()).await.expect("it has not expired");
        assert_eq!((row.order.status, row.order.transact_at), (PaymentStatus::Paid, Some(now)));
        // By that version, and so at an instant at which it is there. It has moved by the clock.
        assert_eq!(row.order.paid_at, Some(version.created_at));
        let moves = payment_orders::show(&app, order.prepay_id).await.expect("is there").moves;
        assert_eq!(moves.iter().map(|step| step.at).collect::<Vec<_>>(), [now]);
        holds(&app, order.prepay_id).await;
        assert_eq!(row.order.fee.and_then(|fee| fee.version_no), Some(version.version_no));

        let late = ordered(&app, &of_shop, "late").await.order;
        app.clock.advance_ms(late.expires_at.0 - app.clock.now().0);
        advance(&app, late.prepay_id, paid, &|_| None, &nobody()).await.expect_err("it has expired");
        Deployment::close(&app);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_version_begins_before_its_time_because_a_clock_was_ahead() {
    let deployment = Deployment::on_sqlite().await;
    let app = deployment.open().await;
    let (desk, _) = bank(&app).await;
    app.clock.advance_ms(2 * HOUR_MS);
    upgraded(&app, &desk, "ahead", (app.clock.now(), None)).await.expect("is in force");
    let ahead = app.clock.now();
    app.clock.advance_ms(-2 * HOUR_MS);
    let now = app.clock.now();
    let said = |refused: Result<RuleVersion, AppError>| match refused {
        Err(AppError::InvalidRulePeriod(said)) => said,
        other => panic!("not refused: {other:?}"),
    };
    for (nonce, in_ms) in [("soon", 1), ("later", HOUR_MS), ("last", 2 * HOUR_MS - 1)] {
        let said = said(upgraded(&app, &desk, nonce, (now.plus_ms(in_ms), None)).await);
        assert!(
            said.starts_with("field effective_date: must be ") && said.contains("a clock that was ahead"),
            "{said}"
        );
    }
    // A due date before that is over by then, and the sentence says by when.
    let due = said(upgraded(&app, &desk, "due", (now, Some(now.plus_ms(HOUR_MS)))).await);
    assert!(due.contains(&app.policy.rule_zone.format(ahead)), "{due}");
    let pending = upgraded(&app, &desk, "pending", (ahead.plus_ms(1), None)).await.expect("begins behind that");
    assert_eq!(pending.starts_at(), ahead.plus_ms(1));
    let at_once = upgraded(&app, &desk, "at-once", (now, None)).await.expect("is in force");
    assert_eq!(at_once.starts_at(), ahead);
    // Clocks of nodes may be so far apart.
    app.clock.advance_ms(2 * HOUR_MS - 900);
    upgraded(&app, &desk, "apart", (app.clock.now().plus_ms(1), None)).await.expect("is in force");
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quote_of_a_clock_that_was_ahead_is_not_good_for_as_long_as_that_was() {
    let deployment = Deployment::on_sqlite().await;
    let app = deployment.open().await;
    let client_id = application(&app, "till", None).await;
    let of = find_application(&app, &client_id).await.expect("is there");
    let [gt, usdt] = ["GT", "USDT"].map(|code| currency("currency", code).expect("a currency"));
    let pair = Pair::of(gt.clone(), usdt.clone()).expect("two");
    let wanted = Wanted { pair, rate: Decimal::from(9), limits: Limits::default() };
    let given = Given::Sell(Amount::from_decimal(Decimal::ONE).expect("an amount"));
    let converted = async |nonce: &str, back_ms: i64| {
        rates::put(&app, &wanted, &|_| None, &nobody()).await.expect("is put");
        let ask = PriceAsk { sell: gt.clone(), buy: usdt.clone(), given };
        let quote = preview(&app, &of.merchant, &ask, &claim(&of.application, nonce, app.clock.now())).await;
        let quote = quote.expect("is promised");
        app.clock.advance_ms(-back_ms);
        let asked = Conversion { client_req_id: nonce.to_owned(), terms: terms_of(quote) };
        let claim = claim(&of.application, &format!("{nonce}-2"), app.clock.now());
        convert(&app, &of.merchant, &asked, &claim, &nobody()).await
    };
    app.clock.advance_ms(2 * HOUR_MS);
    let refused = converted("ahead", 2 * HOUR_MS).await;
    assert!(matches!(refused, Err(AppError::Quote(QuoteRefused::Expired))), "{refused:?}");
    app.clock.advance_ms(3 * HOUR_MS);
    converted("apart", 900).await.expect("the clocks of a node and its database may be so far apart");
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_had_ended_by_a_clock_that_was_ahead_is_known_again_and_signs() {
    let deployment = Deployment::on_sqlite().await;
    let app = deployment.open().await;
    let client_id = application(&app, "till", None).await;
    let first = list_secrets(&app, &client_id).await.expect("reads").remove(0).row.secret_id;
    let second = rotate_secret(&app, &client_id, 3_600, &|_| None, &nobody()).await.expect("is made").row.secret_id;
    let signed_with = async || {
        let known = app.known_application(&client_id).await.expect("reads").expect("is there");
        let CallbackKeys { signing, next } = known.callback_keys(app.clock.now());
        [signing, next].map(|key| key.map(|key| key.secret_id.clone()))
    };
    let both = [Some(first), Some(second.clone())];
    assert_eq!(signed_with().await, both);
    app.clock.advance_ms(2 * HOUR_MS);
    app.callers.forget_all();
    assert_eq!(signed_with().await, [Some(second), None]);
    app.clock.advance_ms(-2 * HOUR_MS);
    assert_eq!(signed_with().await, both, "it has not ended by the clock that is right");
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_by_a_clock_that_is_ahead_revokes_nothing_that_lives_by_the_right_one() {
    const AHEAD_MS: i64 = 31 * 24 * HOUR_MS;
    for is_settled in [false, true] {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let client_id = application(&app, "till", None).await;
        rotate_secret(&app, &client_id, 3_600, &|_| None, &nobody()).await.expect("is made");
        if is_settled {
            app.settled.believe(Instant::now(), app.clock.now());
        }
        app.clock.advance_ms(AHEAD_MS);
        rotate_secret(&app, &client_id, 3_600, &|_| None, &nobody()).await.expect("is made");
        app.clock.advance_ms(-AHEAD_MS);
        let live = async || {
            let all = list_secrets(&app, &client_id).await.expect("reads");
            (all.iter().filter(|seen| seen.row.is_live(app.clock.now())).count(), all.len())
        };
        assert_eq!(live().await, (3, 3), "{is_settled}");
        // That clock was right after all, or its time has come.
        app.clock.advance_ms(AHEAD_MS + HOUR_MS);
        app.settled.believe(Instant::now(), app.clock.now());
        rotate_secret(&app, &client_id, 3_600, &|_| None, &nobody()).await.expect("is made");
        assert_eq!(live().await, (2, 3), "the first one has left the list");
        Deployment::close(&app);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_that_were_ended_at_once_live_no_more_whatever_the_clock_does() {
    let deployment = Deployment::on_sqlite().await;
    let app = deployment.open().await;
    let client_id = application(&app, "till", None).await;
    rotate_secret(&app, &client_id, 3_600, &|_| None, &nobody()).await.expect("is made");
    app.clock.advance_ms(2 * HOUR_MS);
    // The first has ended by this clock, the second lives.
    let made = rotate_secret(&app, &client_id, 0, &|_| None, &nobody()).await.expect("is made");
    assert_eq!(made.others_end_at, Some(app.clock.now()));
    app.clock.advance_ms(-2 * HOUR_MS);
    let left = list_secrets(&app, &client_id).await.expect("reads");
    let ids: Vec<_> = left.iter().map(|seen| seen.row.secret_id.as_str()).collect();
    assert_eq!(ids, [made.row.secret_id.as_str()], "the others are revoked");
    assert!(left[0].signs_callbacks);
    let known = app.known_application(&client_id).await.expect("reads").expect("is there");
    assert_eq!(known.keys.len(), 1);
    let revoked = identity::revoke_secret(&app, &client_id, &made.row.secret_id, &|_| None, &nobody()).await;
    assert_eq!(revoked.expect("is revoked").live, 0);
    Deployment::close(&app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_a_clock_counted_which_was_ahead_can_be_retired_an_hour_after_it_is_right() {
    for deployment in Deployment::on_each_store().await {
        let app = deployment.open().await;
        let client_id = application(&app, "till", None).await;
        let first = list_secrets(&app, &client_id).await.expect("reads").remove(0).row.secret_id;
        app.clock.advance_ms(100 * HOUR_MS);
        let since = app.clock.now().0.to_string();
        let ahead = Write::PutSetting { name: uses::COUNTED_SINCE.to_owned(), value: since };
        app.store.commit(Batch(vec![ahead])).await.expect("is written");
        let use_first = async || {
            app.uses.tally(&first).one_more(app.clock.now());
            app.uses.token("tok_1", app.clock.now());
            uses::note(&app).await.expect("is noted");
        };
        use_first().await;
        app.clock.advance_ms(-100 * HOUR_MS);
        use_first().await;
        let seen = list_secrets(&app, &client_id).await.expect("reads").remove(0);
        let now = Some(app.clock.now());
        assert_eq!((seen.usage.counted_since, seen.usage.last_used_at), (now, now));

        rotate_secret(&app, &client_id, 24 * 3_600, &|_| None, &nobody()).await.expect("is made");
        let new = list_secrets(&app, &client_id).await.expect("reads").remove(0).row.secret_id;
        identity::use_for_callbacks(&app, &client_id, &new, &|_| None, &nobody()).await.expect("signs");
        for (after_ms, is_safe) in [(HOUR_MS - 1, false), (1, true)] {
            app.clock.advance_ms(after_ms);
            let seen = list_secrets(&app, &client_id).await.expect("reads").remove(1);
            assert_eq!(seen.in_use.is_none(), is_safe, "{:?}", seen.in_use);
        }
        Deployment::close(&app);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_is_made_by_the_time_of_the_database_that_nodes_share() {
    let database = Database::with_schema().await;
    database.move_clock(-1_000).await;
    let folder = tempfile::tempdir().expect("a folder");
    let database_url = Optional(Some(database.url()));
    let config = Config { data: folder.path().join("data"), database_url, ..Config::default() };
    let made = Box::pin(initialise(&config)).await.expect("a deployment");
    let app = Box::pin(open_app(&config, Clock::System, None)).await.expect("it opens");
    let right = Clock::System.now().plus_ms(-1_000 * HOUR_MS);
    let counted_since = app.store.setting(uses::COUNTED_SINCE).await.expect("reads").expect("is there");
    let counted_since = UnixMillis(counted_since.parse().expect("a number"));
    let life_ms = made.token_expires_at.0 - counted_since.0;
    assert!((0..HOUR_MS).contains(&(right.0 - counted_since.0)), "{counted_since:?} at {right:?}");
    assert_eq!(life_ms % (24 * HOUR_MS), 0);
    Deployment::close(&app);
}
