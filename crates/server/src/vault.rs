//! Secrets at rest: sealed with AES-256-GCM under the deployment's master key.
//!
//! The associated data binds a sealed secret to its row, so a row that was swapped or edited fails closed.
//! No type here has a `Debug` or a `Display` that shows a key.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::chance::{Chance, hex};

/// Bytes of a master key.
pub const MASTER_KEY_BYTES: usize = 32;

/// One master key.
struct Key {
    aead: LessSafeKey,
    id: String,
}

/// The deployment's master keys in use: one, and while secrets are sealed again under another one, that which it takes the place of.
pub struct Vault {
    current: Key,
    previous: Option<Key>,
    /// Whether new secrets are sealed under the previous key still: the database says which.
    seals_with_previous: AtomicBool,
}

/// Why a sealed secret stays shut.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VaultError {
    /// Not made by this key for this row, or changed since.
    #[error("a sealed secret does not open with its master key: it is not what was written there")]
    DoesNotOpen,
    /// Sealed under a master key that is not here.
    #[error("a secret is sealed under the master key {0}, which this node was not given")]
    NoSuchKey(String),
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let previous = self.previous.as_ref().map(|key| &key.id);
        f.debug_struct("Vault").field("key_id", &self.current.id).field("previous", &previous).finish_non_exhaustive()
    }
}

impl Key {
    fn new(master: &Zeroizing<[u8; MASTER_KEY_BYTES]>) -> Self {
        let unbound = UnboundKey::new(&AES_256_GCM, master.as_slice()).expect("32 bytes are an AES-256 key");
        let mut labelled = Zeroizing::new(b"countersign master key id\n".to_vec());
        labelled.extend_from_slice(master.as_slice());
        let id = digest::digest(&digest::SHA256, &labelled);
        Self { aead: LessSafeKey::new(unbound), id: hex(&id.as_ref()[..8]) }
    }
}

impl Vault {
    /// Takes a master key of 32 bytes into use.
    pub fn new(master: &Zeroizing<[u8; MASTER_KEY_BYTES]>) -> Self {
        Self { current: Key::new(master), previous: None, seals_with_previous: AtomicBool::new(false) }
    }

    /// Also opens what is sealed under the key that this one takes the place of.
    #[must_use]
    pub fn with_previous(self, previous: &Zeroizing<[u8; MASTER_KEY_BYTES]>) -> Self {
        let previous = Some(Key::new(previous)).filter(|previous| previous.id != self.current.id);
        Self { previous, ..self }
    }

    /// Which key this is: 16 hex digits that tell nothing about it.
    pub fn key_id(&self) -> &str {
        &self.current.id
    }

    /// The id of the key that it takes the place of.
    pub fn previous_id(&self) -> Option<&str> {
        self.previous.as_ref().map(|key| key.id.as_str())
    }

    /// Whether this key is here.
    pub fn knows(&self, key_id: &str) -> bool {
        self.key(key_id).is_some()
    }

    fn key(&self, key_id: &str) -> Option<&Key> {
        [Some(&self.current), self.previous.as_ref()].into_iter().flatten().find(|key| key.id == key_id)
    }

    /// From here on new secrets are sealed under this key, if it is here.
    pub fn seal_with(&self, key_id: &str) {
        self.seals_with_previous.store(self.previous_id() == Some(key_id), Ordering::Release);
    }

    fn sealing(&self) -> &Key {
        let previous = self.previous.as_ref().filter(|_| self.seals_with_previous.load(Ordering::Acquire));
        previous.unwrap_or(&self.current)
    }

    /// The id of the key that new secrets are sealed under.
    pub fn sealing_id(&self) -> &str {
        &self.sealing().id
    }

    /// Seals `plain` for the row that `row` names; says under which key. 96 random bits of nonce: good for 2^32 secrets per key.
    pub fn seal(&self, chance: &Chance, row: &str, plain: &[u8]) -> (String, Vec<u8>) {
        let key = self.sealing();
        (key.id.clone(), seal(key, chance, row, plain))
    }

