//! The groups that the operations of both documents stand in, in their order.

use utoipa::openapi::tag::{Tag, TagBuilder};

/// Names and what they are about.
type Group = (&'static str, &'static str);

const OF_MERCHANTS: [Group; 6] = [
    (
        PAYMENT_ORDERS,
        "Orders that payers pay. Each move is told by a callback; a create may be repeated until it is answered.",
    ),
    (CONVERT_ORDERS, "Prices and conversions from one currency into another."),
    (FEE_RULES, "What an institution adds to its base rate for each sub-account: versions that are never changed."),
    (EVENTS, "What was told by callbacks, again and without gaps."),
    (TIME, "The server's clock, without a signature."),
    (
        CALLBACKS,
        "What the service sends to your endpoint. Be idempotent: an event can arrive more than once, with the same `bizType`, `bizId` and `bizStatus`.",
    ),
];
pub const PAYMENT_ORDERS: &str = "Payment orders";
pub const CONVERT_ORDERS: &str = "Convert orders";
pub const FEE_RULES: &str = "Fee rules";
pub const EVENTS: &str = "Events";
pub const TIME: &str = "Time";
pub const CALLBACKS: &str = "Callbacks";

const OF_OPERATORS: [Group; 14] = [
    ("Identities", "Institutions, plain merchants and sub-accounts."),
    ("Applications", "What merchants' systems sign as, and how their callbacks go out."),
    ("Secrets", "Payment API Secrets: rotation without a gap."),
    ("Tokens", "Who may call this API."),
    ("Rates", "The rates that conversions are priced by: put again and again."),
    (CONVERT_ORDERS, "Conversions that the back end carries out."),
    (PAYMENT_ORDERS, "Orders that the back end moves, and the statement of a month."),
    (FEE_RULES, "All versions of fee rules, and what another one would have brought."),
    ("Evidence", "All that is known of one payment order, chained and signed."),
    (EVENTS, "What merchants are told, and every attempt at it."),
    ("Redeliveries", "Events that are sent again, one or many."),
    (CALLBACKS, "How an application's endpoint fares: paused, resumed, tried out."),
    ("Audit", "Who did what, in chains that can be verified."),
    ("Deployment", "The server, its nodes and its keys."),
];

/// Of the merchant document.
pub fn of_merchants() -> Vec<Tag> {
    OF_MERCHANTS.iter().map(tag).collect()
}

/// Of the operator document.
pub fn of_operators() -> Vec<Tag> {
    OF_OPERATORS.iter().map(tag).collect()
}

fn tag((name, about): &Group) -> Tag {
    TagBuilder::new().name(*name).description(Some(*about)).build()
}
