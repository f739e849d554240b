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
