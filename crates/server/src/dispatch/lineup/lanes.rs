//! Which lanes are this node's: what is forgotten with a lane.

use countersign_domain::ids::ApplicationNo;
use countersign_domain::lanes::{Lane, LaneSet};

use super::Lineup;

impl Lineup {
    /// Forgets what is ready or left alone in other lanes than these; attempts in flight go on.
    pub(in crate::dispatch) fn keep_lanes(&mut self, lanes: LaneSet) {
        let is_other = |application: &ApplicationNo| !lanes.contains(Lane::of(*application));
        let others: Vec<ApplicationNo> = self.places.keys().filter(|a| is_other(a)).copied().collect();
        for application in others {
            self.drop_ready(application);
            if let Some(place) = self.places.get_mut(&application) {
                place.expect_nothing();
                place.unpark_all();
                // Their ends are seen elsewhere.
                self.awaited -= place.take_awaited().len();
            }
        }
        self.timetable.keep_lanes(lanes);
    }

    /// Lanes that this node has by now, lapsed or not. Of an endpoint in another one it forgets all that it knew, once nothing is in flight there:
    /// another node delivers to it, and knows better.
    pub(in crate::dispatch) fn has_lanes(&mut self, lanes: LaneSet) {
        for (application, place) in &mut self.places {
            place.is_lost = !lanes.contains(Lane::of(*application));
        }
        let lost: Vec<ApplicationNo> =
            self.places.iter().filter(|(_, place)| place.is_lost && !place.has_work()).map(|(of, _)| *of).collect();
        for application in lost {
            self.line_up(application);
        }
    }
}
