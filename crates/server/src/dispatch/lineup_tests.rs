use std::ops::RangeInclusive;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{EventNo, SortedId, TenantNo};
use countersign_store::StoreError;
use countersign_store::contract::UnreadableEvent;

use super::*;

const NOW: UnixMillis = UnixMillis(1_000_000);
/// An event of these tests is overdue after a day.
const WHOLE_MS: i64 = 86_400_000;
const ALLOWS: Allows = Allows { at_once: 8, per_s: None, whole_ms: WHOLE_MS };

fn later(ms: i64) -> UnixMillis {
    NOW.plus_ms(ms)
}

fn event(no: i64, application: i64) -> EventRow {
    EventRow {
        no: EventNo(no),
        tenant: TenantNo(application / 100),
        application: ApplicationNo(application),
        client_id: format!("app_{application}"),
        event_id: SortedId(no.unsigned_abs().into()),
        seq: no,
        sequence: 1,
        biz_type: "PAYMENT_ORDER".to_owned(),
        biz_id: "b".to_owned(),
        biz_status: "SUCCESS".to_owned(),
        data: "{}".to_owned(),
        body: b"{}".to_vec(),
        created_at: NOW,
        state: DeliveryState::Pending,
        attempts: 0,
        due_at: Some(NOW),
        behind: None,
        by_hand: false,
    }
}

fn repeated(no: i64, application: i64) -> EventRow {
    EventRow { attempts: 1, ..event(no, application) }
}

fn unreadable(event: &EventRow) -> UnreadableEvent {
    let error = StoreError::Corrupt { table: "event", row: event.no.0.to_string() };
    UnreadableEvent { tenant: event.tenant, application: event.application, event: event.no, error }
}

/// What a store would have, and a line-up in front of it.
struct Bench {
    lineup: Lineup,
    rows: Vec<EventRow>,
    /// Events that cannot be read back.
    unreadable: Vec<i64>,
    /// Applications at whom a read fails.
    damaged: Vec<i64>,
    reads: usize,
}

impl Bench {
    fn new(in_flight: usize, per_application: usize) -> Self {
        let bounds = Bounds { in_flight, slow: 4, per_application, per_merchant: usize::MAX };
        Self { lineup: Lineup::new(bounds), rows: Vec::new(), unreadable: Vec::new(), damaged: Vec::new(), reads: 0 }
    }

    /// Written, and rung for.
    fn emit(&mut self, row: EventRow, now: UnixMillis) {
        self.lineup.note(row.tenant, row.application, now);
        self.rows.push(row);
    }

    fn emit_all(&mut self, rows: impl IntoIterator<Item = EventRow>) {
        for row in rows {
            self.emit(row, NOW);
        }
    }

    fn next(&mut self, now: UnixMillis) -> Option<EventRow> {
        loop {
            match self.lineup.next(now)? {
                Next::Begin(event, _) => return Some(*event),
                Next::Read(Portion { of, known, limit }) => {
                    self.reads += 1;
                    assert!(self.reads < 10_000, "it reads the same again and again");
                    if of.iter().any(|(_, application)| self.damaged.contains(&application.0)) {
                        self.lineup.unread(&of, now);
                        continue;
                    }
                    let limit_rows = usize::try_from(limit).expect("small");
                    let mut found = Vec::new();
                    for (_, application) in &of {
                        for again in [false, true] {
                            let asked = |e: &&EventRow| {
                                e.application == *application && (e.attempts > 0) == again && !known.contains(&e.no)
                            };
                            let mut rows: Vec<EventRow> = self.rows.iter().filter(asked).cloned().collect();
                            rows.sort_by_key(|e| (e.due_at, e.no));
                            rows.truncate(limit_rows);
                            found.extend(rows);
                        }
                    }
                    let (left_out, rows) = found.into_iter().partition(|e| self.unreadable.contains(&e.no.0));
                    self.lineup.offer(&of, rows, limit, now);
                    for e in &left_out {
                        self.lineup.leave_out(&unreadable(e), now.plus_ms(60_000), now);
                    }
                }
            }
        }
    }

    /// Numbers of all that may begin now.
    fn begun(&mut self, now: UnixMillis) -> Vec<i64> {
        std::iter::from_fn(|| self.next(now)).map(|e| e.no.0).collect()
    }

    fn row(&self, no: i64) -> EventRow {
        self.rows.iter().find(|e| e.no.0 == no).expect("it was emitted").clone()
    }

