//! Rates: put by the platform's back end, looked at by operators.

use std::sync::Arc;

use axum::extract::State;
use countersign_domain::conversion::{Limits, Pair};
use countersign_domain::money::{Amount, AmountRefused, TRANSACTION_MAX};
use countersign_domain::time::rfc3339;
use countersign_protocol::body::Fields;
use countersign_protocol::exact::Exact;
use countersign_store::contract::Cursor;
use countersign_store::conversion::RateRow;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::call::{Call, Named, Reply, json};
use super::fields::{NumberOrText, given, rate, rate_schema};
use super::paging::{Asked, Mark, Page};
use super::problem::{Problem, ProblemDocument};
use crate::app::App;
use crate::app::rates::{self, Wanted};

/// A rate as it is put, whole: a limit that is left out is none.
#[derive(Debug, ToSchema)]
pub struct RateRequest {
    /// Quote coin per base coin, more than 0: a number or a text, every digit kept.
    #[schema(schema_with = rate_schema)]
    pub rate: Exact,
    /// Least of the base coin in one conversion: a text or a number, at most 6 decimals. Never less than 0.0001.
    #[schema(value_type = Option<NumberOrText>)]
    pub base_min: Option<String>,
    /// Most of the base coin. Never more than 5000000.
    #[schema(value_type = Option<NumberOrText>)]
    pub base_max: Option<String>,
    /// Least of the quote coin.
    #[schema(value_type = Option<NumberOrText>)]
    pub quote_min: Option<String>,
    /// Most of the quote coin.
    #[schema(value_type = Option<NumberOrText>)]
    pub quote_max: Option<String>,
}

/// A pair's rate.
#[derive(Debug, Serialize, ToSchema)]
pub struct Rate {
    /// Base and quote coin.
    pub pair: String,
    /// Quote coin per base coin.
    pub rate: Exact,
    /// Least of the base coin in one conversion; null: 0.0001.
    pub base_min: Option<String>,
    /// Most of the base coin; null: 5000000.
    pub base_max: Option<String>,
    /// Least of the quote coin; null: 0.0001.
    pub quote_min: Option<String>,
    /// Most of the quote coin; null: 5000000.
    pub quote_max: Option<String>,
    /// How often it was put.
    pub revision: i64,
    /// When it was put, RFC 3339.
    pub updated_at: String,
    /// Whether it is too old to be quoted now.
    pub stale: bool,
}

impl Rate {
    fn of(app: &App, row: &RateRow) -> Self {
        let limit = |amount: Option<Amount>| amount.map(|amount| amount.to_string());
        Self {
            pair: row.pair.to_string(),
            rate: Exact(row.rate),
            base_min: limit(row.limits.base_min),
            base_max: limit(row.limits.base_max),
            quote_min: limit(row.limits.quote_min),
            quote_max: limit(row.limits.quote_max),
            revision: row.revision,
            updated_at: rfc3339(row.updated_at),
            stale: app.policy.prices.is_stale(row, app.clock.now()),
        }
    }
}

fn parse(pair: &str, body: &[u8]) -> Result<Wanted, Problem> {
    let pair = Pair::parse(pair).ok_or_else(|| {
        Problem::field("pair", "in the path: must be two different currencies such as GT_USDT, each 2 to 10 of A-Z 0-9")
    })?;
    let fields = Fields::parse(body)?;
    let limits = Limits {
        base_min: limit(&fields, "base_min")?,
        base_max: limit(&fields, "base_max")?,
        quote_min: limit(&fields, "quote_min")?,
        quote_max: limit(&fields, "quote_max")?,
    };
    let ranges = [
        ("base_min", "base_max", limits.base_max, limits.base()),
        ("quote_min", "quote_max", limits.quote_max, limits.quote()),
    ];
    for (least, most, given, (min, max)) in ranges {
        if min > max {
            return Err(Problem::field(
                if given.is_some() { most } else { least },
                format_args!("leaves nothing between {min} and {max}; set another limit"),
            ));
        }
    }
    Ok(Wanted { pair, rate: rate(&fields, "rate")?, limits })
}

/// A limit: a text or a number, as it is; none where it is left out.
fn limit(fields: &Fields<'_>, name: &str) -> Result<Option<Amount>, Problem> {
    let Ok(raw) = given(fields, name) else { return Ok(None) };
    let text = if raw.starts_with('"') { fields.required_text(name)? } else { raw.to_owned() };
    let refused = |why| match why {
        AmountRefused::TooLarge => {
            Problem::field(name, format_args!("{why}, and no conversion is of more than {TRANSACTION_MAX}"))
        }
        AmountRefused::Form | AmountRefused::TooFine => Problem::field(name, why),
    };
    Amount::parse(&text).map(Some).map_err(refused)
}

/// Puts the rate of a pair, with its limits. It can be quoted while it is younger than the setting `rate_max_age`.
#[utoipa::path(put, path = "/operator/v1/rates/{pair}", tag = "Rates", operation_id = "put_rate",
    params(("pair" = String, Path, description = "Base and quote coin: GT_USDT")), request_body = RateRequest,
    responses((status = 200, body = Rate), (status = 400, body = ProblemDocument)))]
pub async fn put(Named(pair): Named<String>, call: Call) -> Reply {
    call.once(async {
        let wanted = parse(&pair, &call.body)?;
        let keep = |row: &RateRow| call.keep(&Rate::of(call.app(), row));
        Ok(Rate::of(call.app(), &rates::put(call.app(), &wanted, &keep, &call.actor).await?))
    })
    .await
}

const MARK: Mark<Pair> = Mark { read: Pair::parse, write: Pair::to_string };

/// Rates by the names of their pairs.
#[utoipa::path(get, path = "/operator/v1/rates", tag = "Rates", operation_id = "list_rates",
    params(("limit" = Option<u32>, Query, description = "1 to 500, default 50"), ("after" = Option<String>, Query, description = "`next` of the page before")),
    responses((status = 200, body = Page<Rate>)))]
pub async fn list(State(desk): State<Arc<Desk>>, asked: Asked) -> Reply {
    let page = Cursor { after: asked.after(&MARK)?.map(|pair| pair.to_string()), limit: asked.limit_and_one() };
    let rows = rates::list(&desk.app, page).await?;
    Ok(json(&asked.page(rows, &MARK, |row| row.pair.clone(), |row| Rate::of(&desk.app, row))))
}

/// The rate of one pair.
#[utoipa::path(get, path = "/operator/v1/rates/{pair}", tag = "Rates", operation_id = "show_rate",
    params(("pair" = String, Path, description = "Base and quote coin: GT_USDT")),
    responses((status = 200, body = Rate), (status = 404, body = ProblemDocument)))]
pub async fn show(State(desk): State<Arc<Desk>>, Named(pair): Named<String>) -> Reply {
    Ok(json(&Rate::of(&desk.app, &rates::find(&desk.app, &pair).await?)))
}
