//! Rows that cannot be read back hold up what is theirs, and nobody else.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_cannot_be_read_back_holds_up_its_biz_id_and_nothing_else() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let damaged = bench.emit(&owner, "one").await;
    let (behind, beside) = (bench.emit(&owner, "one").await, bench.emit(&owner, "two").await);
    let mut others = vec![beside];
    for _ in 0..3 {
        let other = bench.owner(Some(endpoint.url())).await;
        others.push(bench.emit(&other, "one").await);
    }
    bench.damage(&Damage::Event(damaged.no)).await;

    assert_eq!(bench.deliver().await, others.len());
    for event in &others {
        assert_eq!(bench.state(event).await, DeliveryState::Delivered);
    }
    let waits = bench.row(&behind).await;
    assert_eq!((waits.state, waits.behind), (DeliveryState::Pending, Some(damaged.no)));
    assert_eq!(bench.deliver_next(&behind).await, 1, "it waits for no longer than for one that fails");
    assert_eq!(bench.state(&behind).await, DeliveryState::Delivered);

    bench.damage(&Damage::Event(damaged.no)).await;
    bench.clock.advance_ms(60_000);
    assert_eq!(bench.deliver().await, 1, "it can be read again");
    assert_eq!(bench.state(&damaged).await, DeliveryState::Delivered);
}
