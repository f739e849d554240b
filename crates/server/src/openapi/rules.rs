//! The rules of both documents, in the order of the operations.

use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::money::TRANSACTION_MAX;
use countersign_domain::payment_order::{PaymentKind, PaymentStatus};
use countersign_domain::rules::RuleState;
use countersign_protocol::body::UNIX_MILLIS_MAX;
use countersign_protocol::endpoint::payment_order::{
    CHANNEL_ID_CHARS_MAX, GOODS_DETAIL_CHARS_MAX, GOODS_NAME_CHARS_MAX, TERMINAL_TYPE_CHARS_MAX, URL_CHARS_MAX,
    USER_ID_CHARS_MAX,
};
use countersign_protocol::endpoint::rule_list::{PAGE_NUM_MAX, PAGE_SIZE_MAX};
use countersign_protocol::endpoint::{convert_order, convert_order_list, convert_pair, events, order_list, rule_query};

use super::bounds::Rule::{AtLeast, Chars, Codes, Filled, Form, Instant, UpTo, Uri, Whole, Words};
use super::bounds::{AMOUNT, CURRENCY, ID, NUMBER, ORDER_ID, PAIR, Rule, Ruled, TIMESTAMP, TRADE_NO};
use crate::app::identity::OVERLAP_S_MAX;
use crate::dispatch::egress::URL_BYTES_MAX;
use crate::operator::applications::{CALLBACK_CONCURRENCY_MAX, CALLBACK_RATE_MAX, RATE_MAX};
use crate::operator::audit::WORDS_CHARS_MAX;
use crate::operator::callbacks::REASON_CHARS_MAX;
use crate::operator::convert_orders::QUOTE_ID_CHARS_MAX;
use crate::operator::events::{BIZ_ID_CHARS_MAX, WORD_CHARS_MAX};
use crate::operator::fields::NAME_CHARS_MAX;
use crate::operator::merchants::USER_ID_MAX;
use crate::operator::paging::LIMIT_MAX;
use crate::operator::{redeliveries, tokens};

/// An amount, or nothing, which counts as absent.
pub const AMOUNT_OR_NONE: &str = r"^([0-9]+(\.[0-9]{1,6})?)?$";
/// A trade number, or nothing, which counts as absent.
pub const TRADE_NO_OR_NONE: &str = "^[A-Za-z0-9_-]{0,100}$";
const PERCENT_MAX: i64 = 100;
const MICROS: i64 = 1_000_000;
const FIXED_MAX: i64 = TRANSACTION_MAX.micros() / MICROS;

fn whole_up_to(max: u64) -> Rule {
    Whole(1, i64::try_from(max).unwrap_or(i64::MAX))
}

fn text(max: usize) -> Rule {
    Chars(0, max)
}

fn statuses() -> Rule {
    Words(PaymentStatus::ALL.map(PaymentStatus::name).to_vec())
}

/// 1 created, 3 success, 6 failed.
fn convert_statuses() -> Rule {
    Codes(vec![1, 3, 6])
}

fn outcomes() -> Rule {
    Words(Outcome::ALL.map(Outcome::name).to_vec())
}

fn delivery_states() -> Rule {
    Words(DeliveryState::ALL.map(DeliveryState::name).to_vec())
}

/// What becomes of callbacks of an application.
const FLOWS: [&str; 7] =
    ["enabled", "held_since_restore", "merchant_disabled", "paused", "gone", "no_url", "no_secret"];

fn breakers() -> Rule {
    Words(vec!["closed", "open", "half_open"])
}

fn roles() -> Rule {
    Words(vec!["viewer", "operator", "security"])
}

/// Of orders, as both documents show them.
fn of_orders() -> Vec<Ruled> {
    vec![
        ("ConvertOrder", "order_id", Form(ORDER_ID)),
        ("ConvertOrder", "sellCurrency", Form(CURRENCY)),
        ("ConvertOrder", "buyCurrency", Form(CURRENCY)),
        ("ConvertOrder", "status", convert_statuses()),
        ("PaymentOrder", "currency", Form(CURRENCY)),
        ("PaymentOrder", "status", statuses()),
    ]
}

/// Of the merchant document's properties.
pub fn of_merchants() -> Vec<Ruled> {
    [of_orders(), of_requests()].into_iter().flatten().collect()
}

