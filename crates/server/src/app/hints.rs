//! What this node remembers of fee rules, so that a change of one needs no read where a read is a round trip.
//!
//! Invariant: nothing that is remembered here is ever told to anybody. A change decided on it commits only if the store's guard finds the
//! rule head as remembered; a refusal decided on it is decided again on what the store says.
//!
//! A guess that is wrong costs a transaction that commits nothing, a read would have cost far less. So a head that another node has moved
//! is read each time, until nobody else has been seen moving it for a while.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use countersign_domain::ids::{MerchantNo, TenantNo};
use countersign_domain::rules::RuleHead;
use countersign_domain::time::UnixMillis;

const SHARDS: usize = 16;
/// Entries kept per shard; beyond, the shard starts anew.
const SHARD_ENTRIES_MAX: usize = 4_096;
/// How long the head of a rule that others moved is not guessed, in ms.
const SHARED_MS: i64 = 10_000;

/// A sub-account as it can never change: its number and its institution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubAccount {
    /// The institution.
    pub tenant: TenantNo,
    /// The sub-account.
    pub no: MerchantNo,
}

/// A map of bounded size; which entries it loses is nobody's business.
#[derive(Debug)]
struct Bounded<K, V> {
    shards: [Mutex<HashMap<K, V>>; SHARDS],
    hasher: RandomState,
}

impl<K: std::hash::Hash + Eq, V: Clone> Bounded<K, V> {
    fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }

    fn shard<Q: std::hash::Hash + ?Sized>(&self, key: &Q) -> &Mutex<HashMap<K, V>> {
        let at = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        &self.shards[at]
    }

    fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: std::hash::Hash + Eq + ?Sized,
    {
        self.shard(key).lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn put(&self, key: K, value: V) {
        let mut shard = self.shard(&key).lock().unwrap_or_else(PoisonError::into_inner);
        if shard.len() >= SHARD_ENTRIES_MAX && !shard.contains_key(&key) {
            shard.clear();
        }
        shard.insert(key, value);
    }
}

/// What is known of a rule head.
#[derive(Clone, Debug)]
enum Head {
    /// As this node last saw it.
    Seen(Box<RuleHead>),
    /// Others move it too; not guessed before this instant.
    Shared(UnixMillis),
}

/// Sub-accounts and rule heads that this node has seen.
#[derive(Debug)]
pub struct Hints {
    sub_accounts: Bounded<Box<str>, SubAccount>,
    heads: Bounded<i64, Head>,
}

impl Default for Hints {
    fn default() -> Self {
        Self { sub_accounts: Bounded::new(), heads: Bounded::new() }
    }
}

impl Hints {
    /// A sub-account that was seen. One that was not may be there all the same.
    pub fn sub_account(&self, sub_merchant_id: &str) -> Option<SubAccount> {
        self.sub_accounts.get(sub_merchant_id)
    }

    /// Remembers a sub-account that is there.
    pub fn saw_sub_account(&self, sub_merchant_id: &str, found: SubAccount) {
        self.sub_accounts.put(sub_merchant_id.into(), found);
    }

    /// A sub-account's rule head as this node last saw it; others may have moved it since.
    pub fn head(&self, of: MerchantNo) -> Option<RuleHead> {
        match self.heads.get(&of.0)? {
            Head::Seen(head) => Some(*head),
            Head::Shared(_) => None,
        }
    }

    /// Remembers a head that is in the store, unless others were lately seen moving it.
    pub fn saw_head(&self, of: MerchantNo, head: RuleHead, now: UnixMillis) {
        if !matches!(self.heads.get(&of.0), Some(Head::Shared(until)) if now < until) {
            self.heads.put(of.0, Head::Seen(Box::new(head)));
        }
    }

    /// Remembers that a head was not as this node remembered it.
    pub fn moved_by_others(&self, of: MerchantNo, now: UnixMillis) {
        self.heads.put(of.0, Head::Shared(UnixMillis(now.0.saturating_add(SHARED_MS))));
    }
}

#[cfg(test)]
mod tests {
    use countersign_domain::ids::SortedId;
    use countersign_domain::rules::{Markup, RuleVersion};

    use super::*;

    fn head() -> RuleHead {
        let version = RuleVersion {
            config_id: SortedId(7),
            version_no: 1,
            previous: None,
            base_version_no: None,
            markup: Markup::new(rust_decimal::Decimal::ONE, rust_decimal::Decimal::ZERO).expect("in range"),
            effective_at: UnixMillis(1),
            due_at: None,
            created_at: UnixMillis(1),
        };
        RuleHead::moved(None, version)
    }

    #[test]
    fn a_head_that_others_move_is_not_guessed_until_they_have_been_quiet_for_a_while() {
        let (hints, of) = (Hints::default(), MerchantNo(3));
        hints.saw_head(of, head(), UnixMillis(0));
        assert!(hints.head(of).is_some());
        hints.moved_by_others(of, UnixMillis(100));
        hints.saw_head(of, head(), UnixMillis(100 + SHARED_MS - 1));
        assert!(hints.head(of).is_none(), "others moved it a moment ago");
        hints.saw_head(of, head(), UnixMillis(100 + SHARED_MS));
        assert!(hints.head(of).is_some(), "nobody else did for a while");
    }
}
