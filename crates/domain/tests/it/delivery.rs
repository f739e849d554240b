use countersign_domain::delivery::{
    Attempted, DeliveryState, Outcome, Over, SCHEDULE_DELAYS_MAX, Schedule, ScheduleRefused, Verdict, after_attempt,
    due, is_overdue, patience,
};
use countersign_domain::time::UnixMillis;

use crate::trials::{Dice, trials};

const NOW: UnixMillis = UnixMillis(1_767_225_600_000);
const S: i64 = 1_000;
const M: i64 = 60 * S;
const H: i64 = 60 * M;

/// How long until the next attempt, or what else was decided.
fn wait(count: u32, status: u16, retry_after_ms: Option<i64>, spread: u16) -> Result<i64, Verdict> {
    let schedule = Schedule::default();
    let answered = Attempted { count, outcome: Outcome::HttpStatus, http_status: Some(status), retry_after_ms };
    match after_attempt(answered, &schedule, NOW, spread) {
        Verdict::Retry { due_at } => Ok(due_at.0 - NOW.0),
        other @ (Verdict::Delivered | Verdict::StaysDelivered | Verdict::Dead | Verdict::DisableEndpoint) => Err(other),
    }
}

#[test]
fn the_default_schedule_has_twelve_delays_and_then_the_event_is_dead() {
    let delays = [5 * S, 30 * S, 2 * M, 10 * M, 30 * M, H, 2 * H, 4 * H, 8 * H, 12 * H, 20 * H, 24 * H];
    assert_eq!(Schedule::default().delays_ms(), delays);
    for (attempt, delay) in (1..).zip(delays) {
        assert_eq!(wait(attempt, 500, None, 0), Ok(delay), "after attempt {attempt}");
        assert_eq!(wait(attempt, 500, None, u16::MAX), Ok(delay + delay / 5), "after attempt {attempt}, most jitter");
    }
    for attempt in [13, 14, 1_000, u32::MAX] {
        assert_eq!(wait(attempt, 500, None, 0), Err(Verdict::Dead), "after attempt {attempt}");
    }
    assert_eq!(wait(0, 500, None, 0), Ok(5 * S), "no attempt counts as the first");
}

#[test]
fn every_outcome_but_delivered_is_retried_and_410_disables_the_endpoint() {
    let schedule = Schedule::default();
    for outcome in Outcome::ALL {
        for status in [None, Some(200), Some(302), Some(410), Some(500)] {
            let wanted = match (outcome, status) {
                (Outcome::Delivered, _) => Verdict::Delivered,
                (Outcome::HttpStatus, Some(410)) => Verdict::DisableEndpoint,
                _ => Verdict::Retry { due_at: NOW.plus_ms(5 * S) },
            };
            let attempted = Attempted { count: 1, outcome, http_status: status, retry_after_ms: None };
            assert_eq!(after_attempt(attempted, &schedule, NOW, 0), wanted, "{outcome:?} {status:?}");
        }
    }
    assert_eq!(wait(13, 410, None, 0), Err(Verdict::DisableEndpoint), "also after the last attempt");
    let late = Attempted { count: 99, outcome: Outcome::Delivered, http_status: Some(200), retry_after_ms: None };
    assert_eq!(after_attempt(late, &schedule, NOW, 0), Verdict::Delivered);
}

#[test]
fn what_was_dead_has_one_attempt_and_what_was_delivered_never_dies() {
    let again = Verdict::Retry { due_at: NOW };
    let table = [
        (again, Verdict::Dead, again),
        (Verdict::Dead, Verdict::Dead, Verdict::StaysDelivered),
        (Verdict::Delivered, Verdict::Delivered, Verdict::Delivered),
        (Verdict::StaysDelivered, Verdict::StaysDelivered, Verdict::StaysDelivered),
        (Verdict::DisableEndpoint, Verdict::DisableEndpoint, Verdict::DisableEndpoint),
    ];
    for (verdict, was_dead, was_delivered) in table {
        let becomes = [Over::Dead, Over::Delivered].map(|over| verdict.of_sent_again(over));
        assert_eq!(becomes, [was_dead, was_delivered], "{verdict:?}");
    }
}

