//! Payment orders: one in two is paid, under a rule or without one.

use std::sync::Arc;

use anyhow::{Context, Result};
use countersign_domain::fees::{self, MarkupUnit};
use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_domain::money::{Amount, Currency};
use countersign_domain::payment_order::{Content, PaymentKind, PaymentOrder, PaymentStatus, PrepayId};
use countersign_store::Write;
use countersign_store::payment_order::{PaymentMoveRow, PaymentOrderRow, PaymentOrderWrite, Received};

use super::{at, version};

fn order(n: i64) -> Result<PaymentOrder> {
    let content = Content {
        kind: if n % 2 == 0 { PaymentKind::Order } else { PaymentKind::Native },
        currency: Currency::parse("USDT").context("a code")?,
        amount: Amount::from_micros(1_000_000 + n),
        merchant_user_id: (n % 5 == 0).then(|| format!("payer {n}")),
        channel_id: None,
        goods_name: Some(format!("N\u{ba} {n}")),
        goods_detail: None,
    };
    Ok(PaymentOrder {
        prepay_id: PrepayId::new(n + 1, n.unsigned_abs()),
        trade_no: format!("T-{n}"),
        content,
        terminal_type: (n % 4 == 0).then(|| "APP".to_owned()),
        return_url: None,
        cancel_url: (n % 7 == 0).then(|| "https://shop.example/cancel".to_owned()),
        status: PaymentStatus::Pending,
        created_at: at(n),
        expires_at: at(n + 3_600_000),
        actual_amount: None,
        transact_at: None,
        paid_at: None,
        fee: None,
        revision: 1,
    })
}

/// An order of a sub-account, made and, every other time, paid.
pub(super) fn pay(tenant: TenantNo, merchant: MerchantNo, n: i64, writes: &mut Vec<Write>) -> Result<()> {
    let row = PaymentOrderRow {
        tenant,
        merchant,
        application: ApplicationNo(tenant.0),
        client_id: format!("app_{}", tenant.0 / 1000 - 1),
        actor: "application:generated".to_owned(),
        request_id: format!("req{n}"),
        order: order(n)?,
    };
    let received = Received {
        head: format!("POST /v1/pay/order\nx-service-nonce: n{n}"),
        body: format!("{{\"merchantTradeNo\":\"T-{n}\"}}").into_bytes(),
    };
    writes.push(Write::PaymentOrder(Box::new(PaymentOrderWrite::Insert {
        row: row.clone(),
        received: Arc::new(received),
    })));
    if n % 2 == 0 {
        let rule = if n % 4 == 0 { Some(version(0, merchant.0, 1 + n % 3, n)?) } else { None };
        let (amount, currency) = (row.order.content.amount, &row.order.content.currency);
        let paid = PaymentOrder {
            status: PaymentStatus::Paid,
            actual_amount: Some(amount),
            transact_at: Some(at(n + 1)),
            paid_at: Some(at(n + 2)),
            fee: Some(fees::fix(amount, currency, rule.as_ref(), MarkupUnit::Percent).context("within bounds")?),
            revision: 2,
            ..row.order.clone()
        };
        let entry = PaymentMoveRow {
            revision: 2,
            was: PaymentStatus::Pending,
            status: PaymentStatus::Paid,
            at: at(n + 2),
            actor: "token:tok_1".to_owned(),
            request_id: format!("move{n}"),
        };
        let row = PaymentOrderRow { order: paid, ..row };
        writes.push(Write::PaymentOrder(Box::new(PaymentOrderWrite::Move { row, entry })));
    }
    Ok(())
}
