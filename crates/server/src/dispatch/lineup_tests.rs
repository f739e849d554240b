use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{SortedId, TenantNo};

use super::*;

const NOW: UnixMillis = UnixMillis(1_000);

fn event(no: i64, application: i64, biz_id: &str) -> EventRow {
    EventRow {
        no: EventNo(no),
        tenant: TenantNo(1),
        application: ApplicationNo(application),
        client_id: format!("app_{application}"),
        event_id: SortedId(no.unsigned_abs().into()),
        seq: no,
        sequence: 1,
        biz_type: "PAYMENT_ORDER".to_owned(),
        biz_id: biz_id.to_owned(),
        biz_status: "SUCCESS".to_owned(),
        data: "{}".to_owned(),
        body: b"{}".to_vec(),
        created_at: NOW,
        state: DeliveryState::Pending,
        attempts: 0,
        due_at: Some(NOW),
    }
}

fn lineup(in_flight: usize, per_application: usize, ready_per_application: usize) -> Lineup {
    Lineup::new(Bounds { in_flight, per_application, ready_per_application })
}

fn offer(lineup: &mut Lineup, no: i64, application: i64) -> Offer {
    lineup.offer(event(no, application, "b"), NOW)
}

fn next(lineup: &mut Lineup) -> Option<i64> {
    lineup.next().map(|e| e.no.0)
}

#[test]
fn an_event_is_taken_once_until_it_lands() {
    let mut lineup = lineup(9, 9, 9);
    assert_eq!(offer(&mut lineup, 1, 1), Offer::Ready);
    assert_eq!(offer(&mut lineup, 1, 1), Offer::Known);
    assert_eq!(next(&mut lineup), Some(1));
    assert_eq!(offer(&mut lineup, 1, 1), Offer::Known);
    lineup.land(&Flight::of(&event(1, 1, "b")));
    assert_eq!((lineup.flights(), offer(&mut lineup, 1, 1)), (0, Offer::Ready));
}

#[test]
fn applications_take_turns_and_none_has_more_than_its_share() {
    let mut lineup = lineup(5, 2, 9);
    for no in 1..=4 {
        offer(&mut lineup, no, 1);
    }
    for no in 11..=14 {
        offer(&mut lineup, no, 2);
    }
    let began: Vec<_> = std::iter::from_fn(|| next(&mut lineup)).collect();
    assert_eq!(began, [1, 11, 2, 12]);
    offer(&mut lineup, 21, 3);
    assert_eq!(next(&mut lineup), Some(21));
    offer(&mut lineup, 22, 3);
    assert!(lineup.is_full());
    assert_eq!(next(&mut lineup), None);
    // A landing of application 2 makes room for 3, which is next in turn, not for 1, which has its share.
    lineup.land(&Flight::of(&event(11, 2, "b")));
    assert_eq!(next(&mut lineup), Some(13));
    lineup.land(&Flight::of(&event(13, 2, "b")));
    assert_eq!(next(&mut lineup), Some(22));
}

#[test]
fn no_more_than_the_bound_is_ready_for_one_application() {
    let mut lineup = lineup(9, 1, 2);
    assert_eq!([1, 2, 3].map(|no| offer(&mut lineup, no, 1)), [Offer::Ready, Offer::Ready, Offer::Full]);
    assert_eq!(offer(&mut lineup, 4, 2), Offer::Ready);
    assert_eq!((lineup.ready_of(ApplicationNo(1)), lineup.ready_of(ApplicationNo(2))), (2, 1));
    assert!(!lineup.has_enough());
}

#[test]
fn enough_is_ready_when_every_free_attempt_has_an_event() {
    let mut lineup = lineup(3, 2, 9);
    for no in 1..=9 {
        offer(&mut lineup, no, 1);
    }
    assert!(!lineup.has_enough(), "one application may use two of three");
    offer(&mut lineup, 10, 2);
    assert!(lineup.has_enough());
}

