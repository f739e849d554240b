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

/// Forty that have been due for a day, the first of them once tried, and twelve that were written a moment ago.
fn left_alone(most: usize) -> Bench {
    let mut bench = Bench::new(64, most);
    let at = |no: i64, ms: i64| EventRow { biz_id: format!("b{no}"), due_at: Some(later(ms)), ..event(no, 101) };
    let day = (1..=OVERDUE).map(|no| EventRow { attempts: i64::from(no == 1), ..at(no, no - WHOLE_MS) });
    bench.emit_all(day.chain((61..=72).map(|no| at(no, no - 100))));
    bench
}

/// All that begin at once fail until the breaker opens: what was tried.
fn opens(bench: &mut Bench) -> Vec<i64> {
    let mut tried = Vec::new();
    while bench.lineup.open_endpoints() == 0 {
        let begun = bench.begun(NOW);
        assert!(!begun.is_empty(), "it is tried");
        for no in begun {
            bench.land(no, Sign::Bad, Some(later(600_000)), NOW);
            tried.push(no);
        }
    }
    let at_once = bench.lineup.view(ApplicationNo(101), NOW).expect("is known").at_once_max;
    bench.lineup.knows(ApplicationNo(101), "app_101", 1, Allows { at_once, ..ALLOWS });
    tried
}

#[test]
fn what_is_overdue_goes_to_an_endpoint_that_is_left_alone_one_a_second_and_nothing_else_does() {
    let mut bench = left_alone(8);
    let tried = opens(&mut bench);
    let is_left = |no: &i64| !tried.contains(no);
    let overdue: Vec<i64> = (1..=OVERDUE).filter(is_left).collect();
    assert!(overdue.len() > 25, "{tried:?}");
    // Its pause is a second long; what fails beside it makes it no longer, and is no try of the endpoint.
    let mut went = Vec::new();
    for second in 12..60 {
        for ms in [0, 1, 999] {
            let now = later(second * 1_000 + ms);
            for no in bench.begun(now) {
                went.push((second, no));
                bench.land(no, Sign::Bad, Some(later(600_000)), now);
            }
        }
    }
    let beside: Vec<i64> = went.iter().map(|(_, no)| *no).filter(|no| overdue.contains(no)).collect();
    assert_eq!(beside.len(), overdue.len(), "all of them: {went:?}");
    for second in 12..60 {
        let at_once = went.iter().filter(|(at, no)| *at == second && overdue.contains(no)).count();
        assert!(at_once <= 2, "one a second, and one that tries the endpoint: {went:?}");
    }
    let others = went.iter().filter(|(_, no)| !overdue.contains(no)).count();
    assert!((2..=8).contains(&others), "what is not overdue tries it now and then: {went:?}");
}

#[test]
fn as_much_that_is_overdue_hangs_at_once_as_the_endpoint_may_have_and_one_that_is_answered_ends_its_rest() {
    let mut bench = left_alone(3);
    let tried = opens(&mut bench);
    let mut begun = Vec::new();
    for ms in (12_000..20_000).step_by(100) {
        begun.extend(bench.begun(later(ms)));
    }
    assert_eq!(begun.len(), 3, "{begun:?} behind {tried:?}");
    let overdue = begun.iter().copied().rfind(|no| *no <= OVERDUE).expect("one is overdue");
    let breaker = |bench: &Bench| bench.lineup.view(ApplicationNo(101), later(19_900)).expect("is known").breaker;
    assert_eq!(breaker(&bench), BreakerState::HalfOpen, "one tries it");
    bench.land(overdue, Sign::Bad, Some(later(600_000)), later(19_900));
    assert_eq!(breaker(&bench), BreakerState::HalfOpen, "and that one decides");
    let begun = bench.begun(later(19_900));
    let [overdue] = begun[..] else { panic!("another one: {begun:?}") };
    bench.land(overdue, Sign::Good, None, later(20_000));
    assert_eq!(bench.lineup.open_endpoints(), 0, "somebody is there");
}

#[test]
fn what_is_sent_again_by_hand_is_never_overdue() {
    let mut bench = Bench::new(64, 8);
    let due_at = Some(later(-WHOLE_MS));
    bench.emit_all((1..=30).map(|no| EventRow { by_hand: true, attempts: 1, due_at, ..event(no, 101) }));
    bench.emit_all((31..=62).map(|no| event(no, 101)));
    opens(&mut bench);
    assert!(bench.begun(later(12_000)).len() <= 1, "it is tried, and no more");
    assert_eq!(bench.begun(later(13_500)), [] as [i64; 0]);
}
