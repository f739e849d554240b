//! Institutions, merchants and sub-accounts: added, listed, shown, changed.

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde::Deserialize;

use super::{changes_something, json_number};
use crate::cli::numbers::whole;
use crate::cli::operator::{Call, IntoCall, Judge, PageArgs, escaped};

const MERCHANT_COLUMNS: &[&str] = &["merchant_id", "kind", "name", "enabled", "created_at"];
const SUB_ACCOUNT_COLUMNS: &[&str] = &["sub_merchant_id", "merchant_id", "name", "enabled", "created_at"];

/// What can change of a merchant of any kind.
#[derive(Clone, Debug, Args)]
pub struct UpdateArgs {
    /// Which: its merchant_id or sub_merchant_id
    pub id: String,
    /// A name for people
    #[arg(long)]
    pub name: Option<String>,
    /// false: requests of its applications are refused, and their events held; of an institution also those of its sub-accounts
    #[arg(long, value_name = "true|false")]
    pub enabled: Option<bool>,
}

/// A kind of merchant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A main merchant with sub-accounts.
    Institution,
    /// A plain merchant.
    Merchant,
    /// A sub-account of an institution.
    #[value(name = "sub_account", alias = "sub-account")]
    SubAccount,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Institution => "institution",
            Self::Merchant => "merchant",
            Self::SubAccount => "sub_account",
        }
    }
}

fn show(id: &str) -> Call {
    Call::new(Method::GET, format!("/merchants/{}", escaped(id)))
}

fn update(args: &UpdateArgs) -> Call {
    Call::new(Method::PATCH, format!("/merchants/{}", escaped(&args.id)))
        .text("name", args.name.as_deref())
        .raw("enabled", args.enabled.map(|on| on.to_string()))
}

/// A thing of this kind has to have the id before it is changed: one call changes all kinds, and none ever becomes another.
fn before(args: &UpdateArgs, wanted: Kind) -> (Call, Judge) {
    let id = args.id.clone();
    let judge = move |answer: &str| {
        let Shown { kind } =
            serde_json::from_str(answer).context("the answer does not say what kind of merchant it is")?;
        ensure!(
            kind == wanted.name(),
            "{id} is {}, not {}: nothing was changed; say `countersign {} update {id}`",
            in_words(&kind),
            in_words(wanted.name()),
            kind.replace('_', "-")
        );
        Ok(())
    };
    (show(&args.id), Box::new(judge))
}

/// What is said of a merchant.
#[derive(Deserialize)]
struct Shown {
    kind: String,
}

fn in_words(kind: &str) -> String {
    let article = if kind.starts_with('i') { "an" } else { "a" };
    format!("{article} {}", kind.replace('_', "-"))
}

/// Institutions.
#[derive(Debug, Subcommand)]
pub enum Institution {
    /// Add an institution
    Create {
        /// A name for people
        #[arg(long)]
        name: String,
        /// Its public id [default: made by the server]
        #[arg(long, value_name = "ID")]
        merchant_id: Option<String>,
        /// Base rate in percent (or as a fraction, where the deployment says so) [default: 0]
        #[arg(long, value_name = "NUMBER", value_parser = json_number, allow_negative_numbers = true)]
        base_r: Option<String>,
        /// Base fee in USDT [default: 0]
        #[arg(long, value_name = "NUMBER", value_parser = json_number, allow_negative_numbers = true)]
        base_f: Option<String>,
        /// The user id of its conversions [default: made by the server]
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
        user_id: Option<i64>,
    },
    /// List institutions
    List(PageArgs),
    /// Show one
    Show {
        /// Which
        id: String,
    },
    /// Rename, disable or enable one, or give it another base rate
    Update {
        /// What all kinds have.
        #[command(flatten)]
        args: UpdateArgs,
        /// Base rate in percent (or as a fraction, where the deployment says so)
        #[arg(long, value_name = "NUMBER", value_parser = json_number, allow_negative_numbers = true)]
        base_r: Option<String>,
        /// Base fee in USDT
        #[arg(long, value_name = "NUMBER", value_parser = json_number, allow_negative_numbers = true)]
        base_f: Option<String>,
    },
}

