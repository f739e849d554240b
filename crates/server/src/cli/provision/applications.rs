//! Applications, and how their callbacks go out.

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use hyper::Method;
use serde::Deserialize;

use super::{changes_something, null};
use crate::cli::numbers::whole;
use crate::cli::operator::{Call, IntoCall, PageArgs, escaped};

const APPLICATION_COLUMNS: &[&str] = &[
    "client_id",
    "merchant_id",
    "name",
    "enabled",
    "merchant_enabled",
    "callback_url",
    "callback_enabled",
    "callback_gone_at",
    "created_at",
];

const FAILING_COLUMNS: &[&str] = &[
    "client_id",
    "breaker",
    "breaker_until",
    "attempts_at_once",
    "attempts_at_once_max",
    "in_flight",
    "last_attempt_at",
    "last_outcome",
];

/// Applications.
#[derive(Debug, Subcommand)]
pub enum Application {
    /// Add an application to a merchant, institution or sub-account; its Payment API Secret is shown this once
    Create {
        /// Whose: merchant_id or sub_merchant_id
        merchant: String,
        /// A name for people
        #[arg(long)]
        name: String,
        /// Where its callbacks go
        #[arg(long, value_name = "URL")]
        callback_url: Option<String>,
        /// How they go there.
        #[command(flatten)]
        endpoint: EndpointArgs,
    },
    /// List applications
    List {
        /// Only of this merchant, institution or sub-account
        #[arg(long, visible_alias = "merchant", value_name = "ID")]
        merchant_id: Option<String>,
        /// Only those whose callbacks are turned on, or off
        #[arg(long, value_name = "true|false")]
        callback_enabled: Option<bool>,
        /// Which page.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show an application
    Show {
        /// Which: its ClientId
        client_id: String,
    },
    /// Change an application
    Update(Box<UpdateArgs>),
    /// List endpoints that did not take what they got last, as the node that is asked sees them
    Failing {
        /// At most so many: 1 to 500, default 50
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
        limit: Option<u32>,
    },
    /// Show how its callbacks fare: what waits, what is dead, and how its endpoint stands
    Callbacks {
        /// Which: its ClientId
        client_id: String,
    },
    /// Stop its callbacks: what is pending is held until they are resumed
    PauseCallbacks {
        /// Which: its ClientId
        client_id: String,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Let its callbacks go out again, what was held among them
    ResumeCallbacks {
        /// Which: its ClientId
        client_id: String,
        /// Why, for the audit log
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Send it a signed callback that tells of nothing, and say what became of it; ends with 1 unless it was delivered
    TestCallback {
        /// Which: its ClientId
        client_id: String,
    },
}

/// How callbacks go to an endpoint, where it is not as the deployment says.
#[derive(Debug, Args)]
#[expect(clippy::struct_field_names, reason = "flags are named after them")]
pub struct EndpointArgs {
    /// Callbacks in a second, 1 to 10000; 0: as many as there are
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
    callback_rate_per_s: Option<u32>,
    /// Callbacks at once, 1 to 1000
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
    callback_concurrency: Option<u32>,
    /// When failed attempts are repeated, such as 5s,2m,1h
    #[arg(long, value_name = "DELAYS", value_delimiter = ',')]
    callback_schedule: Option<Vec<String>>,
}

impl EndpointArgs {
    fn on(&self, call: Call) -> Call {
        let schedule = self.callback_schedule.as_ref().map(|delays| serde_json::Value::from(delays.clone()));
        call.raw("callback_rate_per_s", self.callback_rate_per_s.map(|n| n.to_string()))
            .raw("callback_concurrency", self.callback_concurrency.map(|n| n.to_string()))
            .raw("callback_schedule", schedule.map(|list| list.to_string()))
    }
}

/// What to change of an application.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct UpdateArgs {
    /// Which: its ClientId
    client_id: String,
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// Whether its requests are accepted
    #[arg(long, value_name = "true|false")]
    enabled: Option<bool>,
    /// Where its callbacks go
    #[arg(long, value_name = "URL", conflicts_with = "no_callback_url")]
    callback_url: Option<String>,
    /// Callbacks go nowhere: events are held
    #[arg(long)]
    no_callback_url: bool,
    /// Whether callbacks go out
    #[arg(long, value_name = "true|false")]
    callback_enabled: Option<bool>,
    /// How callbacks are signed
    #[arg(long, value_name = "hex|base64")]
    callback_encoding: Option<String>,
    /// Which words callbacks use
    #[arg(long, value_name = "standard|family")]
    callback_vocabulary: Option<String>,
    /// A lower limit on the distance of its timestamps, in ms
    #[arg(long, value_name = "MS", conflicts_with = "no_timestamp_tolerance_ms", allow_negative_numbers = true, value_parser = whole::<i64>)]
    timestamp_tolerance_ms: Option<i64>,
    /// The deployment's limit counts again
    #[arg(long)]
    no_timestamp_tolerance_ms: bool,
    /// Requests per second; 0 is off
    #[arg(long, value_name = "N", conflicts_with = "no_rate_limit_per_s", allow_negative_numbers = true, value_parser = whole::<u32>)]
    rate_limit_per_s: Option<u32>,
    /// The deployment's rate counts again
    #[arg(long)]
    no_rate_limit_per_s: bool,
    /// How callbacks go out.
    #[command(flatten)]
    endpoint: EndpointArgs,
    /// The deployment's rate of callbacks counts again
    #[arg(long, conflicts_with = "callback_rate_per_s")]
    no_callback_rate_per_s: bool,
    /// The deployment's number of callbacks at once counts again
    #[arg(long, conflicts_with = "callback_concurrency")]
    no_callback_concurrency: bool,
    /// The deployment's schedule counts again
    #[arg(long, conflicts_with = "callback_schedule")]
    no_callback_schedule: bool,
}

impl UpdateArgs {
    fn call(&self) -> Call {
        let call = Call::new(Method::PATCH, format!("/applications/{}", escaped(&self.client_id)))
            .text("name", self.name.as_deref())
            .raw("enabled", self.enabled.map(|on| on.to_string()))
            .text("callback_url", self.callback_url.as_deref())
            .raw("callback_url", null(self.no_callback_url))
            .raw("callback_enabled", self.callback_enabled.map(|on| on.to_string()))
            .text("callback_encoding", self.callback_encoding.as_deref())
            .text("callback_vocabulary", self.callback_vocabulary.as_deref())
            .raw("timestamp_tolerance_ms", self.timestamp_tolerance_ms.map(|ms| ms.to_string()))
            .raw("timestamp_tolerance_ms", null(self.no_timestamp_tolerance_ms))
            .raw("rate_limit_per_s", self.rate_limit_per_s.map(|n| n.to_string()))
            .raw("rate_limit_per_s", null(self.no_rate_limit_per_s));
        self.endpoint
            .on(call)
            .raw("callback_rate_per_s", null(self.no_callback_rate_per_s))
            .raw("callback_concurrency", null(self.no_callback_concurrency))
            .raw("callback_schedule", null(self.no_callback_schedule))
    }
}

impl IntoCall for Application {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::Create { merchant, name, callback_url, endpoint } => {
                let call = Call::new(Method::POST, format!("/merchants/{}/applications", escaped(merchant)))
                    .text("name", Some(name))
                    .text("callback_url", callback_url.as_deref());
                endpoint.on(call)
            }
            Self::List { merchant_id, callback_enabled, page } => Call::list("/applications", APPLICATION_COLUMNS)
                .query("merchant_id", merchant_id.clone())
                .query("callback_enabled", callback_enabled.map(|on| on.to_string()))
                .page(page),
            Self::Failing { limit } => {
                Call::list("/callbacks/failing", FAILING_COLUMNS).query("limit", limit.map(|limit| limit.to_string()))
            }
            Self::Show { client_id } => Call::new(Method::GET, format!("/applications/{}", escaped(client_id))),
            Self::Update(args) => changes_something(args.call())?,
            Self::Callbacks { client_id } => {
                Call::new(Method::GET, format!("/applications/{}/callbacks", escaped(client_id)))
            }
            Self::PauseCallbacks { client_id, reason } => {
                callbacks(client_id, "pause").text("reason", reason.as_deref())
            }
            Self::ResumeCallbacks { client_id, reason } => {
                callbacks(client_id, "resume").text("reason", reason.as_deref())
            }
            Self::TestCallback { client_id } => callbacks(client_id, "test"),
        })
    }

    fn shown_once(&self, answer: &str) -> Option<String> {
        // The answer to a repeat has null in the place of the secret.
        #[derive(Deserialize)]
        struct New {
            client_id: String,
            #[serde(rename = "payment_api_secret")]
            _secret: String,
        }
        let New { client_id, .. } = serde_json::from_str(answer).ok()?;
        Some(format!(
            "the application {client_id} is made, but its secret is lost: `countersign secret rotate {client_id} --overlap-s 0` makes another"
        ))
    }

    fn judge(&self, answer: &str) -> anyhow::Result<()> {
        match self {
            Self::TestCallback { client_id } => delivered(client_id, answer),
            Self::Create { .. }
            | Self::List { .. }
            | Self::Failing { .. }
            | Self::Show { .. }
            | Self::Update(_)
            | Self::Callbacks { .. }
            | Self::PauseCallbacks { .. }
            | Self::ResumeCallbacks { .. } => Ok(()),
        }
    }
}

/// What became of a test callback.
#[derive(Deserialize)]
struct Tried {
    outcome: String,
    #[serde(default)]
    http_status: Option<u16>,
}

fn delivered(client_id: &str, answer: &str) -> anyhow::Result<()> {
    let Tried { outcome, http_status } =
        serde_json::from_str(answer).context("the answer does not say what became of the test callback")?;
    if outcome == "delivered" {
        return Ok(());
    }
    let status = http_status.map_or_else(String::new, |status| format!(" (status {status})"));
    bail!("the test callback of {client_id} was not delivered: {outcome}{status}")
}

fn callbacks(client_id: &str, what: &str) -> Call {
    Call::new(Method::POST, format!("/applications/{}/callbacks/{what}", escaped(client_id)))
}
