//! The envelope around every answer: five keys, always there, always in this order.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::code::Code;

const SUCCESS_HEAD: &[u8] = br#"{"status":"SUCCESS","code":"000000","label":"","errorMessage":"","data":"#;

/// An answer as clients read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Envelope<T> {
    /// `SUCCESS` or `FAIL`.
    pub status: String,
    /// `000000`, or the six digits of the failure.
    pub code: String,
    /// Empty, or the name of the failure.
    #[serde(default)]
    pub label: String,
    /// Empty, or a sentence that says what to change.
    #[serde(rename = "errorMessage", default)]
    pub error_message: String,
    /// What was asked for; null on failure.
    #[serde(default = "Option::default")]
    pub data: Option<T>,
}

impl<T> Envelope<T> {
    /// Whether it says SUCCESS.
    pub fn is_success(&self) -> bool {
        self.status == "SUCCESS"
    }
}

/// The bytes of a successful answer.
pub fn success<T: Serialize + ?Sized>(data: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(512);
    bytes.extend_from_slice(SUCCESS_HEAD);
    serde_json::to_writer(&mut bytes, data)?;
    bytes.push(b'}');
    Ok(bytes)
}

/// The bytes of a failure. `message` is a sentence that says what to change.
pub fn failure(code: Code, message: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Failure<'a> {
        status: &'a str,
        code: &'a str,
        label: &'a str,
        #[serde(rename = "errorMessage")]
        error_message: &'a str,
        data: (),
    }
    let failure = Failure { status: "FAIL", code: code.code(), label: code.label(), error_message: message, data: () };
    serde_json::to_vec(&failure).expect("four texts and a null always serialize")
}
