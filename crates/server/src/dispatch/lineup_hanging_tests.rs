//! Endpoints that hang, or fail, at some events and take the others.

use super::*;

/// The event of a business of its own, written then.
fn own(no: i64, at_ms: i64) -> EventRow {
    EventRow { biz_id: format!("b{no}"), created_at: later(at_ms), due_at: Some(later(at_ms)), ..event(no, 101) }
}

/// Twenty that hang were written at once; the first eight of them have come to their deadline after 15 s.
fn hangs() -> Bench {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=20).map(|no| own(no, 0)));
    assert_eq!(bench.begun(NOW), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bench.begun(later(14_999)), [] as [i64; 0], "it has as many as it may have at the most");
    bench
}

fn time_out(bench: &mut Bench, events: impl IntoIterator<Item = i64>, at: UnixMillis) {
    for no in events {
        bench.land(no, Sign::Bad, Some(at.plus_ms(60_000)), at);
    }
}

#[test]
fn what_is_new_waits_for_no_more_than_one_deadline_of_what_hangs() {
    let mut bench = hangs();
    bench.emit(own(50, 9_000), later(9_000));
    assert_eq!(bench.begun(later(9_000)), [] as [i64; 0]);
    time_out(&mut bench, 1..=8, later(15_000));
    assert_eq!(bench.begun(later(15_000)), [50], "an endpoint that fails is tried with the newest");
    bench.land(50, Sign::Good, None, later(15_001));
    assert_eq!(bench.begun(later(15_001)), [9, 10], "in the order of their writing, as many as it may have by now");
    assert_eq!(bench.begun(later(16_000)), [] as [i64; 0]);
    assert_eq!(bench.begun(later(16_001)), [11, 12], "those that are slow do not count any more");
    assert_eq!(bench.begun(later(17_001)), [13, 14]);
    assert_eq!(bench.begun(later(18_001)), [15], "the last one is not for what was written before");
    for (no, at) in [(51, 18_500), (52, 19_500), (53, 20_500)] {
        bench.emit(own(no, at), later(at));
        assert_eq!(bench.begun(later(at)), [no], "but for what is new");
        bench.land(no, Sign::Good, None, later(at + 1));
    }
    time_out(&mut bench, [9, 10], later(30_001));
    assert_eq!(bench.begun(later(30_001)), [20], "it has failed again, and that is the newest");
    time_out(&mut bench, [11, 12], later(31_001));
    assert_eq!(bench.begun(later(31_001))[..1], [16], "the newest and the oldest in turns");
}

#[test]
fn the_last_one_is_for_no_repeat() {
    let mut bench = hangs();
    time_out(&mut bench, 1..=8, later(15_000));
    bench.rows.retain(|row| row.attempts > 0);
    bench.lineup.drop_ready(ApplicationNo(101));
    bench.emit(own(49, 74_999), later(74_999));
    assert_eq!(bench.begun(later(74_999)), [49]);
    bench.land(49, Sign::Good, None, later(74_999));
    bench.lineup.note(TenantNo(1), ApplicationNo(101), later(75_000));
    let mut begun = Vec::new();
    for second in 75..90 {
        begun.extend(bench.begun(later(second * 1_000)));
    }
    assert_eq!(begun, [1, 2, 3, 4, 5, 6, 7], "one of eight is left");
    bench.emit(own(50, 89_000), later(89_000));
    assert_eq!(bench.begun(later(89_000)), [50]);
}

#[test]
fn an_endpoint_that_is_tried_is_tried_with_what_is_not_in_memory_yet() {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=12).map(|no| own(no, 0)));
    let first = bench.begun(NOW);
    bench.emit(own(50, 1), later(1));
    bench.emit(EventRow { biz_id: "b12".to_owned(), ..own(51, 2) }, later(2));
    assert_eq!(bench.begun(later(2)), [] as [i64; 0]);
    time_out(&mut bench, first, later(15_000));
    assert_eq!(bench.begun(later(15_000)), [50], "the newer one waits for an earlier one of its business");
}

#[test]
fn an_endpoint_that_takes_none_has_no_more_than_before_and_is_tried_with_each_end_of_what_waits() {
    let mut bench = hangs();
    time_out(&mut bench, 1..=8, later(15_000));
    bench.emit(own(50, 15_001), later(15_001));
    for (second, no) in [(15, 20), (30, 9)] {
        assert_eq!(bench.begun(later(second * 1_000)), [no], "the newest by then, the oldest");
        assert_eq!(bench.begun(later(second * 1_000 + 14_999)), [] as [i64; 0], "however long that takes");
        time_out(&mut bench, [no], later(second * 1_000 + 15_000));
    }
    assert_eq!(bench.begun(later(45_999)), [] as [i64; 0], "the breaker is open");
    assert_eq!(bench.begun(later(46_000)), [50]);
    time_out(&mut bench, [50], later(61_000));
    assert_eq!(bench.begun(later(63_000)), [10], "the oldest again");
}

