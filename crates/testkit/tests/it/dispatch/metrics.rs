//! What `/metrics` says of callbacks: how late the first attempts are, and how much waits.

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
