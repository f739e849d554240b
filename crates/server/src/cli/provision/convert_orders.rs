//! Convert orders: added, looked for, shown, moved.

use clap::{Subcommand, ValueEnum};
use hyper::Method;

use super::super::operator::{Call, IntoCall, PageArgs, escaped};
use super::json_number;
use crate::cli::numbers::whole;

const COLUMNS: &[&str] = &[
    "order_id",
    "merchant_id",
    "userId",
    "sellCurrency",
    "sellAmount",
    "buyCurrency",
    "buyAmount",
    "rate",
    "status",
    "quoteId",
    "createTime",
];

/// Convert orders.
#[derive(Debug, Subcommand)]
pub enum ConvertOrder {
    /// Add a convert order
    Create {
        /// Whose: merchant_id or sub_merchant_id
        merchant: String,
        /// The user it is made for
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
        user_id: Option<i64>,
        /// Currency sold
        #[arg(long)]
        sell_currency: String,
        /// Currency bought
        #[arg(long)]
        buy_currency: String,
        /// Amount sold
        #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
        sell_amount: String,
        /// Amount bought
        #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
        buy_amount: String,
        /// Quote coin per base coin of the pair, every digit kept
        #[arg(long, value_name = "NUMBER", value_parser = json_number, allow_negative_numbers = true)]
        rate: String,
        /// Its number [default: made by the server]
        #[arg(long)]
        order_id: Option<String>,
        /// The quote it rests on [default: made by the server]
        #[arg(long)]
        quote_id: Option<String>,
        /// When it was made, in milliseconds since 1970 [default: now]
        #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = whole::<i64>)]
        create_time: Option<i64>,
        /// Where it stands [default: created]
        #[arg(long)]
        status: Option<ConvertState>,
    },
    /// List convert orders in the descending order of their numbers
    List {
        /// Only in this state; `created` is what the back end has not carried out yet
        #[arg(long)]
        state: Option<ConvertState>,
        /// Only of this merchant or sub-account
        #[arg(long, visible_alias = "merchant-id", value_name = "ID")]
        merchant: Option<String>,
        /// Which page.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a convert order and every state that it came to
    Show {
        /// Which
        order_id: String,
    },
    /// Move a convert order
    Move {
        /// Which
        order_id: String,
        /// Where to
        #[arg(long)]
        status: ConvertMove,
    },
}

/// Where a convert order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConvertState {
    /// Not carried out yet: status 1.
    #[value(alias = "1")]
    Created,
    /// Carried out: status 3.
    #[value(alias = "3")]
    Success,
    /// Not carried out: status 6.
    #[value(alias = "6")]
    Failed,
}

impl ConvertState {
    const fn code(self) -> &'static str {
        match self {
            Self::Created => "1",
            Self::Success => "3",
            Self::Failed => "6",
        }
    }
}

/// Where a convert order can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConvertMove {
    /// Carried out: status 3.
    #[value(alias = "3")]
    Success,
    /// Not carried out: status 6.
    #[value(alias = "6")]
    Failed,
}

impl IntoCall for ConvertOrder {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::Create {
                merchant,
                user_id,
                sell_currency,
                buy_currency,
                sell_amount,
                buy_amount,
                rate,
                order_id,
                quote_id,
                create_time,
                status,
            } => Call::new(Method::POST, format!("/merchants/{}/convert-orders", escaped(merchant)))
                .text("order_id", order_id.as_deref())
                .raw("userId", user_id.map(|id| id.to_string()))
                .text("sellCurrency", Some(sell_currency))
                .text("buyCurrency", Some(buy_currency))
                .text("sellAmount", Some(sell_amount))
                .text("buyAmount", Some(buy_amount))
                .raw("rate", Some(rate.clone()))
                .text("quoteId", quote_id.as_deref())
                .raw("createTime", create_time.map(|ms| ms.to_string()))
                .raw("status", status.map(|status| status.code().to_owned())),
            Self::List { state, merchant, page } => Call::list("/convert-orders", COLUMNS)
                .query("state", state.map(|state| state.code().to_owned()))
                .query("merchant_id", merchant.clone())
                .page(page),
            Self::Show { order_id } => Call::new(Method::GET, format!("/convert-orders/{}", escaped(order_id))),
            Self::Move { order_id, status } => {
                let status = match status {
                    ConvertMove::Success => "3",
                    ConvertMove::Failed => "6",
                };
                Call::new(Method::PATCH, format!("/convert-orders/{}", escaped(order_id)))
                    .raw("status", Some(status.to_owned()))
            }
        })
    }
}
