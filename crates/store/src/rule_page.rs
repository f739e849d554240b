//! An institution's list of rules, made of its sub-accounts and their heads; the same for every store.

use countersign_domain::rules::{self, Markup, RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;

/// One record of an institution's list of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleRecord {
    /// The sub-account's public id.
    pub sub_merchant_id: String,
    /// Its rule.
    pub rule: ListedRule,
}

/// The rule of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedRule {
    /// The sub-account has neither a version in force nor a pending one.
    None,
    /// The version in force.
    InForce(RuleVersion),
    /// A pending version.
    Pending {
        /// The version.
        version: RuleVersion,
        /// What the version in force adds to the base rate; none where none is in force.
        in_force: Option<Markup>,
    },
}

impl ListedRule {
    /// The version in force, or the pending one.
    pub const fn version(&self) -> Option<&RuleVersion> {
        match self {
            Self::None => None,
            Self::InForce(version) | Self::Pending { version, .. } => Some(version),
        }
    }

    /// How that version stands.
    pub const fn standing(&self) -> Option<RuleStanding> {
        match self {
            Self::None => None,
            Self::InForce(_) => Some(RuleStanding::InForce),
            Self::Pending { .. } => Some(RuleStanding::Pending),
        }
    }

    /// What is added to the base rate now.
    pub const fn markup_in_force(&self) -> Option<Markup> {
        match self {
            Self::None => None,
            Self::InForce(version) => Some(version.markup),
            Self::Pending { in_force, .. } => *in_force,
        }
    }
}

/// How a version in a list stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleStanding {
    /// In force.
    InForce,
    /// Its time has not come.
    Pending,
}

/// What to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFilter {
    /// Only records with, or without, a markup.
    pub has_markup: Option<bool>,
    /// Only versions that stand so.
    pub standing: Option<RuleStanding>,
    /// Only this sub-account.
    pub sub_merchant_id: Option<String>,
}

/// A page of a numbered list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePage {
    /// The records of the page.
    pub records: Vec<RuleRecord>,
    /// How many there are in all.
    pub total: i64,
}

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
        if in_force.is_none() && pending.is_none() {
            self.record(sub_merchant_id, ListedRule::None);
        }
        if let Some(version) = in_force {
            self.record(sub_merchant_id, ListedRule::InForce(version.clone()));
        }
        if let Some(version) = pending {
            let (version, in_force) = (version.clone(), in_force.map(|version| version.markup));
            self.record(sub_merchant_id, ListedRule::Pending { version, in_force });
        }
    }

    pub(crate) fn finish(self) -> RulePage {
        self.page
    }

    fn record(&mut self, sub_merchant_id: &str, rule: ListedRule) {
        let wanted = self.filter.sub_merchant_id.as_deref().is_none_or(|id| id == sub_merchant_id)
            && self.filter.has_markup.is_none_or(|has| has == rule.version().is_some())
            && self.filter.standing.is_none_or(|standing| rule.standing() == Some(standing));
        if !wanted {
            return;
        }
        self.page.total += 1;
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.page.records.len() < self.limit {
            self.page.records.push(RuleRecord { sub_merchant_id: sub_merchant_id.to_owned(), rule });
        }
    }
}
