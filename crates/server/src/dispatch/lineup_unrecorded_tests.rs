//! Attempts that the endpoint has answered, and that are not recorded.

use super::*;

impl Bench {
    /// The endpoint has taken the callback; that is not recorded: the store still has it as it was.
    pub(super) fn answered(&mut self, no: i64, now: UnixMillis) -> Option<(Box<str>, Turned)> {
        let row = self.row(no);
        self.lineup.answered(&Flight::of(&row), now)
    }
}

#[test]
fn an_endpoint_that_has_answered_may_have_the_next_one_and_none_twice() {
    let mut bench = Bench::new(8, 2);
    bench.emit_all((1..=20).map(|no| event(no, 101)));
    assert_eq!(bench.begun(NOW), [1, 2]);
    bench.answered(1, NOW);
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!(bench.begun(NOW), [3], "1 is still owed in the store, and does not go again");
    assert_eq!((bench.lineup.under_way(), bench.lineup.flights()), (2, 3));
    for no in 2..=6 {
        bench.answered(no, NOW);
        bench.begun(NOW);
    }
    assert_eq!((bench.lineup.under_way(), bench.lineup.flights()), (1, 7), "7 is under way, and six are not recorded");
    bench.answered(7, NOW);
    assert_eq!(bench.begun(NOW), [] as [i64; 0], "three times as many as at once");
    bench.deliver(3);
    bench.deliver(1);
    assert_eq!(bench.begun(NOW), [8, 9]);
    assert_eq!(bench.lineup.flights(), 7);
    for no in [2, 4, 5, 6, 7, 8, 9] {
        bench.deliver(no);
    }
    assert_eq!((bench.lineup.under_way(), bench.lineup.flights()), (0, 0));
    assert_eq!(bench.begun(NOW), [10, 11]);
}

#[test]
fn what_is_read_again_before_it_is_recorded_is_known() {
    let mut bench = Bench::new(8, 2);
    bench.emit(event(1, 101), NOW);
    assert_eq!(bench.begun(NOW), [1]);
    bench.answered(1, NOW);
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    let reads = bench.reads;
    assert_eq!((bench.begun(NOW), bench.reads), (vec![], reads + 1), "it was read, and is owed still");
}

#[test]
fn what_was_answered_and_could_not_be_recorded_is_owed_again() {
    let mut bench = Bench::new(8, 1);
    bench.emit_all([event(1, 101), event(2, 101)]);
    assert_eq!(bench.begun(NOW), [1]);
    bench.answered(1, NOW);
    assert_eq!(bench.begun(NOW), [2]);
    bench.lineup.park(&Flight::of(&event(1, 101)), later(5_000));
    bench.deliver(2);
    assert_eq!(bench.begun(later(4_999)), [] as [i64; 0]);
    assert_eq!((bench.begun(later(5_000)), bench.lineup.flights()), (vec![1], 1));
}

#[test]
fn an_endpoint_that_moves_before_its_answer_is_recorded_gets_nothing_twice() {
    let mut bench = Bench::new(8, 1);
    bench.emit(event(1, 101), NOW);
    assert_eq!(bench.begun(NOW), [1]);
    bench.lineup.knows(ApplicationNo(101), "app_101", 1, ALLOWS);
    bench.answered(1, NOW);
    bench.lineup.knows(ApplicationNo(101), "app_101", 2, ALLOWS);
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!((bench.begun(NOW), bench.lineup.flights()), (vec![], 1), "the store still has it as owed");
    bench.deliver(1);
    assert_eq!(bench.lineup.flights(), 0);
}

#[test]
fn all_together_have_a_bound() {
    let mut bench = Bench::new(1_000, 100);
    bench.emit_all((1..=300).map(|no| event(no, 101 + no % 10)));
    let begun = bench.begun(NOW);
    assert_eq!(begun.len(), 300);
    for no in &begun[..UNRECORDED_MAX] {
        bench.answered(*no, NOW);
    }
    bench.emit(event(900, 201), NOW);
    assert_eq!(bench.begun(NOW), [] as [i64; 0], "whose turn it is waits until something is recorded");
    bench.deliver(begun[0]);
    assert_eq!(bench.begun(NOW), [900]);
}

#[test]
fn a_breaker_closes_with_the_answer_and_is_told_once() {
    let mut bench = Bench::new(8, 8);
    bench.emit_all((1..=30).map(|no| event(no, 101)));
    let mut now = NOW;
    for _ in 0..10 {
        let no = bench.next(now).expect("one after the other").no.0;
        bench.land(no, Sign::Bad, Some(later(600_000)), now);
    }
    now = later(1_000);
    let probe = bench.next(now).expect("one goes after the pause").no.0;
    assert_eq!(bench.lineup.open_endpoints(), 1);
    let turned = bench.answered(probe, now);
    assert!(matches!(turned, Some((_, Turned::Closed))), "{turned:?}");
    assert_eq!(bench.lineup.open_endpoints(), 0);
    let next = bench.next(now).expect("it works again").no.0;
    assert_eq!(bench.land(probe, Sign::Good, None, now), None, "it has been told");
    let at_once = |bench: &Bench| bench.lineup.view(ApplicationNo(101), now).map(|view| view.at_once);
    assert_eq!((bench.lineup.flights(), at_once(&bench)), (1, Some(1)), "it begins with one");
    bench.deliver(next);
    assert_eq!((bench.lineup.flights(), at_once(&bench)), (0, Some(2)), "one more for one good attempt");
}

#[test]
fn an_event_that_was_moved_meanwhile_rests_and_is_not_sent_again_and_again_though_it_is_read_as_it_was() {
    let mut bench = Bench::new(9, 9);
    bench.emit_all([event(1, 101), event(2, 101)]);
    assert_eq!(bench.begun(NOW), [1, 2]);
    let flight = Flight::of(&bench.row(1));
    bench.lineup.rest_moved(&flight, NOW.plus_ms(5_000));
    bench.lineup.made(&flight, Sign::Good, None, NOW);
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!(bench.begun(NOW.plus_ms(4_999)), [] as [i64; 0], "it is still read as due");
    assert_eq!(bench.lineup.first_at(), Some(NOW.plus_ms(5_000)));
    assert_eq!(bench.begun(NOW.plus_ms(5_000)), [1], "whoever moved it did not end it");
}