    /// The attempt is recorded, then lands: whose breaker that has turned.
    fn land(&mut self, no: i64, sign: Sign, next: Option<UnixMillis>, now: UnixMillis) -> Option<(Box<str>, Turned)> {
        let row = self.row(no);
        self.rows.retain(|e| e.no.0 != no);
        if next.is_some() {
            self.rows.push(EventRow { attempts: row.attempts + 1, due_at: next, ..row.clone() });
        }
        self.lineup.made(&Flight::of(&row), sign, next, now)
    }

    fn deliver(&mut self, no: i64) {
        self.land(no, Sign::Good, None, NOW);
    }
}

#[test]
fn an_event_is_taken_once_until_it_lands() {
    let mut bench = Bench::new(9, 9);
    bench.emit(event(1, 101), NOW);
    assert_eq!(bench.begun(NOW), [1]);
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!(bench.begun(NOW), [] as [i64; 0], "it is in flight");
    bench.lineup.land(&Flight::of(&event(1, 101)));
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!((bench.begun(NOW), bench.lineup.flights()), (vec![1], 1), "it was not recorded, so it is due");
}

#[test]
fn applications_take_turns_and_none_has_more_than_its_share() {
    let mut bench = Bench::new(10, 2);
    bench.emit_all((1..=4).map(|no| event(no, 101)).chain((11..=14).map(|no| event(no, 102))));
    assert_eq!(bench.begun(NOW), [1, 11, 2, 12]);
    bench.deliver(1);
    assert_eq!(bench.begun(NOW), [3]);
    bench.deliver(11);
    bench.deliver(12);
    assert_eq!(bench.begun(NOW), [13, 14]);
}

#[test]
fn merchants_take_turns_however_many_endpoints_one_has() {
    let mut bench = Bench::new(8, 1);
    bench.emit_all((0..50).map(|n| event(n + 1, 100 + n)));
    bench.emit(event(99, 201), NOW);
    let begun = bench.begun(NOW);
    assert!(begun[..2].contains(&99), "{begun:?}");
}

#[test]
fn endpoints_that_nothing_is_known_of_leave_a_quarter_of_the_permits_and_those_that_fail_a_half() {
    let mut bench = Bench::new(8, 8);
    bench.emit_all((1..=9).map(|no| event(no, 100 + no)));
    assert_eq!(bench.begun(NOW).len(), 6, "three quarters");
    let mut failing = Bench::new(8, 8);
    failing.emit_all((1..=6).map(|no| event(no, 100 + no)));
    for no in failing.begun(NOW) {
        failing.land(no, Sign::Bad, Some(NOW), NOW);
    }
    assert_eq!(failing.begun(NOW).len(), 4, "a half");
    failing.emit_all((50..=55).map(|no| event(no, 100 + no)));
    assert_eq!(failing.begun(NOW).len(), 2, "new ones do not wait for them, and both together leave a quarter");
}

#[test]
fn a_proven_endpoint_goes_before_others_and_may_use_seven_of_eight_permits() {
    let mut bench = Bench::new(8, 8);
    bench.emit(event(1, 101), NOW);
    assert_eq!(bench.begun(NOW), [1]);
    bench.deliver(1);
    bench.emit_all((11..=19).map(|no| event(no, 100 + no)));
    bench.emit_all((2..=9).map(|no| event(no, 101)));
    let begun = bench.begun(NOW);
    assert_eq!(begun, [2, 3, 4, 5, 6, 7, 8, 11], "the last is for one of whom nothing is known to hang");
}

#[test]
fn what_takes_long_gives_its_permit_back_where_there_is_room_among_the_slow() {
    let mut bench = Bench::new(2, 1);
    bench.emit_all((1..=9).map(|no| event(no, 100 + no)));
    assert_eq!(bench.begun(NOW).len(), 2);
    assert_eq!(bench.lineup.first_at(), Some(later(1_000)));
    assert_eq!(bench.begun(later(999)), [] as [i64; 0]);
    assert_eq!(bench.begun(later(1_000)).len(), 2);
    assert_eq!(bench.begun(later(2_000)).len(), 2);
    assert_eq!(bench.begun(later(9_000)), [] as [i64; 0], "four may be slow, and are");
    assert_eq!(bench.lineup.first_at(), None, "until one of them lands");
    assert_eq!(bench.lineup.flights(), 6);
    bench.deliver(1);
    assert_eq!(bench.begun(later(9_000)).len(), 1);
}

