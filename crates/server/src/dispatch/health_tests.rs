use super::*;

fn at(ms: i64) -> UnixMillis {
    UnixMillis(1_000_000 + ms)
}

fn bad(health: &mut Health, times: u32, now: i64) {
    for _ in 0..times {
        health.ended(Sign::Bad, at(now), Some(at(now + 60_000)), true);
    }
}

#[test]
fn a_good_attempt_raises_the_limit_by_one_and_a_bad_one_halves_it() {
    let mut health = Health::new(8);
    bad(&mut health, 2, 0);
    assert_eq!(health.limit(), 2);
    health.ended(Sign::Good, at(0), None, true);
    assert_eq!(health.limit(), 3);
    for _ in 0..20 {
        health.ended(Sign::Good, at(0), None, true);
    }
    assert_eq!(health.limit(), 8);
    assert_eq!((health.may(7, 0, at(0)), health.may(8, 0, at(0))), (May::Begin, May::WhenLanded));
}

#[test]
fn what_hangs_uses_up_what_an_endpoint_may_have_at_the_most_and_not_what_it_may_have_by_now() {
    let mut health = Health::new(8);
    bad(&mut health, 8, 0);
    assert_eq!(health.limit(), 1);
    assert_eq!((health.may(1, 1, at(0)), health.waits_for_slow(1, at(0))), (May::WhenLanded, false), "it takes none");
    health.ended(Sign::Good, at(0), None, true);
    bad(&mut health, 1, 0);
    assert_eq!((health.may(1, 0, at(0)), health.waits_for_slow(1, at(0))), (May::WhenLanded, true));
    assert_eq!((health.may(7, 7, at(0)), health.may(7, 6, at(0))), (May::Begin, May::WhenLanded));
    assert_eq!(
        (health.may(8, 8, at(0)), health.waits_for_slow(8, at(0))),
        (May::WhenLanded, false),
        "no more than that ever"
    );
    assert_eq!((health.may(7, 7, at(22_500)), health.may(7, 7, at(22_501))), (May::Begin, May::WhenLanded));
    assert_eq!(health.may(7, 7, at(-1)), May::WhenLanded, "a clock that was ahead");
    bad(&mut health, 9, 0);
    assert_eq!(
        (health.may(1, 1, at(1_000)), health.waits_for_slow(1, at(1_000))),
        (May::WhenLanded, false),
        "one decides"
    );
}

#[test]
fn some_bad_ones_in_a_row_open_the_breaker_and_one_probe_goes_after_the_pause() {
    let mut health = Health::new(8);
    bad(&mut health, 9, 0);
    assert_eq!(health.may(0, 0, at(0)), May::Begin);
    bad(&mut health, 1, 0);
    assert_eq!(health.may(0, 0, at(999)), May::At(at(1_000)));
    assert_eq!(health.may(0, 0, at(1_000)), May::Begin);
    health.begins();
    assert_eq!(health.may(1, 0, at(1_000)), May::WhenLanded);
    bad(&mut health, 1, 1_000);
    assert_eq!(health.may(0, 0, at(2_000)), May::At(at(3_000)), "the pause doubles");
    health.begins();
    health.ended(Sign::Good, at(3_000), None, true);
    assert_eq!((health.limit(), health.class()), (1, Class::Proven), "it drains from one at once");
    assert!(!health.is_open());
}

