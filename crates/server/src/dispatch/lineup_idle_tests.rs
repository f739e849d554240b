//! What is left of the permits for merchants that have nothing under way.

use super::*;

#[test]
fn a_merchant_with_nothing_under_way_waits_for_nobody_who_hangs() {
    let mut bench = Bench::new(32, 8);
    bench.emit_all((1..=50).map(|no| event(no, 100 + no)));
    assert_eq!(bench.begun(NOW).len(), 21, "three quarters, and an eighth of them is left");
    assert_eq!(bench.begun(later(1_000)).len(), 4, "so many may be slow");
    assert_eq!(bench.begun(later(9_000)), [] as [i64; 0]);
    bench.emit_all([event(91, 201), event(92, 301), event(93, 401), event(94, 501)]);
    let mut begun = bench.begun(later(9_000));
    assert_eq!(begun.len(), 3, "an eighth of three quarters");
    let done = *begun.iter().find(|no| **no != 91).expect("three of them");
    bench.deliver(done);
    begun.extend(bench.begun(later(9_001)));
    begun.sort_unstable();
    assert_eq!(begun, [91, 92, 93, 94]);
    bench.emit_all([event(95, 202), event(96, 302)]);
    assert_eq!(bench.begun(later(9_002)), [] as [i64; 0], "nothing is left");
    bench.land(91, Sign::Bad, None, later(9_003));
    assert_eq!(bench.begun(later(9_003)), [95], "that merchant has nothing under way any more");
    for no in [92, 93, 94, 95].into_iter().filter(|no| *no != done) {
        bench.deliver(no);
    }
    assert_eq!(bench.begun(later(9_004)), [96], "what is left is not for those that hang");
}

#[test]
fn a_merchant_whose_attempts_all_hang_gets_nothing_of_what_is_left_for_others() {
    let mut bench = Bench::new(32, 8);
    bench.emit_all((1..=4).map(|no| event(no, 200 + no)));
    assert_eq!(bench.begun(NOW).len(), 4);
    bench.emit_all((11..=60).map(|no| event(no, 100 + no - 10)));
    assert_eq!(bench.begun(later(1_000)).len(), 21, "the four are slow by now");
    bench.emit_all([event(91, 251), event(92, 301)]);
    assert_eq!(bench.begun(later(1_000)), [92]);
}

#[test]
fn a_new_endpoint_of_a_busy_merchant_is_as_new_as_any_other() {
    let mut bench = Bench::new(32, 2);
    bench.emit(event(1, 201), NOW);
    assert_eq!(bench.begun(NOW), [1]);
    bench.deliver(1);
    bench.emit_all((11..=60).map(|no| event(no, 100 + no)));
    bench.emit_all((2..=9).map(|no| event(no, 201)));
    assert_eq!(bench.begun(NOW).len(), 2 + 21, "what goes well, and those that hang");
    bench.emit_all([event(71, 202), event(72, 203)]);
    assert_eq!(bench.begun(NOW), [71], "one at once");
    bench.deliver(2);
    assert_eq!(bench.begun(NOW), [4]);
    bench.deliver(71);
    assert_eq!(bench.begun(NOW), [72], "though what goes well is under way all the time");
}

#[test]
fn neither_endpoints_that_worked_nor_such_that_fail_take_what_is_left_for_others() {
    for (sign, most) in [(Sign::Good, 28), (Sign::Bad, 14)] {
        let mut bench = Bench::new(32, 40);
        bench.emit_all([event(1, 101), event(2, 201), event(3, 301)]);
        assert_eq!(bench.begun(NOW).len(), 3);
        for no in [1, 2, 3] {
            bench.land(no, sign, None, NOW);
        }
        bench.emit_all((11..=60).map(|no| event(no, 101)));
        let hanging = bench.begun(NOW);
        assert_eq!(hanging.len(), most, "{sign:?}: of all, or of half of them, but an eighth");
        bench.emit_all([event(71, 201), event(72, 201), event(73, 301)]);
        assert_eq!(bench.begun(NOW), [71, 73], "{sign:?}");
        bench.land(hanging[0], sign, None, NOW);
        assert_eq!(
            bench.begun(NOW),
            [] as [i64; 0],
            "{sign:?}: one of an eighth is left, and each has something under way"
        );
        bench.land(71, Sign::Good, None, NOW);
        assert_eq!(bench.begun(NOW), [72], "{sign:?}: that merchant has nothing any more");
    }
}
