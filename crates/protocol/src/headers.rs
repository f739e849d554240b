//! The headers of a signed request: their names, their forms, and one pass that reads them.
//!
//! The prefix of the names is a setting. Several may be accepted, but one request uses one.

use std::fmt;

use thiserror::Error;

use crate::code::Code;
use crate::sentence::of_header;

/// Nonces of callbacks begin with this, and no request's nonce may.
pub const RESERVED_NONCE_PREFIX: &str = "callback";
/// Longest nonce.
pub const NONCE_CHARS_MAX: usize = 64;
/// Longest MerchantId or On-Behalf-Of.
pub const NAME_CHARS_MAX: usize = 64;
/// Longest ClientId that is looked up at all.
pub const CLIENT_ID_CHARS_MAX: usize = 128;
/// Digits of a timestamp in milliseconds.
pub const TIMESTAMP_DIGITS: usize = 13;
/// Most prefixes that a deployment can accept.
pub const PREFIXES_MAX: usize = 8;
/// Longest prefix.
pub const PREFIX_CHARS_MAX: usize = 32;

/// A header of ours, whatever its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Header {
    /// Identifies the application.
    ClientId,
    /// The other name of `ClientId`.
    ClientIdAlias,
    /// Unix milliseconds.
    Timestamp,
    /// Good once.
    Nonce,
    /// Hex or Base64.
    Signature,
    /// On callbacks while a secret is being replaced: the signature by the other secret.
    SignatureNext,
    /// The main merchant.
    MerchantId,
    /// A sub-account that the institution acts for.
    OnBehalfOf,
    /// On answers: finds this request in logs and console.
    RequestId,
    /// On callbacks: the same on every attempt.
    EventId,
    /// On callbacks: 1, 2, ...
    Attempt,
    /// On callbacks: 1, 2, ... per bizId.
    Sequence,
}

impl Header {
    /// The name after the prefix, as sent.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::ClientId => "Certificate-ClientId",
            Self::ClientIdAlias => "Certificate-SN",
            Self::Timestamp => "Timestamp",
            Self::Nonce => "Nonce",
            Self::Signature => "Signature",
            Self::SignatureNext => "Signature-Next",
            Self::MerchantId => "MerchantId",
            Self::OnBehalfOf => "On-Behalf-Of",
            Self::RequestId => "Request-Id",
            Self::EventId => "Event-Id",
            Self::Attempt => "Attempt",
            Self::Sequence => "Sequence",
        }
    }
}

/// Every name under one prefix, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderNames {
    as_given: String,
    /// `x-service-`
    pub prefix: String,
    /// `x-service-certificate-clientid`
    pub client_id: String,
    /// `x-service-certificate-sn`
    pub client_id_alias: String,
    /// `x-service-timestamp`
    pub timestamp: String,
    /// `x-service-nonce`
    pub nonce: String,
    /// `x-service-signature`
    pub signature: String,
    /// `x-service-signature-next`
    pub signature_next: String,
    /// `x-service-merchantid`
    pub merchant_id: String,
    /// `x-service-on-behalf-of`
    pub on_behalf_of: String,
    /// `x-service-request-id`
    pub request_id: String,
    /// `x-service-event-id`
    pub event_id: String,
    /// `x-service-attempt`
    pub attempt: String,
    /// `x-service-sequence`
    pub sequence: String,
}

impl HeaderNames {
    fn new(prefix: &str) -> Self {
        let lower = |header: Header| format!("{prefix}{}", header.suffix()).to_ascii_lowercase();
        Self {
            as_given: prefix.to_owned(),
            prefix: prefix.to_ascii_lowercase(),
            client_id: lower(Header::ClientId),
            client_id_alias: lower(Header::ClientIdAlias),
            timestamp: lower(Header::Timestamp),
            nonce: lower(Header::Nonce),
            signature: lower(Header::Signature),
            signature_next: lower(Header::SignatureNext),
            merchant_id: lower(Header::MerchantId),
            on_behalf_of: lower(Header::OnBehalfOf),
            request_id: lower(Header::RequestId),
            event_id: lower(Header::EventId),
            attempt: lower(Header::Attempt),
            sequence: lower(Header::Sequence),
        }
    }

    /// The prefix as it was set: `X-Service-`.
    pub fn as_given(&self) -> &str {
        &self.as_given
    }