fn of_requests() -> Vec<Ruled> {
    vec![
        ("RuleRequest", "sub_merchant_id", Form(ID)),
        ("RuleRequest", "r_markup", UpTo(PERCENT_MAX)),
        ("RuleRequest", "f_markup", UpTo(FIXED_MAX)),
        ("RuleListRequest", "pageNum", whole_up_to(PAGE_NUM_MAX)),
        ("RuleListRequest", "pageSize", whole_up_to(PAGE_SIZE_MAX)),
        ("RuleListRequest", "sub_merchant_id", Form(ID)),
        ("ConvertPreviewRequest", "sellCurrency", Form(CURRENCY)),
        ("ConvertPreviewRequest", "buyCurrency", Form(CURRENCY)),
        ("ConvertPreviewRequest", "sellAmount", Form(AMOUNT_OR_NONE)),
        ("ConvertPreviewRequest", "buyAmount", Form(AMOUNT_OR_NONE)),
        ("ConvertRequest", "clientReqId", Form(TRADE_NO)),
        ("ConvertRequest", "sellCurrency", Form(CURRENCY)),
        ("ConvertRequest", "buyCurrency", Form(CURRENCY)),
        ("ConvertRequest", "sellAmount", Form(AMOUNT)),
        ("ConvertRequest", "buyAmount", Form(AMOUNT)),
        ("ConvertPair", "pair", Form(PAIR)),
        ("ConvertPair", "sellCurrency", Form(CURRENCY)),
        ("ConvertPair", "buyCurrency", Form(CURRENCY)),
        ("ConvertQuote", "sellCurrency", Form(CURRENCY)),
        ("ConvertQuote", "buyCurrency", Form(CURRENCY)),
        ("PaymentOrderRequest", "merchantTradeNo", Form(TRADE_NO)),
        ("PaymentOrderRequest", "currency", Form(CURRENCY)),
        ("PaymentOrderRequest", "orderAmount", Form(AMOUNT)),
        ("PaymentOrderRequest", "orderExpireTime", Whole(0, UNIX_MILLIS_MAX)),
        ("PaymentOrderRequest", "channelId", text(CHANNEL_ID_CHARS_MAX)),
        ("MerchantUserId", "text", text(USER_ID_CHARS_MAX)),
        ("PaymentOrderRequest", "returnUrl", text(URL_CHARS_MAX)),
        ("PaymentOrderRequest", "cancelUrl", text(URL_CHARS_MAX)),
        ("PaymentOrderEnv", "terminalType", text(TERMINAL_TYPE_CHARS_MAX)),
        ("PaymentOrderGoods", "goodsName", text(GOODS_NAME_CHARS_MAX)),
        ("PaymentOrderGoods", "goodsDetail", text(GOODS_DETAIL_CHARS_MAX)),
        ("PaymentOrderName", "merchantTradeNo", Form(TRADE_NO_OR_NONE)),
        ("ConvertOrderListRequest", "status", convert_statuses()),
        ("ConvertOrderListRequest", "limit", whole_up_to(convert_order_list::LIMIT_MAX.into())),
        ("PaymentOrderListRequest", "status", statuses()),
        ("PaymentOrderListRequest", "createTimeFrom", Whole(0, UNIX_MILLIS_MAX)),
        ("PaymentOrderListRequest", "createTimeTo", Whole(0, UNIX_MILLIS_MAX)),
        ("PaymentOrderListRequest", "limit", whole_up_to(order_list::LIMIT_MAX.into())),
        ("PaymentOrderClosed", "result", Words(vec!["SUCCESS"])),
    ]
}

/// Of the merchant document's parameters. A path that is empty is any.
pub fn of_merchants_parameters() -> Vec<Ruled> {
    vec![
        ("", "X-Service-Timestamp", Form(TIMESTAMP)),
        ("", "X-Service-Nonce", Form("^[A-Za-z0-9._-]{1,64}$")),
        ("", "X-Service-MerchantId", Form(ID)),
        ("", "X-Service-On-Behalf-Of", Form(ID)),
        (rule_query::PATH, "sub_merchant_id", Form(ID)),
        (rule_query::PATH, "query_time", Form(super::bounds::RULE_DATE)),
        (convert_order::PATH, "orderId", Form(ORDER_ID)),
        (convert_pair::PATH, "currency", Form(CURRENCY)),
        (events::PATH, "after", AtLeast(0)),
        (events::PATH, "limit", whole_up_to(events::LIMIT_MAX.into())),
    ]
}

/// Of the operator document's properties.
pub fn of_operators() -> Vec<Ruled> {
    [of_orders(), of_identities(), of_applications(), of_money(), of_events()].into_iter().flatten().collect()
}

