//! Lanes, sets of them, and how they are shared out.

use countersign_domain::ids::ApplicationNo;
use countersign_domain::lanes::{LANES, Lane, LaneSet, fair_share};
use proptest::prelude::*;

#[test]
fn there_are_64_lanes_and_a_set_holds_each() {
    assert_eq!(Lane::all().count(), usize::from(LANES));
    assert_eq!(Lane::all().collect::<LaneSet>(), LaneSet::ALL);
    assert_eq!(LaneSet::ALL.len(), u32::from(LANES));
    assert!(Lane::new(LANES).is_none() && LaneSet::NONE.is_empty());
    for lane in Lane::all() {
        let one = LaneSet::NONE.with(lane);
        assert!(one.contains(lane) && one.len() == 1 && one.meets(LaneSet::ALL) && !one.meets(LaneSet::NONE));
        assert!(one.lanes().eq([lane]));
    }
}

#[test]
fn the_fair_shares_of_all_nodes_cover_every_lane() {
    assert_eq!([0, 1, 2, 3, 64, 65].map(fair_share), [64, 64, 32, 22, 1, 1]);
    for nodes in 1..200 {
        assert!(fair_share(nodes) * nodes >= u32::from(LANES));
        assert!((fair_share(nodes) - 1) * nodes < u32::from(LANES), "{nodes} nodes could all hold less");
    }
}

proptest! {
    #[test]
    fn an_application_has_one_lane_whatever_its_number(no in any::<i64>()) {
        let lane = Lane::of(ApplicationNo(no));
        prop_assert_eq!(i64::from(lane.get()), no.rem_euclid(64));
        prop_assert_eq!(Lane::new(lane.get()), Some(lane));
    }
}
