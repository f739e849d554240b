//! How much is read of what is owed, and how much of it is in memory.

use foldhash::HashSet;

use super::reads::{READ_APPLICATIONS_MAX, READ_BYTES_MAX, reach_after};
use super::*;

#[test]
fn a_large_backlog_is_read_in_parts_and_all_of_it_goes() {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=200).map(|no| event(no, 101)));
    let mut seen = HashSet::default();
    loop {
        let begun = bench.begun(NOW);
        if begun.is_empty() {
            break;
        }
        assert!(bench.lineup.ready_of(ApplicationNo(101)) <= 128);
        for no in begun {
            assert!(seen.insert(no), "{no} was begun twice");
            bench.deliver(no);
        }
    }
    assert_eq!(seen.len(), 200);
    assert!(bench.reads < 30, "{} reads", bench.reads);
}

#[test]
fn who_has_much_waiting_is_read_in_larger_portions_but_not_where_rows_are_large() {
    let reads = |bytes: usize, count: i64| {
        let mut bench = Bench::new(4, 4);
        let row = |no| EventRow { body: vec![0; bytes], ..event(no, 101) };
        bench.emit_all((1..=count).map(row));
        let mut left = bench.begun(NOW);
        for no in 1..=count {
            assert_eq!(left.first(), Some(&no), "each once, in their order");
            bench.land(left.remove(0), Sign::Good, None, NOW);
            left.extend(bench.begun(NOW));
        }
        assert_eq!(left, [] as [i64; 0]);
        bench.reads
    };
    // Portions of 32, 64, 128, 128, 128 and 20.
    assert_eq!(reads(100, 500), 6);
    assert_eq!(reads(5_000, 500), 500_usize.div_ceil(32));
}

#[test]
fn what_is_new_beside_a_backlog_of_repeats_does_not_bring_all_of_it_into_memory() {
    let mut bench = Bench::new(2, 2);
    bench.emit_all((1..=2_000).map(|no| repeated(no, 101)));
    let mut under_way = bench.begun(NOW);
    for no in 10_001..=10_100 {
        bench.emit(event(no, 101), NOW);
        bench.deliver(under_way.remove(0));
        under_way.extend(bench.begun(NOW));
        let ready = bench.lineup.ready_of(ApplicationNo(101));
        assert!(ready <= 100, "{ready} are in memory");
        let portion = bench.lineup.places[&ApplicationNo(101)].portion();
        assert!(portion <= 64, "{portion} more would be read for one that is new");
    }
}

#[test]
fn what_a_read_found_and_left_is_read_later_though_nobody_rings_again() {
    for news in 1..=130 {
        let mut bench = Bench::new(2, 2);
        bench.emit_all((1..=130).map(|no| repeated(no, 101)));
        let mut under_way = bench.begun(NOW);
        let mut no = 10_000;
        while !under_way.is_empty() {
            if no < 10_000 + news {
                no += 1;
                bench.emit(event(no, 101), NOW);
            }
            under_way.drain(..).for_each(|no| bench.deliver(no));
            under_way.extend(bench.begun(NOW));
        }
        assert!(bench.rows.is_empty(), "{} were left after {news} that were new", bench.rows.len());
    }
}

#[test]
fn what_is_left_alone_or_not_recorded_yet_does_not_hide_what_is_owed_behind_it() {
    // Rows so large that a read of them never asks for more than the least.
    let large = |no| EventRow { body: vec![0; 5_000], ..event(no, 101) };
    let many = 2 * i64::try_from(PORTION_MIN).expect("small");
    let begun = || {
        let mut bench = Bench::new(1_000, 100);
        bench.emit_all((1..=many).map(large));
        assert_eq!(bench.begun(NOW).len(), 64);
        bench
    };
    let mut parked = begun();
    (1..=many).for_each(|no| parked.lineup.park(&Flight::of(&large(no)), later(60_000)));
    parked.emit_all([large(900), event(901, 202)]);
    assert_eq!(parked.begun(NOW), [900, 901], "though it is read together with one that has nothing in memory");
    let mut unrecorded = begun();
    for no in 1..=many {
        unrecorded.lineup.answered(&Flight::of(&large(no)), NOW);
    }
    unrecorded.emit(large(900), NOW);
    assert_eq!(unrecorded.begun(NOW), [900]);
}