#[test]
fn what_an_endpoint_that_fails_or_recovers_keeps_waiting_waits_for_it_and_not_for_us() {
    let mut health = Health::new(2);
    assert_eq!(health.may(2, 0, at(0)), May::WhenLanded);
    health.ended(Sign::Good, at(100), None, true);
    assert!(!health.has_kept_waiting(at(0), at(100)), "as many as the settings let it have");
    bad(&mut health, 10, 1_000);
    assert!(!health.has_kept_waiting(at(0), at(1_000)), "what it fails has not waited for it");
    assert_eq!(health.may(0, 0, at(1_000)), May::At(at(2_000)));
    assert!(health.has_kept_waiting(at(1_500), at(2_000)), "it was left alone");
    assert!(!health.has_kept_waiting(at(2_001), at(3_000)), "this one was due later: something else keeps it");
    assert!(!health.has_kept_waiting(at(1_500), at(1_900)), "an instant to come says nothing");
    health.begins();
    assert_eq!(health.may(1, 0, at(2_000)), May::WhenLanded);
    health.ended(Sign::Good, at(6_000), None, true);
    assert!(health.has_kept_waiting(at(5_000), at(6_000)), "one was under way that decided");
    assert_eq!(health.may(1, 0, at(6_100)), May::WhenLanded);
    health.ended(Sign::Good, at(7_000), None, true);
    assert!(health.has_kept_waiting(at(6_500), at(7_000)), "it had one attempt at once");
    assert_eq!(health.may(1, 0, at(7_100)), May::Begin, "and has two by now");
    health.ended(Sign::Bad, at(9_000), None, true);
    assert!(!health.has_kept_waiting(at(8_000), at(9_000)), "that one failed kept nothing waiting");
}

#[test]
fn the_pause_has_a_bound_and_never_outlasts_the_schedule_of_the_event() {
    let mut health = Health::new(8);
    bad(&mut health, 10, 0);
    for _ in 0..9 {
        health.begins();
        bad(&mut health, 1, 0);
    }
    assert_eq!(health.may(0, 0, at(0)), May::At(at(PAUSE_MS_MAX)));
    health.begins();
    health.ended(Sign::Bad, at(0), Some(at(100)), true);
    assert_eq!(health.may(0, 0, at(0)), May::At(at(100)));
}

#[test]
fn an_endpoint_with_nothing_else_waiting_sees_its_schedule_and_no_pause() {
    let mut health = Health::new(8);
    for _ in 0..99 {
        health.ended(Sign::Bad, at(0), Some(at(5)), false);
    }
    assert_eq!((health.may(0, 0, at(0)), health.may(1, 0, at(0))), (May::Begin, May::WhenLanded));
    health.ended(Sign::Bad, at(0), Some(at(5)), true);
    assert_eq!(health.may(0, 0, at(0)), May::At(at(5)));
}

#[test]
fn the_pause_of_one_that_answers_with_an_error_does_not_grow() {
    let mut health = Health::new(8);
    bad(&mut health, 10, 0);
    for _ in 0..5 {
        health.begins();
        health.ended(Sign::Ill, at(0), None, true);
        assert_eq!(health.may(0, 0, at(0)), May::At(at(1_000)));
    }
}

#[test]
fn an_error_that_may_be_of_one_event_slows_down_and_never_opens() {
    let mut health = Health::new(8);
    for _ in 0..50 {
        health.ended(Sign::Failed, at(0), Some(at(5_000)), true);
    }
    assert_eq!(
        (health.may(0, 0, at(0)), health.may(1, 0, at(0))),
        (May::Begin, May::WhenLanded),
        "one after the other"
    );
    assert_eq!(health.class(), Class::Suspect);
    bad(&mut health, 9, 0);
    health.ended(Sign::Neutral, at(0), None, true);
    bad(&mut health, 9, 0);
    assert_eq!(health.may(0, 0, at(0)), May::Begin, "somebody answered between");
    bad(&mut health, 1, 0);
    assert!(health.is_open());
    health.begins();
    health.ended(Sign::Failed, at(1_000), None, true);
    assert_eq!((health.is_open(), health.limit(), health.class()), (false, 1, Class::Suspect), "it is there again");
}

#[test]
fn whoever_answers_between_begins_the_count_anew() {
    for sign in [Sign::Good, Sign::Failed, Sign::Neutral] {
        let mut health = Health::new(8);
        bad(&mut health, 9, 0);
        health.ended(sign, at(0), None, true);
        bad(&mut health, 9, 0);
        assert!(!health.is_open(), "{sign:?}");
        bad(&mut health, 1, 0);
        health.begins();
        health.ended(sign, at(1_000), None, true);
        bad(&mut health, 9, 1_000);
        assert!(!health.is_open(), "{sign:?} after a pause");
    }
    let mut health = Health::new(8);
    for _ in 0..9 {
        health.ended(Sign::Good, at(0), None, true);
        bad(&mut health, 2, 0);
        assert_eq!(health.class(), Class::Proven, "and so for what is forgiven");
    }
}