fn of_identities() -> Vec<Ruled> {
    vec![
        ("BaseRateRequest", "r_total", UpTo(PERCENT_MAX)),
        ("BaseRateRequest", "f_total", UpTo(FIXED_MAX)),
        ("InstitutionRequest", "name", Chars(1, NAME_CHARS_MAX)),
        ("InstitutionRequest", "merchant_id", Form(ID)),
        ("InstitutionRequest", "user_id", Whole(1, USER_ID_MAX)),
        ("MerchantRequest", "name", Chars(1, NAME_CHARS_MAX)),
        ("MerchantRequest", "merchant_id", Form(ID)),
        ("MerchantRequest", "user_id", Whole(1, USER_ID_MAX)),
        ("SubAccountRequest", "name", Chars(1, NAME_CHARS_MAX)),
        ("SubAccountRequest", "sub_merchant_id", Form(ID)),
        ("SubAccountRequest", "user_id", Whole(1, USER_ID_MAX)),
        ("MerchantPatch", "name", Chars(1, NAME_CHARS_MAX)),
        ("Merchant", "kind", Words(vec!["institution", "merchant", "sub_account"])),
        ("RotationRequest", "overlap_s", Whole(0, OVERLAP_S_MAX)),
        ("TokenRequest", "name", Chars(1, NAME_CHARS_MAX)),
        ("TokenRequest", "role", roles()),
        ("TokenRequest", "life_days", Whole(1, tokens::LIFE_DAYS_MAX)),
        ("NewTokenAnswer", "role", roles()),
        ("Token", "role", roles()),
        ("VerifyRequest", "limit", AtLeast(1)),
        ("Health", "status", Words(vec!["up", "ready"])),
        ("Health", "delivery", Words(vec!["held"])),
        ("Retained", "kind", Words(vec!["attempt_bytes", "events", "held_events", "attempts"])),
        ("FeeRule", "status", Words(RuleState::ALL.map(RuleState::name).to_vec())),
    ]
}

fn of_applications() -> Vec<Ruled> {
    let url = || Uri(URL_BYTES_MAX);
    let encodings = || Words(vec!["hex", "base64"]);
    let vocabularies = || Words(vec!["standard", "family"]);
    let mut rules = vec![
        ("ApplicationPatch", "callback_encoding", encodings()),
        ("ApplicationPatch", "callback_vocabulary", vocabularies()),
        ("ApplicationPatch", "timestamp_tolerance_ms", AtLeast(1)),
        ("ApplicationPatch", "rate_limit_per_s", Whole(0, RATE_MAX)),
        ("Application", "callback_url", url()),
        ("NewApplicationAnswer", "callback_url", url()),
        ("Application", "callback_encoding", encodings()),
        ("Application", "callback_vocabulary", vocabularies()),
        ("SwitchRequest", "reason", Chars(1, REASON_CHARS_MAX)),
        ("CallbacksAnswer", "state", Words(FLOWS.to_vec())),
        ("CallbacksAnswer", "breaker", breakers()),
        ("FailingEndpoint", "breaker", breakers()),
        ("FailingEndpoint", "last_outcome", Words(redeliveries::failures())),
        ("CallbacksAnswer", "last_outcome", outcomes()),
        ("TestAnswer", "outcome", outcomes()),
    ];
    for schema in ["ApplicationRequest", "ApplicationPatch"] {
        rules.extend([
            (schema, "name", Chars(1, NAME_CHARS_MAX)),
            (schema, "callback_url", url()),
            (schema, "callback_rate_per_s", Whole(0, CALLBACK_RATE_MAX)),
            (schema, "callback_concurrency", Whole(1, CALLBACK_CONCURRENCY_MAX)),
            (schema, "callback_schedule", Rule::Delays),
        ]);
    }
    rules
}

fn of_money() -> Vec<Ruled> {
    vec![
        ("ConvertOrderRequest", "order_id", Form(ORDER_ID)),
        ("ConvertOrderRequest", "userId", Whole(1, USER_ID_MAX)),
        ("ConvertOrderRequest", "sellCurrency", Form(CURRENCY)),
        ("ConvertOrderRequest", "buyCurrency", Form(CURRENCY)),
        ("ConvertOrderRequest", "sellAmount", Form(AMOUNT)),
        ("ConvertOrderRequest", "buyAmount", Form(AMOUNT)),
        ("ConvertOrderRequest", "quoteId", Chars(1, QUOTE_ID_CHARS_MAX)),
        ("ConvertOrderRequest", "createTime", Whole(0, UNIX_MILLIS_MAX)),
        ("ConvertOrderRequest", "status", convert_statuses()),
        ("ConvertOrderMove", "status", Codes(vec![3, 6])),
        ("Rate", "pair", Form(PAIR)),
        ("ConvertOrderState", "status", convert_statuses()),
        ("NumberOrText", "number", AtLeast(0)),
        ("NumberOrText", "text", Form(AMOUNT)),
        ("PaymentOrderMove", "status", Words(vec!["PROCESS", "PAID", "CLOSED"])),
        ("PaymentOrderMove", "actualAmount", Form(AMOUNT)),
        ("PaymentOrderMove", "transactTime", Whole(0, UNIX_MILLIS_MAX)),
        ("PaymentOrderEntry", "from", statuses()),
        ("PaymentOrderEntry", "to", statuses()),
        ("PaymentOrderView", "kind", Words(PaymentKind::ALL.map(PaymentKind::name).to_vec())),
        ("EvidenceKey", "algorithm", Words(vec!["Ed25519"])),
        ("StatementOrder", "f_fee_currency", Words(vec!["USDT"])),
        ("StatementTotals", "from", Instant),
        ("WhatIfReport", "from", Instant),
        ("WhatIfReport", "to", Instant),
    ]
}

