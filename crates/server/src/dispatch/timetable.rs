//! When to look at which application next: bookkeeping in memory, without IO and without a clock.

use std::collections::BTreeSet;

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::lanes::{Lane, LaneSet};
use countersign_domain::time::UnixMillis;
use foldhash::HashMap;

/// An application has one entry: the earliest of what was noted since it was taken.
#[derive(Debug, Default)]
pub(super) struct Timetable {
    at: HashMap<ApplicationNo, (UnixMillis, TenantNo)>,
    order: BTreeSet<(UnixMillis, ApplicationNo)>,
}

impl Timetable {
    /// Look at it then, or earlier where that was noted before.
    pub(super) fn note(&mut self, tenant: TenantNo, application: ApplicationNo, at: UnixMillis) {
        match self.at.get(&application) {
            Some((known, _)) if *known <= at => return,
            Some((known, _)) => {
                self.order.remove(&(*known, application));
            }
            None => {}
        }
        self.at.insert(application, (at, tenant));
        self.order.insert((at, application));
    }

    /// The first whose time has come; its entry is gone.
    pub(super) fn take(&mut self, now: UnixMillis) -> Option<(TenantNo, ApplicationNo)> {
        let (at, application) = *self.order.first().filter(|(at, _)| *at <= now)?;
        self.order.remove(&(at, application));
        self.at.remove(&application).map(|(_, tenant)| (tenant, application))
    }

    /// When the next look is due.
    pub(super) fn first(&self) -> Option<UnixMillis> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Forgets what is in other lanes than these.
    pub(super) fn keep_lanes(&mut self, lanes: LaneSet) {
        self.at.retain(|application, _| lanes.contains(Lane::of(*application)));
        self.order.retain(|(_, application)| lanes.contains(Lane::of(*application)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_note_of_an_application_counts_and_is_taken_once() {
        let (tenant, one, two) = (TenantNo(1), ApplicationNo(1), ApplicationNo(2));
        let mut table = Timetable::default();
        table.note(tenant, one, UnixMillis(30));
        table.note(tenant, one, UnixMillis(20));
        table.note(tenant, one, UnixMillis(40));
        table.note(tenant, two, UnixMillis(25));
        assert_eq!(table.first(), Some(UnixMillis(20)));
        assert_eq!(table.take(UnixMillis(19)), None);
        assert_eq!(table.take(UnixMillis(25)), Some((tenant, one)));
        assert_eq!(table.take(UnixMillis(25)), Some((tenant, two)));
        assert_eq!(table.take(UnixMillis(99)), None);
        assert_eq!(table.first(), None);
    }

    #[test]
    fn other_lanes_are_forgotten() {
        let mut table = Timetable::default();
        table.note(TenantNo(1), ApplicationNo(1), UnixMillis(1));
        table.note(TenantNo(1), ApplicationNo(2), UnixMillis(2));
        table.keep_lanes(LaneSet::NONE.with(Lane::of(ApplicationNo(2))));
        assert_eq!(table.take(UnixMillis(9)), Some((TenantNo(1), ApplicationNo(2))));
        assert_eq!(table.take(UnixMillis(9)), None);
    }
}
