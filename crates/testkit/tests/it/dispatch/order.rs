//! Callbacks of one bizId go in order; others never wait for them.

use countersign_testkit::receiver::Reply;

use super::*;

const ORDER_HOLD_MS: i64 = 600_000;

fn sequences(endpoint: &Receiver) -> Vec<String> {
    let of = |r: &Received| format!("{}/{}", r.need("x-service-sequence"), r.need("x-service-attempt"));
    endpoint.received().iter().map(of).collect()
}

#[tokio::test]
async fn callbacks_of_one_biz_id_that_are_due_together_go_one_by_one_in_their_order() {
    let bench = Arc::new(Bench::new().await);
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Held);
    let owner = bench.owner(Some(endpoint.url())).await;
    for _ in 0..20 {
        bench.emit(&owner, "order").await;
    }
    let delivering = tokio::spawn({
        let bench = bench.clone();
        async move { bench.deliver().await }
    });
    for n in 1..=20 {
        endpoint.wait_for(n, SOON).await.expect("the next one goes when the one before is delivered");
        endpoint.release(1);
    }
    assert_eq!(delivering.await.expect("no panic"), 20);
    assert_eq!(sequences(&endpoint), (1..=20).map(|n| format!("{n}/1")).collect::<Vec<_>>());
    assert_eq!(endpoint.most_at_once(), 1);
}

#[tokio::test]
async fn a_later_callback_waits_until_the_earlier_one_is_delivered_and_no_other_biz_id_does() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.script([Reply::Fail]);
    let first = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    let second = bench.emit(&owner, "order").await;
    bench.emit(&owner, "another").await;
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(endpoint.received()[1].need("x-service-sequence"), "1", "the other bizId's");
    assert_eq!(bench.row(&second).await.attempts, 0);
    assert_eq!(bench.deliver_next(&first).await, 2);
    assert_eq!(sequences(&endpoint), ["1/1", "1/1", "1/2", "2/1"]);
}

#[tokio::test]
async fn a_later_callback_waits_for_one_that_is_still_to_be_released() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    let first = bench.emit(&owner, "order").await;
    let row = bench.row(&first).await;
    let (tenant, application) = (row.tenant, row.application);
    // As a change of a merchant leaves it, until the dispatcher has come round to the application.
    bench.commit(Write::HoldPending { tenant, application }).await;
    let second = bench.emit(&owner, "order").await;
    bench.emit(&owner, "another").await;
    assert_eq!(bench.deliver().await, 1);
    assert_eq!((bench.row(&first).await.state, bench.row(&second).await.attempts), (DeliveryState::Held, 0));
    bench.commit(Write::ReleaseHeld { tenant, application, due_at: bench.clock.now() }).await;
    assert_eq!(bench.deliver().await, 2);
    assert_eq!(sequences(&endpoint), ["1/1", "1/1", "2/1"]);
}

#[tokio::test]
async fn a_shorter_hold_holds_for_what_waits_already_and_nothing_younger_passes_it() {
    const SHORTER_MS: i64 = 3_000;
    for third_comes in [false, true] {
        let schedule = Schedule::parse(&["1d"]).expect("a schedule");
        let longer = DispatchSettings { order_hold_ms: ORDER_HOLD_MS, schedule, ..settings() };
        let mut bench = Bench::with(longer.clone()).await;
        let endpoint = receiver().await;
        let owner = bench.owner(Some(endpoint.url())).await;
        endpoint.script([Reply::Fail]);
        let first = bench.emit(&owner, "order").await;
        let second = bench.emit(&owner, "order").await;
        assert_eq!(bench.deliver().await, 1);
        let waits = bench.row(&second).await;
        assert_eq!((waits.behind, waits.due_at), (Some(first.no), Some(START.plus_ms(ORDER_HOLD_MS))));

        let shorter = DispatchSettings { order_hold_ms: SHORTER_MS, ..longer };
        bench.dispatcher = Arc::new(Dispatcher::new(bench.app.clone(), shorter).expect("settings that hold"));
        bench.clock.advance_ms(SHORTER_MS);
        if third_comes {
            bench.emit(&owner, "order").await;
        }
        assert_eq!(bench.deliver().await, 1, "the second one has waited for long enough");
        bench.clock.advance_ms(SHORTER_MS);
        assert_eq!(bench.deliver().await, usize::from(third_comes));
        assert_eq!(sequences(&endpoint)[..2], ["1/1", "2/1"]);
    }
}

#[tokio::test]
async fn what_a_clock_wrote_that_was_years_ahead_goes_when_it_is_right_again() {
    const AHEAD_MS: i64 = 300 * 365 * 86_400_000;
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.script([Reply::Fail]);
    bench.clock.advance_ms(AHEAD_MS);
    let tried = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    bench.clock.advance_ms(-AHEAD_MS);
    assert!(bench.row(&tried).await.due_at.is_some_and(|at| at.0 - START.0 > AHEAD_MS));
    // Nobody rings for it.
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.row(&tried).await.state, DeliveryState::Delivered);
    bench.clock.advance_ms(AHEAD_MS);
    let untried = bench.emit(&owner, "another").await;
    bench.clock.advance_ms(-AHEAD_MS);
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.row(&untried).await.state, DeliveryState::Delivered);
}

