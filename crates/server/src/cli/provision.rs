//! Provisioning and daily business: each subcommand is one call of the operator API.

use clap::{ArgGroup, Subcommand, ValueEnum};
use hyper::Method;
use serde::Deserialize;

use super::Usage;
use super::numbers::{ordinal, whole};
use super::operator::{Call, IntoCall, PageArgs, escaped};
use super::what_if::WhatIfArgs;

mod access;
mod applications;
mod convert_orders;
mod merchants;
mod payment_orders;
mod rates;

pub use access::{RecoverArgs, Secret, Token};
pub use applications::Application;
pub use convert_orders::ConvertOrder;
pub use merchants::{Institution, Merchant, SubAccount};
pub use payment_orders::PaymentOrder;
pub use rates::Rate;

const EVENT_COLUMNS: &[&str] = &[
    "event_id",
    "client_id",
    "bizType",
    "bizId",
    "bizStatus",
    "sequence",
    "state",
    "attempt_count",
    "next_attempt_at",
    "created_at",
];
const CAUSE_COLUMNS: &[&str] =
    &["client_id", "outcome", "http_status", "count", "oldest_at", "newest_at", "example_event_id", "detail"];
const REDELIVERY_COLUMNS: &[&str] =
    &["redelivery_id", "client_id", "of_state", "count", "done", "state", "rate_per_s", "created_at", "ended_at"];
const RULE_COLUMNS: &[&str] =
    &["version_no", "config_id", "r_markup", "f_markup", "status", "effective_date", "due_date", "created_at"];

/// Callback events.
#[derive(Debug, Subcommand)]
pub enum Event {
    /// Write an event; its callback goes out at once
    Emit {
        /// To which application
        #[arg(long)]
        client_id: String,
        /// Kind of business: `PAYMENT_ORDER`, `TRANSFER_ADDRESS`, ...
        #[arg(long)]
        biz_type: String,
        /// Which payment order or transaction
        #[arg(long)]
        biz_id: String,
        /// What became of it
        #[arg(long)]
        biz_status: String,
        /// Business data: a JSON object, or a text that holds JSON
        #[arg(long, value_name = "JSON")]
        data: String,
    },
    /// List events, newest first
    List {
        /// Only of this application
        #[arg(long)]
        client_id: Option<String>,
        /// Only of this payment order or transaction
        #[arg(long)]
        biz_id: Option<String>,
        /// Only in this state
        #[arg(long)]
        state: Option<EventState>,
        /// Which page.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show an event with all its attempts
    Show {
        /// Which
        event_id: String,
    },
    /// Show one attempt with the bytes that went over the wire
    Attempt {
        /// Which event
        event_id: String,
        /// Which attempt: 1, 2, ...
        #[arg(value_name = "N", value_parser = ordinal, allow_negative_numbers = true)]
        attempt: u32,
    },
    /// Count dead events by what they died of: the first look before many are delivered again
    DeadCauses {
        /// Only of this application
        #[arg(long)]
        client_id: Option<String>,
        /// Only those that were written at this instant or later, as 2026-01-31T08:00:00Z
        #[arg(long, value_name = "INSTANT")]
        from: Option<String>,
        /// Only those that were written before this instant
        #[arg(long, value_name = "INSTANT")]
        to: Option<String>,
        /// At most so many causes: 1 to 500 [default: 50]
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
        limit: Option<u32>,
    },
    /// Deliver an event again, or now: a dead one once, a delivered one as often as its schedule has attempts left, a pending one without waiting for its next attempt
    Redeliver {
        /// Which
        event_id: String,
    },
    /// Deliver many events of an application again, or dead ones of all, the oldest first, dead ones once each; count them before with --preview
    #[command(group(ArgGroup::new("whose").required(true).args(["client_id", "all_applications"])))]
    RedeliverMany {
        /// Of which application
        #[arg(long)]
        client_id: Option<String>,
        /// Dead ones of all applications, 200 of them at once
        #[arg(long, conflicts_with = "state")]
        all_applications: bool,
        /// With --all-applications: next of the answer before
        #[arg(long, value_name = "CLIENT_ID", requires = "all_applications", conflicts_with = "client_id")]
        after: Option<String>,
        /// Those that are in this state: dead or delivered [default: dead]
        #[arg(long)]
        state: Option<OverState>,
        /// Only of this payment order or transaction
        #[arg(long)]
        biz_id: Option<String>,
        /// Only those that were written at this instant or later, as 2026-01-31T08:00:00Z
        #[arg(long, value_name = "INSTANT")]
        from: Option<String>,
        /// Only those that were written before this instant
        #[arg(long, value_name = "INSTANT")]
        to: Option<String>,
        /// Only dead ones that died of this, as `event dead-causes` says: timeout, dns_failed, ...
        #[arg(long)]
        outcome: Option<String>,
        /// Only dead ones whose last attempt was answered with this status
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u16>)]
        http_status: Option<u16>,
        /// Events in a second, at the most: 1 to 1000 [default: 50]
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
        rate_per_s: Option<u32>,
        /// Only count them
        #[arg(long)]
        preview: bool,
    },
    /// List redeliveries of many events, newest first
    Redeliveries {
        /// Only of this application
        #[arg(long)]
        client_id: Option<String>,
        /// Which page.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show how far a redelivery is
    Redelivery {
        /// Which
        redelivery_id: String,
    },
    /// Show how the events of a redelivery fared so far
    RedeliveryOutcomes {
        /// Which
        redelivery_id: String,
    },
    /// Stop a redelivery; what is pending goes out
    StopRedelivery {
        /// Which
        redelivery_id: String,
    },
}

