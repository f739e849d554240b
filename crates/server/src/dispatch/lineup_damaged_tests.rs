//! Applications of which nothing can be read.

use super::*;

/// The pauses between the reads that fail of application 101 alone, while others are read or are not.
fn pauses(bench: &mut Bench, others_are_read: bool) -> Vec<i64> {
    let (mut now, mut pauses) = (NOW, Vec::new());
    while pauses.len() < 9 {
        if others_are_read {
            bench.lineup.note(TenantNo(2), ApplicationNo(201), now);
        }
        bench.begun(now);
        let next = bench.lineup.first_at().expect("it is looked at again");
        pauses.push(next.0 - now.0);
        now = next;
    }
    pauses
}

#[test]
fn of_several_that_are_read_at_once_one_that_is_damaged_keeps_none_of_the_others() {
    let mut bench = Bench::new(64, 2);
    bench.lineup.reads.reach = 16;
    bench.damaged = vec![105];
    bench.emit_all((101..=112).map(|of| event(of, of)));
    assert_eq!(bench.begun(NOW), [] as [i64; 0], "the read of all of them has failed");
    // However much else is read until they are looked at again.
    for no in 300..350 {
        bench.emit(event(no, no), NOW);
        assert_eq!(bench.begun(later(no - 299)), [no]);
        bench.deliver(no);
    }
    let others: Vec<i64> = (101..=112).filter(|no| *no != 105).collect();
    assert_eq!(bench.begun(later(1_000)), others);
    for no in &others {
        bench.deliver(*no);
    }

    // It is never again read with others.
    let reads = bench.reads;
    bench.emit_all((201..=212).map(|no| event(no, no - 100)).filter(|event| event.application.0 != 105));
    bench.lineup.note(TenantNo(1), ApplicationNo(105), later(2_000));
    assert_eq!(bench.begun(later(2_000)).len(), 11);
    assert!(bench.reads <= reads + 4, "and the others are read together: {}", bench.reads - reads);

    bench.damaged.clear();
    assert_eq!(bench.begun(later(120_000)), [105], "when it can be read it goes");
}

#[test]
fn one_that_is_damaged_is_read_ever_more_rarely_while_others_are_read() {
    let mut bench = Bench::new(64, 2);
    bench.damaged = vec![101];
    bench.emit(event(1, 101), NOW);
    let seconds = [1, 1, 2, 4, 8, 16, 32, 60, 60].map(|s| s * 1_000);
    assert_eq!(pauses(&mut bench, true), seconds, "the first read was of both");

    let mut bench = Bench::new(64, 2);
    bench.damaged = vec![101, 201];
    bench.emit(event(1, 101), NOW);
    assert_eq!(pauses(&mut bench, false), [1_000; 9], "where nobody is read the store is ill, and is tried again soon");
}

#[test]
fn a_ring_does_not_have_a_damaged_one_read_before_its_pause_is_over() {
    let mut bench = Bench::new(64, 2);
    bench.damaged = vec![101];
    bench.emit(event(1, 101), NOW);
    pauses(&mut bench, true);
    let now = UnixMillis(NOW.0 + pauses(&mut bench, true).iter().sum::<i64>() * 2);
    bench.begun(now);
    let reads = bench.reads;
    bench.emit(event(2, 101), now);
    assert_eq!((bench.begun(now), bench.reads), (Vec::new(), reads));
}