fn of_events() -> Vec<Ruled> {
    vec![
        ("EventRequest", "client_id", Form(ID)),
        ("EventRequest", "bizType", Chars(1, WORD_CHARS_MAX)),
        ("EventRequest", "bizId", Chars(1, BIZ_ID_CHARS_MAX)),
        ("EventRequest", "bizStatus", Chars(1, WORD_CHARS_MAX)),
        ("Event", "state", delivery_states()),
        ("Attempt", "outcome", outcomes()),
        ("DeadCause", "outcome", Words(redeliveries::failures())),
        ("Bytes", "encoding", Words(vec!["text", "base64"])),
        ("RedeliverRequest", "client_id", Form(ID)),
        ("RedeliverRequest", "state", Words(vec!["dead", "delivered"])),
        ("RedeliverRequest", "bizId", Chars(1, BIZ_ID_CHARS_MAX)),
        ("RedeliverRequest", "from", Instant),
        ("RedeliverRequest", "to", Instant),
        ("RedeliverRequest", "outcome", Words(redeliveries::failures())),
        ("RedeliverRequest", "http_status", Whole(100, 999)),
        ("RedeliverRequest", "rate_per_s", Whole(1, redeliveries::RATE_MAX)),
        ("Redelivery", "of_state", Words(vec!["dead", "delivered"])),
        ("Redelivery", "state", Words(vec!["running", "stopped", "done"])),
        ("RedeliveryOutcomes", "state", Words(vec!["running", "stopped", "done"])),
        (
            "RedeliveryNow",
            "waits_for",
            Words(FLOWS.into_iter().filter(|flow| *flow != "enabled").chain(["breaker", "endpoint"]).collect()),
        ),
        ("Redelivery", "outcome", Words(redeliveries::failures())),
        ("Redelivery", "from", Instant),
        ("Redelivery", "to", Instant),
        ("Redelivering", "state", Words(vec!["running", "done"])),
    ]
}

/// Of the operator document's parameters. A path that is empty is any.
pub fn of_operators_parameters() -> Vec<Ruled> {
    let words = || Chars(1, WORDS_CHARS_MAX);
    vec![
        ("", "limit", whole_up_to(LIMIT_MAX.into())),
        ("", "after", Filled),
        ("", "r_markup", Form(NUMBER)),
        ("", "f_markup", Form(NUMBER)),
        ("", "Idempotency-Key", Form("^[!-~]{1,255}$")),
        ("", "merchant_id", Form(ID)),
        ("", "client_id", Form(ID)),
        ("", "sub_merchant_id", Form(ID)),
        ("", "bizId", Chars(1, BIZ_ID_CHARS_MAX)),
        ("", "merchantTradeNo", Form(TRADE_NO)),
        ("", "from", Instant),
        ("", "to", Instant),
        ("", "amount_from", Form(AMOUNT)),
        ("", "amount_to", Form(AMOUNT)),
        ("", "kind", Words(vec!["institution", "merchant", "sub_account"])),
        ("/operator/v1/rates/{pair}", "pair", Form(PAIR)),
        ("/operator/v1/audit", "actor", words()),
        ("/operator/v1/audit", "action", words()),
        ("/operator/v1/audit", "subject", words()),
        ("/operator/v1/audit", "request_id", words()),
        ("", "month", Form("^(19[7-9][0-9]|[2-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])-(0[1-9]|1[0-2])$")),
        ("", "format", Words(vec!["csv", "jsonl"])),
        ("/operator/v1/events", "state", delivery_states()),
        ("/operator/v1/payment-orders", "state", statuses()),
        ("/operator/v1/convert-orders", "state", Words(vec!["1", "3", "6"])),
    ]
}
