use std::time::Instant;

use super::*;
use crate::app::fixtures::{Deployment, nobody};
use crate::clock::Clock;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_told_to_be_stale_when_it_is_by_the_databases_time_whatever_a_node_thinks() {
    let deployment = Deployment::on_postgres().await.in_real_time();
    let pair = Pair::parse("GT_USDT").expect("a pair");
    let wanted = Wanted { pair, rate: Decimal::from(9), limits: Limits::default() };
    for (thinks_ms, why) in [(-10_000, "it is behind"), (120_000, "it is ahead")] {
        let app = deployment.open().await;
        let row = put(&app, &wanted, &|_| None, &nobody()).await.expect("is put");
        let Clock::Shared(time) = &app.clock else { panic!("nodes share a clock") };
        time.measured(Instant::now(), row.updated_at.plus_ms(thinks_ms), Duration::ZERO);
        assert!(app.policy.prices.is_stale(&row, app.clock.now()), "{why}");
        assert_eq!(tell_stale(&app).await.expect("looks"), 0, "{why}");
        assert_eq!(find(&app, "GT_USDT").await.expect("is there").stale_told, 0, "{why}");
        Deployment::close(&app);
    }
}
