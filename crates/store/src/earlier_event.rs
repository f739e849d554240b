//! Where the earlier events of a bizId are looked for.

use countersign_domain::ids::time_ordered;

use crate::contract::EventRow;

/// Numbers are drawn before their event is committed, so an earlier event of the same bizId may have a number that is later by
/// about the time of a commit, in ms.
const NUMBER_SLACK_MS: i64 = 10_000;
/// Later numbers still that are looked at, from the latest down: those of a clock that was ahead are the latest, until it has passed them.
const LATEST_LOOKED_AT: i64 = 1_000;

/// Where the numbers of events lie that may come before this one of their bizId: from, up to, and how many are looked at from the latest down.
/// The likeliest place first.
pub(crate) const fn before(event: &EventRow) -> [(i64, i64, i64); 3] {
    let latest = time_ordered(event.created_at.plus_ms(NUMBER_SLACK_MS), 0);
    let later = if latest > event.no.0 { latest } else { event.no.0 };
    [(i64::MIN, event.no.0, i64::MAX), (event.no.0, later, i64::MAX), (later, i64::MAX, LATEST_LOOKED_AT)]
}

/// Events of a bizId up to this `sequence` are soon walked over.
const SOON_WALKED: i64 = 256;

/// Whether the look for an earlier event of the same bizId may take long, so that nobody else should wait behind it.
pub(crate) const fn may_walk_far(event: &EventRow) -> bool {
    event.sequence > SOON_WALKED
}

/// Where an earlier event is looked for first where the walk may be a long one: the nearest of a bizId. Most that are open are there.
pub(crate) const fn nearest(event: &EventRow) -> (i64, i64, i64) {
    (i64::MIN, event.no.0, SOON_WALKED)
}

/// Where no near one is open and the application has at most so many open deliveries, these are looked at in place of the events of the bizId: each
/// costs about what an event does that is walked over. So a bizId with many events that are over costs no callback of its own the more.
pub(crate) const fn few_open(event: &EventRow) -> i64 {
    const MOST: i64 = 10_000;
    if event.sequence < MOST { event.sequence } else { MOST }
}
