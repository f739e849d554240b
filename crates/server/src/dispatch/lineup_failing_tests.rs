//! Which endpoints did not take what they got last.

use countersign_domain::lanes::Lane;

use super::*;

#[test]
fn endpoints_that_fail_are_listed_by_their_breaker_and_then_the_last_that_was_tried_and_those_of_other_nodes_are_not() {
    let mut bench = Bench::new(64, 8);
    let outcomes =
        [(101, Outcome::Timeout, 1), (102, Outcome::Delivered, 2), (103, Outcome::Fail, 3), (104, Outcome::Fail, 4)];
    bench.emit_all(outcomes.map(|(of, ..)| event(of, of)));
    assert_eq!(bench.begun(NOW).len(), 4);
    for (of, outcome, ms) in outcomes {
        bench.lineup.knows(ApplicationNo(of), &format!("app_{of}"), 1, ALLOWS);
        bench.lineup.came(&Flight::of(&event(of, of)), later(ms), outcome);
    }
    let list = |bench: &Bench, lanes, most| {
        let (found, left_off) = bench.lineup.failing(lanes, later(5), most);
        (found.iter().map(|(client_id, _)| client_id.to_string()).collect::<Vec<_>>(), left_off)
    };
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(list(&bench, LaneSet::ALL, 9), (named(&["app_104", "app_103", "app_101"]), 0));
    bench.emit_all((1..=20).map(|no| event(no, 101)));
    bench.land(101, Sign::Bad, Some(later(60_000)), NOW);
    for _ in 0..8 {
        for no in bench.begun(NOW) {
            bench.land(no, Sign::Bad, Some(later(60_000)), NOW);
        }
    }
    assert_eq!(list(&bench, LaneSet::ALL, 9).0[0], "app_101", "its breaker is open");
    assert_eq!(list(&bench, LaneSet::ALL, 2), (named(&["app_101", "app_104"]), 1));
    let lane = |of| Lane::of(ApplicationNo(of));
    assert_eq!(list(&bench, [lane(102), lane(103)].into_iter().collect(), 9), (named(&["app_103"]), 0));
}

#[test]
fn what_is_known_of_an_endpoint_goes_with_its_lane_as_soon_as_nothing_is_in_flight_there() {
    let mut bench = Bench::new(64, 8);
    let (lost, kept) = (ApplicationNo(101), ApplicationNo(102));
    let without = LaneSet::ALL.without(Lane::of(lost));
    let leaves = |bench: &mut Bench, lanes| {
        bench.lineup.keep_lanes(lanes);
        bench.lineup.has_lanes(lanes);
    };
    let known = |bench: &Bench| [lost, kept].map(|of| bench.lineup.view(of, NOW).is_some());
    for of in [lost, kept] {
        bench.emit_all((0..20).map(|no| event(of.0 * 100 + no, of.0)));
    }
    let fail = |bench: &mut Bench, events: Vec<i64>| {
        for no in events {
            bench.land(no, Sign::Bad, Some(later(60_000)), NOW);
        }
    };
    for _ in 0..8 {
        let begun = bench.begun(NOW);
        fail(&mut bench, begun);
    }
    assert_eq!((bench.lineup.open_endpoints(), known(&bench)), (2, [true, true]));
    // A lease that lapses takes nothing away: it may be renewed.
    bench.lineup.keep_lanes(LaneSet::NONE);
    assert_eq!(bench.lineup.open_endpoints(), 2);
    leaves(&mut bench, without);
    assert_eq!((bench.lineup.open_endpoints(), known(&bench)), (1, [false, true]));

    let goes_with_attempts = |bench: &mut Bench, no| {
        leaves(bench, LaneSet::ALL);
        bench.emit(event(no, lost.0), NOW);
        let in_flight = bench.begun(NOW);
        assert!(!in_flight.is_empty());
        leaves(bench, without);
        in_flight
    };
    // With the lane it is a new one, and attempts are in flight when the lane goes again.
    let in_flight = goes_with_attempts(&mut bench, 1);
    assert_eq!(known(&bench), [true, true]);
    fail(&mut bench, in_flight);
    assert_eq!((bench.lineup.open_endpoints(), known(&bench)), (1, [false, true]));

    // One whose lane comes back meanwhile is kept.
    let in_flight = goes_with_attempts(&mut bench, 2);
    leaves(&mut bench, LaneSet::ALL);
    fail(&mut bench, in_flight);
    assert_eq!(known(&bench), [true, true]);
}

