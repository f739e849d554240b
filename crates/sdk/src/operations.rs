//! One method for each endpoint, with its name.

use countersign_protocol::endpoint::{
    convert, convert_currency, convert_order, convert_order_list, convert_pair, convert_preview, events, order_close,
    order_create, order_list, order_native, order_query, rule_create, rule_list, rule_query, rule_upgrade, time,
};
use serde::de::DeserializeOwned;

use crate::client::Client;
use crate::error::Error;

impl Client {
    /// The server's clock. Not signed.
    pub async fn time(&self) -> Result<time::Response, Error> {
        self.call_unsigned(time::METHOD, time::PATH).await?.data()
    }

    /// Makes a new version of a sub-account's fee rule. Institutions only. Not to be repeated after a lost answer, or there are two versions: note the
    /// highest `version_no` that [`rule_list`](Self::rule_list) shows of the sub-account before you ask, and find out by it. Source: docs/PROTOCOL.md,
    /// "POST /rate/commission_rule/upgrade".
    pub async fn rule_upgrade(&self, request: &rule_upgrade::Request) -> Result<rule_upgrade::Response, Error> {
        self.post(rule_upgrade::PATH, &request.to_body()).await
    }

    /// Makes the first fee rule of a sub-account; refused where one is effective or pending. Institutions only.
    pub async fn rule_create(&self, request: &rule_create::Request) -> Result<rule_create::Response, Error> {
        self.post(rule_create::PATH, &request.to_body()).await
    }

    /// The fee rule in force at a time. Institutions only.
    pub async fn rule_query(&self, request: &rule_query::Request) -> Result<rule_query::Response, Error> {
        self.get(rule_query::PATH, &request.to_query()).await
    }

    /// A page of an institution's fee rules. Institutions only.
    pub async fn rule_list(&self, request: &rule_list::Request) -> Result<rule_list::Response, Error> {
        self.post(rule_list::PATH, &request.to_body()).await
    }

    /// A convert order by its number.
    pub async fn convert_order(&self, request: &convert_order::Request) -> Result<convert_order::Response, Error> {
        self.get(convert_order::PATH, &request.to_query()).await
    }

    /// A page of the merchant's convert orders, by descending order ID. Go on with `next` as `after` and the same status until it is `None`: a page may be
    /// empty and not be the last one. Source: docs/PROTOCOL.md, "POST /v1/pay/convert/order/list".
    pub async fn convert_order_list(
        &self,
        request: &convert_order_list::Request,
    ) -> Result<convert_order_list::Response, Error> {
        self.post(convert_order_list::PATH, &request.to_body()).await
    }

    /// The currencies that can be converted.
    pub async fn convert_currency(
        &self,
        request: &convert_currency::Request,
    ) -> Result<convert_currency::Response, Error> {
        self.get(convert_currency::PATH, &request.to_query()).await
    }

    /// What a currency can be converted into, or from, and how much at once.
    pub async fn convert_pair(&self, request: &convert_pair::Request) -> Result<convert_pair::Response, Error> {
        self.get(convert_pair::PATH, &request.to_query()).await
    }

    /// A price for a conversion: its quote is good until `expire_time`, once.
    pub async fn convert_preview(
        &self,
        request: &convert_preview::Request,
    ) -> Result<convert_preview::Response, Error> {
        self.post(convert_preview::PATH, &request.to_body()).await
    }

    /// Makes a convert order of a quote: write the whole request down before you send it. Where the answer was lost, the same request again, with the same `client_req_id`, is answered with the
    /// order that it made.
    pub async fn convert(&self, request: &convert::Request) -> Result<convert::Response, Error> {
        self.post(convert::PATH, &request.to_body()).await
    }

    /// Makes a payment order, or finds the one that was made under the same trade number with the same content: write the
    /// request down before you send it, and repeat it until it is answered.
    pub async fn order_create(&self, request: &order_create::Request) -> Result<order_create::Response, Error> {
        self.post(order_create::PATH, &request.to_body()).await
    }

    /// The same for an order that is paid by a personal QR code.
    pub async fn order_native(&self, request: &order_native::Request) -> Result<order_native::Response, Error> {
        self.post(order_native::PATH, &request.to_body()).await
    }

    /// A payment order by either number.
    pub async fn order_query(&self, request: &order_query::Request) -> Result<order_query::Response, Error> {
        self.post(order_query::PATH, &request.to_body()).await
    }

    /// A page of the merchant's payment orders, newest first. Go on with `next` as `after` and the same filters until it is `None`: a page may be empty and
    /// not be the last one. What is made meanwhile may be left out, so begin the next time a minute before this time. Source: docs/PROTOCOL.md,
    /// "POST /v1/pay/order/list".
    pub async fn order_list(&self, request: &order_list::Request) -> Result<order_list::Response, Error> {
        self.post(order_list::PATH, &request.to_body()).await
    }

    /// Gives a pending payment order up. One that is closed already stays so.
    pub async fn order_close(&self, request: &order_close::Request) -> Result<order_close::Response, Error> {
        self.post(order_close::PATH, &request.to_body()).await
    }

    /// Events of this application in the order they happened, delivered or not: what a receiver that was away catches up with, by an
    /// [`EventWalk`](crate::EventWalk). They belong to the application that signs, so a client that speaks [on behalf](Client::on_behalf_of) of a
    /// sub-account has none ([`Error::Usage`]). Those of the orders that an institution's application made on behalf of a sub-account are the application's
    /// own; what the sub-account's own application made, that one pulls.
    pub async fn events(&self, request: &events::Request) -> Result<events::Response, Error> {
        if self.speaks_for().is_some() {
            let why = "events belong to the application that signs: pull them with the client that speaks on behalf of nobody";
            return Err(Error::Usage(why.to_owned()));
        }
        self.get(events::PATH, &request.to_query()).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str, query: &str) -> Result<T, Error> {
        let question = if query.is_empty() { "" } else { "?" };
        self.call("GET", &format!("{path}{question}{query}"), b"").await?.data()
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, Error> {
        self.call("POST", path, body).await?.data()
    }
}
