//! Payment API Secrets become keys here, and nowhere else in the SDK.

use countersign_protocol::signing::SigningKey;
use thiserror::Error;
use zeroize::Zeroizing;

/// A secret without a character that counts: empty, or nothing but white space and U+0000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the secret is empty, and with an empty one anybody can sign: is the variable set that it comes from?")]
pub struct EmptySecret;

/// The key of a secret, whose text is wiped afterwards.
pub(crate) fn key(secret: impl Into<String>) -> Result<SigningKey, EmptySecret> {
    let secret = Zeroizing::new(secret.into());
    // HMAC fills a short key up with zeros: one of nothing but U+0000 is the empty key.
    if secret.chars().all(|c| c == '\0' || c.is_whitespace()) {
        return Err(EmptySecret);
    }
    Ok(SigningKey::new(secret.as_bytes()))
}
