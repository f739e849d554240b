//! Who calls: applications with their keys, kept ready, and the proof that a request is theirs.
//!
//! Read-through: an application is read from the store once and kept. A refusal always reads the application once more, so that a change made
//! elsewhere is seen. A refusal also costs the same for every ClientId, be there such an application, kept or not, or none: one look-up in memory, one
//! in the store (of another application where the ClientId has none), [`HMACS_PER_REFUSAL`] HMACs, and [`LIVE_SECRETS_MAX`] sealed secrets opened.
//!
//! Invariant: where other nodes change the same applications, nothing is accepted by what is kept unless a look at the directory of changes
//! began less than [`FRESH`] ago at which this node was listed. Without one, the store is asked for every request. So what was disabled or
//! revoked anywhere is refused here within a second, also by a process that was stopped meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use countersign_domain::ids::{MerchantNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_protocol::headers::SignedHeaders;
use countersign_protocol::signing::{SigningKey, decode_signature};
use countersign_store::Store;
use countersign_store::contract::{ApplicationView, SecretRow, StoreError};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::App;
use super::error::AppError;
use super::uses::Uses;
use crate::chance::Chance;
use crate::vault::{Vault, VaultError, secret_row};

mod existing_clients;
mod known;
mod proof;

use existing_clients::ExistingClients;
pub use known::{CallbackKeys, KnownApplication, LiveKey, signs_callbacks};
pub use proof::{Ask, Authenticated, Cost, Refused, SignatureRefusal};

/// The most live secrets that an application can have.
pub const LIVE_SECRETS_MAX: usize = 3;
/// What every refused signature costs, known or not.
pub const HMACS_PER_REFUSAL: usize = LIVE_SECRETS_MAX;

/// How long a look at the directory of changes is good for.
pub const FRESH: Duration = Duration::from_millis(900);
/// Nobody else changes anything: what is kept is always good.
const ALWAYS: u64 = u64::MAX;

/// A secret that has ended so long ago is left shut: few clocks go back that far, and then the application is read again.
const ENDED_FOR_GOOD_MS: i64 = 60_000;
/// As long as a Payment API Secret is.
const SECRET_BYTES: usize = 67;
/// The row that the sealed decoy secret is bound to; there is no such row.
const DECOY_ROW: &str = "nobody";

const SHARDS: usize = 16;
/// Applications kept per shard; beyond, the shard starts anew.
const SHARD_ENTRIES_MAX: usize = 8_192;

#[derive(Default)]
struct Entries {
    known: HashMap<Box<str>, Arc<KnownApplication>>,
    /// Rates and their buckets: they outlive what is known, so that no change of an application fills its bucket up.
    limiters: HashMap<Box<str>, (u32, Arc<DefaultDirectRateLimiter>)>,
    /// Grows with each change of an application of this shard.
    changes: u64,
}

type Shard = RwLock<Entries>;

/// The applications seen so far.
pub struct Callers {
    shards: [Shard; SHARDS],
    hasher: RandomState,
    /// Which ClientIds there are.
    existing: ExistingClients,
    /// Checks signatures where an application has no key, so that each refusal costs the same.
    decoy_key: SigningKey,
    /// Is opened where an application has no sealed secret: the id of the key that it is sealed under, and the sealed secret.
    decoy_secret: (String, Vec<u8>),
    began: Instant,
    /// Until when what is kept may be believed, in ms after `began`.
    fresh_until: AtomicU64,
}

impl fmt::Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

impl Callers {
    /// No application seen yet. The decoys are drawn from `chance` and sealed by `vault`. `is_shared`: other nodes change the same applications,
    /// and somebody calls [`Callers::checked`].
    pub fn new(chance: &Chance, vault: &Vault, is_shared: bool) -> Self {
        let mut decoy = [0; SECRET_BYTES];
        chance.fill(&mut decoy);
        let sealed = vault.seal_under_current(chance, DECOY_ROW, &decoy);
        Self {
            decoy_secret: (vault.key_id().to_owned(), sealed),
            began: Instant::now(),
            fresh_until: AtomicU64::new(if is_shared { 0 } else { ALWAYS }),
            shards: std::array::from_fn(|_| RwLock::default()),
            hasher: RandomState::new(),
            existing: ExistingClients::default(),
            decoy_key: SigningKey::new(&decoy),
        }
    }

