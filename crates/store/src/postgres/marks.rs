//! Numbers of a lane's transactions, each of which leaves its own: so the fate of one that nobody answered is found out.

use std::collections::HashMap;

/// Tenants whose last mark is known. Beyond, all are forgotten, and what one of them has left is looked for from the first mark on, once.
const TENANTS_MAX: usize = 10_000;

/// The marks of one lane, by tenant where each transaction is of one.
#[derive(Debug, Default)]
pub(super) struct Marks {
    last: i64,
    /// Of each tenant the number of the last transaction that is known to be done: the tenant has left no mark before this number.
    done: HashMap<i64, i64>,
}

impl Marks {
    /// The number of the transaction that begins.
    pub(super) const fn next(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    /// The number of the transaction that began last.
    pub(super) const fn last(&self) -> i64 {
        self.last
    }

    /// The number from which on a tenant may have marks.
    pub(super) fn from(&self, tenant: i64) -> i64 {
        self.done.get(&tenant).copied().unwrap_or(0)
    }

    /// The last transaction, of this tenant, is done, and with it the earlier marks are gone.
    pub(super) fn is_done(&mut self, tenant: i64) {
        if self.done.len() >= TENANTS_MAX && !self.done.contains_key(&tenant) {
            self.done.clear();
        }
        self.done.insert(tenant, self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_has_left_is_looked_for_from_its_last_mark_on() {
        let mut marks = Marks::default();
        for (tenant, from) in [(7, 0), (8, 0), (7, 1), (8, 2), (8, 4)] {
            marks.next();
            assert_eq!(marks.from(tenant), from, "{tenant}");
            marks.is_done(tenant);
        }
        marks.next();
        // Not done, as far as is known.
        assert_eq!((marks.next(), marks.from(7)), (7, 3));
    }

    #[test]
    fn so_many_tenants_are_known_and_no_more() {
        let mut marks = Marks::default();
        for tenant in 0..=i64::try_from(TENANTS_MAX).expect("small") {
            marks.next();
            marks.is_done(tenant);
            marks.is_done(0);
            assert!(marks.done.len() <= TENANTS_MAX);
        }
        assert_eq!(marks.from(1), 0, "it is looked for from the first on");
    }
}
