//! Events that were written just now, and go without being read.

use super::*;

impl Bench {
    /// Written, and handed over: whether it need not be read.
    fn hand(&mut self, row: EventRow) -> bool {
        let is_taken = self.lineup.take_new(row.clone());
        if !is_taken {
            self.lineup.note(row.tenant, row.application, NOW);
        }
        self.rows.push(row);
        is_taken
    }

    /// An application of which everything is read and delivered.
    fn known() -> Self {
        let mut bench = Self::new(9, 2);
        bench.emit(event(1, 101), NOW);
        assert_eq!(bench.begun(NOW), [1]);
        bench.lineup.knows(ApplicationNo(101), "app_101", 1, Allows { at_once: 2, per_s: None, whole_ms: WHOLE_MS });
        bench.lineup.came(&Flight::of(&event(1, 101)), NOW, Outcome::Delivered);
        bench.deliver(1);
        assert_eq!((bench.begun(NOW), bench.reads), (Vec::new(), 1));
        bench
    }
}

#[test]
fn what_was_just_written_goes_in_order_and_is_not_read() {
    let mut bench = Bench::known();
    assert!([2, 3, 4].into_iter().all(|no| bench.hand(event(no, 101))));
    assert_eq!(bench.begun(NOW), [2, 3], "two at once");
    bench.deliver(2);
    assert_eq!(bench.begun(NOW), [4]);
    bench.deliver(3);
    bench.deliver(4);
    assert_eq!((bench.begun(NOW), bench.reads), (Vec::new(), 1));
}

#[test]
fn a_read_leaves_out_what_was_handed_over() {
    let mut bench = Bench::known();
    assert!(bench.hand(event(2, 101)));
    bench.emit(event(3, 101), NOW);
    assert_eq!(bench.begun(NOW), [2, 3]);
    assert_eq!((bench.begun(NOW), bench.lineup.flights()), (Vec::new(), 2));
}

#[test]
fn of_an_application_that_nothing_is_known_of_it_is_read() {
    let mut bench = Bench::known();
    assert!(!bench.hand(event(2, 102)), "never heard of");
    assert_eq!((bench.begun(NOW), bench.reads), (vec![2], 2));
    bench.deliver(2);
    assert!(!bench.hand(event(3, 102)), "its settings are not known");
    assert_eq!((bench.begun(NOW), bench.reads), (vec![3], 3));
}

#[test]
fn where_something_waits_to_be_read_it_is_read_behind_that() {
    let mut bench = Bench::known();
    bench.emit(event(2, 101), NOW);
    assert!(matches!(bench.lineup.next(NOW), Some(Next::Read(_))));
    assert!(!bench.hand(event(3, 101)), "it is being read");
    bench.lineup.unread(&[(TenantNo(1), ApplicationNo(101))], NOW);
    assert!(!bench.hand(event(4, 101)), "it could not be read");
    assert_eq!(bench.begun(later(1_000)), [2, 3]);
}

#[test]
fn what_is_new_and_handed_over_keeps_no_repeats_from_being_read() {
    let mut bench = Bench::known();
    bench.emit_all((1_000..1_100).map(|no| repeated(no, 101)));
    let (mut begun, mut repeats, mut new) = (bench.begun(NOW), 0, 2..);
    for _ in 0..150 {
        // So many are always outstanding.
        for no in new.by_ref().take(8 - bench.rows.iter().filter(|row| row.attempts == 0).count()) {
            bench.hand(event(no, 101));
        }
        repeats += begun.iter().filter(|no| **no >= 1_000).count();
        for no in begun.drain(..) {
            bench.deliver(no);
        }
        begun = bench.begun(NOW);
    }
    assert_eq!(repeats, 100, "they take turns");
}

#[test]
fn what_is_repeated_waits_behind_another_or_is_not_due_is_read() {
    let mut bench = Bench::known();
    assert!(!bench.hand(repeated(2, 101)));
    assert!(!bench.hand(EventRow { behind: Some(EventNo(2)), ..event(3, 101) }));
    assert!(!bench.hand(EventRow { due_at: None, ..event(4, 101) }));
}

#[test]
fn an_application_that_rests_as_a_whole_is_read_when_it_goes_on() {
    let mut bench = Bench::known();
    assert!(bench.hand(event(2, 101)));
    assert_eq!(bench.begun(NOW), [2]);
    bench.lineup.park_application(&Flight::of(&event(2, 101)), later(1_000));
    assert!(!bench.hand(event(3, 101)));
    assert_eq!(bench.begun(later(999)), [] as [i64; 0]);
    assert_eq!(bench.begun(later(1_000)), [2, 3]);
}

#[test]
fn so_many_wait_in_memory_and_no_more() {
    let mut bench = Bench::known();
    let most = i64::try_from(PORTION_MIN).expect("small");
    assert!((0..most).all(|no| bench.hand(event(10 + no, 101))));
    assert!(!bench.hand(event(10 + most, 101)));
    let mut delivered = Vec::new();
    loop {
        let begun = bench.begun(NOW);
        if begun.is_empty() {
            break;
        }
        for no in &begun {
            bench.deliver(*no);
        }
        delivered.extend(begun);
    }
    assert_eq!(delivered, (10..=10 + most).collect::<Vec<_>>());
    let mut large = event(999, 101);
    large.body = vec![b'x'; READY_BYTES_MAX];
    assert!(!bench.lineup.take_new(large), "as large as all that may wait");
}