    /// The same under the current key, whatever new secrets are sealed under.
    pub fn seal_under_current(&self, chance: &Chance, row: &str, plain: &[u8]) -> Vec<u8> {
        seal(&self.current, chance, row, plain)
    }

    /// Opens what was sealed under this key for the same row.
    pub fn open(&self, key_id: &str, row: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let key = self.key(key_id).ok_or_else(|| VaultError::NoSuchKey(key_id.to_owned()))?;
        let (nonce, inside) = sealed.split_at_checked(NONCE_LEN).ok_or(VaultError::DoesNotOpen)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| VaultError::DoesNotOpen)?;
        let mut inside = Zeroizing::new(inside.to_vec());
        let length = key
            .aead
            .open_in_place(nonce, Aad::from(row.as_bytes()), &mut inside)
            .map_err(|_| VaultError::DoesNotOpen)?
            .len();
        inside.truncate(length);
        Ok(inside)
    }
}

fn seal(key: &Key, chance: &Chance, row: &str, plain: &[u8]) -> Vec<u8> {
    let mut nonce = [0; NONCE_LEN];
    chance.fill(&mut nonce);
    let mut inside = Zeroizing::new(plain.to_vec());
    let tag = key
        .aead
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(row.as_bytes()), &mut inside)
        .expect("a secret is far shorter than what AES-GCM can seal");
    [&nonce[..], &inside[..], tag.as_ref()].concat()
}

/// What binds a sealed Payment API Secret to its row.
pub fn secret_row(client_id: &str, secret_id: &str) -> String {
    format!("payment-api-secret\n{client_id}\n{secret_id}")
}

/// What binds the sealed key of the audit log's chain to its setting.
pub const CHAIN_KEY_ROW: &str = "audit-chain-key";
/// What binds the sealed key that signs evidence to its setting.
pub const EVIDENCE_KEY_ROW: &str = "evidence-key";

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Zeroizing<[u8; MASTER_KEY_BYTES]> {
        Zeroizing::new([byte; MASTER_KEY_BYTES])
    }

    #[test]
    fn what_is_sealed_opens_in_its_own_row_and_unchanged_only() {
        let (vault, chance) = (Vault::new(&key(1)), Chance::default());
        let (id, sealed) = vault.seal(&chance, "row one", b"secret");
        assert_eq!(*vault.open(&id, "row one", &sealed).expect("opens"), b"secret");
        assert_eq!(vault.open(&id, "row two", &sealed), Err(VaultError::DoesNotOpen));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(vault.open(&id, "row one", &changed), Err(VaultError::DoesNotOpen), "byte {at}");
        }
        for cut in [&sealed[..0], &sealed[..11], &sealed[..sealed.len() - 1]] {
            assert_eq!(vault.open(&id, "row one", cut), Err(VaultError::DoesNotOpen));
        }
    }

    #[test]
    fn a_vault_opens_with_both_keys_and_seals_with_the_one_that_it_is_told() {
        let chance = Chance::default();
        let old = Vault::new(&key(1));
        let both = Vault::new(&key(2)).with_previous(&key(1));
        let (old_id, sealed) = old.seal(&chance, "r", b"s");
        assert_eq!(*both.open(&old_id, "r", &sealed).expect("opens"), b"s");
        assert_eq!(both.sealing_id(), both.key_id());
        both.seal_with(&old_id);
        let (id, by_both) = both.seal(&chance, "r", b"t");
        assert_eq!((id.as_str(), both.sealing_id()), (old.key_id(), old.key_id()));
        assert_eq!(*old.open(&id, "r", &by_both).expect("opens"), b"t");
        both.seal_with(both.key_id());
        let (id, by_both) = both.seal(&chance, "r", b"u");
        assert_eq!(old.open(&id, "r", &by_both), Err(VaultError::NoSuchKey(both.key_id().to_owned())));
        assert_eq!(old.open(old.key_id(), "r", &by_both), Err(VaultError::DoesNotOpen), "the id is not what opens it");
    }

    #[test]
    fn the_same_key_twice_is_one_key() {
        let vault = Vault::new(&key(1)).with_previous(&key(1));
        assert_eq!(vault.previous_id(), None);
        assert!(!format!("{vault:?}").contains("0101"));
    }
}
