//! Rates that one node puts while another looks at them.

use countersign::app::rates::{Wanted, find, put, tell_stale};
use countersign_domain::conversion::{Limits, Pair};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_that_is_put_while_another_node_waits_to_look_at_it_is_fresh() {
    let fleet = Fleet::new(2, |_| {}).await;
    let clock = Clock::manual(countersign_domain::time::UnixMillis(wall_ms()));
    let open = async |node: usize, clock: &Clock| {
        Arc::new(run::open_app(&fleet.configs[node], clock.clone(), None).await.expect("it opens"))
    };
    let later = Clock::manual(clock.now().plus_ms(3_000));
    let (looks, puts) = (open(0, &clock).await, open(1, &later).await);
    let wanted = Wanted {
        pair: Pair::parse("GT_USDT").expect("a pair"),
        rate: "4.6".parse().expect("a number"),
        limits: Limits::default(),
    };
    let actor = Actor::named("token:tok_test");
    // The look begins 3 s before the rate is put, and its read waits until after that.
    put(&puts, &wanted, &|_| None, &actor).await.expect("is put");
    let holder = fleet.database.hold_table("pair_rate").await;
    let looking = tokio::spawn({
        let looks = looks.clone();
        async move { tell_stale(&looks).await }
    });
    timeout(SOON, fleet.database.somebody_waits()).await.expect("it waits");
    clock.advance_ms(3_500);
    drop(holder);
    assert_eq!(looking.await.expect("no panic").expect("looks"), 0, "it is half a second old");
    let row = find(&looks, "GT_USDT").await.expect("there");
    assert!(!looks.policy.prices.is_stale(&row, clock.now()));
    clock.advance_ms(-4_000);
    assert_eq!(tell_stale(&looks).await.expect("looks"), 1, "by a clock that is 3.5 s behind it is not");
}
