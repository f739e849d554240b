use std::sync::Arc;

use countersign_store::contract::ApplicationView;
use countersign_store::testing::Database;
use rust_decimal::Decimal;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::app::fixtures::{Deployment, application, claim, nobody, terms_of};
use crate::app::identity::find_application;
use crate::app::late_changes::LOOK_PAUSE;
use crate::app::payment_orders::currency;

/// A merchant who has been promised a price.
struct Promised {
    deployment: Deployment,
    app: Arc<App>,
    of: ApplicationView,
    quote: Quote,
}

impl Promised {
    async fn on(deployment: Deployment) -> Self {
        let app = deployment.open().await;
        let client_id = application(&app, "till", None).await;
        let of = find_application(&app, &client_id).await.expect("is there");
        let [sell, buy] = ["GT", "USDT"].map(|code| currency("currency", code).expect("a currency"));
        let pair = Pair::of(sell.clone(), buy.clone()).expect("two");
        let wanted = rates::Wanted { pair, rate: Decimal::from(9), limits: Limits::default() };
        rates::put(&app, &wanted, &|_| None, &nobody()).await.expect("is put");
        let given = Given::Sell(Amount::from_decimal(Decimal::ONE).expect("an amount"));
        let ask = PriceAsk { sell, buy, given };
        let claimed = claim(&of.application, "price", app.clock.now());
        let quote = preview(&app, &of.merchant, &ask, &claimed).await.expect("is promised");
        Self { deployment, app, of, quote }
    }

    /// `ms` after the quote's end.
    fn is_over(&self, ms: i64) {
        self.app.clock.advance_ms(self.quote.expires_at.0 + ms - self.app.clock.now().0);
    }

    /// The request `r` for the quote, in a call of its own.
    fn asks(&self, nonce: &str) -> JoinHandle<Result<ConvertOrder, AppError>> {
        let (app, of) = (self.app.clone(), self.of.clone());
        let claimed = claim(&of.application, nonce, app.clock.now());
        let asked = Conversion { client_req_id: "r".to_owned(), terms: terms_of(self.quote.clone()) };
        tokio::spawn(async move { convert(&app, &of.merchant, &asked, &claimed, &nobody()).await })
    }

    /// The same, asked again as long as it says that nobody knows yet: where the machine stood still it has looked for long enough.
    fn asks_on(self: &Arc<Self>, nonce: &'static str) -> JoinHandle<Result<ConvertOrder, AppError>> {
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                match this.asks(nonce).await.expect("ends") {
                    Err(AppError::Busy) => {}
                    answer => return answer,
                }
            }
        })
    }
}

fn has_ended(answer: &Result<ConvertOrder, AppError>) -> bool {
    matches!(answer, Err(AppError::Quote(QuoteRefused::Expired)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_accepted_in_time_and_waits_beyond_the_quotes_end_makes_no_order() {
    let promised = Promised::on(Deployment::on_postgres().await).await;
    promised.is_over(-1);
    let held = promised.deployment.database().hold_quotes().await;
    let asked = promised.asks("late");
    promised.deployment.database().somebody_waits().await;
    promised.is_over(0);
    drop(held);
    let answer = asked.await.expect("ends");
    assert!(has_ended(&answer), "{answer:?}");
    let found = promised.app.store.convert_request(promised.of.merchant.tenant, promised.of.merchant.no, "r").await;
    assert_eq!(found.expect("reads"), None);
    Deployment::close(&promised.app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_that_a_quote_has_ended_while_an_order_of_it_is_on_its_way() {
    for (by, is_own) in [("r", true), ("another", false)] {
        let promised = Arc::new(Promised::on(Deployment::on_postgres().await).await);
        let held = promised.deployment.database().hold_quotes().await;
        promised.is_over(1);
        let mut asked = promised.asks_on("again");
        assert!(timeout(LOOK_PAUSE * 5, &mut asked).await.is_err(), "nobody knows yet");
        Database::use_quote(held, by).await;
        let answer = asked.await.expect("ends");
        assert_eq!((answer.is_ok(), has_ended(&answer)), (is_own, !is_own), "{by}: {answer:?}");
        Deployment::close(&promised.app);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_cannot_see_that_no_order_of_an_ended_quote_is_on_its_way_says_so() {
    let promised = Promised::on(Deployment::on_postgres().await).await;
    let _held = promised.deployment.database().hold_quotes().await;
    promised.is_over(1);
    let answer = promised.asks("again").await.expect("ends");
    assert!(matches!(answer, Err(AppError::Busy)), "{answer:?}");
    Deployment::close(&promised.app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_price_is_promised_from_when_it_was_asked_for_and_never_when_it_or_its_rate_is_over_by_then() {
    let promised = Promised::on(Deployment::on_postgres().await).await;
    let app = &promised.app;
    let (life_ms, rate_max_age_ms) = (app.policy.prices.quote_life_ms(), app.policy.prices.rate_max_age_ms());
    // The first one waits for its rate, the others for their commits.
    for (nonce, table, waits_ms) in [
        ("in time", "pair_rate", life_ms - 1),
        ("over", "convert_quote", life_ms),
        ("of an old rate", "convert_quote", rate_max_age_ms - 2 * life_ms + 1),
    ] {
        let held = promised.deployment.database().hold_table(table).await;
        let (asked, claimed) = (app.clock.now(), claim(&promised.of.application, nonce, app.clock.now()));
        let quote = promised.quote.clone();
        let ask =
            PriceAsk { sell: quote.sell_currency, buy: quote.buy_currency, given: Given::Sell(quote.sell_amount) };
        let (at, owner) = (app.clone(), promised.of.merchant.clone());
        let priced = tokio::spawn(async move { preview(&at, &owner, &ask, &claimed).await });
        promised.deployment.database().somebody_waits().await;
        app.clock.advance_ms(waits_ms);
        drop(held);
        match priced.await.expect("ends") {
            Ok(quote) => assert_eq!((nonce, quote.created_at), ("in time", asked)),
            Err(AppError::Busy) => assert_eq!(nonce, "over"),
            Err(AppError::NoRate) => assert_eq!(nonce, "of an old rate"),
            Err(refused) => panic!("{nonce}: {refused:?}"),
        }
    }
    Deployment::close(app);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unused_quote_that_has_ended_is_told_to_have_ended() {
    for deployment in Deployment::on_each_store().await {
        let promised = Promised::on(deployment).await;
        promised.is_over(0);
        let answer = promised.asks("late").await.expect("ends");
        assert!(has_ended(&answer), "{answer:?}");
        Deployment::close(&promised.app);
    }
}