#[test]
fn what_is_allowed_holds_at_once_and_a_recovered_endpoint_begins_with_one_all_the_same() {
    let mut health = Health::new(8);
    bad(&mut health, 1, 0);
    assert_eq!(health.limit(), 4);
    health.allow(3);
    assert_eq!((health.may(2, 0, at(0)), health.may(3, 0, at(0))), (May::Begin, May::WhenLanded));
    let mut raised = Health::new(1);
    bad(&mut raised, 10, 0);
    raised.allow(8);
    raised.begins();
    raised.ended(Sign::Good, at(1_000), None, true);
    assert_eq!(raised.limit(), 1);
}

#[test]
fn what_lands_late_does_not_lengthen_the_pause() {
    let mut health = Health::new(8);
    bad(&mut health, 10, 0);
    bad(&mut health, 3, 500);
    assert_eq!(health.may(0, 0, at(999)), May::At(at(1_000)));
}

#[test]
fn endpoints_are_told_apart_by_what_is_known_of_them() {
    let mut health = Health::new(8);
    assert_eq!(health.class(), Class::New);
    health.ended(Sign::Good, at(0), None, true);
    assert_eq!(health.class(), Class::Proven);
    bad(&mut health, 2, 0);
    assert_eq!(health.class(), Class::Proven, "some failures are forgiven");
    bad(&mut health, 1, 0);
    assert_eq!(health.class(), Class::Suspect);
    let mut stranger = Health::new(8);
    bad(&mut stranger, 1, 0);
    assert_eq!(stranger.class(), Class::Suspect);
    stranger.ended(Sign::Neutral, at(0), None, true);
    assert_eq!(stranger.class(), Class::Suspect, "that says nothing");
}

#[test]
fn an_honest_fail_is_the_events_fault_and_a_refusal_says_nothing() {
    let sign = |outcome, status| Sign::of(outcome, status, false);
    assert_eq!(sign(Outcome::Fail, Some(200)), Sign::Good);
    assert_eq!(sign(Outcome::HttpStatus, Some(404)), Sign::Neutral);
    assert_eq!(sign(Outcome::HttpStatus, Some(429)), Sign::Ill);
    for status in [502, 503, 504] {
        assert_eq!(sign(Outcome::HttpStatus, Some(status)), Sign::Ill);
    }
    for status in [500, 501, 505, 599] {
        assert_eq!(sign(Outcome::HttpStatus, Some(status)), Sign::Failed);
    }
    assert_eq!(sign(Outcome::Timeout, None), Sign::Bad);
}

#[test]
fn a_kept_connection_that_was_closed_says_nothing_of_its_endpoint() {
    assert_eq!(Sign::of(Outcome::ConnectFailed, None, true), Sign::None);
    assert_eq!(Sign::of(Outcome::ConnectFailed, None, false), Sign::Bad);
    assert_eq!(Sign::of(Outcome::Timeout, None, true), Sign::Bad);
    let mut health = Health::new(8);
    let none = |health: &mut Health| health.ended(Sign::None, at(0), Some(at(60_000)), true);
    bad(&mut health, 9, 0);
    for _ in 0..9 {
        none(&mut health);
    }
    assert!(!health.is_open(), "no outage");
    bad(&mut health, 1, 0);
    assert!(health.is_open(), "nor the end of one");
    health.begins();
    none(&mut health);
    assert_eq!((health.is_open(), health.may(0, 0, at(0))), (true, May::Begin), "another attempt decides");
    let mut fresh = Health::new(8);
    none(&mut fresh);
    assert_eq!((fresh.limit(), fresh.is_unknown()), (8, true));
}