/// Plain merchants.
#[derive(Debug, Subcommand)]
pub enum Merchant {
    /// Add a merchant
    Create {
        /// A name for people
        #[arg(long)]
        name: String,
        /// Its public id [default: made by the server]
        #[arg(long, value_name = "ID")]
        merchant_id: Option<String>,
        /// The user id of its conversions [default: made by the server]
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
        user_id: Option<i64>,
    },
    /// List merchants of every kind, or of one
    List {
        /// Only this kind
        #[arg(long)]
        kind: Option<Kind>,
        /// Which page.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one
    Show {
        /// Which
        id: String,
    },
    /// Rename, disable or enable one of any kind
    Update(UpdateArgs),
}

/// Sub-accounts.
#[derive(Debug, Subcommand)]
pub enum SubAccount {
    /// Add a sub-account to an institution
    Create {
        /// The institution's merchant_id
        institution: String,
        /// A name for people
        #[arg(long)]
        name: String,
        /// Its public id [default: made by the server]
        #[arg(long, value_name = "ID")]
        sub_merchant_id: Option<String>,
        /// The user id of its conversions [default: made by the server]
        #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i64>)]
        user_id: Option<i64>,
    },
    /// List an institution's sub-accounts
    List {
        /// The institution's merchant_id
        institution: String,
        /// Which page.
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show one
    Show {
        /// Which
        id: String,
    },
    /// Rename, disable or enable one
    Update(UpdateArgs),
}

/// As far as it is given.
fn base_rate(r: Option<&str>, f: Option<&str>) -> Option<String> {
    let parts = [("r_total", r), ("f_total", f)];
    let given: Vec<String> =
        parts.iter().filter_map(|(name, part)| part.map(|part| format!("\"{name}\":{part}"))).collect();
    (!given.is_empty()).then(|| format!("{{{}}}", given.join(",")))
}

impl IntoCall for Institution {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::Create { name, merchant_id, base_r, base_f, user_id } => Call::new(Method::POST, "/institutions")
                .text("name", Some(name))
                .text("merchant_id", merchant_id.as_deref())
                .raw("user_id", user_id.map(|id| id.to_string()))
                .raw("base_rate", base_rate(base_r.as_deref(), base_f.as_deref())),
            Self::List(page) => Call::list("/institutions", MERCHANT_COLUMNS).page(page),
            Self::Show { id } => show(id),
            Self::Update { args, base_r, base_f } => {
                changes_something(update(args).raw("base_rate", base_rate(base_r.as_deref(), base_f.as_deref())))?
            }
        })
    }

    fn before(&self) -> Option<(Call, Judge)> {
        match self {
            Self::Update { args, .. } => Some(before(args, Kind::Institution)),
            Self::Create { .. } | Self::List(_) | Self::Show { .. } => None,
        }
    }
}

impl IntoCall for Merchant {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::Create { name, merchant_id, user_id } => Call::new(Method::POST, "/merchants")
                .text("name", Some(name))
                .text("merchant_id", merchant_id.as_deref())
                .raw("user_id", user_id.map(|id| id.to_string())),
            Self::List { kind, page } => Call::list("/merchants", MERCHANT_COLUMNS)
                .query("kind", kind.map(|kind| kind.name().to_owned()))
                .page(page),
            Self::Show { id } => show(id),
            Self::Update(args) => changes_something(update(args))?,
        })
    }
}

impl IntoCall for SubAccount {
    fn call(&self) -> anyhow::Result<Call> {
        let path = |institution: &str| format!("/institutions/{}/sub-accounts", escaped(institution));
        Ok(match self {
            Self::Create { institution, name, sub_merchant_id, user_id } => Call::new(Method::POST, path(institution))
                .text("name", Some(name))
                .text("sub_merchant_id", sub_merchant_id.as_deref())
                .raw("user_id", user_id.map(|id| id.to_string())),
            Self::List { institution, page } => Call::list(path(institution), SUB_ACCOUNT_COLUMNS).page(page),
            Self::Show { id } => show(id),
            Self::Update(args) => changes_something(update(args))?,
        })
    }

    fn before(&self) -> Option<(Call, Judge)> {
        match self {
            Self::Update(args) => Some(before(args, Kind::SubAccount)),
            Self::Create { .. } | Self::List { .. } | Self::Show { .. } => None,
        }
    }
}
