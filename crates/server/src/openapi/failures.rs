//! What is said of each code: an answer that has it, and what to do about it.

use std::collections::BTreeMap;

use countersign_protocol::code::Code;
use serde_json::{Value, json};
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Components, Content, Ref, RefOr, Response};

use super::answers::Listener;
use crate::app::error::{INTERNAL, UNAVAILABLE};
use crate::operator::Problem;

/// The id of a request, for instance.
const REQUEST_ID: &str = "5b1c9d0e4f7a2b36000000000017";

/// Gives an operation its refusals: one answer for each status, its content made by `content`, with an example for each code.
pub fn refuse(operation: &mut Operation, codes: &[Code], content: impl Fn(&[Code]) -> (&'static str, Content)) {
    let mut by_status: BTreeMap<String, Vec<Code>> = BTreeMap::new();
    for code in codes {
        by_status.entry(code.http_status().to_string()).or_default().push(*code);
    }
    for status in operation.responses.responses.keys().filter(|status| *status != "200") {
        assert!(by_status.contains_key(status), "{:?} has no code for {status}", operation.operation_id);
    }
    for (status, codes) in by_status {
        let names: Vec<String> = codes.iter().map(ToString::to_string).collect();
        let mut response = Response::new(names.join(", "));
        let (kind, mut content) = content(&codes);
        for code in codes {
            let at = Ref::new(format!("#/components/examples/{}", code.label()));
            content.examples.insert(code.label().to_owned(), RefOr::Ref(at));
        }
        response.content.insert(kind.to_owned(), content.into());
        operation.responses.responses.insert(status, RefOr::T(response));
    }
}

/// Puts an example of each of these codes where [`refuse`] looks for it.
pub fn put_examples(components: &mut Components, codes: impl Iterator<Item = Code>, listener: Listener) {
    for code in codes {
        let example = ExampleBuilder::new().summary(code.to_string()).description(what_to_do(code, listener));
        let example = example.value(Some(refusal(code, listener))).build();
        components.examples.insert(code.label().to_owned(), example.into());
    }
}

fn refusal(code: Code, listener: Listener) -> Value {
    let sentence = sentence(code, listener);
    match listener {
        Listener::Merchant => {
            json!({"status": "FAIL", "code": code.code(), "label": code.label(), "errorMessage": sentence, "data": null})
        }
        Listener::Operator => {
            let problem = Problem::new(code, sentence).document(REQUEST_ID);
            serde_json::to_value(problem).expect("texts and a number always serialize")
        }
    }
}

/// What an answer with this code says, for instance.
const fn sentence(code: Code, listener: Listener) -> &'static str {
    let is_operator = matches!(listener, Listener::Operator);
    match code {
        Code::InvalidParameter if is_operator => "field name: is required",
        Code::InvalidParameter => "header X-Service-Nonce: is missing",
        Code::InvalidSignature => {
            "the ClientId or the signature is not right; sign timestamp, nonce and raw body with the Payment API Secret"
        }
        Code::TimestampOutOfRange => {
            "the timestamp is 100000 ms behind the server's time 1767225600000; at most 30000 ms are allowed, so set the clock or use GET /v1/time"
        }
        Code::UnsupportedContentType => "header Content-Type: must be application/json",
        Code::InvalidNonce => {
            "header X-Service-Nonce: must not begin with \"callback\", which is reserved for callbacks"
        }
        Code::NonceReused => "this nonce was used before; send a new one with every request",
        Code::DuplicateTradeNo => {
            "field merchantTradeNo: stands for another request, whose orderAmount is not the same; send the same content again, or another merchantTradeNo"
        }
        Code::OrderNotFound if is_operator => "no order has this number",
        Code::OrderNotFound => "no order of this merchant has this number",
        Code::MerchantNotAllowed => "header X-Service-MerchantId: must be the institution that this key belongs to",
        Code::InvalidOrderStatus => "a payment order that is PAID cannot become CLOSED: that is final",
        Code::InvalidCurrency => "field currency: must be 2 to 10 of A-Z 0-9",
        Code::InvalidAmount if is_operator => "field actualAmount: must have at most 6 decimal places",
        Code::InvalidAmount => "field orderAmount: must have at most 6 decimal places",
        Code::QuoteExpired => {
            "the quote is used up or its time is over; ask for a new one with POST /v1/pay/convert/preview"
        }
        Code::FeeRuleExists => {
            "a fee rule is effective or pending for this sub-account; use the upgrade operation to replace it"
        }
        Code::SubMerchantNotFound if is_operator => "no sub-account has this sub_merchant_id",
        Code::SubMerchantNotFound => "no sub-account of this institution has this sub_merchant_id",
        Code::InvalidRulePeriod => {
            "field due_date: must be after effective_date and after now, which is 2026-01-01 00:00:00 in UTC"
        }
        Code::ConfigIdNotAccepted => {
            "field config_id: is not accepted; name the sub-account in sub_merchant_id instead"
        }
        Code::NotFound => "no merchant has the id 10001",
        Code::MethodNotAllowed => "this path is not called with PUT: use POST",
        Code::EventsGone => {
            "what followed this `after` is not there: its time was over, or a restore of the service left numbers out; the oldest seq is 9"
        }
        Code::BodyTooLarge => "body: must be at most 65536 bytes",
        Code::HeadersTooLarge => "a request may have at most 100 headers, and this one has 101",
        Code::RateLimited if is_operator => {
            "too many requests from this address carried invalid tokens, and yours has not been used here before; wait, then try again"
        }
        Code::RateLimited => "this application may send 1000 requests a second, and has sent more; slow down",
        Code::InternalError => INTERNAL,
        Code::ServiceUnavailable => UNAVAILABLE,
        Code::Unauthenticated => "send Authorization: Bearer with an operator token that is neither ended nor revoked",
        Code::RoleNotAllowed => "this token has the role viewer; the call needs operator",
        Code::AlreadyExists => "a merchant or sub-account has the id 10001; send another, or none",
        Code::IdempotencyKeyReused => {
            "this Idempotency-Key was used with another body; send a new key with a new request"
        }
        Code::SecretInUse => {
            "callbacks are signed with sec_01KDWQ3T00AZ7Y3W6QF1N8V2RB: switch them to another secret with use-for-callbacks first"
        }
    }
}

