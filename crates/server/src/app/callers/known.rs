//! An application as it was last read, and its keys.

use std::fmt;
use std::sync::Arc;

use countersign_domain::time::UnixMillis;
use countersign_protocol::signing::SigningKey;
use countersign_store::contract::{ApplicationRow, MerchantRow};
use governor::DefaultDirectRateLimiter;

use super::{Refused, SignatureRefusal};
use crate::app::uses::Tally;

/// A secret, opened and ready to sign.
pub struct LiveKey {
    /// Its public id.
    pub secret_id: String,
    /// The HMAC key context.
    pub key: SigningKey,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it ends.
    pub not_after: Option<UnixMillis>,
    /// Whether it was chosen to sign callbacks.
    pub signs_callbacks: bool,
    /// How often requests were signed with it.
    pub(super) tally: Arc<Tally>,
}

impl fmt::Debug for LiveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveKey").field("secret_id", &self.secret_id).finish_non_exhaustive()
    }
}

impl LiveKey {
    pub(super) fn is_live(&self, now: UnixMillis) -> bool {
        self.not_after.is_none_or(|end| now < end)
    }
}

/// Which of an application's live secrets, newest first, signs its callbacks: the one that was chosen, or the newest.
pub fn signs_callbacks<T>(mut live: impl Iterator<Item = T> + Clone, is_chosen: impl Fn(&T) -> bool) -> Option<T> {
    live.clone().find(is_chosen).or_else(|| live.next())
}

/// An application as it was last read, ready to verify its requests.
#[derive(Debug)]
pub struct KnownApplication {
    /// Its row.
    pub application: ApplicationRow,
    /// Its merchant.
    pub merchant: MerchantRow,
    /// The public id of its tenant.
    pub tenant_id: String,
    /// Whether requests are accepted: neither it is disabled, nor its merchant, nor the institution over that.
    pub is_enabled: bool,
    /// Whether callbacks go out; else its events are held.
    pub goes_out: bool,
    /// Its secrets that are not revoked, newest first.
    pub keys: Vec<LiveKey>,
    /// Before this instant it is to be read again: a secret was left out that had ended by the clock of the time, and that lives where the clock
    /// has gone back since.
    pub(super) holds_from: UnixMillis,
    pub(super) limiter: Option<Arc<DefaultDirectRateLimiter>>,
}

/// What signs a callback.
#[derive(Debug)]
pub struct CallbackKeys<'a> {
    /// Signs; none: deliveries wait.
    pub signing: Option<&'a LiveKey>,
    /// The other one during an overlap.
    pub next: Option<&'a LiveKey>,
}

impl KnownApplication {
    /// The keys of callbacks at `now`: the chosen one, or the newest live one where that has ended; beside it the newest other one.
    pub fn callback_keys(&self, now: UnixMillis) -> CallbackKeys<'_> {
        let live = self.keys.iter().filter(move |k| k.is_live(now));
        let signing = signs_callbacks(live.clone(), |k| k.signs_callbacks);
        let next = live.clone().find(|k| signing.is_some_and(|s| s.secret_id != k.secret_id));
        CallbackKeys { signing, next }
    }

    /// Who of its own is disabled, the nearest one.
    pub(super) fn disabled(&self) -> Refused {
        let merchant = &self.merchant;
        let (why, merchant_id) = if !self.application.enabled {
            (SignatureRefusal::Disabled, &merchant.merchant_id)
        } else if !merchant.enabled {
            (SignatureRefusal::MerchantDisabled, &merchant.merchant_id)
        } else {
            (SignatureRefusal::InstitutionDisabled, &self.tenant_id)
        };
        Refused { why, merchant_id: merchant_id.clone() }
    }

    /// Whether one more request fits the application's rate. `Err`: seconds until one does.
    pub fn within_rate(&self) -> Result<(), u64> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        limiter.check().map_err(|until| {
            use governor::clock::{Clock, DefaultClock};
            until.wait_time_from(DefaultClock::default().now()).as_secs() + 1
        })
    }
}
