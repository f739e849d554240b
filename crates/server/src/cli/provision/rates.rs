//! Rates of pairs.

use clap::Subcommand;
use hyper::Method;

use super::json_number;
use crate::cli::operator::{Call, IntoCall, PageArgs, escaped};

const COLUMNS: &[&str] =
    &["pair", "rate", "base_min", "base_max", "quote_min", "quote_max", "revision", "updated_at", "stale"];

/// Rates of pairs.
#[derive(Debug, Subcommand)]
pub enum Rate {
    /// Put the rate of a pair, with its limits; a limit that is not named is taken away
    Set {
        /// Base and quote coin: GT_USDT
        pair: String,
        /// Quote coin per base coin, every digit kept
        #[arg(value_name = "NUMBER", value_parser = json_number, allow_negative_numbers = true)]
        rate: String,
        /// Least of the base coin in one conversion [default: 0.0001]
        #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
        base_min: Option<String>,
        /// Most of the base coin [default: 5000000]
        #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
        base_max: Option<String>,
        /// Least of the quote coin [default: 0.0001]
        #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
        quote_min: Option<String>,
        /// Most of the quote coin [default: 5000000]
        #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
        quote_max: Option<String>,
    },
    /// List rates by pair; those that are too old to be quoted say so
    List {
        /// Which page.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show the rate of a pair
    Show {
        /// Which
        pair: String,
    },
}

impl IntoCall for Rate {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::Set { pair, rate, base_min, base_max, quote_min, quote_max } => {
                Call::new(Method::PUT, format!("/rates/{}", escaped(pair)))
                    .raw("rate", Some(rate.clone()))
                    .text("base_min", base_min.as_deref())
                    .text("base_max", base_max.as_deref())
                    .text("quote_min", quote_min.as_deref())
                    .text("quote_max", quote_max.as_deref())
            }
            Self::List { page } => Call::list("/rates", COLUMNS).page(page),
            Self::Show { pair } => Call::new(Method::GET, format!("/rates/{}", escaped(pair))),
        })
    }
}
