//! What is named: a payment order by its trade number, a convert order by its `clientReqId`.

use anyhow::{Result, ensure};
use countersign::app::App;
use countersign_protocol::endpoint::{convert, convert_preview, order_create};
use countersign_store::contract::{Cursor, MerchantRow};
use countersign_store::payment_order::{OrderName, PaymentOrders as _};
use countersign_store::{ConvertStore as _, Store as _};
use serde_json::{Value, json};

use super::nodes::Nodes;
use crate::wire::{Signer, once};

/// Lines of the audit log that are read at once.
const LINES: u32 = 1_000;

/// Which name it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// `merchantTradeNo` of `POST /v1/pay/order`.
    TradeNo,
    /// `clientReqId` of `POST /v1/pay/convert`.
    ClientReqId,
}

impl Subject {
    /// Both.
    pub const ALL: [Self; 2] = [Self::TradeNo, Self::ClientReqId];

    /// Its field.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TradeNo => "merchantTradeNo",
            Self::ClientReqId => "clientReqId",
        }
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::TradeNo => order_create::PATH,
            Self::ClientReqId => convert::PATH,
        }
    }

    /// The number of the order in an answer.
    pub(super) fn id(self, answer: &Value) -> Option<String> {
        let id = match self {
            Self::TradeNo => &answer["data"]["prepayId"],
            Self::ClientReqId => &answer["data"]["order_id"],
        };
        id.as_str().map(str::to_owned)
    }

    /// Two contents that are not the same, without the name.
    pub(super) async fn contents(self, nodes: &Nodes, signer: &Signer) -> Result<[Value; 2]> {
        Ok(match self {
            Self::TradeNo => ["10.5", "10.500001"].map(|amount| json!({"currency": "USDT", "orderAmount": amount})),
            Self::ClientReqId => [quoted(nodes, signer).await?, quoted(nodes, signer).await?],
        })
    }

    pub(super) fn body(self, name: &str, content: &Value) -> String {
        let mut body = content.clone();
        body[self.name()] = json!(name);
        body.to_string()
    }

    /// The number of the order under a name, as the store has it.
    pub(super) async fn found(self, app: &App, owner: &MerchantRow, name: &str) -> Result<Option<String>> {
        Ok(match self {
            Self::TradeNo => {
                let name = OrderName::TradeNo(name.to_owned());
                app.store.payment_order(owner.tenant, owner.no, name).await?.map(|row| row.order.prepay_id.to_string())
            }
            Self::ClientReqId => {
                let found = app.store.convert_request(owner.tenant, owner.no, name).await?;
                found.map(|order| order.order_id.to_string())
            }
        })
    }

    /// Orders that were ever made, by the audit log.
    pub(super) async fn made(self, app: &App) -> Result<usize> {
        let action = match self {
            Self::TradeNo => "payment_order.create",
            Self::ClientReqId => "convert_order.create",
        };
        let (mut found, mut after) = (0, None);
        loop {
            let page = app.store.audit(Cursor { after, limit: LINES }).await?;
            let Some(last) = page.last() else { return Ok(found) };
            after = Some(last.key());
            found += page.iter().filter(|line| line.action == action).count();
        }
    }
}

/// A conversion that is promised: each quote is good for one, so two of them are two contents.
async fn quoted(nodes: &Nodes, signer: &Signer) -> Result<Value> {
    let body = json!({"sellCurrency": "GT", "buyCurrency": "USDT", "sellAmount": "1.5"}).to_string();
    let draft = signer.draft(convert_preview::METHOD, convert_preview::PATH, body.as_bytes());
    let answer = once(nodes.listen(0), &draft.bytes()).await?.json();
    ensure!(answer["code"] == "000000", "a quote: {answer}");
    let quote = &answer["data"];
    Ok(json!({
        "quoteId": quote["quoteId"], "sellCurrency": quote["sellCurrency"], "buyCurrency": quote["buyCurrency"],
        "sellAmount": quote["sellAmount"], "buyAmount": quote["buyAmount"],
    }))
}