#[test]
fn several_that_are_read_at_once_are_read_in_small_portions_and_so_is_one_where_the_memory_is_filled() {
    let read = |applications: i64, ready_bytes: usize| {
        let mut bench = Bench::new(64, 2);
        for application in (0..applications).map(ApplicationNo) {
            let mut place = Place::new(TenantNo(1), 2);
            (0..9).for_each(|_| place.has_read(40, 40, true));
            bench.lineup.places.insert(application, place);
            bench.lineup.note(TenantNo(1), application, NOW);
        }
        (bench.lineup.reads.reach, bench.lineup.ready_bytes) = (READ_APPLICATIONS_MAX, ready_bytes);
        match bench.lineup.next(NOW) {
            Some(Next::Read(Portion { of, limit, .. })) => (of.len(), limit),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(1, 0), (1, 128));
    assert_eq!(read(8, 0), (8, 64));
    assert_eq!(read(16, 0), (16, 32));
    assert_eq!(read(1, READY_BYTES_MAX / 2), (1, 32));
}

#[test]
fn events_that_wait_take_a_bounded_part_of_the_memory() {
    let mut bench = Bench::new(64, 1);
    let large = |no, application| EventRow { body: vec![0; 4 * 1024 * 1024], ..event(no, application) };
    bench.emit_all((0..8).flat_map(|of| (0..20).map(move |n| large(100 * of + n, 101 + of))));
    let begun = bench.begun(NOW);
    assert_eq!(begun.len(), 8);
    assert!(bench.lineup.ready_bytes <= READY_BYTES_MAX + 8 * 5 * 1024 * 1024, "{}", bench.lineup.ready_bytes);
}

#[test]
fn what_has_begun_or_was_dropped_takes_no_memory_any_more() {
    let mut bench = Bench::new(64, 1);
    bench.emit_all([event(1, 101), event(2, 101), event(3, 102), event(4, 102)]);
    assert_eq!(bench.begun(NOW), [1, 3]);
    assert!(bench.lineup.ready_bytes > 0, "one of each is ready");
    bench.deliver(1);
    assert_eq!(bench.begun(NOW), [2]);
    bench.lineup.drop_ready(ApplicationNo(102));
    assert_eq!(bench.lineup.ready_bytes, 0);
}

#[test]
fn what_cannot_be_read_back_is_left_out_for_a_while_and_what_is_behind_it_goes() {
    let mut bench = Bench::new(9, 9);
    bench.unreadable = (1..=100).collect();
    bench.emit_all((1..=101).map(|no| event(no, 101)).chain([event(201, 202)]));
    assert_eq!(bench.begun(NOW), [201, 101]);
    bench.deliver(101);
    bench.deliver(201);
    let reads = bench.reads;
    assert_eq!(bench.begun(later(59_999)), [] as [i64; 0]);
    assert_eq!(bench.reads, reads, "it is not looked at all the time");
    bench.unreadable.clear();
    assert_eq!(bench.lineup.first_at(), Some(later(60_000)));
    assert_eq!(bench.begun(later(60_000)).first(), Some(&1), "it can be read by now");
}

#[test]
fn who_has_very_much_that_cannot_be_read_back_rests_as_a_whole() {
    let mut bench = Bench::new(9, 9);
    bench.unreadable = (1..=5_000).collect();
    bench.emit_all((1..=5_000).map(|no| event(no, 101)).chain([event(6_000, 202)]));
    assert_eq!(bench.begun(NOW), [6_000]);
    let parked = bench.lineup.places[&ApplicationNo(101)].parked();
    assert!((1_024..1_200).contains(&parked), "{parked}");
    bench.deliver(6_000);
    bench.emit(event(7_000, 101), later(1));
    let reads = bench.reads;
    assert_eq!(bench.begun(later(59_999)), [] as [i64; 0]);
    assert_eq!(bench.reads, reads);
    assert_eq!(bench.lineup.first_at(), Some(later(60_000)));
}

#[test]
fn so_many_applications_are_read_at_once_that_what_comes_of_it_has_a_bound() {
    const LARGE: usize = 150 * 1024;
    for (bytes, most, reads_of_16) in [(LARGE, 2, 0), (300, 16, 1)] {
        let mut lineup = Bench::new(1_000, 8).lineup;
        for application in 101..=200 {
            let row = event(1, application);
            lineup.note(row.tenant, row.application, NOW);
        }
        let mut reached = Vec::new();
        while let Some(next) = lineup.next(NOW) {
            let Next::Read(Portion { of, limit, .. }) = next else { continue };
            reached.push(of.len());
            let numbers = || 0..i64::from(limit);
            let large = |of: &(TenantNo, ApplicationNo), no| EventRow {
                body: vec![0; bytes],
                ..event(of.1.0 * 100 + no, of.1.0)
            };
            let rows = of.iter().flat_map(|of| numbers().map(move |no| large(of, no))).collect();
            lineup.offer(&of, rows, limit, NOW);
            if reached.len() == 20 {
                break;
            }
        }
        assert_eq!(reached.first(), Some(&2), "what is not known is read with care");
        assert_eq!(reached.iter().max(), Some(&most), "{bytes} bytes each: {reached:?}");
        assert!(reached.iter().filter(|many| **many == 16).count() >= reads_of_16, "{reached:?}");
        assert!(bytes != LARGE || reached.iter().skip(1).all(|many| *many == 1), "{reached:?}");
    }
    // What has become large is read with care from the next read on.
    assert_eq!(reach_after(16, 16, 16 * 64 * LARGE), 1);
    assert_eq!(reach_after(16, 16, 2 * READ_BYTES_MAX), 8);
    assert_eq!(reach_after(8, 8, READ_BYTES_MAX / 2), 8);
}
