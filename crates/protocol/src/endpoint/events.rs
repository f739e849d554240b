//! `GET /v1/pay/events`: the application's events again, delivered or not, for a merchant who wants to be sure of them all.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::RequestRefused;
use crate::query::Query;

/// HTTP method.
pub const METHOD: &str = "GET";
/// Path.
pub const PATH: &str = "/v1/pay/events";
/// Events in one answer where nothing is said.
pub const LIMIT_DEFAULT: u32 = 100;
/// Most events in one answer.
pub const LIMIT_MAX: u32 = 500;

/// How the sentence of an EVENTS_GONE begins.
const GONE: &str =
    "what followed this `after` is not there: its time was over, or a restore of the service left numbers out";
/// How it ends, for ever: with this and the oldest `seq` that is there.
const OLDEST: &str = "; the oldest seq is ";

/// The sentence of an EVENTS_GONE.
pub fn gone(oldest: i64) -> String {
    format!("{GONE}{OLDEST}{oldest}")
}

/// The oldest `seq` that is there, read from the end of an EVENTS_GONE's sentence; none of any other sentence.
pub fn oldest_kept(sentence: &str) -> Option<i64> {
    sentence.rsplit_once(OLDEST)?.1.parse().ok().filter(|oldest| *oldest >= 1)
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Request {
    /// Events whose `seq` is greater; 0, the default, is from the first.
    #[param(required = false)]
    pub after: i64,
    /// 1 to 500; 100 by default.
    #[param(required = false)]
    pub limit: u32,
}

impl Default for Request {
    /// The first hundred.
    fn default() -> Self {
        Self { after: 0, limit: LIMIT_DEFAULT }
    }
}

impl Request {
    /// Reads a raw query string.
    pub fn parse(query: &str) -> Result<Self, RequestRefused> {
        let query = Query::parse(query);
        let after = query.integer_within("after", 0, i64::MAX)?.unwrap_or(0);
        let limit = query.integer_within("limit", 1, i64::from(LIMIT_MAX))?;
        Ok(Self { after, limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(LIMIT_DEFAULT) })
    }

    /// The query string that asks for it, without `?`.
    pub fn to_query(&self) -> String {
        format!("after={}&limit={}", self.after, self.limit)
    }
}

/// Events in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Events)]
pub struct Response {
    /// By `seq`.
    pub events: Vec<Event>,
    /// What to send as `after` for what comes next: the last `seq` here, or `after` again where there is none, which may be beyond 2^53: keep it in 64 bits, since a client that reads it as a binary float loses digits.
    pub next: i64,
}

/// One event, as its callback tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// 1, 2, 3 ... per application, without gap but for those that a restore from a backup makes.
    pub seq: i64,
    /// The same as the callback's `Event-Id` header.
    pub event_id: String,
    /// Kind of event.
    #[serde(rename = "bizType")]
    pub biz_type: String,
    /// Which order or transaction.
    #[serde(rename = "bizId")]
    pub biz_id: String,
    /// Where it stands.
    #[serde(rename = "bizStatus")]
    pub biz_status: String,
    /// The application that made it.
    pub client_id: String,
    /// JSON as text.
    pub data: String,
    /// ISO 8601, UTC.
    pub created_at: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_is_told_its_range() {
        let after = |text: &str| Request::parse(&format!("after={text}")).map(|request| request.after);
        assert_eq!(after("9223372036854775807").ok(), Some(i64::MAX));
        for refused in ["9223372036854775808", "-1", "1.5", "x", ""] {
            let told = format!("{:?}", after(refused).expect_err(refused));
            assert!(told.contains("must be a whole number from 0 to 9223372036854775807"), "{refused}: {told}");
        }
        assert!(format!("{:?}", after("1&after=2").expect_err("twice")).contains("must be given once"));
        assert_eq!(Request::parse("").map(|request| request.after).ok(), Some(0));
    }

    #[test]
    fn the_oldest_seq_is_read_back_from_the_sentence_that_tells_it() {
        for oldest in [1, 4, i64::MAX] {
            assert_eq!(oldest_kept(&gone(oldest)), Some(oldest));
            assert_eq!(oldest_kept(&format!("in other words; the oldest seq is {oldest}")), Some(oldest));
        }
        for other in
            ["", "4", "the oldest seq is 4", &gone(0), &gone(-1), &(gone(4) + "."), &gone(4).replace('4', "four")]
        {
            assert_eq!(oldest_kept(other), None, "{other}");
        }
    }
}