    /// The name as it is written for people and on the wire: `X-Service-Timestamp`.
    pub fn display(&self, header: Header) -> String {
        format!("{}{}", self.as_given, header.suffix())
    }
}

/// Why a list of prefixes is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PrefixRefused {
    /// None, or more than eight.
    #[error("there must be 1 to 8 header prefixes")]
    Count,
    /// Not letters, digits and hyphens, from a letter to a hyphen, at most 32.
    #[error(
        "the header prefix {0:?} must be 2 to 32 letters, digits and hyphens, begin with a letter and end with a hyphen"
    )]
    Form(String),
    /// Given twice; letter case does not count.
    #[error("the header prefix {0:?} is given twice")]
    Twice(String),
}

/// The prefixes that a deployment accepts. The first is what it sends itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefixes(Vec<HeaderNames>);

impl Prefixes {
    /// From the setting `header_prefixes`.
    pub fn new(prefixes: &[String]) -> Result<Self, PrefixRefused> {
        if prefixes.is_empty() || prefixes.len() > PREFIXES_MAX {
            return Err(PrefixRefused::Count);
        }
        let mut all: Vec<HeaderNames> = Vec::with_capacity(prefixes.len());
        for prefix in prefixes {
            let form = (2..=PREFIX_CHARS_MAX).contains(&prefix.len())
                && prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && prefix.starts_with(|c: char| c.is_ascii_alphabetic())
                && prefix.ends_with('-');
            if !form {
                return Err(PrefixRefused::Form(prefix.clone()));
            }
            if all.iter().any(|names| names.prefix.eq_ignore_ascii_case(prefix)) {
                return Err(PrefixRefused::Twice(prefix.clone()));
            }
            all.push(HeaderNames::new(prefix));
        }
        Ok(Self(all))
    }

    /// What the server sends on callbacks and answers.
    pub fn first(&self) -> &HeaderNames {
        &self.0[0]
    }

    /// Every accepted one, in the order of the setting.
    pub fn all(&self) -> &[HeaderNames] {
        &self.0
    }

    /// Reads the signed headers out of all headers of a request, whose names are in lower case.
    ///
    /// First refused is what is there twice or under two prefixes, in the order of arrival; then what is absent; then what
    /// is malformed, both in the order ClientId, Timestamp, Nonce, Signature, MerchantId, On-Behalf-Of. A signature is not decoded.
    pub fn parse<'a>(
        &self,
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<SignedHeaders<'a>, HeaderRefused> {
        let mut seen = Seen::default();
        for (name, value) in headers {
            if let Some((index, header)) = self.recognize(name) {
                self.note(&mut seen, index, header, value)?;
            }
        }
        let prefix_index = seen.prefix.unwrap_or(0);
        let names = &self.0[prefix_index];
        let missing = |header| move || HeaderRefused::Missing(names.display(header));
        let client_id = seen.client_id.ok_or_else(missing(Header::ClientId))?;
        let timestamp = seen.timestamp.ok_or_else(missing(Header::Timestamp))?;
        let nonce = seen.nonce.ok_or_else(missing(Header::Nonce))?;
        let signature = seen.signature.ok_or_else(missing(Header::Signature))?;
        let malformed = |header, rule| move || HeaderRefused::Malformed { header: names.display(header), rule };
        let client_header = seen.client_header.unwrap_or(Header::ClientId);
        let client_id = read_client_id(client_id).ok_or_else(malformed(client_header, CLIENT_ID_RULE))?;
        let (timestamp, timestamp_ms) =
            read_timestamp(timestamp).ok_or_else(malformed(Header::Timestamp, TIMESTAMP_RULE))?;
        let nonce =
            read_nonce(nonce).map_err(|rule| HeaderRefused::BadNonce { header: names.display(Header::Nonce), rule })?;
        let named = |value: Option<&'a [u8]>, header| {
            value.map(|value| read_name(value).ok_or_else(malformed(header, NAME_RULE))).transpose()
        };
        let merchant_id = named(seen.merchant_id, Header::MerchantId)?;
        let on_behalf_of = named(seen.on_behalf_of, Header::OnBehalfOf)?;
        Ok(SignedHeaders {
            client_id,
            timestamp,
            timestamp_ms,
            nonce,
            signature,
            merchant_id,
            on_behalf_of,
            prefix_index,
        })
    }

    /// Which signed header a name is, and under which prefix.
    fn recognize(&self, name: &str) -> Option<(usize, Header)> {
        self.0.iter().enumerate().find_map(|(index, names)| {
            let header = match name.strip_prefix(names.prefix.as_str())? {
                "certificate-clientid" => Header::ClientId,
                "certificate-sn" => Header::ClientIdAlias,
                "timestamp" => Header::Timestamp,
                "nonce" => Header::Nonce,
                "signature" => Header::Signature,
                "merchantid" => Header::MerchantId,
                "on-behalf-of" => Header::OnBehalfOf,
                _ => return None,
            };
            Some((index, header))
        })
    }

    fn note<'a>(
        &self,
        seen: &mut Seen<'a>,
        index: usize,
        header: Header,
        value: &'a [u8],
    ) -> Result<(), HeaderRefused> {
        let shown = || self.0[index].display(header);
        if *seen.prefix.get_or_insert(index) != index {
            return Err(HeaderRefused::MixedPrefixes(shown()));
        }
        let slot = match header {
            Header::ClientId | Header::ClientIdAlias => {
                let first = *seen.client_header.get_or_insert(header);
                if first != header {
                    return Err(HeaderRefused::BothClientIds(self.0[index].display(first), shown()));
                }
                &mut seen.client_id
            }
            Header::Timestamp => &mut seen.timestamp,
            Header::Nonce => &mut seen.nonce,
            Header::Signature => &mut seen.signature,
            Header::MerchantId => &mut seen.merchant_id,
            Header::OnBehalfOf => &mut seen.on_behalf_of,
            Header::SignatureNext | Header::RequestId | Header::EventId | Header::Attempt | Header::Sequence => {
                return Ok(());
            }
        };
        if slot.replace(value).is_some() || value.contains(&b',') {
            return Err(HeaderRefused::Twice(shown()));
        }
        Ok(())
    }
}