/// What whoever gets this code does next.
pub const fn what_to_do(code: Code, listener: Listener) -> &'static str {
    let is_operator = matches!(listener, Listener::Operator);
    match code {
        Code::InvalidParameter => "Change what the message names.",
        Code::InvalidSignature => {
            "Recompute the known answer of the introduction; then look whether the ClientId and the secret are of one application. A disabled \
             application, merchant or institution gets the same answer: ask the operator."
        }
        Code::TimestampOutOfRange => {
            "Set your clock by `GET /v1/time`, sign afresh and repeat once. Where the message names a restore, wait until the instant that it names."
        }
        Code::UnsupportedContentType => {
            "Send a body with `Content-Type: application/json` and without `Content-Encoding`."
        }
        Code::InvalidNonce => "Send 1 to 64 of `A-Z a-z 0-9 . _ -`, not beginning with `callback`.",
        Code::NonceReused => {
            "Send a new nonce with every request. If you did, something on the way sent yours twice: treat it as a lost answer."
        }
        Code::DuplicateTradeNo => "Send the content of the first request again, or a new number.",
        Code::OrderNotFound => {
            "Look at the number, and whose it is: an institution names its sub-account in `On-Behalf-Of`."
        }
        Code::MerchantNotAllowed => {
            "Name your own institution in `MerchantId`, and one of its sub-accounts, which is not disabled, in `On-Behalf-Of`."
        }
        Code::InvalidOrderStatus => "Query where it stands: it is there already, or cannot get there.",
        Code::InvalidCurrency => "Send another currency, 2 to 10 of `A-Z 0-9`.",
        Code::InvalidAmount => "Send an amount as the message says. Nothing is ever rounded.",
        Code::QuoteExpired => "Ask for a new quote.",
        Code::FeeRuleExists => "Upgrade the rule that is there.",
        Code::SubMerchantNotFound => "Send the id of a sub-account of the institution.",
        Code::InvalidRulePeriod => "Send dates that exist, the end behind the beginning and in the future.",
        Code::ConfigIdNotAccepted => "Leave `config_id` out: the sub-account says which rule is meant.",
        Code::NotFound if is_operator => "Look at the path and at the ids in it.",
        Code::NotFound => "Look at the path.",
        Code::MethodNotAllowed => "Use the method that `Allow` names.",
        Code::EventsGone => "Go on with an `after` one less than the `seq` that ends the message.",
        Code::BodyTooLarge => "Send less.",
        Code::HeadersTooLarge => "Send fewer and shorter headers.",
        Code::RateLimited | Code::ServiceUnavailable if is_operator => "Nothing was done: repeat after `Retry-After`.",
        Code::RateLimited | Code::ServiceUnavailable => "Nothing was done: repeat after `Retry-After`, signed afresh.",
        Code::InternalError if is_operator => {
            "Repeat what only reads. A change may have been made: one with an `Idempotency-Key` may be repeated with the same key; else query first."
        }
        Code::InternalError => {
            "The change may have been made. Repeat, signed afresh, what only reads, a payment order by its `merchantTradeNo`, a conversion by its \
             `clientReqId`, a close, and the creation of a first fee rule (FEE_RULE_EXISTS then says that there is one, which may be yours). Before \
             another upgrade of a fee rule query first."
        }
        Code::Unauthenticated => "Send a token that has neither ended nor been revoked.",
        Code::RoleNotAllowed => "Use a token of the role that the call needs.",
        Code::AlreadyExists => "Choose another id, or make room as the message says.",
        Code::IdempotencyKeyReused => "Send a new key with a new request.",
        Code::SecretInUse => {
            "Do what the message says about who uses it. A secret can be revoked whoever does; a re-wrap waits for the node that the message names."
        }
    }
}

/// The codes as a table: what each one is, and what to do.
pub fn table(codes: impl Iterator<Item = Code>, listener: Listener) -> String {
    let row = |code: Code| {
        let (status, digits, label) = (code.http_status(), code.code(), code.label());
        format!("| {status} | {digits} | {label} | {} |\n", what_to_do(code, listener))
    };
    format!("| HTTP | code | label | what to do |\n|---|---|---|---|\n{}", codes.map(row).collect::<String>())
}

#[cfg(test)]
mod tests {
    use countersign_domain::conversion::QuoteRefused;

    use super::*;
    use crate::app::error::AppError;

    #[test]
    fn examples_say_what_the_server_says() {
        for (code, said) in [
            (Code::NonceReused, AppError::NonceReused.sentence()),
            (Code::FeeRuleExists, AppError::FeeRuleExists.sentence()),
            (Code::IdempotencyKeyReused, AppError::IdempotencyKeyReused.sentence()),
            (Code::QuoteExpired, AppError::Quote(QuoteRefused::Expired).sentence()),
        ] {
            assert_eq!(sentence(code, Listener::Merchant), said);
        }
    }
}