#[test]
fn an_endpoint_that_fails_goes_on_where_there_is_no_room_for_what_is_looked_for() {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=12).map(|no| own(no, 0)));
    let first = bench.begun(NOW);
    let large = |row: EventRow, mib: usize| EventRow { data: "x".repeat(mib * 1024 * 1024), ..row };
    bench.emit_all((101..=120).map(|no| large(EventRow { biz_id: format!("b{no}"), ..event(no, 201) }, 4)));
    assert_eq!((bench.begun(NOW).len(), bench.lineup.ready_of(ApplicationNo(201))), (8, 6), "nearly all of the memory");
    bench.emit(large(own(50, 1), 8), later(1));
    time_out(&mut bench, first, later(15_000));
    assert_eq!(bench.begun(later(15_000)), [12], "the newest that is in memory");
}

#[test]
fn what_has_failed_before_has_fewer_turns_where_half_of_all_hangs() {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=4).map(|no| own(no, 0)));
    assert_eq!(bench.begun(NOW).len(), 4);
    let again = (5..=8).map(|no| EventRow { attempts: 1, ..own(no, 0) });
    bench.emit_all(again.chain((11..=30).map(|no| own(no, 0))));
    let mut begun = Vec::new();
    while let Some(event) = bench.next(later(1_000)).filter(|_| begun.len() < 14) {
        begun.push(event.no.0);
        bench.land(event.no.0, Sign::Good, None, later(1_000));
    }
    assert_eq!(begun[..4], [11, 12, 13, 14], "{begun:?}");
    assert_eq!(begun.iter().filter(|no| **no < 9).count(), 2, "each has its turn: {begun:?}");
}

#[test]
fn what_is_sent_again_by_hand_leaves_one_place_to_all_else() {
    let by_hand = |numbers: RangeInclusive<i64>| numbers.map(|no| EventRow { by_hand: true, ..repeated(no, 101) });
    let mut bench = Bench::new(64, 8);
    bench.emit_all(by_hand(1..=20));
    assert_eq!(bench.begun(NOW), [1, 2, 3, 4, 5, 6, 7]);
    for (no, at) in [(50, 100), (51, 200)] {
        bench.emit(own(no, at), later(at));
        assert_eq!(bench.begun(later(at)), [no], "what is new");
        bench.land(no, Sign::Good, None, later(at + 1));
    }
    bench.emit(repeated(60, 101), later(300));
    assert_eq!(bench.begun(later(300)), [60], "and what is repeated by its own schedule");
    bench.land(60, Sign::Good, None, later(301));
    bench.land(1, Sign::Bad, None, later(400));
    assert_eq!(bench.begun(later(400)), [8]);

    let mut bench = Bench::new(64, 1);
    bench.emit_all(by_hand(1..=2));
    assert_eq!(bench.begun(NOW), [1], "where there is one place it has that");
}

/// Three errors have left it one attempt at once, and that one hangs: again at an event that it has failed at before.
fn one_hangs_again(most: usize) -> Bench {
    let mut bench = Bench::new(64, most);
    for no in 1..=3 {
        bench.emit(own(no, 0), NOW);
        assert_eq!(bench.begun(NOW), [no]);
        bench.land(no, Sign::Failed, Some(later(600_000)), NOW);
    }
    bench.emit_all([repeated(4, 101), repeated(5, 101)]);
    assert_eq!(bench.begun(NOW), [4], "it may have one at once by now");
    bench
}

#[test]
fn what_was_never_tried_does_not_wait_for_one_that_hangs_again() {
    let mut bench = one_hangs_again(8);
    bench.emit(own(50, 100), later(100));
    assert_eq!(bench.begun(later(100)), [50], "at once, and nothing that is repeated");
    bench.emit(own(51, 200), later(200));
    assert_eq!(bench.begun(later(200)), [] as [i64; 0], "one of them");
    bench.land(50, Sign::Bad, Some(later(60_000)), later(5_000));
    assert_eq!(bench.begun(later(5_000)), [51], "however that one fared");
    bench.land(51, Sign::Good, None, later(5_001));
    assert_eq!(bench.begun(later(5_001)), [5], "it takes others, so what hangs does not count");
    assert_eq!(bench.begun(later(14_999)), [] as [i64; 0]);
}

#[test]
fn whoever_may_have_one_at_once_has_one_also_where_that_hangs_again() {
    let mut bench = one_hangs_again(1);
    bench.emit(own(50, 100), later(100));
    assert_eq!(bench.begun(later(14_999)), [] as [i64; 0]);
    bench.land(4, Sign::Bad, Some(later(60_000)), later(15_000));
    assert_eq!(bench.begun(later(15_000)), [50]);
}
