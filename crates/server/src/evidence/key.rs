//! The deployment's Ed25519 key.

use std::fmt;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::chance::{hex, unhex};

/// Bytes of a key, private or public.
pub const KEY_BYTES: usize = 32;
/// Bytes of a signature.
pub const SIGNATURE_BYTES: usize = 64;

/// What signs evidence. Blind in `Debug`.
pub struct SigningKey(Ed25519KeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

impl SigningKey {
    /// Of 32 random bytes.
    pub fn new(seed: &Zeroizing<[u8; KEY_BYTES]>) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(seed.as_slice()).expect("32 bytes are an Ed25519 seed"))
    }

    /// What others check its signatures with.
    pub fn public(&self) -> PublicKey {
        let bytes = self.0.public_key().as_ref().try_into().expect("an Ed25519 public key has 32 bytes");
        PublicKey(bytes)
    }

    /// Signs a text.
    pub fn sign(&self, text: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.0.sign(text).as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

/// What evidence is checked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// Reads 64 hex digits, or 44 characters of Base64.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let bytes = if text.len() == 2 * KEY_BYTES { unhex(text) } else { STANDARD.decode(text).ok() };
        bytes?.try_into().ok().map(Self)
    }

    /// 64 lower-case hex digits.
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// A short name of it: 16 hex digits.
    pub fn id(self) -> String {
        let labelled = [&b"countersign evidence key id\n"[..], &self.0].concat();
        hex(&digest::digest(&digest::SHA256, &labelled).as_ref()[..8])
    }

    /// Whether it signed this text so.
    pub fn has_signed(self, text: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0[..]).verify(text, signature).is_ok()
    }
}
