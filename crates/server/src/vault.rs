//! Secrets at rest: sealed with AES-256-GCM under the deployment's master key.
//!
//! The associated data binds a sealed secret to its row, so a row that was swapped or edited fails closed.
//! No type here has a `Debug` or a `Display` that shows a key.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::chance::{Chance, hex};

/// Bytes of a master key.
pub const MASTER_KEY_BYTES: usize = 32;

/// The deployment's master key in use.
pub struct Vault {
    key: LessSafeKey,
    key_id: String,
}

/// Why a sealed secret stays shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum VaultError {
    /// Not made by this key for this row, or changed since.
    #[error("a sealed secret does not open with this master key")]
    DoesNotOpen,
}

impl fmt::Debug for Vault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

impl Vault {
    /// Takes a master key of 32 bytes into use.
    pub fn new(master: &Zeroizing<[u8; MASTER_KEY_BYTES]>) -> Self {
        let unbound = UnboundKey::new(&AES_256_GCM, master.as_slice()).expect("32 bytes are an AES-256 key");
        let mut labelled = Zeroizing::new(b"countersign master key id\n".to_vec());
        labelled.extend_from_slice(master.as_slice());
        let id = digest::digest(&digest::SHA256, &labelled);
        let key_id = hex(&id.as_ref()[..8]);
        Self { key: LessSafeKey::new(unbound), key_id }
    }

    /// Which key this is: 16 hex digits that tell nothing about it.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Seals `plain` for the row that `row` names. 96 random bits of nonce: good for 2^32 secrets per key.
    pub fn seal(&self, chance: &Chance, row: &str, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        chance.fill(&mut nonce);
        let mut inside = Zeroizing::new(plain.to_vec());
        let tag = self
            .key
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(row.as_bytes()), &mut inside)
            .expect("a secret is far shorter than what AES-GCM can seal");
        [&nonce[..], &inside[..], tag.as_ref()].concat()
    }

    /// Opens what `seal` made for the same row.
    pub fn open(&self, row: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let (nonce, inside) = sealed.split_at_checked(NONCE_LEN).ok_or(VaultError::DoesNotOpen)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| VaultError::DoesNotOpen)?;
        let mut inside = Zeroizing::new(inside.to_vec());
        let length = self
            .key
            .open_in_place(nonce, Aad::from(row.as_bytes()), &mut inside)
            .map_err(|_| VaultError::DoesNotOpen)?
            .len();
        inside.truncate(length);
        Ok(inside)
    }
}

/// What binds a sealed Payment API Secret to its row.
pub fn secret_row(client_id: &str, secret_id: &str) -> String {
    format!("payment-api-secret\n{client_id}\n{secret_id}")
}