#[derive(Default)]
struct Seen<'a> {
    prefix: Option<usize>,
    client_id: Option<&'a [u8]>,
    client_header: Option<Header>,
    timestamp: Option<&'a [u8]>,
    nonce: Option<&'a [u8]>,
    signature: Option<&'a [u8]>,
    merchant_id: Option<&'a [u8]>,
    on_behalf_of: Option<&'a [u8]>,
}

/// The signed headers of one request, each of good form. Nothing is known yet of who sent them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SignedHeaders<'a> {
    /// The application, as claimed.
    pub client_id: &'a str,
    /// 13 digits, as sent.
    pub timestamp: &'a str,
    /// The same as a number: Unix milliseconds.
    pub timestamp_ms: i64,
    /// 1 to 64 of `A-Z a-z 0-9 . _ -`, without the reserved prefix.
    pub nonce: &'a str,
    /// As sent, not decoded.
    pub signature: &'a [u8],
    /// The main merchant, where sent.
    pub merchant_id: Option<&'a str>,
    /// The sub-account acted for, where sent.
    pub on_behalf_of: Option<&'a str>,
    /// Which prefix of the setting the request used.
    pub prefix_index: usize,
}

impl fmt::Debug for SignedHeaders<'_> {
    /// Without the signature: until it is checked, who has it can send the request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedHeaders")
            .field("client_id", &self.client_id)
            .field("timestamp", &self.timestamp)
            .field("nonce", &self.nonce)
            .field("merchant_id", &self.merchant_id)
            .field("on_behalf_of", &self.on_behalf_of)
            .field("prefix_index", &self.prefix_index)
            .finish_non_exhaustive()
    }
}