const OVERDUE: i64 = 40;
/// When an endpoint has been away for long, in ms.
const AWAY_MS: i64 = 3_000_000;

fn own(no: i64, due_ms: i64) -> EventRow {
    EventRow { biz_id: format!("b{no}"), due_at: Some(later(due_ms)), ..event(no, 101) }
}

/// All that begin fail so, and are due again at once, until `AWAY_MS`; nothing of it is overdue by then.
fn fails(bench: &mut Bench, sign: Sign) {
    bench.emit_all((61..=84).map(|no| own(no, 0)));
    let mut tries = 0;
    for ms in (0..AWAY_MS).step_by(500) {
        for no in bench.begun(later(ms)) {
            bench.land(no, sign, Some(later(ms)), later(ms));
            tries += 1;
        }
        let at_once = bench.lineup.view(ApplicationNo(101), NOW).expect("is known").at_once_max;
        bench.lineup.knows(ApplicationNo(101), "app_101", 1, Allows { at_once, ..ALLOWS });
    }
    assert!(tries > 200, "{tries}");
    assert_eq!(bench.lineup.open_endpoints(), 1);
}

/// Forty that have been due for a day, the first of them once tried.
fn day() -> impl Iterator<Item = EventRow> {
    (1..=OVERDUE).map(|no| EventRow { attempts: i64::from(no == 1), ..own(no, no - WHOLE_MS) })
}

/// An endpoint that is away, and what is overdue there.
fn away(most: usize) -> Bench {
    let mut bench = Bench::new(64, most);
    fails(&mut bench, Sign::Bad);
    bench.emit_all(day());
    bench
}

/// What begins within so many seconds, and hangs.
fn hangs(bench: &mut Bench, seconds: i64) -> Vec<i64> {
    (AWAY_MS..AWAY_MS + seconds * 1_000).step_by(100).flat_map(|ms| bench.begun(later(ms))).collect()
}

/// What begins in these seconds, each of which fails at once.
fn went(bench: &mut Bench, seconds: RangeInclusive<i64>, sign: Sign) -> Vec<(i64, i64)> {
    let mut went = Vec::new();
    for second in seconds {
        for ms in [0, 1, 999] {
            let now = later(AWAY_MS + second * 1_000 + ms);
            for no in bench.begun(now) {
                went.push((second, no));
                bench.land(no, sign, Some(later(AWAY_MS * 10)), now);
            }
        }
    }
    went
}

#[test]
fn what_is_overdue_goes_to_an_endpoint_that_is_away_one_a_second_and_nothing_else_does() {
    let mut bench = away(8);
    let went = went(&mut bench, 1..=60, Sign::Bad);
    let overdue = |no: &i64| *no <= OVERDUE;
    assert_eq!(went.iter().filter(|(_, no)| overdue(no)).count(), 40, "all of them: {went:?}");
    for second in 1..=60 {
        let at_once = went.iter().filter(|(at, no)| *at == second && overdue(no)).count();
        assert!(at_once <= 2, "one a second, and one that tries the endpoint: {went:?}");
    }
    let others = went.iter().filter(|(_, no)| !overdue(no)).count();
    assert!((1..=7).contains(&others), "what is not overdue tries it now and then: {went:?}");
}

#[test]
fn what_is_long_overdue_goes_three_times_as_often() {
    let mut bench = Bench::new(64, 8);
    fails(&mut bench, Sign::Bad);
    bench.emit_all(day().map(|event| EventRow { due_at: event.due_at.map(|at| at.plus_ms(-WHOLE_MS)), ..event }));
    let mut went = 0;
    for ms in (AWAY_MS..AWAY_MS + 3_000).step_by(50) {
        for no in bench.begun(later(ms)) {
            bench.land(no, Sign::Bad, Some(later(AWAY_MS * 10)), later(ms));
            went += 1;
        }
    }
    assert!((9..=12).contains(&went), "{went}");
}

