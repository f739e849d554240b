//! What `/metrics` says of callbacks: how late the first attempts are, and how much waits.

use countersign::app::identity::MerchantChange;
use countersign::meters;
use countersign_testkit::patience::until;
use countersign_testkit::receiver::Reply;

use super::running::Running;
use super::*;

/// The value of a line, if it is there.
fn said(name: &str) -> Option<f64> {
    let seen = meters::install().expect("meters").render();
    seen.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test]
async fn how_late_first_attempts_are_is_told_and_repeated_ones_do_not_count() {
    meters::install().expect("meters");
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.script(vec![Reply::Status(500)]);
    let owner = bench.owner(Some(endpoint.url())).await;
    let event = bench.emit(&owner, "prompt").await;
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(bench.deliver_next(&event).await, 1);
    assert_eq!(said("countersign_callback_delay_seconds_count"), Some(1.0), "the second attempt is none of them");
    assert_eq!(said("countersign_callback_delay_seconds_sum"), Some(0.0));

    let other = receiver().await;
    let late = bench.owner(Some(other.url())).await;
    bench.emit(&late, "late").await;
    bench.clock.advance_ms(45_000);
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(said("countersign_callback_delay_seconds_sum"), Some(45.0));
    let up_to = |bound: &str| said(&format!("countersign_callback_delay_seconds_bucket{{le=\"{bound}\"}}"));
    assert_eq!([up_to("30"), up_to("60"), up_to("21600")], [Some(1.0), Some(2.0), Some(2.0)]);
    let ended = |outcome: &str| said(&format!("countersign_callback_attempts_total{{outcome=\"{outcome}\"}}"));
    assert_eq!([ended("http_status"), ended("delivered"), ended("timeout")], [Some(1.0), Some(2.0), None]);
    assert_eq!(said("countersign_callback_attempt_seconds_count"), Some(3.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_and_what_is_dead_is_counted_while_it_runs() {
    meters::install().expect("meters");
    let bench = Bench::new().await;
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Status(500));
    let owner = bench.owner(Some(endpoint.url())).await;
    let dies = bench.emit(&owner, "dies").await;
    bench.deliver().await;
    while bench.state(&dies).await == DeliveryState::Pending {
        bench.deliver_next(&dies).await;
    }
    for order in ["one", "two", "three"] {
        bench.emit(&owner, order).await;
    }
    bench.clock.advance_ms(7_000);
    let running = Running::start(&bench);
    // What is told last.
    let counted = async || Ok(said("countersign_callbacks_dead").filter(|dead| *dead > 0.0));
    let (dead, _) = until("what is dead is counted", SOON, counted).await.expect("at the start");
    assert_eq!(Some(dead), Some(1.0));
    assert_eq!(said("countersign_callbacks_pending"), Some(3.0));
    assert_eq!(said("countersign_callback_oldest_pending_seconds"), Some(7.0));
    running.stop().await;
}

/// An endpoint whose breaker has opened, with events that wait for it.
async fn opened(bench: &Bench) -> (Receiver, Owner) {
    let endpoint = receiver().await;
    endpoint.answer_with(Reply::Status(503));
    let owner = bench.owner(Some(endpoint.url())).await;
    for no in 0..40 {
        bench.emit(&owner, &format!("waits {no}")).await;
    }
    bench.deliver().await;
    (endpoint, owner)
}

#[tokio::test]
async fn what_an_endpoint_that_fails_keeps_waiting_does_not_count_as_late() {
    meters::install().expect("meters");
    let bench = Bench::new().await;
    let (endpoint, owner) = opened(&bench).await;
    let counted = || said("countersign_callback_delay_seconds_count").expect("some were tried");
    assert_eq!(said("countersign_callback_delay_seconds_sum"), Some(0.0));
    let before = counted();
    assert!(before < 40.0, "its breaker is open: {before}");
    bench.clock.advance_ms(45_000);
    assert!(bench.deliver().await > 0, "one tries it");
    endpoint.answer_with(Reply::Success);
    bench.clock.advance_ms(45_000);
    while bench.deliver().await > 0 {
        bench.clock.advance_ms(1);
    }
    assert_eq!((said("countersign_callback_delay_seconds_sum"), counted()), (Some(0.0), before), "none of 40 counts");
    bench.emit(&owner, "after it has recovered").await;
    bench.clock.advance_ms(2_000);
    assert_eq!(bench.deliver().await, 1);
    assert_eq!(said("countersign_callback_delay_seconds_sum"), Some(2.0), "this one waited for us");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_whose_callbacks_do_not_go_out_is_none_that_fails() {
    meters::install().expect("meters");
    let bench = Bench::new().await;
    let open = || said("countersign_callback_endpoints_open");
    let [(_one, of_one), (_two, of_two)] = [opened(&bench).await, opened(&bench).await];
    assert_eq!(open(), Some(2.0));
    let running = Running::start(&bench);
    bench.enable(&of_one, false).await;
    until("one is left", SOON, async || Ok((open() == Some(1.0)).then_some(()))).await.expect("is so");
    let merchant = bench.app.store.application(&of_two.client_id).await.expect("reads").expect("is there").merchant;
    let change = MerchantChange { enabled: Some(false), ..MerchantChange::default() };
    identity::update_merchant(&bench.app, &merchant.merchant_id, &change, &|_| None, &actor()).await.expect("changes");
    until("none is left", SOON, async || Ok((open() == Some(0.0)).then_some(()))).await.expect("is so");
    let (failing, more) = bench.dispatcher.failing(10).await.expect("it answers");
    assert!(failing.is_empty() && more == 0, "{failing:?}");
    running.stop().await;
}
