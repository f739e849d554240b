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