    /// Notes an application that was made: it is read before its first request, which may come from an address that has used its budget up.
    pub fn made(&self, client_id: &str) {
        self.forget(client_id);
        self.existing.want(client_id);
    }

    /// Forgets an application, after any change of it or its secrets. One that was kept is read again beside.
    pub fn forget(&self, client_id: &str) {
        self.existing.add(client_id);
        let mut shard = self.shard(client_id).write().unwrap_or_else(PoisonError::into_inner);
        shard.changes += 1;
        let was_kept = shard.known.remove(client_id).is_some();
        drop(shard);
        if was_kept {
            self.existing.want(client_id);
        }
    }

    /// Forgets the applications of a tenant, or of one of its merchants, after a change of that. Those that were kept are read again beside: their ClientIds.
    pub fn forget_of(&self, tenant: TenantNo, merchant: Option<MerchantNo>) -> Vec<Box<str>> {
        let mut forgotten = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.changes += 1;
            shard.known.retain(|client_id, known| {
                let row = &known.application;
                let stays = row.tenant != tenant || merchant.is_some_and(|merchant| merchant != row.merchant);
                if !stays {
                    self.existing.want(client_id);
                    forgotten.push(client_id.clone());
                }
                stays
            });
        }
        forgotten
    }

    /// The bucket of an application, of two seconds' worth: the same one as long as its rate is; none where the rate is 0.
    fn limiter(&self, client_id: &str, rate: u32) -> Option<Arc<DefaultDirectRateLimiter>> {
        let mut shard = self.shard(client_id).write().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, limiter)) = shard.limiters.get(client_id).filter(|(kept, _)| *kept == rate) {
            return Some(limiter.clone());
        }
        let per_second = NonZeroU32::new(rate)?;
        let burst = NonZeroU32::new(rate.saturating_mul(2))?;
        let limiter = Arc::new(RateLimiter::direct(Quota::per_second(per_second).allow_burst(burst)));
        if shard.limiters.len() >= SHARD_ENTRIES_MAX {
            shard.limiters.retain(|_, (_, limiter)| Arc::strong_count(limiter) > 1);
        }
        shard.limiters.insert(client_id.into(), (rate, limiter.clone()));
        Some(limiter)
    }

    /// Forgets every application.
    pub fn forget_all(&self) {
        self.existing.learn_again();
        for shard in &self.shards {
            let mut shard = shard.write().unwrap_or_else(PoisonError::into_inner);
            shard.changes += 1;
            shard.known.clear();
        }
    }

    /// A look at the directory of changes that began then has found nothing that is not forgotten by now.
    pub fn checked(&self, began: Instant) {
        let until = began.saturating_duration_since(self.began) + FRESH;
        self.fresh_until.fetch_max(u64::try_from(until.as_millis()).unwrap_or(ALWAYS - 1), Ordering::Release);
    }

    /// Ask before looking at what is kept, and [`Callers::is_still`] when the decision is made.
    fn freshness(&self) -> u64 {
        self.fresh_until.load(Ordering::Acquire)
    }

    /// Whether what was looked at after `freshness` may still be believed: it must not have ended, and no other look at the changes may
    /// have come in between, which might have forgotten just this.
    fn is_still(&self, freshness: u64) -> bool {
        self.is_still_at(Instant::now(), freshness)
    }

    fn is_still_at(&self, now: Instant, freshness: u64) -> bool {
        let since = now.saturating_duration_since(self.began).as_millis();
        freshness == ALWAYS || freshness == self.freshness() && u64::try_from(since).is_ok_and(|now| now < freshness)
    }

    fn changes(&self, client_id: &str) -> u64 {
        self.shard(client_id).read().unwrap_or_else(PoisonError::into_inner).changes
    }

    /// Whether a request of this application is answered without reading it.
    pub fn keeps(&self, client_id: &str) -> bool {
        self.get(client_id).is_some()
    }

    fn get(&self, client_id: &str) -> Option<Arc<KnownApplication>> {
        self.shard(client_id).read().unwrap_or_else(PoisonError::into_inner).known.get(client_id).cloned()
    }

    /// What is kept of it, as far as that is all there is to know at `now`.
    fn get_at(&self, client_id: &str, now: UnixMillis) -> Option<Arc<KnownApplication>> {
        self.get(client_id).filter(|known| known.holds_from <= now)
    }

    /// Keeps what was read after [`Callers::changes`] said `changes`; where it has changed since, a slower reader would bring an
    /// older state back, and a revoked secret with it.
    fn keep(&self, known: &Arc<KnownApplication>, changes: u64) {
        let client_id = known.application.client_id.as_str();
        self.existing.add(client_id);
        let mut shard = self.shard(client_id).write().unwrap_or_else(PoisonError::into_inner);
        if shard.changes != changes {
            return;
        }
        if shard.known.len() >= SHARD_ENTRIES_MAX {
            shard.known.clear();
        }
        let newer = shard.known.get(client_id).is_some_and(|k| k.application.revision > known.application.revision);
        if !newer {
            shard.known.insert(client_id.into(), known.clone());
        }
    }

    fn shard(&self, client_id: &str) -> &Shard {
        let index = usize::try_from(self.hasher.hash_one(client_id) % SHARDS as u64).unwrap_or(0);
        &self.shards[index]
    }
}

