//! Payment API Secrets become keys here, and nowhere else in the SDK.

use std::convert::Infallible;
use std::fmt;

use countersign_protocol::signing::SigningKey;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::error::Error as CallError;

/// Fewest characters of a secret. Those that the service makes have more.
pub const SECRET_CHARS_MIN: usize = 32;
/// What every secret of the service begins with.
const SECRET_PREFIX: &str = "sk_";
/// What every ClientId of the service begins with.
const CLIENT_ID_PREFIX: &str = "app_";

/// A Payment API Secret. Kept as a signing key only, prints as nothing; the text that it was made of is wiped.
#[derive(Clone)]
pub struct Secret(SigningKey);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a text cannot be a Payment API Secret. The text itself is never repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SecretRefused {
    /// Nothing but white space and U+0000.
    #[error("the secret is empty, and with an empty one anybody can sign: is the variable set that it comes from?")]
    Empty,
    /// A ClientId.
    #[error("the secret begins with app_, as ClientIds do: give the ClientId where it belongs, and the secret here")]
    ClientId,
    /// The name of a variable.
    #[error("the secret is a variable's name in ${{...}}: have its value put in place of it")]
    Placeholder,
    /// White space, a control character or an invisible one, anywhere.
    #[error(
        "the secret has a character in it that cannot be seen, as the line feed that a file ends with: cut it off, nothing is trimmed"
    )]
    Invisible,
    /// Fewer than 32 characters.
    #[error("the secret has fewer than {SECRET_CHARS_MIN} characters: take it whole, as it was shown when it was made")]
    TooShort,
}

impl Secret {
    /// A secret as the service makes it. Refuses what can be none.
    pub fn new(text: impl Into<String>) -> Result<Self, SecretRefused> {
        let text = Zeroizing::new(text.into());
        check(&text)?;
        Ok(Self(SigningKey::new(text.as_bytes())))
    }

    /// A secret of any form, for test vectors and for tools that judge it themselves: only an empty one is refused.
    pub fn of_any_form(text: impl Into<String>) -> Result<Self, SecretRefused> {
        let text = Zeroizing::new(text.into());
        check_not_empty(&text)?;
        Ok(Self(SigningKey::new(text.as_bytes())))
    }

    pub(crate) fn into_key(self) -> SigningKey {
        self.0
    }
}

/// HMAC fills a short key up with zeros: one of nothing but U+0000 is the empty key.
fn check_not_empty(text: &str) -> Result<(), SecretRefused> {
    if text.chars().all(|c| c == '\0' || c.is_whitespace()) { Err(SecretRefused::Empty) } else { Ok(()) }
}

fn check(text: &str) -> Result<(), SecretRefused> {
    check_not_empty(text)?;
    if text.trim().starts_with(CLIENT_ID_PREFIX) {
        return Err(SecretRefused::ClientId);
    }
    if text.contains("${") {
        return Err(SecretRefused::Placeholder);
    }
    if text.chars().any(is_invisible) {
        return Err(SecretRefused::Invisible);
    }
    if text.chars().count() < SECRET_CHARS_MIN { Err(SecretRefused::TooShort) } else { Ok(()) }
}

fn is_invisible(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

/// Whether a text that shall be public is a secret.
pub(crate) fn is_like_one(text: &str) -> bool {
    text.trim().starts_with(SECRET_PREFIX)
}

impl TryFrom<String> for Secret {
    type Error = SecretRefused;

    fn try_from(text: String) -> Result<Self, SecretRefused> {
        Self::new(text)
    }
}

impl TryFrom<&String> for Secret {
    type Error = SecretRefused;

    fn try_from(text: &String) -> Result<Self, SecretRefused> {
        Self::new(text.as_str())
    }
}

impl TryFrom<&str> for Secret {
    type Error = SecretRefused;

    fn try_from(text: &str) -> Result<Self, SecretRefused> {
        Self::new(text)
    }
}

/// What is a [`Secret`] already is not refused.
impl From<Infallible> for SecretRefused {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<SecretRefused> for CallError {
    fn from(refused: SecretRefused) -> Self {
        Self::Usage(refused.to_string())
    }
}
