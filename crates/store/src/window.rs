//! Nonces that cannot be forgotten yet, in memory: a sharded set of keyed 128-bit hashes.
//!
//! Invariant: an entry stamped after the horizon stays until the horizon passes it; nothing else removes a used one.
//! Invariant: the horizon is read under the shard's lock, so that no request can slip in between "too old" and "forgotten".

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::contract::{ClaimKey, Claimed};

/// Locks to spread requests over. A power of two.
const SHARDS: usize = 64;

/// The hash of one nonce of one application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimHash {
    spread: u64,
    rest: u64,
}

impl ClaimHash {
    pub(crate) const fn from_bytes(bytes: [u8; 16]) -> Self {
        let value = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
        let spread = value as u64;
        Self { spread, rest: (value >> 64) as u64 }
    }

    /// The keyed hash of an application's nonce. The timestamp is no part of it.
    pub(crate) fn of(key: &[u8; 16], claim: &ClaimKey) -> Self {
        let mut hasher = SipHasher13::new_with_key(key);
        hasher.write(&claim.application.0.to_le_bytes());
        hasher.write(claim.nonce.as_bytes());
        Self::from_bytes(hasher.finish128().as_bytes())
    }

    pub(crate) const fn to_bytes(self) -> [u8; 16] {
        ((self.spread as u128) | ((self.rest as u128) << 64)).to_le_bytes()
    }
}

impl Hash for ClaimHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.spread);
    }
}

/// The keys are keyed hashes already: they need no second one.
#[derive(Debug, Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// How far a nonce has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A request has it and works.
    Reserved,
    /// It is on its way into the journal.
    Settling,
    /// It is used up.
    Used,
}

/// A nonce's timestamp and stage, in one word: the window holds millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held(i64);

/// Two bits are the stage's.
const STAMP_MAX: i64 = i64::MAX >> 2;

impl Held {
    fn new(stamped_at: i64, stage: Stage) -> Self {
        let bits = match stage {
            Stage::Reserved => 0,
            Stage::Settling => 1,
            Stage::Used => 2,
        };
        Self((stamped_at.clamp(-STAMP_MAX, STAMP_MAX) << 2) | bits)
    }

    const fn stamped_at(self) -> i64 {
        self.0 >> 2
    }

    const fn stage(self) -> Stage {
        match self.0 & 3 {
            0 => Stage::Reserved,
            1 => Stage::Settling,
            _ => Stage::Used,
        }
    }
}

type Shard = HashMap<ClaimHash, Held, BuildHasherDefault<AsItIs>>;

/// What a look at the window says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It was not known, or only reserved where that does not count, and is the caller's now.
    Taken,
    /// It is known.
    Used,
    /// At or before the horizon.
    TooOld,
    /// From before a reboot, and not known to be used.
    Unknowable,
}

impl From<Seen> for Claimed {
    fn from(seen: Seen) -> Self {
        match seen {
            Seen::Taken => Self::Fresh,
            Seen::Used => Self::Used,
            Seen::TooOld => Self::TooOld,
            Seen::Unknowable => Self::Unknowable,
        }
    }
}

/// How to undo a claim whose transaction was rolled back.
#[derive(Debug)]
pub(crate) struct Undo {
    hash: ClaimHash,
    before: Option<Held>,
}

/// The window.
pub(crate) struct Window {
    shards: [Mutex<Shard>; SHARDS],
    horizon: AtomicI64,
    /// Requests stamped at or before it may have been used in ways that a reboot forgot.
    unknowable_through: i64,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Window").field("horizon", &self.horizon).finish_non_exhaustive()
    }
}

