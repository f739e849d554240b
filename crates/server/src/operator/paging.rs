//! Lists by cursor: `?limit=50&after=...`, `{"items":[...],"next":"..."}`.
//!
//! A list has one [`Mark`], which writes its `next` and reads its `after`: what it would not write itself it does not take. What a cursor
//! names need not be there any more: a list goes on from its place in the order.

use std::str::FromStr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::Serialize;
use utoipa::ToSchema;

use super::Desk;
use super::filters::Filters;
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

impl<T> Page<T> {
    /// A list that comes whole: it has no `limit` and no `after`.
    pub const fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// The form of a list's cursor.
#[derive(Debug)]
pub struct Mark<P> {
    /// Reads a place; of a text that `write` would not write it may make anything.
    pub read: fn(&str) -> Option<P>,
    /// Writes it.
    pub write: fn(&P) -> String,
}

/// A number of digits alone: Rust reads a plus sign before them, too.
pub fn digits<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Of lists in the order of a number that each item has for itself.
pub const NUMBER: Mark<i64> = Mark { read: |text| digits(text).filter(|number| *number >= 0), write: i64::to_string };

/// The same behind a letter, which tells the cursors of lists apart that all go by numbers.
pub const fn lettered<const LETTER: char>() -> Mark<i64> {
    Mark { read: |text| (NUMBER.read)(text.strip_prefix(LETTER)?), write: |number| format!("{LETTER}{number}") }
}

/// A list's query: which page, and which of all.
#[derive(Debug)]
pub struct Asked {
    /// Which of all.
    pub filters: Filters,
    /// At most so many items.
    pub limit: u32,
}

impl FromRequestParts<Arc<Desk>> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Desk>) -> Result<Self, Problem> {
        Self::parse(parts.uri.query().unwrap_or(""))
    }
}

impl Asked {
    fn parse(text: &str) -> Result<Self, Problem> {
        let filters = Filters::of(text);
        let within = |text: &str| digits(text).filter(|limit| (1..=LIMIT_MAX).contains(limit));
        let limit = filters.read("limit", within, &format!("must be a number from 1 to {LIMIT_MAX}"))?;
        Ok(Self { filters, limit: limit.unwrap_or(LIMIT_DEFAULT) })
    }

    /// Where the page before ended.
    pub fn after<P>(&self, mark: &Mark<P>) -> Result<Option<P>, Problem> {
        let own = |text: &str| (mark.read)(text).filter(|place| (mark.write)(place) == text);
        self.filters.read("after", own, "must be `next` of the page before")
    }

    /// One more than asked for is read: whether it is there says whether there is a next page.
    pub const fn limit_and_one(&self) -> u32 {
        self.limit + 1
    }

    /// The page of `rows`, of which one more than `limit` were asked for.
    pub fn page<R, P, T>(
        &self,
        mut rows: Vec<R>,
        mark: &Mark<P>,
        place: impl Fn(&R) -> P,
        view: impl Fn(&R) -> T,
    ) -> Page<T> {
        let more = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        let next = if more { rows.last().map(|last| (mark.write)(&place(last))) } else { None };
        Page { items: rows.iter().map(view).collect(), next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_next_page_only_where_one_more_was_found() {
        let asked = Asked::parse("limit=2").expect("a page");
        let page = asked.page(vec![1, 2, 3], &NUMBER, |n| *n, |n| *n);
        assert_eq!((page.items, page.next.as_deref()), (vec![1, 2], Some("2")));
        let page = asked.page(vec![1, 2], &NUMBER, |n| *n, |n| *n);
        assert_eq!((page.items, page.next), (vec![1, 2], None));
    }

    #[test]
    fn limits_are_bounded() {
        assert_eq!(Asked::parse("").expect("a page").limit, LIMIT_DEFAULT);
        assert_eq!(Asked::parse("limit=500").expect("a page").limit, LIMIT_MAX);
        for refused in ["limit=0", "limit=501", "limit=x", "limit=-1", "limit=", "limit", "limit=1&limit=1"] {
            assert!(Asked::parse(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_cursor_is_taken_as_it_would_be_written_and_not_otherwise() {
        let after = |query: &str| Asked::parse(query).expect("a page").after(&NUMBER);
        assert_eq!(after("").expect("reads"), None);
        assert_eq!(after("after=0").expect("reads"), Some(0));
        assert_eq!(after("after=%31%37").expect("reads"), Some(17));
        let refused =
            ["=", "=x", "=+7", "=%2B7", "=007", "=-1", "=7.0", "=9223372036854775808", "=%00", "=%ff", "=1&after=1"];
        for refused in refused.map(|value| format!("after{value}")) {
            let problem = after(&refused).expect_err(&refused);
            assert!(problem.sentence.starts_with("field after: "), "{refused}: {}", problem.sentence);
        }
    }
}
