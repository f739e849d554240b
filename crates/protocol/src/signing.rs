//! What is signed, how, and how a signature is read.
//!
//! The signed text is `TIMESTAMP LF NONCE LF BODY LF` over the raw bytes; the last LF is there for an empty body too.
//! The key is the UTF-8 bytes of the secret as its owner sees it. HMAC-SHA512.

use std::fmt;

use aws_lc_rs::{constant_time, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Length of a signature in bytes.
pub const SIGNATURE_BYTES: usize = 64;
/// Length of a signature in hex digits.
pub const SIGNATURE_HEX_CHARS: usize = 128;
/// Length of a signature in Base64, padding included.
pub const SIGNATURE_BASE64_CHARS: usize = 88;

/// Bytes that are gathered on the stack, so that small requests cost one call into the hash.
const GATHER_BYTES: usize = 512;

/// A secret, ready to sign: the hash states after the padded key are kept, so each signature saves two blocks.
#[derive(Clone)]
pub struct SigningKey(hmac::Key);

impl SigningKey {
    /// From the UTF-8 bytes of a Payment API Secret.
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA512, secret))
    }

    /// The signature of one message.
    pub fn sign(&self, timestamp: &str, nonce: &str, body: &[u8]) -> [u8; SIGNATURE_BYTES] {
        let tag = self.tag(timestamp.as_bytes(), nonce.as_bytes(), body);
        tag.as_ref().try_into().expect("HMAC-SHA512 yields 64 bytes")
    }

    /// Whether this is the signature of that message. Takes the same time whatever the difference.
    pub fn verify(&self, timestamp: &str, nonce: &str, body: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        let tag = self.tag(timestamp.as_bytes(), nonce.as_bytes(), body);
        constant_time::verify_slices_are_equal(tag.as_ref(), signature).is_ok()
    }

    /// The bare HMAC-SHA512 of a text that was put together elsewhere: of [`signed_text`], where each step is shown.
    pub fn hmac(&self, text: &[u8]) -> [u8; SIGNATURE_BYTES] {
        hmac::sign(&self.0, text).as_ref().try_into().expect("HMAC-SHA512 yields 64 bytes")
    }

    fn tag(&self, timestamp: &[u8], nonce: &[u8], body: &[u8]) -> hmac::Tag {
        let head = timestamp.len() + nonce.len() + 2;
        let mut small = [0u8; GATHER_BYTES];
        if let Some(rest) = small.get_mut(..head + body.len() + 1) {
            let (first, rest) = rest.split_at_mut(timestamp.len());
            first.copy_from_slice(timestamp);
            rest[0] = b'\n';
            let (second, rest) = rest[1..].split_at_mut(nonce.len());
            second.copy_from_slice(nonce);
            rest[0] = b'\n';
            let (third, last) = rest[1..].split_at_mut(body.len());
            third.copy_from_slice(body);
            last[0] = b'\n';
            return hmac::sign(&self.0, &small[..=head + body.len()]);
        }
        let mut context = hmac::Context::with_key(&self.0);
        for part in [timestamp, b"\n", nonce, b"\n", body, b"\n"] {
            context.update(part);
        }
        context.sign()
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

/// The text that is signed. `sign` does not need it; tools that explain a signature do.
pub fn signed_text(timestamp: &str, nonce: &str, body: &[u8]) -> Vec<u8> {
    [timestamp.as_bytes(), b"\n", nonce.as_bytes(), b"\n", body, b"\n"].concat()
}

/// How a signature is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// 128 lower-case hex digits.
    #[default]
    Hex,
    /// 88 characters of standard Base64, `==` included.
    Base64,
}

impl Encoding {
    /// `hex` or `base64`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hex => "hex",
            Self::Base64 => "base64",
        }
    }

    /// Reads `hex` or `base64`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Hex, Self::Base64].into_iter().find(|e| e.name() == name)
    }
}

/// Writes a signature.
pub fn encode_signature(signature: &[u8; SIGNATURE_BYTES], encoding: Encoding) -> String {
    let mut text = String::with_capacity(SIGNATURE_HEX_CHARS);
    encode_signature_behind(&mut text, signature, encoding);
    text
}

/// The same behind a text.
pub fn encode_signature_behind(text: &mut String, signature: &[u8; SIGNATURE_BYTES], encoding: Encoding) {
    match encoding {
        Encoding::Base64 => STANDARD.encode_string(signature, text),
        Encoding::Hex => to_hex_behind(text, signature),
    }
}

/// Lower-case hex digits of any bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    to_hex_behind(&mut text, bytes);
    text
}

/// The two digits of each byte.
const HEX_DIGITS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut table = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    table
};

/// Lower-case hex digits of any bytes, behind a text.
pub(crate) fn to_hex_behind(text: &mut String, bytes: &[u8]) {
    let mut digits = [0; SIGNATURE_HEX_CHARS];
    for part in bytes.chunks(SIGNATURE_BYTES) {
        let digits = &mut digits[..2 * part.len()];
        for (two, byte) in digits.chunks_exact_mut(2).zip(part) {
            two.copy_from_slice(&HEX_DIGITS[usize::from(*byte)]);
        }
        text.push_str(std::str::from_utf8(digits).expect("hex digits are a text"));
    }
}

/// Reads a signature as sent: 128 hex digits in either case, or the 88 characters of canonical standard Base64.
/// Everything else is none: no blanks, no missing padding, no URL alphabet, no stray bits under the padding.
pub fn decode_signature(text: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    match text.len() {
        SIGNATURE_HEX_CHARS => decode_hex(text),
        SIGNATURE_BASE64_CHARS => decode_base64(text),
        _ => None,
    }
}

/// Value of a hex digit, or a byte with its high bits set.
const HEX_VALUE: [u8; 256] = {
    let mut table = [0xff; 256];
    let mut digit = 0u8;
    while digit < 16 {
        if digit < 10 {
            table[(b'0' + digit) as usize] = digit;
        } else {
            table[(b'a' + digit - 10) as usize] = digit;
            table[(b'A' + digit - 10) as usize] = digit;
        }
        digit += 1;
    }
    table
};

fn decode_hex(text: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    let mut out = [0; SIGNATURE_BYTES];
    let mut bad = 0;
    for (slot, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let (high, low) = (HEX_VALUE[usize::from(pair[0])], HEX_VALUE[usize::from(pair[1])]);
        bad |= high | low;
        *slot = (high << 4) | (low & 15);
    }
    (bad < 16).then_some(out)
}

fn decode_base64(text: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
    let mut out = [0; SIGNATURE_BYTES + 2]; // The decoder asks for the room of the padding too.
    let written = STANDARD.decode_slice(text, &mut out).ok()?;
    if written != SIGNATURE_BYTES {
        return None;
    }
    out[..SIGNATURE_BYTES].try_into().ok()
}