#[test]
fn retry_after_of_429_and_503_moves_the_next_attempt_later_by_at_most_an_hour() {
    let table = [
        (1, 429, Some(60 * S), Ok(60 * S)),
        (1, 503, Some(60 * S), Ok(60 * S)),
        (1, 500, Some(60 * S), Ok(5 * S)), // not one of the two
        (1, 302, Some(60 * S), Ok(5 * S)),
        (1, 429, Some(S), Ok(5 * S)), // never earlier
        (1, 429, Some(0), Ok(5 * S)),
        (1, 429, Some(-5 * S), Ok(5 * S)),
        (1, 429, Some(i64::MIN), Ok(5 * S)),
        (1, 429, Some(i64::MAX), Ok(H + 5 * S)), // at most an hour later
        (8, 503, Some(4 * H + 1), Ok(4 * H + 1)),
        (8, 503, Some(9 * H), Ok(5 * H)),
        (13, 503, Some(60 * S), Err(Verdict::Dead)), // it does not lengthen the schedule
    ];
    for (attempt, status, retry_after, wanted) in table {
        assert_eq!(wait(attempt, status, retry_after, 0), wanted, "{attempt} {status} {retry_after:?}");
    }
}

#[test]
fn an_event_is_overdue_once_it_has_been_due_for_as_long_as_its_schedule_takes_with_all_of_its_jitter() {
    let whole_ms = Schedule::default().whole_ms();
    assert_eq!(whole_ms, 309_786_000, "3 days, 14 hours, 3 minutes and 6 seconds");
    let due_at = UnixMillis(1_000);
    for (later_ms, overdue) in [(-1, false), (0, false), (whole_ms - 1, false), (whole_ms, true), (i64::MAX, true)] {
        let now = UnixMillis(due_at.0.saturating_add(later_ms));
        assert_eq!(is_overdue(due_at, whole_ms, now), overdue, "{later_ms}");
    }
    assert!(!is_overdue(UnixMillis(i64::MAX), whole_ms, UnixMillis(i64::MIN)), "far ahead");
}

#[test]
fn no_attempt_is_early_and_none_is_later_than_jitter_and_retry_after_allow() {
    let mut dice = Dice(3);
    let attempts: Vec<(u32, i64)> = (1..).zip(Schedule::default().delays_ms().iter().copied()).collect();
    for _ in 0..trials(20_000) {
        let (attempts_made, delay) = dice.one_of(&attempts);
        let status = dice.one_of(&[429, 503, 500]);
        let asked = (dice.below(2) == 0).then(|| i64::from(dice.below(9 * 3_600_000)) - H);
        let spread = u16::try_from(dice.below(65_536)).expect("16 bits");
        let waited = wait(attempts_made, status, asked, spread).expect("there is a next attempt");
        let (first, last) = (delay, delay + delay / 5);
        match asked.filter(|_| status != 500) {
            Some(asked) => {
                assert!((first..=last + H).contains(&waited) && (waited >= asked || waited >= first + H));
                assert!(waited <= last.max(asked), "no later than both wished");
            }
            None => assert!((first..=last).contains(&waited)),
        }
    }
}