#[test]
fn a_pace_spreads_attempts_evenly_and_gives_nothing_back_for_idle_time() {
    let mut pace = Pace::default();
    assert_eq!(pace.wait(at(0)), None);
    pace.set(Some(4));
    pace.begins(at(0));
    assert_eq!(pace.wait(at(249)), Some(at(250)));
    assert_eq!(pace.wait(at(250)), None);
    pace.begins(at(10_000));
    assert_eq!(pace.wait(at(10_000)), Some(at(10_250)));
    let mut fast = Pace::default();
    fast.set(Some(2_000));
    let begun = (0..10).filter(|_| fast.wait(at(0)).is_none().then(|| fast.begins(at(0))).is_some()).count();
    assert_eq!(begun, 2);
}

#[test]
fn a_pause_that_a_clock_which_was_ahead_began_is_over_when_the_clock_goes_back() {
    for ahead in [PAUSE_MS_MAX + 1_000, 3_600_000, 30 * 86_400_000] {
        let mut health = Health::new(8);
        bad(&mut health, 10, ahead);
        assert_eq!(health.may(0, 0, at(ahead)), May::At(at(ahead + 1_000)));
        assert_eq!((health.may(0, 0, at(0)), health.breaker(at(0))), (May::Begin, BreakerState::HalfOpen), "{ahead}");
    }
    let mut health = Health::new(8);
    bad(&mut health, 10, 5_000);
    assert_eq!(health.may(0, 0, at(0)), May::At(at(6_000)), "that may be a pause of now");
}

#[test]
fn a_pace_that_a_clock_which_was_ahead_has_kept_begins_anew_when_the_clock_goes_back() {
    let mut pace = Pace::default();
    pace.set(Some(2));
    pace.begins(at(60_000));
    assert_eq!(pace.wait(at(60_000)), Some(at(60_500)));
    assert_eq!(pace.wait(at(0)), None);
    pace.begins(at(0));
    assert_eq!((pace.wait(at(0)), pace.wait(at(499)), pace.wait(at(500))), (Some(at(500)), Some(at(500)), None));
}

#[test]
fn what_is_sent_again_in_vain_counts_for_nothing_else_and_until_an_answer_alone() {
    let mut health = Health::new(8);
    let in_vain = |health: &mut Health| {
        for sign in [Sign::Bad, Sign::Ill].repeat(5) {
            assert!(!health.is_resent_in_vain());
            health.resent(sign);
            health.resent(Sign::None);
        }
        assert!(health.is_resent_in_vain());
    };
    in_vain(&mut health);
    assert_eq!((health.limit(), health.is_unknown(), health.is_failing(), health.is_open()), (8, true, false, false));
    bad(&mut health, 1, 0);
    assert!(health.is_resent_in_vain(), "an attempt of its own schedule that fails, too, changes nothing of it");
    for sign in [Sign::Failed, Sign::Neutral, Sign::Good] {
        health.resent(sign);
        assert!(!health.is_resent_in_vain(), "{sign:?}");
        in_vain(&mut health);
        health.ended(sign, at(0), None, true);
        assert!(!health.is_resent_in_vain(), "{sign:?}");
        in_vain(&mut health);
    }
}

#[test]
fn while_what_is_sent_again_comes_to_nothing_another_one_follows_after_a_minute() {
    let mut health = Health::new(8);
    health.has_another(at(0));
    (0..10).for_each(|_| health.resent(Sign::Bad));
    assert!(health.may_have_another(at(0)), "the minute begins with the first one that follows");
    health.has_another(at(0));
    assert_eq!([0, 1, 59_999, 60_000].map(|ms| health.may_have_another(at(ms))), [false, false, false, true]);
    assert!(health.may_have_another(at(-1)), "by a clock that was ahead");
    health.resent(Sign::Failed);
    (0..10).for_each(|_| health.resent(Sign::Bad));
    assert!(health.may_have_another(at(1)), "that was over");
}
