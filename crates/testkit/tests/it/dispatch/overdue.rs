//! What is written for an endpoint that stays away.

use countersign_testkit::receiver::Reply;

use super::*;

/// With six attempts each, one in ten seconds, these need an hour and a half, and each is tried once in a quarter of an hour.
const EVENTS: usize = 90;
/// The whole of a schedule, in s, with five attempts after the first.
const DELAYS: [&str; 5] = ["76s"; 5];
const WHOLE_S: i64 = 456;

impl Bench {
    async fn states(&self, events: &[EventRow]) -> Vec<(DeliveryState, i64)> {
        let mut states = Vec::new();
        for event in events {
            let row = self.row(event).await;
            states.push((row.state, row.attempts));
        }
        states
    }

    /// So many seconds, in such steps.
    async fn passes(&self, seconds: i64, step: i64) {
        for _ in 0..seconds / step {
            self.deliver().await;
            self.clock.advance_ms(step * 1_000);
        }
    }
}

fn count(states: &[(DeliveryState, i64)], of: DeliveryState) -> usize {
    states.iter().filter(|(state, _)| *state == of).count()
}

/// Many events of an endpoint that answers so.
async fn written(reply: Reply) -> (Bench, Receiver, Vec<EventRow>) {
    let (bench, endpoint) = (Bench::new().await, receiver().await);
    let owner = bench.owner(Some(endpoint.url())).await;
    endpoint.answer_with(reply);
    bench.set_delays(&owner, &DELAYS).await;
    let mut events = Vec::new();
    for n in 0..EVENTS {
        events.push(bench.emit(&owner, &n.to_string()).await);
    }
    (bench, endpoint, events)
}

#[tokio::test]
async fn what_has_been_due_for_as_long_as_its_schedule_takes_dies_of_one_more_attempt_where_nobody_is_there() {
    let (bench, _endpoint, events) = written(Reply::Reset).await;
    // Somewhat fewer attempts than say that it is away, in pauses of ten seconds.
    bench.passes(1_900, 10).await;
    let states = bench.states(&events).await;
    assert_eq!(count(&states, DeliveryState::Dead), 0, "nobody has had all attempts: {states:?}");
    bench.passes(300, 10).await;
    bench.passes(WHOLE_S + 100, 1).await;
    let states = bench.states(&events).await;
    let early = states.iter().filter(|(state, attempts)| *state == DeliveryState::Dead && *attempts < 6).count();
    assert!(early > EVENTS / 2, "{states:?}");
    assert!(states.iter().all(|(_, attempts)| *attempts > 0), "each was tried: {states:?}");
    // The rest has its turns as soon as it has to be.
    bench.passes(4_000, 10).await;
    let states = bench.states(&events).await;
    assert_eq!(count(&states, DeliveryState::Dead), EVENTS, "{states:?}");
}

#[tokio::test]
async fn one_who_answers_that_there_is_too_much_to_do_is_there() {
    let (bench, endpoint, events) = written(Reply::Reset).await;
    bench.passes(2_100, 10).await;
    let early = async || {
        let states = bench.states(&events).await;
        states.into_iter().filter(|(state, attempts)| *state == DeliveryState::Dead && *attempts < 6).count()
    };
    let before = early().await;
    assert!((1..EVENTS / 2).contains(&before), "nobody was there: {before}");
    endpoint.answer_with(Reply::Status(503));
    bench.passes(600, 10).await;
    assert_eq!(early().await, before);
}

#[tokio::test]
async fn what_is_overdue_by_a_clock_that_went_ahead_keeps_its_schedule_also_where_nobody_was_there_before() {
    let (bench, _endpoint, events) = written(Reply::Reset).await;
    bench.passes(2_100, 10).await;
    let before = count(&bench.states(&events).await, DeliveryState::Dead);
    bench.clock.advance_ms(WHOLE_S * 4_000);
    bench.passes(600, 10).await;
    let states = bench.states(&events).await;
    let last = states.iter().filter(|(state, attempts)| *state == DeliveryState::Dead && *attempts == 6).count();
    assert_eq!(count(&states, DeliveryState::Dead) - last, before, "{states:?}");
}

#[tokio::test]
async fn what_is_overdue_keeps_its_schedule_where_the_service_was_away_itself_or_somebody_answers() {
    for reply in [Reply::Reset, Reply::Status(503), Reply::Fail] {
        let (bench, _endpoint, events) = written(reply).await;
        bench.clock.advance_ms(WHOLE_S * 2_000);
        bench.passes(60, 1).await;
        let states = bench.states(&events).await;
        assert_eq!(count(&states, DeliveryState::Dead), 0, "{states:?}");
        assert!(states.iter().any(|(_, attempts)| *attempts > 0), "{states:?}");
    }
}
