//! Lines: an entry with its link in the chain, and the signed head at the end.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, Header, Numbered};
use super::key::{PublicKey, SIGNATURE_BYTES, SigningKey};
use crate::chance::{hex, unhex};

/// What stands before the head where it is signed, so that no other signature of the key can pass for one of a file.
pub const SIGNED_AS: &str = "countersign-evidence-v1\n";

const HASH_BYTES: usize = 32;
const LINK: Frame = Frame { open: "{\"hash\":\"", middle: "\",\"entry\":", digits: 2 * HASH_BYTES };
const HEAD: Frame = Frame { open: "{\"signature\":\"", middle: "\",\"head\":", digits: 2 * SIGNATURE_BYTES };
const CLOSE: &str = "}";

/// How a line is put together: no byte of it may be another.
struct Frame {
    open: &'static str,
    middle: &'static str,
    digits: usize,
}

impl Frame {
    fn line(&self, digits: &str, inside: &str) -> String {
        format!("{}{digits}{}{inside}{CLOSE}", self.open, self.middle)
    }

    /// The digits and what is inside.
    fn opened<'l>(&self, line: &'l str) -> Option<(&'l str, &'l str)> {
        let (digits, rest) = line.strip_prefix(self.open)?.split_at_checked(self.digits)?;
        Some((digits, rest.strip_prefix(self.middle)?.strip_suffix(CLOSE)?))
    }
}

/// The end of a file: what is signed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When the deployment was initialised, as the header says.
    pub deployment: super::At,
    /// Which order.
    #[serde(rename = "prepayId")]
    pub prepay_id: String,
    /// Entries before it.
    pub entries: u64,
    /// The hash of the last one, hexadecimal.
    pub hash: String,
    /// The short name of the key.
    pub key_id: String,
}

/// A last line as it was read.
#[derive(Clone, Debug)]
pub struct HeadLine<'l> {
    /// What it says.
    pub head: Head,
    /// The bytes that are signed, behind [`SIGNED_AS`].
    pub text: &'l str,
    signature: [u8; SIGNATURE_BYTES],
}

impl HeadLine<'_> {
    /// Whether this key has signed it.
    pub fn is_signed_by(&self, key: PublicKey) -> bool {
        key.has_signed(&signed(self.text), &self.signature)
    }
}

fn signed(head: &str) -> Vec<u8> {
    [SIGNED_AS.as_bytes(), head.as_bytes()].concat()
}

/// Why a line is none of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// It is not put together as a line is.
    Form,
    /// Its hash does not follow from the entry and the lines before it.
    Hash,
    /// Its hash is right, and what it says cannot be read: no program of ours wrote it.
    Entry(String),
}

/// A chain as far as it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    last: [u8; HASH_BYTES],
    entries: u64,
}

impl Chain {
    fn next(&self, entry: &str) -> [u8; HASH_BYTES] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.last);
        context.update(entry.as_bytes());
        context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// The next line, with its end.
    pub fn append(&mut self, entry: Entry) -> String {
        let numbered = Numbered { seq: self.entries + 1, entry };
        let text = serde_json::to_string(&numbered).expect("texts and numbers always serialize");
        self.append_text(&text)
    }

    /// The next line of an entry's text, whatever that is.
    pub fn append_text(&mut self, text: &str) -> String {
        self.last = self.next(text);
        self.entries += 1;
        LINK.line(&hex(&self.last), text) + "\n"
    }

    /// The last line, with its end.
    pub fn close(&self, header: &Header, key: &SigningKey) -> String {
        let head = Head {
            deployment: header.deployment,
            prepay_id: header.prepay_id.clone(),
            entries: self.entries,
            hash: hex(&self.last),
            key_id: key.public().id(),
        };
        let text = serde_json::to_string(&head).expect("texts and numbers always serialize");
        HEAD.line(&hex(&key.sign(&signed(&text))), &text) + "\n"
    }

    /// Goes on by a line, which must follow from the ones before it.
    pub(super) fn follow(&mut self, line: &str) -> Result<Entry, Misfit> {
        let (digits, text) = LINK.opened(line).ok_or(Misfit::Form)?;
        let hash = self.next(text);
        if digits != hex(&hash) {
            return Err(Misfit::Hash);
        }
        (self.last, self.entries) = (hash, self.entries + 1);
        let read: Numbered = serde_json::from_str(text).map_err(|error| Misfit::Entry(error.to_string()))?;
        // One way to write an entry: no other spelling of the same, no field twice, no field that nobody knows.
        if serde_json::to_string(&read).ok().as_deref() != Some(text) {
            return Err(Misfit::Entry("it is not written as entries are written".to_owned()));
        }
        if read.seq != self.entries {
            return Err(Misfit::Entry(format!("its seq is {}", read.seq)));
        }
        Ok(read.entry)
    }

    /// Entries so far.
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// Whether a head is this chain's end.
    pub(super) fn ends_with(&self, head: &Head) -> bool {
        head.entries == self.entries && head.hash == hex(&self.last)
    }
}

/// Whether a line is meant to be a head.
pub(super) fn is_head(line: &str) -> bool {
    line.starts_with("{\"s")
}

/// The kind that a line says it is of, whether or not it can be believed.
pub(super) fn told_kind(line: &str) -> Option<super::Kind> {
    if is_head(line) {
        return Some(super::Kind::Head);
    }
    let (_, rest) = line.split_once("\"kind\":\"")?;
    let (word, _) = rest.split_once('"')?;
    super::Kind::ALL.into_iter().find(|kind| kind.name() == word)
}

/// Reads a last line.
pub(super) fn read_head(line: &str) -> Option<HeadLine<'_>> {
    let (digits, text) = HEAD.opened(line)?;
    let signature = unhex(digits).filter(|bytes| hex(bytes) == digits)?.try_into().ok()?;
    let head: Head = serde_json::from_str(text).ok()?;
    let is_plain = serde_json::to_string(&head).ok().as_deref() == Some(text);
    is_plain.then_some(HeadLine { head, text, signature })
}
