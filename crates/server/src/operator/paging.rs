//! Lists by cursor: `?limit=50&after=...`, `{"items":[...],"next":"..."}`.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use countersign_protocol::body::Query;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::problem::Problem;

/// Items of a page where nothing is said.
pub const LIMIT_DEFAULT: u32 = 50;
/// Most items of a page.
pub const LIMIT_MAX: u32 = 500;

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Send it as `after` for the next page; null: this is the last one.
    pub next: Option<String>,
}

/// A read call's query, with its page.
#[derive(Debug)]
pub struct Asked {
    query: String,
    /// At most so many items.
    pub limit: u32,
    /// The last item seen.
    pub after: Option<String>,
}

impl FromRequestParts<Arc<Desk>> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Desk>) -> Result<Self, Problem> {
        Self::parse(parts.uri.query().unwrap_or(""))
    }
}

impl Asked {
    fn parse(text: &str) -> Result<Self, Problem> {
        let query = Query::parse(text);
        let limit = match query.text("limit")? {
            None => LIMIT_DEFAULT,
            Some(text) => {
                let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                limit.ok_or_else(|| Problem::field("limit", format_args!("must be a number from 1 to {LIMIT_MAX}")))?
            }
        };
        Ok(Self { limit, after: query.text("after")?, query: text.to_owned() })
    }

    /// A filter of the query.
    pub fn filter(&self, name: &str) -> Result<Option<String>, Problem> {
        Ok(Query::parse(&self.query).text(name)?)
    }

    /// One more than asked for is read: whether it is there says whether there is a next page.
    pub const fn limit_and_one(&self) -> u32 {
        self.limit + 1
    }

    /// The page of `rows`, of which one more than `limit` were asked for.
    pub fn page<R, T>(&self, mut rows: Vec<R>, cursor: impl Fn(&R) -> String, view: impl Fn(&R) -> T) -> Page<T> {
        let more = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        let next = if more { rows.last().map(cursor) } else { None };
        Page { items: rows.iter().map(view).collect(), next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_next_page_only_where_one_more_was_found() {
        let asked = Asked::parse("limit=2").expect("a page");
        let page = asked.page(vec![1, 2, 3], i32::to_string, |n| *n);
        assert_eq!((page.items, page.next.as_deref()), (vec![1, 2], Some("2")));
        let page = asked.page(vec![1, 2], i32::to_string, |n| *n);
        assert_eq!((page.items, page.next), (vec![1, 2], None));
    }

    #[test]
    fn limits_are_bounded() {
        assert_eq!(Asked::parse("").expect("a page").limit, LIMIT_DEFAULT);
        assert_eq!(Asked::parse("limit=500").expect("a page").limit, LIMIT_MAX);
        for refused in ["limit=0", "limit=501", "limit=x", "limit=-1", "limit=1&limit=1"] {
            assert!(Asked::parse(refused).is_err(), "{refused}");
        }
    }
}