#[test]
fn a_merchant_has_no_more_permits_than_it_may() {
    let bounds = Bounds { in_flight: 40, slow: 4, per_application: 8, per_merchant: 3 };
    let mut bench = Bench { lineup: Lineup::new(bounds), ..Bench::new(9, 9) };
    bench.emit_all((1..=5).map(|no| event(no, 100 + no)));
    bench.emit(event(9, 201), NOW);
    let mut begun = bench.begun(NOW);
    begun.sort_unstable();
    assert_eq!(begun, [1, 2, 3, 9]);
    bench.deliver(2);
    assert_eq!(bench.begun(NOW), [4]);
}

#[test]
fn what_is_sent_by_hand_decides_only_where_it_is_the_one_attempt_that_does() {
    let mut bench = Bench::new(8, 8);
    bench.emit_all((1..=30).map(|no| EventRow { by_hand: true, ..repeated(no, 101) }));
    for _ in 0..12 {
        let no = bench.next(NOW).expect("it is not left alone").no.0;
        bench.land(no, Sign::Bad, Some(later(60_000)), NOW);
    }
    bench.emit_all((41..=60).map(|no| event(no, 101)));
    let mut turned = None;
    while turned.is_none() {
        let event = bench.next(NOW).expect("it is not left alone yet");
        turned = bench.land(event.no.0, Sign::Bad, Some(later(60_000)), NOW);
    }
    bench.rows.retain(|row| row.by_hand);
    let at = later(1_000);
    let mut probe = bench.next(at).expect("one that decides");
    while !probe.by_hand {
        bench.land(probe.no.0, Sign::Bad, Some(later(60_000)), at);
        probe = bench.next(later(20_000)).expect("one that decides");
    }
    assert_eq!(bench.land(probe.no.0, Sign::Bad, Some(later(60_000)), later(20_000)), None);
    let view = bench.lineup.view(ApplicationNo(101), later(20_000)).expect("it is remembered");
    assert!(
        matches!(view.breaker, BreakerState::Open { .. }),
        "a redelivery that fails does not bring it back: {view:?}"
    );
}

#[test]
fn what_is_sent_by_hand_and_taken_lets_more_at_once_and_what_fails_lets_no_fewer() {
    let mut bench = Bench::new(8, 8);
    let again = |numbers: RangeInclusive<i64>| numbers.map(|no| EventRow { by_hand: true, ..repeated(no, 101) });
    bench.emit_all((1..=4).map(|no| event(no, 101)));
    for no in bench.begun(NOW) {
        bench.land(no, Sign::Failed, None, NOW);
    }
    let at_once = |bench: &Bench| bench.lineup.view(ApplicationNo(101), NOW).expect("it is remembered").at_once;
    assert_eq!(at_once(&bench), 1);
    // Mended, and what died is sent again.
    bench.emit_all(again(11..=17));
    for taken in 1..=7 {
        let no = bench.next(NOW).expect("one more").no.0;
        bench.land(no, Sign::Good, None, NOW);
        assert_eq!(at_once(&bench), 1 + taken);
    }
    bench.emit_all(again(21..=24));
    for _ in 0..4 {
        let no = bench.next(NOW).expect("one more").no.0;
        bench.land(no, Sign::Failed, None, NOW);
    }
    assert_eq!(at_once(&bench), 8);
}

#[test]
fn a_failing_endpoint_is_left_alone_then_probed_then_drained_at_a_rising_rate() {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=40).map(|no| event(no, 101)));
    for _ in 0..4 {
        for no in bench.begun(NOW) {
            bench.land(no, Sign::Bad, Some(later(60_000)), NOW);
        }
    }
    assert_eq!((bench.begun(NOW), bench.lineup.open_endpoints()), (Vec::new(), 1));
    assert_eq!(bench.lineup.first_at(), Some(later(1_000)));
    let probe = bench.begun(later(1_000));
    assert_eq!(probe.len(), 1);
    assert_eq!(bench.begun(later(1_500)), [] as [i64; 0], "one at a time");
    bench.land(probe[0], Sign::Good, None, later(1_500));
    assert_eq!(bench.lineup.open_endpoints(), 0);
    let mut rates = Vec::new();
    for _ in 0..4 {
        let begun = bench.begun(later(1_500));
        rates.push(begun.len());
        for no in begun {
            bench.land(no, Sign::Good, None, later(1_500));
        }
    }
    assert_eq!(rates, [1, 2, 4, 8]);
}