/// Why headers are refused. The text is the sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HeaderRefused {
    /// A required one is absent.
    #[error("{}", of_header(.0, "is missing"))]
    Missing(String),
    /// Given twice, or as a list.
    #[error("{}", of_header(.0, "must be given once, with a single value"))]
    Twice(String),
    /// The two names of ClientId together.
    #[error("{}", of_header(.1, format_args!("is another name of the header {}; send one of them", .0)))]
    BothClientIds(String, String),
    /// Under another prefix than the headers before it.
    #[error("{}", of_header(.0, "has another prefix than the signed headers before it; use one prefix for all of them"))]
    MixedPrefixes(String),
    /// Not of the header's form.
    #[error("{}", of_header(.header, .rule))]
    Malformed {
        /// Its name as people write it.
        header: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// Not a nonce.
    #[error("{}", of_header(.header, .rule))]
    BadNonce {
        /// Its name as people write it.
        header: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
}

impl HeaderRefused {
    /// The code on the wire.
    pub const fn code(&self) -> Code {
        match self {
            Self::Missing(_)
            | Self::Twice(_)
            | Self::BothClientIds(..)
            | Self::MixedPrefixes(_)
            | Self::Malformed { .. } => Code::InvalidParameter,
            Self::BadNonce { .. } => Code::InvalidNonce,
        }
    }
}

const CLIENT_ID_RULE: &str = "must be 1 to 128 visible ASCII characters";
const TIMESTAMP_RULE: &str = "must be exactly 13 digits without a leading zero: Unix milliseconds, UTC";
const NAME_RULE: &str = "must be 1 to 64 of A-Z a-z 0-9 _ -";
const NONCE_LENGTH_RULE: &str = "must be 1 to 64 characters";
const NONCE_CHARS_RULE: &str = "must have only A-Z a-z 0-9 . _ -";
const NONCE_PREFIX_RULE: &str = "must not begin with \"callback\", which is reserved for callbacks";

const NAME: u8 = 1;
const NONCE: u8 = 2;
const VISIBLE: u8 = 4;

/// Which forms a byte may be part of.
const CLASS: [u8; 256] = {
    let mut table = [0u8; 256];
    let mut byte = 0usize;
    while byte < 128 {
        #[expect(clippy::cast_possible_truncation, reason = "below 128")]
        let b = byte as u8;
        let name = b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        table[byte] = (if name { NAME } else { 0 })
            | (if name || b == b'.' { NONCE } else { 0 })
            | (if b.is_ascii_graphic() { VISIBLE } else { 0 });
        byte += 1;
    }
    table
};

/// The bytes as text, if there are 1 to `chars_max` and all are of the class.
fn read_class(value: &[u8], class: u8, chars_max: usize) -> Option<&str> {
    let fits = (1..=chars_max).contains(&value.len()) && value.iter().all(|&b| CLASS[usize::from(b)] & class != 0);
    if fits { std::str::from_utf8(value).ok() } else { None }
}

fn read_client_id(value: &[u8]) -> Option<&str> {
    read_class(value, VISIBLE, CLIENT_ID_CHARS_MAX)
}

fn read_name(value: &[u8]) -> Option<&str> {
    read_class(value, NAME, NAME_CHARS_MAX)
}

/// Reads 13 digits without a leading zero.
pub fn read_timestamp(value: &[u8]) -> Option<(&str, i64)> {
    if value.len() != TIMESTAMP_DIGITS || value[0] == b'0' || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let ms = value.iter().fold(0i64, |ms, &digit| ms * 10 + i64::from(digit - b'0'));
    Some((std::str::from_utf8(value).ok()?, ms))
}

/// Reads the nonce of a request; the error is the rule that it breaks.
fn read_nonce(value: &[u8]) -> Result<&str, &'static str> {
    if value.is_empty() || value.len() > NONCE_CHARS_MAX {
        return Err(NONCE_LENGTH_RULE);
    }
    let nonce = read_class(value, NONCE, NONCE_CHARS_MAX).ok_or(NONCE_CHARS_RULE)?;
    if nonce.starts_with(RESERVED_NONCE_PREFIX) { Err(NONCE_PREFIX_RULE) } else { Ok(nonce) }
}

/// Whether a text has the form of a nonce; the reserved prefix is not looked at.
pub fn is_nonce(text: &str) -> bool {
    read_class(text.as_bytes(), NONCE, NONCE_CHARS_MAX).is_some()
}

/// Whether a text has the form of a ClientId: 1 to 128 visible ASCII characters.
pub fn is_client_id(text: &str) -> bool {
    read_client_id(text.as_bytes()).is_some()
}

/// Whether a text has the form of a merchant's or sub-account's ID: 1 to 64 of `A-Z a-z 0-9 _ -`.
pub fn is_name(text: &str) -> bool {
    read_name(text.as_bytes()).is_some()
}
