//! A machine whose clock is not the server's: what comes is stamped by the server's all the same.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_it_brings_is_stamped_by_the_server_s_clock() {
    const AHEAD_MS: i64 = 3_600_000;
    let shop = Shop::open().await;
    shop.world.clock.advance_ms(AHEAD_MS);
    shop.happens(1).await;
    let handler = Receiver::start().await.expect("starts");
    let _listener = shop.listens(&handler.url(), &["--after", "0"]);
    let received = handler.wait_for(1, WITHIN).await.expect("comes");
    let clock = shop.world.clock.clone();
    let verifier = CallbackVerifier::new(&shop.client_id, &*shop.secret).expect("a secret");
    let verifier = verifier.clock(move || clock.now().0);
    let callback = verifier.verify_now(|name| received[0].header(name), &received[0].body).expect("is of now");
    assert_eq!(callback.biz_id, "order-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_put_right_meanwhile_is_gone_by_when_a_callback_comes_again() {
    const AHEAD_MS: i64 = 3_600_000;
    let shop = Shop::open().await;
    shop.happens(1).await;
    let handler = Receiver::start().await.expect("starts");
    handler.answer_with(Reply::Status(401));
    let _listener = shop.listens(&handler.url(), &["--after", "0"]);
    handler.wait_for(1, WITHIN).await.expect("comes");
    shop.world.clock.advance_ms(AHEAD_MS);
    let clock = shop.world.clock.clone();
    let verifier = CallbackVerifier::new(&shop.client_id, &*shop.secret).expect("a secret");
    let verifier = verifier.clock(move || clock.now().0);
    let is_of_now = async || {
        let received = handler.received();
        Ok(received.iter().any(|came| verifier.verify_now(|name| came.header(name), &came.body).is_ok()).then_some(()))
    };
    patience::until("one comes that is stamped by the clock of now", WITHIN, is_of_now).await.expect("it does");
}