#[test]
fn first_attempts_do_not_wait_behind_a_backlog_of_repeated_ones() {
    let mut bench = Bench::new(64, 1);
    bench.emit_all((1..=500).map(|no| repeated(no, 101)));
    let mut begun = bench.begun(NOW);
    assert_eq!(begun.len(), 1);
    bench.emit_all([event(900, 101), event(901, 101)]);
    for _ in 0..4 {
        bench.deliver(begun[0]);
        begun = bench.begun(NOW);
        if begun == [900] {
            return;
        }
    }
    panic!("the first attempt is still waiting");
}

#[test]
fn an_application_rests_until_something_of_it_is_due() {
    let mut bench = Bench::new(9, 9);
    bench.emit(EventRow { due_at: Some(later(500)), ..event(1, 101) }, NOW);
    assert_eq!((bench.begun(NOW), bench.reads), (Vec::new(), 1));
    assert_eq!(bench.lineup.first_at(), Some(later(500)));
    assert_eq!((bench.begun(later(499)), bench.reads), (Vec::new(), 1), "nothing is read for nothing");
    assert_eq!(bench.begun(later(500)), [1]);
}

#[test]
fn a_parked_event_is_left_alone_and_its_neighbours_go() {
    let mut bench = Bench::new(9, 1);
    bench.emit_all([event(1, 101), event(2, 101)]);
    assert_eq!(bench.begun(NOW), [1]);
    bench.lineup.park(&Flight::of(&event(1, 101)), later(60_000));
    assert_eq!(bench.begun(NOW), [2]);
    bench.deliver(2);
    bench.emit(event(3, 101), later(30_000));
    assert_eq!(bench.begun(later(30_000)), [3], "what is new is looked for, and the other one still left alone");
    bench.deliver(3);
    assert_eq!(bench.begun(later(59_999)), [] as [i64; 0]);
    assert_eq!(bench.begun(later(60_000)), [1]);
}

#[test]
fn a_parked_application_loses_what_was_ready_and_gets_it_back() {
    let mut bench = Bench::new(9, 1);
    bench.emit_all([event(1, 101), event(2, 101), event(3, 102)]);
    assert_eq!(bench.begun(NOW), [1, 3]);
    bench.lineup.park_application(&Flight::of(&event(1, 101)), later(5_000));
    bench.deliver(3);
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!(bench.begun(NOW), [] as [i64; 0], "a ring does not end the rest");
    assert_eq!(bench.begun(later(5_000)), [1]);
}

#[test]
fn an_application_with_one_event_rests_as_well_though_somebody_rings() {
    let mut bench = Bench::new(9, 1);
    bench.emit(event(1, 101), NOW);
    assert_eq!(bench.begun(NOW), [1]);
    bench.lineup.park_application(&Flight::of(&event(1, 101)), later(5_000));
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!(bench.begun(later(4_999)), [] as [i64; 0]);
    assert_eq!(bench.begun(later(5_000)), [1]);
}

#[test]
fn lanes_that_are_gone_take_what_was_ready_with_them() {
    let mut bench = Bench::new(9, 1);
    bench.emit_all([event(1, 101), event(2, 101), event(3, 102), event(4, 102)]);
    assert_eq!(bench.begun(NOW), [1, 3]);
    bench.lineup.keep_lanes(LaneSet::NONE.with(Lane::of(ApplicationNo(102))));
    bench.deliver(1);
    bench.deliver(3);
    assert_eq!(bench.begun(NOW), [4]);
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!(bench.begun(NOW), [2], "until it is noted again");
}

#[test]
fn what_was_left_alone_in_a_lane_that_went_and_came_back_goes_at_once() {
    let mut bench = Bench::new(9, 1);
    bench.emit(event(1, 101), NOW);
    assert_eq!(bench.begun(NOW), [1]);
    bench.lineup.park(&Flight::of(&event(1, 101)), later(60_000));
    bench.lineup.keep_lanes(LaneSet::NONE);
    bench.lineup.keep_lanes(LaneSet::ALL);
    bench.lineup.note(TenantNo(1), ApplicationNo(101), NOW);
    assert_eq!(bench.begun(NOW), [1]);
}

