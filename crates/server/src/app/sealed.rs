//! Keys of the deployment's own that are kept in settings, sealed under the master key.
//!
//! Each is 32 random bytes. A setting holds the id of the master key that sealed it, a colon, and hexadecimal.

use countersign_store::{AnyStore, Store as _, StoreError};
use zeroize::Zeroizing;

use crate::chance::{Chance, hex, unhex};
use crate::vault::{CHAIN_KEY_ROW, EVIDENCE_KEY_ROW, Vault, VaultError};

/// Bytes of a key.
pub const SEALED_KEY_BYTES: usize = 32;

/// A key and the setting that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedKey {
    /// The name of the setting.
    pub setting: &'static str,
    /// What binds what is sealed to it.
    row: &'static str,
    /// What the audit log calls sealing it again.
    pub rewrapped: &'static str,
}

/// The key of the audit log's chain.
pub const CHAIN: SealedKey =
    SealedKey { setting: "audit_chain_key", row: CHAIN_KEY_ROW, rewrapped: "master_key.rewrap_chain_key" };
/// The key that signs evidence.
pub const EVIDENCE: SealedKey =
    SealedKey { setting: "evidence_key", row: EVIDENCE_KEY_ROW, rewrapped: "master_key.rewrap_evidence_key" };
/// All of them: a re-wrap seals each again.
pub const ALL: [SealedKey; 2] = [CHAIN, EVIDENCE];

impl SealedKey {
    fn unreadable(&self) -> StoreError {
        StoreError::Corrupt { table: "setting", row: self.setting.to_owned() }
    }

    fn parts<'s>(&self, stored: &'s str) -> Result<(&'s str, Vec<u8>), StoreError> {
        let (key_id, sealed) = stored.split_once(':').ok_or_else(|| self.unreadable())?;
        Ok((key_id, unhex(sealed).ok_or_else(|| self.unreadable())?))
    }

    /// A new key, the id of the master key that it is sealed under, and what the setting shall hold.
    pub fn make(&self, vault: &Vault, chance: &Chance) -> (Zeroizing<[u8; SEALED_KEY_BYTES]>, String, String) {
        let mut key = Zeroizing::new([0; SEALED_KEY_BYTES]);
        chance.fill(key.as_mut_slice());
        let (key_id, setting) = self.seal(vault, chance, &key);
        (key, key_id, setting)
    }

    /// The id of the master key that a key is sealed under, and what the setting shall hold.
    fn seal(&self, vault: &Vault, chance: &Chance, key: &[u8; SEALED_KEY_BYTES]) -> (String, String) {
        let (key_id, sealed) = vault.seal(chance, self.row, key);
        let setting = format!("{key_id}:{}", hex(&sealed));
        (key_id, setting)
    }

    /// What the setting shall hold for the same key where something rests on nobody else having done so: no key is sealed the same way twice.
    pub fn anew(&self, vault: &Vault, chance: &Chance, stored: &str) -> Result<String, StoreError> {
        let key = self.open(vault, stored)?;
        Ok(self.seal(vault, chance, &key).1)
    }

    /// The key that a setting holds.
    pub fn open(&self, vault: &Vault, stored: &str) -> Result<Zeroizing<[u8; SEALED_KEY_BYTES]>, StoreError> {
        let (key_id, sealed) = self.parts(stored)?;
        let plain = vault.open(key_id, self.row, &sealed).map_err(|error| match error {
            VaultError::DoesNotOpen => self.unreadable(),
            VaultError::NoSuchKey(_) => StoreError::Unavailable(error.to_string()),
        })?;
        let key = <[u8; SEALED_KEY_BYTES]>::try_from(plain.as_slice());
        key.map(Zeroizing::new).map_err(|_| self.unreadable())
    }

    /// The key of a deployment; none: it has none yet.
    pub async fn read(
        &self,
        vault: &Vault,
        store: &AnyStore,
    ) -> Result<Option<Zeroizing<[u8; SEALED_KEY_BYTES]>>, StoreError> {
        let Some(stored) = store.setting(self.setting).await? else { return Ok(None) };
        self.open(vault, &stored).map(Some)
    }

    /// The setting with the key sealed under the current master key; none where it is already.
    pub fn again(&self, vault: &Vault, chance: &Chance, stored: &str) -> Result<Option<String>, StoreError> {
        if self.parts(stored)?.0 == vault.key_id() {
            return Ok(None);
        }
        let key = self.open(vault, stored)?;
        let sealed = vault.seal_under_current(chance, self.row, key.as_slice());
        Ok(Some(format!("{}:{}", vault.key_id(), hex(&sealed))))
    }

    /// The id of the master key that what a setting holds is sealed under.
    pub fn key_id<'s>(&self, stored: &'s str) -> Result<&'s str, StoreError> {
        self.parts(stored).map(|(key_id, _)| key_id)
    }

    /// The id of the master key that it is sealed under; none: there is no such key.
    pub async fn sealed_under(&self, store: &AnyStore) -> Result<Option<String>, StoreError> {
        let Some(stored) = store.setting(self.setting).await? else { return Ok(None) };
        Ok(Some(self.parts(&stored)?.0.to_owned()))
    }
}