/// Where an event's delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EventState {
    /// Waits for its next attempt.
    Pending,
    /// Waits for a URL, or for its callbacks or its merchant to be enabled.
    Held,
    /// Acknowledged.
    Delivered,
    /// The schedule is used up.
    Dead,
}

impl EventState {
    const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Held => "held",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

/// What is over, and so may be sent again by a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverState {
    /// Acknowledged.
    Delivered,
    /// The schedule is used up.
    Dead,
}

impl OverState {
    const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

/// Fee rules.
#[derive(Debug, Subcommand)]
pub enum FeeRule {
    /// List all versions of a sub-account's rule
    List {
        /// Whose: sub_merchant_id
        sub_account: String,
        /// Which page.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Try a rule that is not made yet on what was paid: what it would have brought. Nothing is changed
    WhatIf(WhatIfArgs),
}

/// What clears a field.
fn null(clears: bool) -> Option<String> {
    clears.then(|| "null".to_owned())
}

fn changes_something(call: Call) -> anyhow::Result<Call> {
    let nothing = || Usage("nothing to change: name at least one field, such as --enabled false".to_owned());
    anyhow::ensure!(!call.body.is_empty(), nothing());
    Ok(call)
}

/// A JSON number, kept as it was typed.
fn json_number(text: &str) -> Result<String, String> {
    let is_number = text.starts_with(|c: char| c == '-' || c.is_ascii_digit()) && !text.contains(['e', 'E']);
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) if is_number && text.trim() == text => Ok(text.to_owned()),
        Ok(_) | Err(_) => Err("a plain number is wanted, such as 0.3".to_owned()),
    }
}

impl IntoCall for Event {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::Emit { client_id, biz_type, biz_id, biz_status, data } => {
                let call = Call::new(Method::POST, "/events")
                    .text("client_id", Some(client_id))
                    .text("bizType", Some(biz_type))
                    .text("bizId", Some(biz_id))
                    .text("bizStatus", Some(biz_status));
                let is_object =
                    data.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(data).is_ok();
                if is_object { call.raw("data", Some(data.clone())) } else { call.text("data", Some(data)) }
            }
            Self::List { client_id, biz_id, state, page } => Call::list("/events", EVENT_COLUMNS)
                .query("client_id", client_id.clone())
                .query("bizId", biz_id.clone())
                .query("state", state.map(|state| state.name().to_owned()))
                .page(page),
            Self::DeadCauses { client_id, from, to, limit } => Call::list("/events/dead-causes", CAUSE_COLUMNS)
                .query("client_id", client_id.clone())
                .query("from", from.clone())
                .query("to", to.clone())
                .query("limit", limit.map(|limit| limit.to_string())),
            Self::Show { event_id } => Call::new(Method::GET, format!("/events/{}", escaped(event_id))),
            Self::Attempt { event_id, attempt } => {
                Call::new(Method::GET, format!("/events/{}/attempts/{attempt}", escaped(event_id)))
            }
            Self::Redeliver { event_id } => Call::new(Method::POST, format!("/events/{}/redeliver", escaped(event_id))),
            Self::RedeliverMany {
                client_id,
                all_applications,
                after,
                state,
                biz_id,
                from,
                to,
                outcome,
                http_status,
                rate_per_s,
                preview,
            } => Call { writes: !preview, ..Call::new(Method::POST, "/events/redeliver") }
                .text("client_id", client_id.as_deref())
                .raw("all_applications", all_applications.then(|| "true".to_owned()))
                .text("after", after.as_deref())
                .text("state", state.map(OverState::name))
                .text("bizId", biz_id.as_deref())
                .text("from", from.as_deref())
                .text("to", to.as_deref())
                .text("outcome", outcome.as_deref())
                .raw("http_status", http_status.map(|status| status.to_string()))
                .raw("rate_per_s", rate_per_s.map(|rate| rate.to_string()))
                .raw("preview", preview.then(|| "true".to_owned())),
            Self::Redeliveries { client_id, page } => {
                Call::list("/redeliveries", REDELIVERY_COLUMNS).query("client_id", client_id.clone()).page(page)
            }
            Self::Redelivery { redelivery_id } => {
                Call::new(Method::GET, format!("/redeliveries/{}", escaped(redelivery_id)))
            }
            Self::RedeliveryOutcomes { redelivery_id } => {
                Call::new(Method::GET, format!("/redeliveries/{}/outcomes", escaped(redelivery_id)))
            }
            Self::StopRedelivery { redelivery_id } => {
                Call::new(Method::POST, format!("/redeliveries/{}/stop", escaped(redelivery_id)))
            }
        })
    }

    fn notice(&self, answer: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Stands {
            state: String,
        }
        let (Self::Redelivery { redelivery_id } | Self::StopRedelivery { redelivery_id }) = self else { return None };
        // What is done has sent its events on their way: they may all have died again.
        let is_over = serde_json::from_str::<Stands>(answer).ok()?.state != "running";
        is_over.then(|| format!("How its events fared: `countersign event redelivery-outcomes {redelivery_id}`."))
    }
}

impl IntoCall for FeeRule {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::List { sub_account, page } => {
                Call::list("/fee-rules", RULE_COLUMNS).query("sub_merchant_id", Some(sub_account.clone())).page(page)
            }
            Self::WhatIf(args) => args.call(),
        })
    }
}

#[cfg(test)]
mod tests;
