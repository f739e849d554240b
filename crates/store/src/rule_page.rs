//! An institution's list of rules, made of its sub-accounts and their heads; the same for every store.

use countersign_domain::rules::{self, Markup, RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;

use crate::contract::{RuleFilter, RulePage, RuleRecord};

/// Collects one page. Feed it the sub-accounts in the order of their public ids.
#[derive(Debug)]
pub(crate) struct RulePageBuilder<'a> {
    filter: &'a RuleFilter,
    now: UnixMillis,
    skip: u64,
    limit: usize,
    page: RulePage,
}

impl<'a> RulePageBuilder<'a> {
    pub(crate) fn new(filter: &'a RuleFilter, now: UnixMillis, offset: u64, limit: u32) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { filter, now, skip: offset, limit, page: RulePage { records: Vec::new(), total: 0 } }
    }

    /// Adds what a sub-account shows: the version in force, the pending one, or that it has neither.
    pub(crate) fn add(&mut self, sub_merchant_id: &str, head: Option<&RuleHead>) {
        // A clock that is behind, or was set back, must not make a version pending that was answered as effective.
        let now = head.map_or(self.now, |h| self.now.max(h.last.created_at));
        let in_force = head.and_then(|h| rules::in_force(h, now));
        let pending = head.and_then(|h| rules::pending(h, now));
        let markup = in_force.map(|version| version.markup);
        for (version, is_pending) in [(in_force, false), (pending, true)] {
            if let Some(version) = version {
                self.record(sub_merchant_id, Some(version), is_pending, markup);
            }
        }
        if in_force.is_none() && pending.is_none() {
            self.record(sub_merchant_id, None, false, None);
        }
    }

    pub(crate) fn finish(self) -> RulePage {
        self.page
    }

    fn record(
        &mut self,
        sub_merchant_id: &str,
        version: Option<&RuleVersion>,
        is_pending: bool,
        in_force: Option<Markup>,
    ) {
        let wanted = self.filter.sub_merchant_id.as_deref().is_none_or(|id| id == sub_merchant_id)
            && self.filter.has_markup.is_none_or(|has| has == version.is_some())
            && self.filter.pending.is_none_or(|pending| version.is_some() && pending == is_pending);
        if !wanted {
            return;
        }
        self.page.total += 1;
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.page.records.len() < self.limit {
            let sub_merchant_id = sub_merchant_id.to_owned();
            self.page.records.push(RuleRecord { sub_merchant_id, version: version.cloned(), is_pending, in_force });
        }
    }
}
