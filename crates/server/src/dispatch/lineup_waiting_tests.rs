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
    assert_eq!(bench.lineup.awaited.len(), 2);
    bench.deliver(1);
    assert_eq!(bench.lineup.awaited.len(), 1);
    bench.lineup.keep_lanes(LaneSet::NONE);
    assert!(bench.lineup.awaited.is_empty(), "its end is seen elsewhere");
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