#[test]
fn a_parked_event_is_free_at_its_instant_or_when_its_neighbour_lands() {
    let mut lineup = lineup(9, 9, 9);
    for no in 1..=3 {
        offer(&mut lineup, no, 1);
        next(&mut lineup);
    }
    let until = NOW.plus_ms(10);
    lineup.park(&Flight::of(&event(2, 1, "b")), until);
    lineup.park(&Flight::of(&event(3, 1, "b")), until);
    assert_eq!(lineup.flights(), 1);
    assert_eq!([2, 3].map(|no| offer(&mut lineup, no, 1)), [Offer::Parked; 2]);
    assert_eq!(lineup.first_unparked_at(NOW), Some(until));
    assert!(!lineup.land(&Flight::of(&event(9, 1, "other"))), "another bizId frees nothing");
    assert!(lineup.land(&Flight::of(&event(1, 1, "b"))));
    assert_eq!(offer(&mut lineup, 2, 1), Offer::Ready);
    assert_eq!(next(&mut lineup), Some(2));
    lineup.park(&Flight::of(&event(2, 1, "b")), until);
    assert_eq!(lineup.offer(event(2, 1, "b"), until), Offer::Ready);
    assert_eq!(lineup.first_unparked_at(until), None);
}

#[test]
fn an_event_whose_neighbour_landed_while_it_looked_is_not_parked() {
    let mut lineup = lineup(9, 9, 9);
    for no in 1..=2 {
        offer(&mut lineup, no, 1);
        next(&mut lineup);
    }
    assert!(!lineup.land(&Flight::of(&event(1, 1, "b"))));
    assert!(lineup.park(&Flight::of(&event(2, 1, "b")), NOW.plus_ms(10)));
    assert_eq!(offer(&mut lineup, 2, 1), Offer::Ready);
}

#[test]
fn a_parked_application_is_left_alone_until_its_instant() {
    let mut lineup = lineup(9, 1, 9);
    for no in 1..=3 {
        offer(&mut lineup, no, 1);
    }
    assert_eq!(next(&mut lineup), Some(1));
    lineup.land(&Flight::of(&event(1, 1, "b")));
    let until = NOW.plus_ms(10);
    lineup.park_application(ApplicationNo(1), until);
    assert_eq!(next(&mut lineup), None);
    assert_eq!(offer(&mut lineup, 2, 1), Offer::Parked);
    assert_eq!(lineup.offer(event(2, 1, "b"), until), Offer::Ready);
    assert_eq!(offer(&mut lineup, 3, 1), Offer::Parked);
    lineup.drop_ready(ApplicationNo(1));
    assert_eq!(next(&mut lineup), None);
    assert_eq!(lineup.first_unparked_at(NOW), Some(until));
    assert_eq!(lineup.first_unparked_at(until), None);
    assert_eq!(lineup.offer(event(2, 1, "b"), until), Offer::Ready);
}

#[test]
fn what_is_ready_or_parked_in_a_lane_that_went_is_forgotten_and_what_is_in_flight_is_not() {
    let mut lineup = lineup(9, 9, 9);
    for (no, application) in [(1, 5), (2, 6), (3, 6), (4, 6 + 64)] {
        assert_eq!(offer(&mut lineup, no, application), Offer::Ready);
    }
    let flying = lineup.next().expect("the first of the first");
    assert_eq!(flying.no, EventNo(1));
    lineup.park_application(ApplicationNo(7), UnixMillis(9_000));
    lineup.keep_lanes(LaneSet::NONE.with(Lane::of(ApplicationNo(5))));
    assert_eq!((next(&mut lineup), lineup.flights()), (None, 1));
    assert_eq!(offer(&mut lineup, 1, 5), Offer::Known);
    assert_eq!(offer(&mut lineup, 2, 6), Offer::Ready, "if the lane comes back");
    assert_eq!(lineup.first_unparked_at(NOW), None);
}