impl App {
    /// An application by its ClientId, kept after the first read.
    pub async fn known_application(&self, client_id: &str) -> Result<Option<Arc<KnownApplication>>, AppError> {
        let freshness = self.callers.freshness();
        let Some(known) = self.callers.get_at(client_id, self.clock.now()) else {
            return self.read_application(client_id, None).await;
        };
        if self.callers.is_still(freshness)
            || self.store.application_revision(client_id).await? == Some(known.application.revision)
        {
            return Ok(Some(known));
        }
        self.read_application(client_id, Some(&known)).await
    }

    /// Whether `headers` and `body` carry the signature of the application that they name. `is_unproved` is set before the store is asked for one whose
    /// signature nothing that is kept has proved: for whoever has to know it where this is cut off.
    pub async fn authenticate(
        &self,
        headers: &SignedHeaders<'_>,
        body: &[u8],
        now: UnixMillis,
        ask: Ask,
        is_unproved: &AtomicBool,
    ) -> Result<Authenticated, AppError> {
        let claimed = decode_signature(headers.signature);
        let mut check = Check { headers, body, now, claimed: claimed.as_ref(), cost: Cost::default(), proof: 0 };
        let freshness = self.callers.freshness();
        let kept = self.callers.get_at(headers.client_id, now);
        let is_proved = kept.as_ref().is_some_and(|known| check.proves(known));
        if let Some(known) = kept.as_ref().filter(|_| is_proved) {
            if self.callers.is_still(freshness)
                || self.store.application_revision(headers.client_id).await? == Some(known.application.revision)
            {
                return Ok(check.proved(known));
            }
        } else if ask == Ask::Nobody {
            check.add_decoy_hmacs(&self.callers.decoy_key);
            if kept.is_none() {
                self.callers.existing.want(headers.client_id);
            }
            return Ok(Authenticated::NotLookedUp);
        }
        is_unproved.store(!is_proved, Ordering::Relaxed);
        // Whole, also where it is kept and nothing has changed: that costs what the first read of one that exists does.
        let read = self.read_application(headers.client_id, kept.as_ref()).await?;
        check.cost.look_ups += 1;
        let is_kept = |known: &Arc<KnownApplication>| kept.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, known));
        if let Some(known) = &read {
            check.cost.opened += if is_kept(known) { 0 } else { known.keys.len() };
            if if is_kept(known) { is_proved } else { check.proves(known) } {
                return Ok(check.proved(known));
            }
        }
        check.add_decoy_hmacs(&self.callers.decoy_key);
        self.open_decoys(&mut check.cost);
        let refused = match &read {
            None => Refused { why: SignatureRefusal::UnknownClient, merchant_id: String::new() },
            Some(known) if !known.is_enabled => known.disabled(),
            Some(_) => {
                let is_read = claimed.is_some();
                let why =
                    if is_read { SignatureRefusal::WrongSignature } else { SignatureRefusal::UnreadableSignature };
                Refused { why, merchant_id: String::new() }
            }
        };
        Ok(Authenticated::No(refused, check.cost))
    }

    /// Opens the decoy secret until as many secrets were opened as an application may have.
    fn open_decoys(&self, cost: &mut Cost) {
        let (key_id, sealed) = &self.callers.decoy_secret;
        while cost.opened < LIVE_SECRETS_MAX {
            cost.opened += 1;
            std::hint::black_box(
                self.vault.open(key_id, DECOY_ROW, sealed).map(|secret| SigningKey::new(&secret)).ok(),
            );
        }
    }

    /// Reads an application and keeps it, unless the one that is kept already is the same.
    async fn read_application(
        &self,
        client_id: &str,
        kept: Option<&Arc<KnownApplication>>,
    ) -> Result<Option<Arc<KnownApplication>>, AppError> {
        let changes = self.callers.changes(client_id);
        let Some(view) = self.store.application(client_id).await? else { return Ok(None) };
        if let Some(kept) = kept
            && kept.application.revision == view.application.revision
        {
            return Ok(Some(kept.clone()));
        }
        let known = Arc::new(self.ready(view)?);
        self.callers.keep(&known, changes);
        Ok(Some(known))
    }

    fn ready(&self, view: ApplicationView) -> Result<KnownApplication, AppError> {
        let (is_enabled, goes_out) = (view.is_enabled(), view.goes_out());
        let ApplicationView { application, merchant, tenant_id, secrets, .. } = view;
        let ended = self.clock.now().plus_ms(-ENDED_FOR_GOOD_MS);
        let (secrets, long_ended): (Vec<_>, Vec<_>) = secrets
            .into_iter()
            .filter(|s| s.revoked_at.is_none())
            .partition(|s| s.not_after.is_none_or(|end| ended < end));
        let holds_from = if long_ended.is_empty() { UnixMillis(i64::MIN) } else { ended };
        let keys = secrets
            .into_iter()
            .map(|s| open(&self.vault, &self.uses, &application.client_id, s))
            .collect::<Result<Vec<_>, _>>()?;
        let rate = application.rate_limit_per_s.unwrap_or(self.policy.rate_limit_per_s);
        let limiter = self.callers.limiter(&application.client_id, rate);
        Ok(KnownApplication { application, merchant, tenant_id, is_enabled, goes_out, keys, holds_from, limiter })
    }
}