#[test]
fn an_endpoint_gets_no_more_than_its_rate_and_no_more_at_once_than_it_may() {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=20).map(|no| event(no, 101)));
    let _first = bench.next(NOW);
    bench.lineup.knows(ApplicationNo(101), "app_101", 1, Allows { at_once: 3, per_s: Some(10), whole_ms: WHOLE_MS });
    assert_eq!(bench.begun(NOW).len(), 1, "the second is the first one that is paced");
    assert_eq!((bench.begun(later(99)).len(), bench.begun(later(100)).len()), (0, 1));
    assert_eq!(bench.begun(later(9_000)), [] as [i64; 0], "three at once");
    bench.lineup.knows(ApplicationNo(101), "app_101", 1, Allows { at_once: 8, per_s: None, whole_ms: WHOLE_MS });
    assert_eq!(bench.begun(later(9_000)).len(), 5, "though none of them has landed");
    bench.deliver(1);
    assert_eq!(bench.begun(later(9_000)).len(), 1);
}

#[test]
fn a_breaker_is_told_when_it_turns_and_seen_as_it_stands() {
    let mut bench = Bench::new(64, 8);
    bench.emit_all((1..=20).map(|no| event(no, 101)));
    bench.lineup.knows(ApplicationNo(101), "app_101", 1, ALLOWS);
    let seen = |bench: &Bench, ms| {
        let view = bench.lineup.view(ApplicationNo(101), later(ms)).expect("it is remembered");
        (view.breaker, view.at_once, view.at_once_max, view.in_flight)
    };
    let mut told = Vec::new();
    for _ in 0..4 {
        for no in bench.begun(NOW) {
            bench.lineup.knows(ApplicationNo(101), "app_101", 1, ALLOWS);
            told.extend(bench.land(no, Sign::Bad, Some(later(60_000)), NOW));
        }
    }
    let until = later(1_000);
    assert_eq!(told, [("app_101".into(), Turned::Opened { until })], "once");
    assert_eq!(seen(&bench, 999), (BreakerState::Open { until }, 0, 8, 0));
    bench.lineup.note(TenantNo(1), ApplicationNo(101), until);
    let [first] = bench.begun(until)[..] else { panic!("one goes") };
    assert_eq!(seen(&bench, 1_000), (BreakerState::HalfOpen, 1, 8, 1));
    assert_eq!(bench.land(first, Sign::Bad, Some(later(60_000)), until), None, "that it goes on failing is no turn");
    let [second] = bench.begun(later(3_000))[..] else { panic!("one goes") };
    assert_eq!(bench.land(second, Sign::Good, None, later(3_000)), Some(("app_101".into(), Turned::Closed)));
    assert_eq!(seen(&bench, 3_000), (BreakerState::Closed, 1, 8, 0));
    assert_eq!(bench.lineup.open_endpoints(), 0);
}

#[test]
fn an_endpoint_with_nothing_to_say_of_it_is_forgotten() {
    let mut bench = Bench::new(9, 9);
    bench.emit(event(1, 101), NOW);
    assert_eq!(bench.begun(NOW), [1]);
    bench.land(1, Sign::Neutral, None, NOW);
    assert_eq!(bench.begun(NOW), [] as [i64; 0]);
    assert!(bench.lineup.places.is_empty());
}

#[test]
fn an_open_endpoint_that_is_forgotten_is_not_counted_any_more() {
    let mut bench = Bench::new(64, 20);
    bench.emit_all((1..=25).map(|no| event(no, 101)));
    for no in bench.begun(NOW) {
        bench.land(no, Sign::Bad, Some(later(60_000)), NOW);
    }
    assert_eq!(bench.lineup.open_endpoints(), 1);
    bench.lineup.drop_ready(ApplicationNo(101));
    bench.lineup.give_up(ApplicationNo(101));
    let many = i64::try_from(IDLE_PLACES_MAX).expect("small") + 1;
    for application in 0..many {
        bench.lineup.places.insert(ApplicationNo(1_000 + application), Place::new(TenantNo(1), 1));
    }
    bench.lineup.leave(ApplicationNo(101));
    assert_eq!(bench.lineup.open_endpoints(), 0);
}

#[path = "lineup_reading_tests.rs"]
mod reading;

#[path = "lineup_damaged_tests.rs"]
mod damaged;
#[path = "lineup_fresh_tests.rs"]
mod fresh;

#[path = "lineup_idle_tests.rs"]
mod idle;

#[path = "lineup_unrecorded_tests.rs"]
mod unrecorded;

#[path = "lineup_hanging_tests.rs"]
mod hanging;
#[path = "lineup_waiting_tests.rs"]
mod waiting;

#[path = "lineup_failing_tests.rs"]
mod failing;

#[path = "lineup_url_tests.rs"]
mod url;
