//! Secrets in the clear: of tokens, of applications.

use std::fmt;

use zeroize::Zeroizing;

/// A secret in the clear, on its way to its owner. Shown once, wiped afterwards, blind in `Debug`.
pub struct PlainSecret(Zeroizing<String>);

impl PlainSecret {
    /// Takes a secret over.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PlainSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainSecret(..)")
    }
}