fn open(vault: &Vault, uses: &Uses, client_id: &str, row: SecretRow) -> Result<LiveKey, StoreError> {
    let opened = vault.open(&row.key_id, &secret_row(client_id, &row.secret_id), &row.sealed);
    let secret = opened.map_err(|error| match error {
        VaultError::DoesNotOpen => StoreError::Corrupt { table: "secret", row: row.secret_id.clone() },
        // The row is good: this node lacks a key. Another one may have it.
        VaultError::NoSuchKey(_) => StoreError::Unavailable(error.to_string()),
    })?;
    Ok(LiveKey {
        key: SigningKey::new(&secret),
        tally: uses.tally(&row.secret_id),
        secret_id: row.secret_id,
        created_at: row.created_at,
        not_after: row.not_after,
        signs_callbacks: row.signs_callbacks,
    })
}

/// One request's proof, and what it has cost so far.
struct Check<'a> {
    headers: &'a SignedHeaders<'a>,
    body: &'a [u8],
    now: UnixMillis,
    claimed: Option<&'a [u8; 64]>,
    cost: Cost,
    /// Which of the application's keys it was.
    proof: usize,
}

impl Check<'_> {
    fn proves(&mut self, known: &KnownApplication) -> bool {
        if !known.is_enabled {
            return false;
        }
        let now = self.now;
        let mut live = known.keys.iter().enumerate().filter(|(_, k)| k.is_live(now)).take(LIVE_SECRETS_MAX);
        let Some((proof, _)) = live.find(|(_, k)| self.holds(&k.key)) else { return false };
        self.proof = proof;
        true
    }

    /// It is this application's request, as [`Check::proves`] has found: one more use of that key.
    fn proved(&self, known: &Arc<KnownApplication>) -> Authenticated {
        if let Some(key) = known.keys.get(self.proof) {
            key.tally.one_more(self.now);
        }
        Authenticated::Yes(known.clone())
    }

    fn holds(&mut self, key: &SigningKey) -> bool {
        self.cost.hmacs += 1;
        // A signature that does not decode is compared all the same: it must not be refused sooner than another.
        let claimed = self.claimed.unwrap_or(&[0; 64]);
        let right = key.verify(self.headers.timestamp, self.headers.nonce, self.body, claimed);
        right && self.claimed.is_some()
    }

    /// Checks the signature with the decoy key until a refusal has cost as many HMACs as every refusal costs.
    fn add_decoy_hmacs(&mut self, decoy: &SigningKey) {
        while self.cost.hmacs < HMACS_PER_REFUSAL {
            self.holds(decoy);
        }
    }
}

#[cfg(test)]
mod tests;