#[test]
fn schedules_are_read_strictly() {
    use ScheduleRefused::{Bounds, Count, Form};
    let read = |texts: &[&str]| Schedule::parse(texts).map(|s| s.delays_ms().to_vec());
    assert_eq!(read(&["5s", "2m", "1h", "1d", "250ms"]), Ok(vec![5 * S, 2 * M, H, 24 * H, 250]));
    assert_eq!(read(&["7d", "1ms"]), Ok(vec![7 * 24 * H, 1]));
    assert_eq!(read(&[]), Err(Count(0)));
    assert_eq!(read(&["1s"; SCHEDULE_DELAYS_MAX + 1]), Err(Count(SCHEDULE_DELAYS_MAX + 1)));
    for text in ["", "5", "s", "5 s", " 5s", "5S", "+5s", "-5s", "1.5h", "5sec", "٥s", "5m30s"] {
        assert_eq!(read(&[text]), Err(Form(text.to_owned())));
    }
    for text in ["0s", "8d", "169h", "99999999999999999999s", "9223372036854775807d"] {
        assert_eq!(read(&[text]), Err(Bounds(text.to_owned())));
    }
}

#[test]
fn a_schedule_is_written_as_it_is_read() {
    let text = Schedule::default().to_string();
    assert_eq!(text, "5s, 30s, 2m, 10m, 30m, 1h, 2h, 4h, 8h, 12h, 20h, 1d");
    let parts: Vec<_> = text.split(", ").collect();
    assert_eq!(Schedule::parse(&parts), Ok(Schedule::default()));
    assert_eq!(Schedule::parse(&["1500ms", "90s"]).map(|s| s.to_string()).as_deref(), Ok("1500ms, 90s"));
}

#[test]
fn a_verdict_leads_to_a_state_and_an_instant() {
    let due_at = NOW;
    let table = [
        (Verdict::Delivered, (DeliveryState::Delivered, None)),
        (Verdict::StaysDelivered, (DeliveryState::Delivered, None)),
        (Verdict::Retry { due_at }, (DeliveryState::Pending, Some(due_at))),
        (Verdict::Dead, (DeliveryState::Dead, None)),
        (Verdict::DisableEndpoint, (DeliveryState::Held, None)),
    ];
    for (verdict, wanted) in table {
        assert_eq!(verdict.state(), wanted);
    }
}

#[test]
fn outcomes_and_states_are_known_by_name() {
    let outcomes: Vec<_> = Outcome::ALL.into_iter().map(Outcome::name).collect();
    assert_eq!(
        outcomes.join(" "),
        "delivered refused_address dns_failed connect_failed tls_failed timeout http_status unreadable fail"
    );
    assert!(Outcome::ALL.into_iter().all(|o| Outcome::from_name(o.name()) == Some(o)));
    assert!(DeliveryState::ALL.into_iter().all(|s| DeliveryState::from_name(s.name()) == Some(s)));
    assert_eq!((Outcome::from_name("Fail"), DeliveryState::from_name("")), (None, None));
}

#[test]
fn what_lies_farther_ahead_than_any_attempt_is_put_off_is_due_now() {
    let schedule = Schedule::parse(&["7d"]).expect("the longest delay");
    let answered =
        Attempted { count: 1, outcome: Outcome::HttpStatus, http_status: Some(503), retry_after_ms: Some(i64::MAX) };
    let verdict = after_attempt(answered, &schedule, NOW, u16::MAX);
    let Verdict::Retry { due_at: farthest } = verdict else { panic!("{verdict:?}") };
    assert_eq!(due(farthest, NOW), farthest);
    assert_eq!(due(farthest.plus_ms(1), NOW), NOW);
    assert_eq!(due(UnixMillis(i64::MAX), UnixMillis(i64::MIN)), UnixMillis(i64::MIN));
    assert_eq!(due(UnixMillis(5), NOW), UnixMillis(5), "what is due is due since then");
    for waits_until in [None, Some(NOW), Some(farthest)] {
        assert_eq!(patience(farthest, waits_until, 7, NOW), farthest.plus_ms(7));
    }
    let beyond = farthest.plus_ms(1);
    for (waits_until, until) in [(None, NOW.plus_ms(7)), (Some(NOW.plus_ms(8)), NOW.plus_ms(7)), (Some(NOW), NOW)] {
        assert_eq!(patience(beyond, waits_until, 7, NOW), until, "{waits_until:?}");
    }
}
