//! Events that wait for another one of their business.

use super::*;

#[test]
fn what_waits_behind_an_event_is_looked_for_when_that_is_over() {
    let mut bench = Bench::new(9, 9);
    bench.emit_all([event(1, 101), event(2, 101)]);
    assert_eq!(bench.begun(NOW), [1, 2]);
    bench.rows.retain(|e| e.no.0 != 2);
    bench.rows.push(EventRow { behind: Some(EventNo(1)), due_at: Some(later(600_000)), ..event(2, 101) });
    bench.lineup.waits(&Flight::of(&event(2, 101)), EventNo(1), NOW);
    assert_eq!(bench.begun(NOW), [] as [i64; 0]);
    // The store makes it due with the end of the first.
    bench.rows.retain(|e| e.no.0 != 2);
    bench.rows.push(event(2, 101));
    bench.deliver(1);
    assert_eq!(bench.begun(NOW), [2]);
}

#[test]
fn an_event_that_was_to_wait_for_one_that_has_ended_meanwhile_goes_at_once() {
    let mut bench = Bench::new(9, 9);
    bench.emit_all([event(1, 101), event(2, 101)]);
    assert_eq!(bench.begun(NOW), [1, 2]);
    bench.deliver(1);
    bench.lineup.waits(&Flight::of(&event(2, 101)), EventNo(1), NOW);
    assert_eq!(bench.begun(NOW), [2]);
}

#[test]
fn who_is_waited_for_is_remembered_until_he_is_over_or_his_lane_goes() {
    let mut bench = Bench::new(9, 9);
    bench.emit_all([event(1, 101), event(2, 101), event(3, 102), event(4, 102)]);
    assert_eq!(bench.begun(NOW).len(), 4);
    bench.lineup.waits(&Flight::of(&event(2, 101)), EventNo(1), NOW);
    bench.lineup.waits(&Flight::of(&event(4, 102)), EventNo(3), NOW);
    assert_eq!(bench.lineup.awaited, 2);
    bench.deliver(1);
    assert_eq!(bench.lineup.awaited, 1);
    bench.lineup.keep_lanes(LaneSet::NONE);
    assert_eq!(bench.lineup.awaited, 0, "its end is seen elsewhere");
}

#[test]
fn who_waits_is_known_after_a_restart_from_the_rows() {
    let mut bench = Bench::new(9, 9);
    let waits = EventRow { behind: Some(EventNo(1)), due_at: Some(later(600_000)), ..event(2, 101) };
    bench.emit_all([event(1, 101), waits]);
    assert_eq!(bench.begun(NOW), [1]);
    bench.rows.retain(|e| e.no.0 != 2);
    bench.rows.push(event(2, 101));
    bench.deliver(1);
    assert_eq!(bench.begun(NOW), [2]);
}

#[test]
fn an_event_that_waits_for_another_is_read_when_that_one_is_over_and_not_when_it_has_failed() {
    let mut bench = Bench::new(9, 9);
    let behind = EventRow { behind: Some(EventNo(1)), due_at: Some(later(60_000)), ..event(2, 101) };
    bench.emit_all([event(1, 101), behind]);
    assert_eq!(bench.begun(NOW), [1]);
    bench.land(1, Sign::Good, Some(later(5_000)), NOW);
    let reads = bench.reads;
    assert_eq!((bench.begun(later(4_999)), bench.reads), (vec![], reads), "nothing has become due");
    assert_eq!(bench.begun(later(5_000)), [1]);
    bench.land(1, Sign::Good, None, later(5_000));
    // As the batch that ends the first one leaves it in the store.
    for row in &mut bench.rows {
        (row.behind, row.due_at) = (None, Some(later(5_000)));
    }
    assert_eq!(bench.begun(later(5_000)), [2]);
}

#[test]
fn who_has_ended_before_others_are_known_to_wait_for_him_is_forgotten() {
    let mut bench = Bench::new(9, 9);
    for no in 0..100 {
        let (first, second) = (2 * no + 1, 2 * no + 2);
        bench.emit_all([event(first, 101), event(second, 101)]);
        assert_eq!(bench.begun(NOW), [first, second]);
        // The earlier one lands, and then that the later one was written down as behind it.
        bench.deliver(first);
        bench.lineup.waits(&Flight::of(&event(second, 101)), EventNo(first), NOW);
        assert_eq!(bench.begun(NOW), [second]);
        bench.deliver(second);
    }
    assert_eq!(bench.lineup.awaited, 0);
}

#[test]
fn what_was_left_alone_by_a_clock_that_was_ahead_goes_when_it_is_set_right() {
    let mut bench = Bench::new(9, 9);
    bench.emit_all([event(1, 101), event(2, 102)]);
    let ahead = later(86_400_000);
    assert_eq!(bench.begun(ahead), [1, 2]);
    bench.lineup.park_application(&Flight::of(&event(1, 101)), ahead.plus_ms(5_000));
    bench.lineup.park(&Flight::of(&event(2, 102)), ahead.plus_ms(5_000));
    assert_eq!(bench.begun(ahead), [] as [i64; 0], "each rests");
    bench.emit(event(3, 101), later(10_000));
    bench.emit(event(4, 102), later(10_000));
    let mut begun = bench.begun(later(10_000));
    begun.sort_unstable();
    assert_eq!(begun, [1, 2, 3, 4]);
}
