//! Callbacks: their body, their nonce, what counts as an acknowledgement, and how their receiver checks them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;
use utoipa::ToSchema;

use crate::headers::{RESERVED_NONCE_PREFIX, is_nonce, read_timestamp};
use crate::signing::{SigningKey, decode_signature, to_hex_behind};

/// Most bytes of an answer that are read for an acknowledgement.
pub const ACKNOWLEDGEMENT_BYTES_MAX: usize = 64 * 1024;
/// How old a callback may be by the recommendation to receivers.
pub const RECOMMENDED_TOLERANCE_MS: i64 = 5 * 60 * 1_000;

/// What a callback says. All strings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallbackBody {
    /// Kind of event, for instance `PAYMENT_ORDER`.
    #[serde(rename = "bizType")]
    pub biz_type: String,
    /// Which order or transaction.
    #[serde(rename = "bizId")]
    pub biz_id: String,
    /// Where it stands, for instance `SUCCESS`.
    #[serde(rename = "bizStatus")]
    pub biz_status: String,
    /// The application that made it.
    pub client_id: String,
    /// JSON as text; its structure depends on `bizType`. The platform's back end may write any: where a field is missing, query the order.
    pub data: String,
}

impl CallbackBody {
    /// The bytes that are stored, signed and sent: keys in the order of the fields.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("five texts always serialize")
    }
}

/// What a merchant's endpoint answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledgement {
    /// `returnCode` is exactly `SUCCESS`.
    Success,
    /// `returnCode` is another text.
    Fail {
        /// `returnMessage`, or empty.
        return_message: String,
    },
    /// Not a JSON object with the text `returnCode`.
    Unreadable,
}

/// Reads the body of the answer to a callback. The HTTP status is judged elsewhere.
pub fn read_acknowledgement(body: &[u8]) -> Acknowledgement {
    // Lenient beyond the one field that matters: other fields may be of any kind, or given twice.
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(rename = "returnCode", borrow)]
        code: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Reason {
        #[serde(rename = "returnMessage")]
        message: String,
    }
    let object = std::str::from_utf8(body).ok().filter(|text| crate::body::begins_object(text));
    let code = object
        .and_then(|text| serde_json::from_str::<Answer<'_>>(text).ok())
        .and_then(|answer| serde_json::from_str::<String>(answer.code?.get()).ok());
    match (code, object) {
        (Some(code), _) if code == "SUCCESS" => Acknowledgement::Success,
        (Some(_), Some(text)) => {
            let return_message = serde_json::from_str::<Reason>(text).map_or_else(|_| String::new(), |r| r.message);
            Acknowledgement::Fail { return_message }
        }
        (Some(_) | None, _) => Acknowledgement::Unreadable,
    }
}

/// A nonce for one attempt: the reserved prefix and 24 lower-case hex digits of the low 96 bits, 32 characters in all.
pub fn callback_nonce(bits: u128) -> String {
    let mut text = String::with_capacity(32);
    callback_nonce_behind(&mut text, bits);
    text
}

/// The same behind a text.
pub fn callback_nonce_behind(text: &mut String, bits: u128) {
    text.push_str(RESERVED_NONCE_PREFIX);
    to_hex_behind(text, &bits.to_be_bytes()[4..]);
}

/// Why a received callback is refused, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CallbackRefused {
    /// Not 13 digits.
    #[error("the timestamp of the callback is not 13 digits")]
    TimestampMalformed,
    /// Not 1 to 64 of the nonce's characters.
    #[error("the nonce of the callback is not 1 to 64 of A-Z a-z 0-9 . _ -")]
    NonceMalformed,
    /// A nonce without the reserved prefix: a request of somebody's, turned round.
    #[error("the nonce of the callback does not begin with \"callback\": this is no callback")]
    NotACallbackNonce,
    /// Too old, or from the future.
    #[error("the callback is {} ms {} the present, more than {tolerance_ms} ms", drift_ms.unsigned_abs(), if *drift_ms < 0 { "ahead of" } else { "behind" })]
    TimestampOutOfRange {
        /// Now minus timestamp.
        drift_ms: i64,
        /// The limit.
        tolerance_ms: i64,
    },
    /// Neither 128 hex digits nor 88 characters of Base64.
    #[error("the signature of the callback is neither 128 hex digits nor 88 characters of Base64")]
    SignatureMalformed,
    /// Signed with another secret, or changed on the way.
    #[error("the signature of the callback does not fit its timestamp, nonce and body")]
    SignatureMismatch,
}

/// Checks one callback, as received. `signature` is the header's value; times are Unix milliseconds.
/// A callback that was seen before passes here: see [`crate::replay::Window`].
pub fn verify(
    key: &SigningKey,
    timestamp: &str,
    nonce: &str,
    body: &[u8],
    signature: impl AsRef<[u8]>,
    now_ms: i64,
    tolerance_ms: i64,
) -> Result<(), CallbackRefused> {
    let (_, sent_ms) = read_timestamp(timestamp.as_bytes()).ok_or(CallbackRefused::TimestampMalformed)?;
    if !is_nonce(nonce) {
        return Err(CallbackRefused::NonceMalformed);
    }
    if !nonce.starts_with(RESERVED_NONCE_PREFIX) {
        return Err(CallbackRefused::NotACallbackNonce);
    }
    let drift_ms = now_ms.saturating_sub(sent_ms);
    if drift_ms.saturating_abs() > tolerance_ms {
        return Err(CallbackRefused::TimestampOutOfRange { drift_ms, tolerance_ms });
    }
    let signature = decode_signature(signature.as_ref()).ok_or(CallbackRefused::SignatureMalformed)?;
    if key.verify(timestamp, nonce, body, &signature) { Ok(()) } else { Err(CallbackRefused::SignatureMismatch) }
}
