//! Whose rows are read at once, and whose alone: of several that are read together nobody knows at whom the read failed.

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::{EventRow, Portion};

use super::{Lineup, READY_BYTES_MAX, Stands};
use crate::dispatch::place_in_lineup::{PORTION_MIN, Place};
use crate::dispatch::{FAULT_MS, STORE_PAUSE_MS};

/// Applications that are read at once: at first, and while what is read is small.
pub(super) const READ_APPLICATIONS_FIRST: usize = 2;
pub(super) const READ_APPLICATIONS_MAX: usize = 16;
/// Bytes of one read, about, as far as those of the read before it tell.
pub(super) const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Rows that a read of several applications asks for beyond those in memory, unless the least portion of each is more.
const READ_ROWS_MAX: usize = 16 * PORTION_MIN;

/// How the reads of all applications went.
#[derive(Debug)]
pub(super) struct Reads {
    /// So many applications are read at once.
    pub(super) reach: usize,
    /// Reads that went well.
    well: u64,
}

impl Default for Reads {
    fn default() -> Self {
        Self { reach: READ_APPLICATIONS_FIRST, well: 0 }
    }
}

/// The last read of an application has failed: the next one is of nobody else.
#[derive(Clone, Copy, Debug)]
pub(in crate::dispatch) struct Unread {
    /// After a read of it alone it was looked at again so much later; 0: the read was of several applications, and it need not be this one's fault.
    rest_ms: i64,
    /// Reads of all applications that had gone well by then.
    well: u64,
}

impl Lineup {
    /// Takes out those whose rows are read next.
    pub(super) fn portion(&mut self, now: UnixMillis) -> Option<Portion> {
        let is_unread =
            |(_, of): &(TenantNo, ApplicationNo)| self.places.get(of).is_some_and(|place| place.unread.is_some());
        let together = match self.reading.iter().position(is_unread) {
            Some(first) => first.max(1),
            None => self.reading.len(),
        };
        let left = self.reading.split_off(together);
        let mut of = std::mem::replace(&mut self.reading, left);
        if of.is_empty() {
            return None;
        }
        of.sort_unstable_by_key(|(_, application)| *application);
        for (_, application) in &of {
            if let Some(place) = self.places.get_mut(application) {
                place.unpark(now);
            }
        }
        let places = || of.iter().filter_map(|(_, application)| self.places.get(application));
        let known = places().flat_map(Place::known).collect();
        let limit = places().map(Place::portion).min().unwrap_or(0).min(self.portion_max(of.len()));
        Some(Portion { of, known, limit: u32::try_from(limit).unwrap_or(u32::MAX) })
    }

    /// Rows that are read of each of so many applications at the most, beyond those in memory.
    fn portion_max(&self, applications: usize) -> usize {
        let is_filled = self.ready_bytes >= READY_BYTES_MAX / 2;
        if is_filled { PORTION_MIN } else { (READ_ROWS_MAX / applications.max(1)).max(PORTION_MIN) }
    }

    /// A read of these went well, and found so many bytes.
    pub(super) fn was_read(&mut self, asked: &[(TenantNo, ApplicationNo)], rows: &[EventRow]) {
        self.reads.well += 1;
        self.reads.reach = reach_after(self.reads.reach, asked.len(), rows.iter().map(super::bytes_of).sum());
        for (_, application) in asked {
            if let Some(place) = self.places.get_mut(application) {
                place.unread = None;
            }
        }
    }

    /// A read failed: these applications are looked at again later, each by itself. One that fails again and again, while others are read, rests for
    /// longer and longer: so long, if it does.
    pub(in crate::dispatch) fn unread(&mut self, asked: &[(TenantNo, ApplicationNo)], now: UnixMillis) -> Option<i64> {
        let (well, is_one) = (self.reads.well, asked.len() == 1);
        let mut rest_ms = STORE_PAUSE_MS;
        for (tenant, application) in asked {
            if let Some(place) = self.places.get_mut(application) {
                place.stands = Stands::Out;
                let again = place.unread.filter(|before| is_one && before.rest_ms > 0 && before.well < well);
                rest_ms = again.map_or(STORE_PAUSE_MS, |before| (before.rest_ms * 2).min(FAULT_MS));
                place.unread = Some(Unread { rest_ms: if is_one { rest_ms } else { 0 }, well });
                if again.is_some() {
                    place.rest(now.plus_ms(rest_ms));
                }
            }
            self.note(*tenant, *application, now.plus_ms(rest_ms));
        }
        (rest_ms > STORE_PAUSE_MS).then_some(rest_ms)
    }
}

/// How many applications are read at once, after a read of so many has found so many bytes.
pub(super) fn reach_after(reach: usize, read: usize, bytes: usize) -> usize {
    if bytes > READ_BYTES_MAX {
        (read.saturating_mul(READ_BYTES_MAX) / bytes).max(1)
    } else if bytes < READ_BYTES_MAX / 4 {
        (reach * 2).min(READ_APPLICATIONS_MAX)
    } else {
        reach
    }
}