impl Window {
    pub(crate) fn new(horizon: i64, unknowable_through: i64) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), horizon: AtomicI64::new(horizon), unknowable_through }
    }

    /// What is stamped up to here and not known cannot be told from a replay: more than was thought at first.
    pub(crate) fn hold_back(&mut self, through: i64) {
        self.unknowable_through = self.unknowable_through.max(through);
    }

    fn shard(&self, hash: ClaimHash) -> MutexGuard<'_, Shard> {
        let at = usize::try_from(hash.rest % SHARDS as u64).unwrap_or(0);
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a nonce. One that was used at or before the horizon is forgotten, though it may not be removed yet.
    fn known(&self, shard: &Shard, hash: ClaimHash) -> Option<Held> {
        shard.get(&hash).copied().filter(|held| !self.is_forgotten(*held))
    }

    fn is_forgotten(&self, held: Held) -> bool {
        held.stage() == Stage::Used && held.stamped_at() <= self.horizon()
    }

    /// Why a nonce that is not in the window cannot be given out.
    fn unseen(&self, stamped_at: i64) -> Option<Seen> {
        (stamped_at <= self.unknowable_through).then_some(Seen::Unknowable)
    }

    /// Puts back what was known before this process began.
    pub(crate) fn recall(&self, hash: ClaimHash, stamped_at: i64) {
        if stamped_at > self.horizon() {
            self.shard(hash).insert(hash, Held::new(stamped_at, Stage::Used));
        }
    }

    /// What is stamped up to here and not known cannot be told from a replay.
    pub(crate) const fn unknowable_through(&self) -> i64 {
        self.unknowable_through
    }

    pub(crate) fn horizon(&self) -> i64 {
        self.horizon.load(Ordering::SeqCst)
    }

    /// The timestamp with which a nonce is known.
    pub(crate) fn first_stamped(&self, hash: ClaimHash) -> Option<i64> {
        self.known(&self.shard(hash), hash).map(Held::stamped_at)
    }

    /// Takes a nonce for a request that begins.
    pub(crate) fn reserve(&self, hash: ClaimHash, stamped_at: i64) -> Seen {
        let mut shard = self.shard(hash);
        if stamped_at <= self.horizon() {
            return Seen::TooOld;
        }
        match shard.entry(hash) {
            Entry::Occupied(held) if !self.is_forgotten(*held.get()) => Seen::Used,
            entry => self.unseen(stamped_at).unwrap_or_else(|| {
                entry.insert_entry(Held::new(stamped_at, Stage::Reserved));
                Seen::Taken
            }),
        }
    }

    /// Begins to settle: of two at once only one goes on. End with [`Window::settled`] or [`Window::unsettled`].
    pub(crate) fn settling(&self, hash: ClaimHash, stamped_at: i64) -> Seen {
        let mut shard = self.shard(hash);
        if stamped_at <= self.horizon() {
            return Seen::TooOld;
        }
        let settling = Held::new(stamped_at, Stage::Settling);
        let refused = match shard.entry(hash) {
            Entry::Occupied(mut held) if !self.is_forgotten(*held.get()) => match held.get().stage() {
                Stage::Settling | Stage::Used => Some(Seen::Used),
                Stage::Reserved => {
                    held.insert(settling);
                    None
                }
            },
            entry => self.unseen(stamped_at).or_else(|| {
                entry.insert_entry(settling);
                None
            }),
        };
        refused.unwrap_or(Seen::Taken)
    }

    /// The journal has it.
    pub(crate) fn settled(&self, hash: ClaimHash, stamped_at: i64) {
        self.shard(hash).insert(hash, Held::new(stamped_at, Stage::Used));
    }

    /// The journal could not take it: it is as if only reserved.
    pub(crate) fn unsettled(&self, hash: ClaimHash, stamped_at: i64) {
        self.shard(hash).insert(hash, Held::new(stamped_at, Stage::Reserved));
    }

    /// Gives back a reservation.
    pub(crate) fn release(&self, hash: ClaimHash, stamped_at: i64) {
        let mut shard = self.shard(hash);
        if shard.get(&hash) == Some(&Held::new(stamped_at, Stage::Reserved)) {
            shard.remove(&hash);
        }
    }

    /// Knows nothing of a nonce any more: somebody else knows better.
    pub(crate) fn disown(&self, hash: ClaimHash, stamped_at: i64) {
        let mut shard = self.shard(hash);
        if shard.get(&hash).is_some_and(|held| held.stamped_at() == stamped_at) {
            shard.remove(&hash);
        }
    }

    /// Claims a nonce for a batch: a reservation does not count. `Ok` is how to undo it.
    pub(crate) fn claim(&self, hash: ClaimHash, stamped_at: i64) -> Result<Undo, Seen> {
        let mut shard = self.shard(hash);
        if stamped_at <= self.horizon() {
            return Err(Seen::TooOld);
        }
        let before = shard.get(&hash).copied();
        match self.known(&shard, hash).map(Held::stage) {
            Some(Stage::Settling | Stage::Used) => return Err(Seen::Used),
            None => {
                if let Some(refused) = self.unseen(stamped_at) {
                    return Err(refused);
                }
            }
            Some(Stage::Reserved) => {}
        }
        shard.insert(hash, Held::new(stamped_at, Stage::Used));
        Ok(Undo { hash, before })
    }

    /// Undoes a claim.
    pub(crate) fn undo(&self, undo: &Undo) {
        let mut shard = self.shard(undo.hash);
        match undo.before {
            Some(held) => shard.insert(undo.hash, held),
            None => shard.remove(&undo.hash),
        };
    }

    /// The largest timestamp of what is known here that lies at or before `horizon`: nothing newer than this would be forgotten by it.
    pub(crate) fn newest_through(&self, horizon: i64) -> Option<i64> {
        let newest = |shard: &Mutex<Shard>| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.values().map(|held| held.stamped_at()).filter(|stamped_at| *stamped_at <= horizon).max()
        };
        self.shards.iter().filter_map(newest).max()
    }

    /// From now on what is stamped at or before `horizon` is too old. The horizon must be durable already.
    pub(crate) fn raise_horizon(&self, horizon: i64) {
        self.horizon.fetch_max(horizon, Ordering::SeqCst);
    }

    /// Forgets what is too old.
    pub(crate) fn forget(&self) {
        let horizon = self.horizon();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.retain(|_, held| held.stamped_at() > horizon);
            if shard.capacity() > 4 * shard.len().max(64) {
                shard.shrink_to_fit();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_that_is_on_its_way_into_the_journal_is_nobody_elses() {
        let (window, hash) = (Window::new(0, 0), ClaimHash::from_bytes([7; 16]));
        assert_eq!(window.reserve(hash, 5), Seen::Taken);
        assert_eq!(window.settling(hash, 5), Seen::Taken);
        assert_eq!(window.settling(hash, 5), Seen::Used);
        assert!(matches!(window.claim(hash, 5), Err(Seen::Used)));
        window.release(hash, 5);
        assert_eq!(window.reserve(hash, 5), Seen::Used);
        window.unsettled(hash, 5);
        assert_eq!(window.settling(hash, 5), Seen::Taken, "the journal could not take it");
        window.settled(hash, 5);
        assert_eq!(window.settling(hash, 5), Seen::Used);
    }

    #[test]
    fn a_reservation_is_given_back_by_its_own_request_only() {
        let (window, hash) = (Window::new(0, 0), ClaimHash::from_bytes([7; 16]));
        assert_eq!(window.reserve(hash, 5), Seen::Taken);
        window.release(hash, 6);
        assert_eq!(window.reserve(hash, 6), Seen::Used);
        window.release(hash, 5);
        assert_eq!(window.reserve(hash, 6), Seen::Taken);
    }
}
