//! Pages that merchants read: how far one looks, what is said where many are asked for, and how many long ones stay in memory at once.

use countersign_domain::ids::TenantNo;

use super::App;
use super::concurrency_limit::{ConcurrencyLimit, ConcurrencyPermit};

/// Orders that are looked at for a merchant's page of one status. Less than of an operator's list: a merchant's program may ask as often as its rate allows.
pub const LOOKED_MAX: u32 = 1_000;

/// What somebody is told whose list waited for too long for the others of its application.
pub const CROWDED: &str = "other lists of this application are being read; ask for one after the other";

/// A page is long where what it holds comes to more, in bytes.
const LONG_BYTES: usize = 64 * 1024;
/// So many long pages stay in memory at once until their callers have read them, and so many of an institution with its sub-accounts, or of a plain merchant; the
/// longest are somewhat over 1 MiB.
const LONG_PAGES_MAX: usize = 128;
const LONG_PAGES_EACH: usize = 16;

/// The places of long pages.
pub fn places() -> ConcurrencyLimit {
    ConcurrencyLimit::new(LONG_PAGES_EACH, LONG_PAGES_MAX, "long pages")
}

/// A place for the page, if the page is long. Where no place is free the page is cut to a length that needs none. The page keeps at least one of its
/// items, so that a client that reads on comes to the end.
pub fn with_room<T>(
    app: &App,
    of: TenantNo,
    page: &mut Vec<T>,
    bytes_of: impl Fn(&T) -> usize,
) -> Option<Box<ConcurrencyPermit>> {
    let mut bytes = 0;
    let is_short = |item: &&T| {
        bytes += bytes_of(item);
        bytes <= LONG_BYTES
    };
    let short = page.iter().take_while(is_short).count();
    if short == page.len() {
        return None;
    }
    let place = app.long_pages.take(&of.0.to_string()).ok().map(Box::new);
    if place.is_none() {
        page.truncate(short.max(1));
    }
    place
}
