//! Who may do what: Payment API Secrets of applications, bearer tokens of operators.

use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde::Deserialize;

use crate::cli::DataArgs;
use crate::cli::numbers::{life_days, whole};
use crate::cli::operator::{Call, IntoCall, PageArgs, escaped};

const SECRET_COLUMNS: &[&str] = &[
    "secret_id",
    "fingerprint",
    "last4",
    "live",
    "signs_callbacks",
    "last_used_at",
    "uses_last_hour",
    "safe_to_retire",
    "created_at",
    "not_after",
];
const TOKEN_COLUMNS: &[&str] =
    &["token_id", "name", "role", "live", "last_used_at", "created_at", "expires_at", "revoked_at"];

/// Payment API Secrets.
#[derive(Debug, Subcommand)]
pub enum Secret {
    /// Make a new secret, shown this once; the older ones end after the overlap, and are revoked where that is 0
    Rotate {
        /// Whose: ClientId
        client_id: String,
        /// How long older secrets stay good, in seconds [default: 86400]
        #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = whole::<u64>)]
        overlap_s: Option<u64>,
    },
    /// List an application's secrets, without the secrets, and how they are used
    List {
        /// Whose: ClientId
        client_id: String,
    },
    /// End a secret that nobody uses any more; refused where somebody may
    Retire {
        /// Whose: ClientId
        client_id: String,
        /// Which secret
        secret_id: String,
    },
    /// End a secret at once, whoever uses it
    Revoke {
        /// Whose: ClientId
        client_id: String,
        /// Which secret
        secret_id: String,
    },
    /// Sign callbacks with this secret from now on
    UseForCallbacks {
        /// Whose: ClientId
        client_id: String,
        /// Which secret
        secret_id: String,
    },
}

/// Operators' bearer tokens.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token, shown this once
    Create {
        /// A name for people
        #[arg(long)]
        name: String,
        /// What it may do; each role may do what the ones before it may
        #[arg(long, value_enum)]
        role: Role,
        /// How long it is good, in days [default: 90]
        #[arg(long, value_name = "DAYS", allow_negative_numbers = true, value_parser = whole::<u32>)]
        life_days: Option<u32>,
    },
    /// List tokens, those that have ended too
    List(PageArgs),
    /// Show a token
    Show {
        /// Which
        token_id: String,
    },
    /// End a token at once
    Revoke {
        /// Which
        token_id: String,
    },
    /// Make a token of role security at the machine, where all others are lost; needs the data folder and the master key
    Recover(RecoverArgs),
}

/// Flags of `token recover`.
#[derive(Clone, Debug, Args)]
pub struct RecoverArgs {
    /// Where the data is.
    #[command(flatten)]
    pub data: DataArgs,
    /// How long it is good, in days
    #[arg(long, value_name = "DAYS", default_value_t = 90, value_parser = life_days, allow_negative_numbers = true)]
    pub life_days: i64,
}

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Read.
    Viewer,
    /// Read and run the daily business.
    Operator,
    /// All, with identities, secrets and tokens.
    Security,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Security => "security",
        }
    }
}

impl IntoCall for Secret {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::Rotate { client_id, overlap_s } => {
                Call::new(Method::POST, format!("/applications/{}/secrets", escaped(client_id)))
                    .raw("overlap_s", overlap_s.map(|s| s.to_string()))
            }
            Self::List { client_id } => {
                Call::list(format!("/applications/{}/secrets", escaped(client_id)), SECRET_COLUMNS)
            }
            Self::Retire { client_id, secret_id } => Call::new(
                Method::POST,
                format!("/applications/{}/secrets/{}/retire", escaped(client_id), escaped(secret_id)),
            ),
            Self::Revoke { client_id, secret_id } => Call::new(
                Method::DELETE,
                format!("/applications/{}/secrets/{}", escaped(client_id), escaped(secret_id)),
            ),
            Self::UseForCallbacks { client_id, secret_id } => Call::new(
                Method::POST,
                format!("/applications/{}/secrets/{}/use-for-callbacks", escaped(client_id), escaped(secret_id)),
            ),
        })
    }

    fn shown_once(&self, answer: &str) -> Option<String> {
        // The answer to a repeat has null in the place of the secret.
        #[derive(Deserialize)]
        struct New {
            secret_id: String,
            #[serde(rename = "payment_api_secret")]
            _secret: String,
        }
        match self {
            Self::Rotate { client_id, .. } => {
                let New { secret_id, .. } = serde_json::from_str(answer).ok()?;
                Some(format!(
                    "the secret {secret_id} of {client_id} is made, but it is lost: end it with `countersign secret revoke {client_id} {secret_id}`, and rotate again"
                ))
            }
            Self::List { .. } | Self::Retire { .. } | Self::Revoke { .. } | Self::UseForCallbacks { .. } => None,
        }
    }

    fn notice(&self, answer: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct Left {
            live_secrets: usize,
            live_secrets_end_at: Option<String>,
        }
        let (Self::Revoke { client_id, .. } | Self::Retire { client_id, .. }) = self else { return None };
        let rotate = format!("`countersign secret rotate {client_id}` makes one that stays");
        match serde_json::from_str(answer).ok()? {
            Left { live_secrets: 0, .. } => Some(format!(
                "{client_id} has no live secret now: its requests are refused and its callbacks wait. {rotate}."
            )),
            Left { live_secrets_end_at: Some(end), .. } => Some(format!(
                "The last live secret of {client_id} ends at {end}: from then on its requests are refused and its callbacks wait. {rotate}."
            )),
            Left { .. } => None,
        }
    }
}

impl IntoCall for Token {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::Create { name, role, life_days } => Call::new(Method::POST, "/tokens")
                .text("name", Some(name))
                .text("role", Some(role.name()))
                .raw("life_days", life_days.map(|days| days.to_string())),
            Self::List(page) => Call::list("/tokens", TOKEN_COLUMNS).page(page),
            Self::Show { token_id } => Call::new(Method::GET, format!("/tokens/{}", escaped(token_id))),
            Self::Recover(_) => anyhow::bail!("a token is recovered at the machine, not by a call"),
            Self::Revoke { token_id } => Call::new(Method::DELETE, format!("/tokens/{}", escaped(token_id))),
        })
    }

    fn shown_once(&self, answer: &str) -> Option<String> {
        #[derive(Deserialize)]
        struct New {
            token_id: String,
            #[serde(rename = "token")]
            _token: String,
        }
        let New { token_id, .. } = serde_json::from_str(answer).ok()?;
        Some(format!(
            "the token {token_id} is made, but it is lost: end it with `countersign token revoke {token_id}`, and create another"
        ))
    }
}