#[tokio::test]
async fn what_waits_behind_another_is_not_tried_for_years_of_a_clock_either() {
    const AHEAD_MS: i64 = 300 * 365 * 86_400_000;
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.script([Reply::Fail, Reply::Fail]);
    bench.clock.advance_ms(AHEAD_MS);
    let first = bench.emit(&owner, "order").await;
    let second = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    bench.clock.advance_ms(-AHEAD_MS);
    // The first fails again; the second is left alone, and nothing goes round and round.
    assert_eq!(tokio::time::timeout(SOON, bench.deliver()).await.expect("ends"), 1);
    assert_eq!(bench.row(&second).await.attempts, 0);
    assert_eq!(bench.deliver_next(&first).await, 2);
    assert_eq!(sequences(&endpoint), ["1/1", "1/2", "1/3", "2/1"]);
}

#[tokio::test]
async fn a_later_callback_goes_when_the_earlier_one_is_dead() {
    let schedule = Schedule::parse(&["5s"]).expect("a schedule");
    let bench = Bench::with(DispatchSettings { schedule, ..settings() }).await;
    let endpoint = receiver().await;
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.script([Reply::Fail, Reply::Fail]);
    let first = bench.emit(&owner, "order").await;
    let second = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.deliver_next(&first).await, 2);
    assert_eq!(
        (bench.state(&first).await, bench.state(&second).await),
        (DeliveryState::Dead, DeliveryState::Delivered)
    );
}

#[tokio::test]
async fn a_later_callback_waits_no_longer_than_the_order_hold_from_its_own_creation() {
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Fail);
    let owner = bench.owner(Some(endpoint.url())).await;
    let first = bench.emit(&owner, "order").await;
    bench.deliver().await;
    bench.clock.advance_ms(60_000);
    let second = bench.emit(&owner, "order").await;
    bench.deliver().await;
    bench.clock.advance_ms(ORDER_HOLD_MS - 1);
    bench.deliver().await;
    assert_eq!(bench.row(&second).await.attempts, 0);
    bench.clock.advance_ms(1);
    bench.deliver().await;
    assert_eq!(bench.row(&second).await.attempts, 1);
    assert_eq!(bench.state(&first).await, DeliveryState::Pending);
}

#[tokio::test]
async fn a_later_callback_that_a_clock_wrote_which_was_far_ahead_waits_no_longer_than_the_order_hold_either() {
    const MONTH_MS: i64 = 30 * 86_400_000;
    for is_behind in [false, true] {
        let bench = Bench::new().await;
        let endpoint = receiver().await;
        endpoint.answer_with(Reply::Fail);
        let owner = bench.owner(Some(endpoint.url())).await;
        bench.clock.advance_ms(MONTH_MS);
        bench.emit(&owner, "order").await;
        let second = bench.emit(&owner, "order").await;
        if is_behind {
            bench.deliver().await;
        }
        bench.clock.advance_ms(-MONTH_MS);
        bench.deliver().await;
        for (after_ms, attempts) in [(0, 0), (ORDER_HOLD_MS - 1, 0), (1, 1)] {
            bench.clock.advance_ms(after_ms);
            bench.deliver().await;
            assert_eq!(bench.row(&second).await.attempts, attempts, "{after_ms}");
        }
    }
}

#[tokio::test]
async fn what_would_wait_for_longer_than_any_attempt_is_put_off_is_left_alone_until_then() {
    // The longest delay, what chance and a Retry-After add, and the hold beyond that.
    const AHEAD_MS: i64 = 7 * 86_400_000 * 6 / 5 + 3_600_000 - ORDER_HOLD_MS / 2;
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.script([Reply::Fail, Reply::Fail]);
    let owner = bench.owner(Some(endpoint.url())).await;
    bench.clock.advance_ms(AHEAD_MS);
    let first = bench.emit(&owner, "order").await;
    let second = bench.emit(&owner, "order").await;
    assert_eq!(bench.deliver().await, 1);
    bench.clock.advance_ms(-AHEAD_MS);
    let row = bench.row(&first).await;
    let (tenant, event, attempts, was_due) = (row.tenant, row.no, row.attempts, row.due_at.expect("it is pending"));
    bench.commit(Write::SendNow { tenant, event, attempts, was_due, due_at: bench.clock.now() }).await;
    assert_eq!(tokio::time::timeout(SOON, bench.deliver()).await.expect("nothing goes round and round"), 1);
    assert_eq!(bench.row(&second).await.attempts, 0);
    assert_eq!(bench.deliver_next(&first).await, 2);
    assert_eq!(sequences(&endpoint), ["1/1", "1/2", "1/3", "2/1"]);
}
