//! The names that a client goes by, as headers have them. A wrong one is refused here, by the name of its field, before anything is sent.

use countersign_protocol::headers::{is_client_id, is_name};

use crate::error::Error;
use crate::secret;

/// Refuses a ClientId that no request can carry, and a secret in its place, which would be shown to whoever reads logs.
pub fn check_client_id(text: &str) -> Result<(), Error> {
    if secret::is_like_one(text) {
        let why =
            "the ClientId begins with sk_, as secrets do: give the secret where it belongs, and the ClientId here";
        return Err(Error::Usage(why.to_owned()));
    }
    check("ClientId", text, is_client_id, "1 to 128 visible ASCII characters")
}

/// Refuses a MerchantId that no request can carry.
pub fn check_merchant_id(text: &str) -> Result<(), Error> {
    check("MerchantId", text, is_name, NAME_FORM)
}

/// Refuses an On-Behalf-Of that no request can carry.
pub fn check_on_behalf_of(text: &str) -> Result<(), Error> {
    check("On-Behalf-Of", text, is_name, NAME_FORM)
}

const NAME_FORM: &str = "1 to 64 of A-Z a-z 0-9 _ -";

/// The text itself is not repeated: who has mixed up his variables has a secret in it.
fn check(field: &str, text: &str, is_good: fn(&str) -> bool, form: &str) -> Result<(), Error> {
    if text.trim().is_empty() {
        return Err(Error::Usage(format!("the {field} is empty: is the variable set that it comes from?")));
    }
    if is_good(text) {
        return Ok(());
    }
    // A character alone is judged by the same rule as the whole.
    let fault = match text.chars().find(|c| !is_good(c.encode_utf8(&mut [0; 4]))) {
        Some('\n') => "has a line feed in it",
        Some('\r') => "has a carriage return in it",
        Some(c) if c.is_whitespace() => "has white space in it",
        Some(c) if c.is_control() => "has a control character in it",
        Some(_) => "has a character in it that none has",
        None => "is too long",
    };
    Err(Error::Usage(format!("the {field} {fault}: it must be {form}, and nothing is trimmed")))
}
