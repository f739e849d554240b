//! Endpoints that behave in every way, all at once: what each attempt is called, what is kept of it, and when the next one is due.

use std::collections::BTreeSet;

use countersign_testkit::behaviours::{self, Behaviour, Made, Stage};

use super::*;

/// Of those that run it out: long enough for all of them at once on a machine that has other things to do.
const DEADLINE: Duration = Duration::from_secs(3);

async fn stage(behaviours: Vec<Behaviour>, deadline: Duration) -> Stage {
    let mut stage = Stage::set(behaviours, Backing::of_this_run().await, deadline).await.expect("all of them start");
    for at in 0..stage.size() {
        stage.emit(at).await.expect("an event");
    }
    stage
}

async fn all_made(stage: &Stage) -> Vec<Made> {
    let mut all = Vec::new();
    for at in 0..stage.size() {
        all.push(stage.made(at).await.expect("the store reads"));
    }
    all
}

/// What the schedule says after the first attempt: 5 s, or what the endpoint asked for, and up to a fifth more.
fn is_on_schedule(made: &Made, now: UnixMillis) -> bool {
    let Behaviour { outcome, status, retry_after_s, .. } = &made.behaviour;
    let wait = made.event.due_at.map(|due_at| due_at.0 - now.0);
    match (outcome, status, made.event.state) {
        (Outcome::Delivered, _, DeliveryState::Delivered) | (Outcome::HttpStatus, Some(410), DeliveryState::Held) => {
            wait.is_none()
        }
        (_, _, DeliveryState::Pending) => {
            let least = retry_after_s.unwrap_or(5) * 1_000;
            wait.is_some_and(|wait| (least..=least + least / 5).contains(&wait))
        }
        _ => false,
    }
}

/// What is kept of a first attempt.
fn is_bounded_and_told_apart(made: &Made) {
    let (name, attempt) = (made.behaviour.name, &made.attempts[0]);
    let deadline = i64::try_from(DEADLINE.as_micros()).expect("short");
    let total = attempt.phases.total_us.expect("it ended");
    assert!(attempt.outcome != Outcome::Timeout || total >= deadline, "{name}: {total} us");
    // What is reset at once may be so before anything is written.
    let may_be_empty = name == "reset when accepted" && made.bytes.is_none();
    assert!(
        may_be_empty || attempt.phases.reused.is_some() == made.bytes.is_some(),
        "{name}: bytes are of connections"
    );
    let Some(bytes) = &made.bytes else { return };
    assert!(bytes.sent_head.starts_with(b"POST /callbacks HTTP/1.1\r\n"), "{name}");
    assert!(bytes.answer_head.len() <= 32 * 1024 && bytes.answer_body.len() <= 16 * 1024, "{name}");
    assert!(attempt.http_status.is_none() || bytes.answer_head.starts_with(b"HTTP/1.1 "), "{name}");
    assert_eq!(attempt.phases.first_byte_us.is_some(), !bytes.answer_head.is_empty(), "{name}");
    if made.behaviour.detail.ends_with("larger than 64 KiB") || name.contains("body without end") {
        assert!(bytes.is_cut && bytes.answer_body.len() == 16 * 1024, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_behaviour_has_its_outcome_and_its_words_what_is_kept_is_bounded_and_the_schedule_goes_on() {
    let all = behaviours::all();
    assert!(all.len() >= 40, "{}", all.len());
    let (late, prompt): (Vec<_>, Vec<_>) = all.into_iter().partition(|of| of.outcome == Outcome::Timeout);
    for (behaviours, deadline) in [(prompt, LONG), (late, DEADLINE)] {
        play(stage(behaviours, deadline).await).await;
    }
}

async fn play(stage: Stage) {
    assert_eq!(stage.deliver().await, stage.size());
    let (mut wrong, mut next) = (Vec::new(), BTreeSet::new());
    for made in all_made(&stage).await {
        is_bounded_and_told_apart(&made);
        let name = made.behaviour.name;
        wrong.extend(behaviours::fault(&made).map(|fault| format!("{name}: {fault}")));
        if !is_on_schedule(&made, stage.now()) {
            wrong.push(format!("{name}: {:?} is due at {:?}", made.event.state, made.event.due_at));
        }
        next.extend(made.event.due_at);
    }
    assert_eq!(wrong, [] as [String; 0]);

    let (first, last) = (*next.first().expect("some failed"), *next.last().expect("some failed"));
    stage.move_to(UnixMillis(first.0 - 1));
    assert_eq!(stage.deliver().await, 0, "never early");
    stage.move_to(first);
    assert!(stage.deliver().await >= 1, "and not late");
    stage.move_to(UnixMillis(last.0));
    stage.deliver().await;
    for made in all_made(&stage).await {
        let name = made.behaviour.name;
        assert_eq!(behaviours::fault(&made), None, "{name}: the same again");
        assert_eq!(made.attempts.len() >= 2, made.event.state == DeliveryState::Pending, "{name}");
    }
}
