//! What callbacks tell of: an order that nobody has made, or what somebody names.

use countersign_domain::payment_order::{PaymentStatus, PrepayId};
use countersign_domain::time::UnixMillis;
use countersign_protocol::callback::CallbackBody;
use countersign_store::contract::Vocabulary;

use crate::app::payment_orders::{OrderData, callback_words};
use crate::chance::Chance;

/// How long before its callback an order was made, in ms; it was paid in the middle.
const AGE_MS: i64 = 60_000;
/// What was asked for, and what was paid.
const AMOUNT: &str = "12.5";

/// What callbacks tell of.
#[derive(Clone, Debug)]
pub struct Subject {
    pub biz_type: String,
    /// None: what the service says of an order.
    pub biz_status: Option<String>,
    /// None: an order that nobody has, another for each callback.
    pub biz_id: Option<String>,
    /// A JSON text; none: what the service says of an order.
    pub data: Option<String>,
}

impl Default for Subject {
    fn default() -> Self {
        let (biz_type, _) = callback_words(PaymentStatus::Paid, Vocabulary::Standard);
        Self { biz_type: biz_type.to_owned(), biz_status: None, biz_id: None, data: None }
    }
}

/// An order that callbacks tell of.
#[derive(Clone, Debug)]
pub struct Order {
    prepay_id: String,
    trade_no: String,
    made_at: UnixMillis,
}

impl Subject {
    /// The order that was named, or a new one under a number as the server draws them.
    pub(super) fn order(&self, chance: &Chance, now: UnixMillis) -> Order {
        let made_at = now.plus_ms(-AGE_MS);
        let new = || PrepayId::new(chance.order_number(made_at), chance.bits64()).to_string();
        let prepay_id = self.biz_id.clone().unwrap_or_else(new);
        Order { prepay_id, trade_no: format!("certify-{}", chance.hex(8)), made_at }
    }

    /// What a callback says of an order that has become so.
    pub(super) fn told(&self, order: &Order, status: PaymentStatus, client_id: &str) -> CallbackBody {
        let (family, _) = callback_words(status, Vocabulary::Family);
        let vocabulary = if self.biz_type == family { Vocabulary::Family } else { Vocabulary::Standard };
        let (_, biz_status) = callback_words(status, vocabulary);
        CallbackBody {
            biz_type: self.biz_type.clone(),
            biz_id: order.prepay_id.clone(),
            biz_status: self.biz_status.clone().unwrap_or_else(|| biz_status.to_owned()),
            client_id: client_id.to_owned(),
            data: self.data.clone().unwrap_or_else(|| order.data(status)),
        }
    }
}

impl Order {
    fn data(&self, status: PaymentStatus) -> String {
        let is_paid = status == PaymentStatus::Paid;
        let data = OrderData {
            merchant_trade_no: &self.trade_no,
            prepay_id: self.prepay_id.clone(),
            currency: "USDT",
            order_amount: AMOUNT.to_owned(),
            actual_amount: is_paid.then(|| AMOUNT.to_owned()),
            status: status.name(),
            create_time: self.made_at.0,
            transact_time: is_paid.then_some(self.made_at.0 + AGE_MS / 2),
        };
        data.to_json()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

    #[test]
    fn an_order_that_nobody_made_has_a_number_of_its_own_as_the_server_draws_them() {
        let (subject, chance) = (Subject::default(), Chance::default());
        let (one, other) = (subject.order(&chance, NOW), subject.order(&chance, NOW));
        assert!(PrepayId::parse(&one.prepay_id).is_some() && one.prepay_id != other.prepay_id, "{one:?} {other:?}");
        let (paid, number) = (subject.told(&one, PaymentStatus::Paid, "app_1"), &one.prepay_id);
        assert_eq!(
            paid.data,
            format!(
                r#"{{"merchantTradeNo":"{}","prepayId":"{number}","currency":"USDT","orderAmount":"12.5","actualAmount":"12.5","status":"PAID","createTime":1799999940000,"transactTime":1799999970000}}"#,
                one.trade_no
            )
        );
        assert_eq!(
            (paid.biz_type.as_str(), &paid.biz_id, paid.biz_status.as_str()),
            ("PAYMENT_ORDER", number, "SUCCESS")
        );
        let begun = subject.told(&one, PaymentStatus::Process, "app_1");
        assert!(begun.data.contains(r#""actualAmount":null,"status":"PROCESS","#), "{}", begun.data);
        assert_eq!((&begun.biz_id, begun.biz_status.as_str()), (number, "PROCESS"));
    }

    #[test]
    fn what_somebody_names_is_told_and_the_words_are_those_of_its_kind() {
        let family = Subject { biz_type: "PAY".to_owned(), ..Subject::default() };
        let order = family.order(&Chance::default(), NOW);
        let word = |status| family.told(&order, status, "app_1").biz_status;
        assert_eq!([word(PaymentStatus::Process), word(PaymentStatus::Paid)], ["PAY_PROCESS", "PAY_SUCCESS"]);
        let [biz_type, biz_status, biz_id, data] = ["T", "S", "order-7", "[]"].map(str::to_owned);
        let named = Subject { biz_type, biz_status: Some(biz_status), biz_id: Some(biz_id), data: Some(data) };
        let told = named.told(&named.order(&Chance::default(), NOW), PaymentStatus::Process, "app_1");
        let CallbackBody { biz_type, biz_id, biz_status, client_id, data } = &told;
        assert_eq!([biz_type, biz_id, biz_status, client_id, data], ["T", "order-7", "S", "app_1", "[]"]);
    }
}