#[test]
fn what_is_overdue_keeps_its_schedule_where_somebody_is_there_or_was_not_there_for_a_short_time_only() {
    let mut busy = Bench::new(64, 8);
    fails(&mut busy, Sign::Ill);
    busy.emit_all(day());
    let tried = went(&mut busy, 1..=10, Sign::Ill).len();
    assert!(tried <= 11, "one that says it has too much to do is tried once a second: {tried}");

    let mut new = Bench::new(64, 8);
    new.emit_all((61..=84).map(|no| own(no, 0)));
    new.emit_all(day());
    let tried = went(&mut new, 1..=20, Sign::Bad).len();
    assert_eq!(new.lineup.open_endpoints(), 1);
    assert!(tried <= 10 + 6, "ten, and those that try it: {tried}");
}

#[test]
fn two_that_are_overdue_hang_at_once_beside_one_that_tries_and_one_that_is_answered_ends_the_rest() {
    let mut bench = away(8);
    let begun = hangs(&mut bench, 14);
    let overdue: Vec<i64> = begun.iter().copied().filter(|no| *no <= OVERDUE).collect();
    assert!(begun.len() == 3 && overdue.len() >= 2, "{begun:?}");
    let at = later(AWAY_MS + 14_000);
    let breaker = |bench: &Bench| bench.lineup.view(ApplicationNo(101), at).expect("is known").breaker;
    assert_eq!(breaker(&bench), BreakerState::HalfOpen, "one tries it");
    let place = &bench.lineup.places[&ApplicationNo(101)];
    let beside: Vec<i64> = begun.iter().copied().filter(|no| place.goes_overdue(EventNo(*no))).collect();
    let [one, other] = beside[..] else { panic!("two of {begun:?}") };
    bench.land(one, Sign::Bad, Some(later(AWAY_MS * 10)), at);
    assert_eq!(breaker(&bench), BreakerState::HalfOpen, "and that one decides");
    assert!(bench.lineup.is_away(ApplicationNo(101), at));
    let begun = bench.begun(at);
    let [third] = begun[..] else { panic!("another one: {begun:?}") };
    bench.land(third, Sign::Ill, Some(later(AWAY_MS * 10)), at);
    assert_eq!(breaker(&bench), BreakerState::HalfOpen, "it rests as long as before");
    assert!(!bench.lineup.is_away(ApplicationNo(101), at), "somebody has too much to do");
    bench.land(other, Sign::Good, None, at);
    assert_eq!(bench.lineup.open_endpoints(), 0, "somebody is there");
}

#[test]
fn an_endpoint_is_away_behind_half_an_hour_however_often_it_is_tried_and_no_longer_behind_a_jump_of_the_clock() {
    let mut bench = Bench::new(64, 8);
    fails(&mut bench, Sign::Bad);
    let is_away = |bench: &Bench, ms| bench.lineup.is_away(ApplicationNo(101), later(ms));
    assert!(is_away(&bench, AWAY_MS) && !is_away(&bench, AWAY_MS + 4 * WHOLE_MS) && !is_away(&bench, -WHOLE_MS));
    let mut bench = Bench::new(64, 8);
    bench.emit_all((61..=84).map(|no| own(no, 0)));
    let mut away_at = None;
    for ms in (0..AWAY_MS).step_by(500) {
        for no in bench.begun(later(ms)) {
            bench.land(no, Sign::Bad, Some(later(ms)), later(ms));
        }
        away_at = away_at.or(is_away(&bench, ms).then_some(ms));
    }
    assert!(away_at.is_some_and(|ms| (1_990_000..2_100_000).contains(&ms)), "{away_at:?}");
    bench.emit_all(day());
    let overdue = went(&mut bench, 1..=1, Sign::Ill);
    assert!(!overdue.is_empty() && !is_away(&bench, AWAY_MS + 1_000), "somebody is there: {overdue:?}");
}

#[test]
fn what_is_overdue_takes_no_more_than_an_endpoint_may_have_at_once() {
    let begun = hangs(&mut away(1), 60);
    assert_eq!(begun.len(), 1, "{begun:?}");
}

#[test]
fn what_is_sent_again_by_hand_is_never_overdue() {
    let mut bench = Bench::new(64, 8);
    fails(&mut bench, Sign::Bad);
    bench.emit_all(day().map(|event| EventRow { by_hand: true, attempts: 1, ..event }));
    let tried = went(&mut bench, 1..=20, Sign::Bad).len();
    assert!(tried <= 4, "it is tried, and no more: {tried}");
}
