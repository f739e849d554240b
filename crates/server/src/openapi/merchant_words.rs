//! What the merchant document says of each operation in words.

use countersign_protocol::endpoint::Endpoint;

/// One line for the list of operations.
pub const fn summary(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Time => "The server's time",
        Endpoint::RuleUpgrade => "Update the fee rule of a sub-account: a new version",
        Endpoint::RuleCreate => "Create the first fee rule of a sub-account",
        Endpoint::RuleQuery => "The fee rule of a sub-account that is in force at an instant",
        Endpoint::RuleList => "The fee rules of all sub-accounts",
        Endpoint::ConvertOrder => "Query a convert order",
        Endpoint::ConvertOrderList => "The merchant's convert orders",
        Endpoint::ConvertCurrency => "Currencies that can be converted",
        Endpoint::ConvertPair => "What a currency can be converted into, or from",
        Endpoint::ConvertPreview => "A price for a conversion, and a quote that holds it",
        Endpoint::Convert => "Carry a quote out: a convert order",
        Endpoint::OrderCreate => "Create a payment order, or find the one with this trade number",
        Endpoint::OrderNative => "The same for a payment by a personal QR code",
        Endpoint::OrderQuery => "Query a payment order by either number",
        Endpoint::OrderList => "The merchant's payment orders, newest first",
        Endpoint::OrderClose => "Close a pending payment order",
        Endpoint::Events => "Past events of the application, delivered or not",
    }
}

/// What there is to know before it is called, above all whether it may be repeated.
pub const fn about(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Time => "Unsigned; no headers are needed.",
        Endpoint::RuleUpgrade => {
            "Makes version 1 where there is no rule. Only a key of the institution itself. Not idempotent: repeated, it adds another version; after a \
             lost answer query first."
        }
        Endpoint::RuleCreate => {
            "Where a version is effective or pending the answer is FEE_RULE_EXISTS. So repeat it after a lost answer: FEE_RULE_EXISTS then says that there \
             is a rule, made by your first request or by somebody else; query it. `config_id` is ignored. Only a key of the institution itself."
        }
        Endpoint::RuleQuery => {
            "Now, or in the second that `query_time` names, as it ended. Where no version is in force `has_markup` is false, its fields are null, and \
             `actual_rate` is the base rate."
        }
        Endpoint::RuleList => {
            "One record for each version that is effective or pending now, and one with `has_markup` false for each sub-account that has neither. The \
             body is at least `{}`. Ask for one page after the other: lists of one institution are read one at a time, and one that has waited for 4 s \
             is answered 503. Each page shows the rules as they are when it is read: a version that is made between two pages, or comes into force or \
             ends, may move records from one to the other."
        }
        Endpoint::ConvertOrder => "One of your own merchant, or of the sub-account that `On-Behalf-Of` names.",
        Endpoint::ConvertOrderList => {
            "Orders of your own merchant, or of the sub-account that `On-Behalf-Of` names, by descending order ID; each as the query tells it. Those \
             that this service numbers, so all that `POST /v1/pay/convert` makes, stand newest first. Go on with `next` as `after` and the same \
             `status` until `next` is null: a page may have fewer orders than `limit`, or none, and yet a `next`, since so many are looked at for a \
             page and no more. Ask for one page after the other: lists of one application are read one at a time, and one that has waited for 4 s \
             is answered 503. The body is at least `{}`."
        }
        Endpoint::ConvertCurrency => "In alphabetical order.",
        Endpoint::ConvertPair => {
            "A pair is listed whether there is a price for it now or not. Both amounts of a conversion must be within its limits."
        }
        Endpoint::ConvertPreview => {
            "The quote is good once, for your merchant only, before `expireTime`. Nothing is moved: repeat it as you like. 503 where there is no \
             current rate."
        }
        Endpoint::Convert => {
            "Idempotent by `clientReqId`: the same one with the same content is answered with the order that it made, as it is by then, also when the \
             quote is over; with other content it is DUPLICATE_TRADE_NO. Repeat it, signed afresh, until it is answered."
        }
        Endpoint::OrderCreate | Endpoint::OrderNative => {
            "Idempotent by `merchantTradeNo`: the same number with the same content is answered with the order that is there, as it is by then; with \
             other content it is DUPLICATE_TRADE_NO. Content is the operation, `currency`, `orderAmount` as a number, `merchantUserId`, `channelId` \
             and `goods`. Repeat it, signed afresh, until it is answered."
        }
        Endpoint::OrderQuery => {
            "Where both numbers are given, both must be the order's. Before you deliver: only the status PAID counts, and it does not say how much was \
             paid; compare `actualAmount` with `orderAmount`."
        }
        Endpoint::OrderList => {
            "Orders of your own merchant, whichever of its applications made them, or of the sub-account that `On-Behalf-Of` names; each as the query \
             tells it. Go on with `next` as `after` and the same filters until `next` is null: a page may have fewer orders than `limit`, or none, and \
             yet a `next`, since so many are looked at for a page and no more. Orders that are made meanwhile may be left out: begin the next time, by \
             `createTimeFrom`, a minute before this one, and know by `prepayId` what you have. Ask for one page after the other: lists of one \
             application are read one at a time, and one that has waited for 4 s is answered 503. The body is at least `{}`."
        }
        Endpoint::OrderClose => {
            "Only what is PENDING can be closed. Idempotent: what is CLOSED already is answered with success, so repeat it, signed afresh, until it is \
             answered."
        }
        Endpoint::Events => {
            "Ask for one page after the other, until `events` is empty: a page may have fewer than `limit`. Where what follows `after` is not kept any \
             more the answer is EVENTS_GONE, and its message ends with the oldest `seq`: go on with `after` one less."
        }
    }
}
