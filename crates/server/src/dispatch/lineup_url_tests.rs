//! An application whose callbacks go to another URL from here on.

use super::*;

#[test]
fn another_url_is_another_endpoint() {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=20).map(|no| event(no, 101)));
    bench.lineup.knows(ApplicationNo(101), "app_101", 1, ALLOWS);
    for _ in 0..4 {
        for no in bench.begun(NOW) {
            bench.lineup.knows(ApplicationNo(101), "app_101", 1, ALLOWS);
            bench.land(no, Sign::Bad, Some(later(60_000)), NOW);
        }
    }
    assert_eq!(bench.lineup.open_endpoints(), 1);
    let last = |bench: &Bench| bench.lineup.view(ApplicationNo(101), NOW).expect("it is remembered").last;
    bench.lineup.came(&Flight::of(&event(1, 101)), NOW, Outcome::Timeout);
    assert_eq!(last(&bench), Some((NOW, Outcome::Timeout)));
    bench.lineup.knows(ApplicationNo(101), "app_101", 2, ALLOWS);
    assert_eq!(last(&bench), None);
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!((bench.begun(NOW).len(), bench.lineup.open_endpoints()), (8, 0));
}

#[test]
fn what_hangs_at_the_url_before_takes_no_place_at_this_one_and_says_nothing_of_it() {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=40).map(|no| event(no, 101)));
    let first = bench.next(NOW).expect("one goes");
    let application = first.application;
    bench.lineup.knows(application, "app_101", 1, ALLOWS);
    assert_eq!(bench.begun(NOW).len(), 7, "as many as it may have at once");
    let seen = |bench: &Bench| {
        let view = bench.lineup.view(application, later(500)).expect("it is remembered");
        (view.in_flight, view.at_once, view.last)
    };
    assert_eq!(seen(&bench), (8, 8, None));
    bench.lineup.knows(application, "app_101", 2, ALLOWS);
    assert_eq!(seen(&bench), (0, 8, None));
    assert_eq!(bench.begun(later(500)), [9, 10, 11, 12, 13, 14, 15, 16], "at once, and none twice");
    assert_eq!(bench.lineup.under_way(), 16, "all of them are under way");
    // One was taken there, one refused, the others end in nothing.
    bench.answered(1, later(600));
    bench.lineup.came(&Flight::of(&event(1, 101)), later(600), Outcome::Delivered);
    bench.deliver(1);
    for no in 2..=8 {
        bench.lineup.came(&Flight::of(&event(no, 101)), later(4_000), Outcome::Timeout);
        assert_eq!(bench.land(no, Sign::Bad, Some(later(60_000)), later(4_000)), None);
    }
    assert_eq!(
        (seen(&bench), bench.lineup.open_endpoints()),
        ((8, 8, None), 0),
        "this endpoint has not said anything yet"
    );
    for no in 9..=16 {
        bench.lineup.came(&Flight::of(&event(no, 101)), later(4_000), Outcome::Delivered);
        bench.deliver(no);
    }
    assert_eq!(bench.begun(later(4_000)).len(), 8);
    assert_eq!(seen(&bench).2, Some((later(4_000), Outcome::Delivered)));
}

#[test]
fn a_url_that_is_set_back_has_what_is_under_way_there() {
    let mut bench = Bench::new(64, 2);
    bench.emit_all((1..=9).map(|no| event(no, 101)));
    let allows = Allows { at_once: 2, per_s: None, whole_ms: WHOLE_MS };
    let first = bench.next(NOW).expect("one goes");
    for url in [1, 2, 1] {
        bench.lineup.knows(first.application, "app_101", url, allows);
        bench.begun(NOW);
    }
    assert_eq!(bench.lineup.under_way(), 4, "two at each, however often it is set");
    assert_eq!(bench.lineup.view(first.application, NOW).expect("it is remembered").in_flight, 2);
}
