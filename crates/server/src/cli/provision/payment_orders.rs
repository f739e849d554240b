//! Payment orders: looked for, shown, moved.

use clap::{Subcommand, ValueEnum};
use hyper::Method;

use super::super::operator::{Call, IntoCall, PageArgs, escaped};
use crate::cli::numbers::millis;

const COLUMNS: &[&str] = &[
    "prepayId",
    "merchantTradeNo",
    "merchantId",
    "currency",
    "orderAmount",
    "status",
    "actualAmount",
    "client_id",
    "createTime",
    "expireTime",
];

/// Payment orders.
#[derive(Debug, Subcommand)]
pub enum PaymentOrder {
    /// List payment orders, newest first
    List {
        /// Only in this state
        #[arg(long)]
        state: Option<PaymentState>,
        /// Only of this merchant or sub-account
        #[arg(long, visible_alias = "merchant-id", value_name = "ID")]
        merchant: Option<String>,
        /// Only with this trade number, whoever's
        #[arg(long)]
        trade_no: Option<String>,
        /// Only those that were made at this instant or later, as 2026-01-31T08:00:00Z
        #[arg(long, value_name = "INSTANT")]
        from: Option<String>,
        /// Only those that were made before this instant
        #[arg(long, value_name = "INSTANT")]
        to: Option<String>,
        /// Only with an orderAmount of this or more, whatever was paid
        #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
        amount_from: Option<String>,
        /// Only with an orderAmount of this or less, whatever was paid
        #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
        amount_to: Option<String>,
        /// Which page.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a payment order with its history
    Show {
        /// Which
        prepay_id: String,
    },
    /// Move a payment order; its merchant gets a callback
    Move {
        /// Which
        prepay_id: String,
        /// Where to
        #[arg(long)]
        status: PaymentMove,
        /// What was really paid [default: what an earlier move said, else the order's amount]
        #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
        actual_amount: Option<String>,
        /// When the payer paid, Unix milliseconds [default: what an earlier move said, else now, where it becomes PAID]
        #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = millis)]
        transact_time: Option<i64>,
    },
}

/// Where a payment order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum PaymentState {
    /// Waits to be paid.
    Pending,
    /// Paid in time, not yet confirmed.
    Process,
    /// Paid.
    Paid,
    /// Not paid in time.
    Expired,
    /// Given up.
    Closed,
}

/// Where a payment order can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum PaymentMove {
    /// Paid in time, not yet confirmed.
    Process,
    /// Paid: fixes the fee.
    Paid,
    /// Given up.
    Closed,
}

impl PaymentState {
    const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Process => "PROCESS",
            Self::Paid => "PAID",
            Self::Expired => "EXPIRED",
            Self::Closed => "CLOSED",
        }
    }
}

impl PaymentMove {
    const fn name(self) -> &'static str {
        match self {
            Self::Process => "PROCESS",
            Self::Paid => "PAID",
            Self::Closed => "CLOSED",
        }
    }
}

impl IntoCall for PaymentOrder {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::List { state, merchant, trade_no, from, to, amount_from, amount_to, page } => {
                Call::list("/payment-orders", COLUMNS)
                    .query("state", state.map(|state| state.name().to_owned()))
                    .query("merchant_id", merchant.clone())
                    .query("merchantTradeNo", trade_no.clone())
                    .query("from", from.clone())
                    .query("to", to.clone())
                    .query("amount_from", amount_from.clone())
                    .query("amount_to", amount_to.clone())
                    .page(page)
            }
            Self::Show { prepay_id } => Call::new(Method::GET, format!("/payment-orders/{}", escaped(prepay_id))),
            Self::Move { prepay_id, status, actual_amount, transact_time } => {
                Call::new(Method::PATCH, format!("/payment-orders/{}", escaped(prepay_id)))
                    .text("status", Some(status.name()))
                    .text("actualAmount", actual_amount.as_deref())
                    .raw("transactTime", transact_time.map(|ms| ms.to_string()))
            }
        })
    }
}
