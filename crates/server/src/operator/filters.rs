//! Parameters of a read call that say which of all. A malformed value is refused by the parameter's name; an empty one is a value, too.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use countersign_domain::ids::is_name;
use countersign_domain::money::Amount;
use countersign_domain::time::UnixMillis;
use countersign_protocol::body::Query;
use countersign_protocol::code::Code;

use super::Desk;
use super::fields::{checked_text, in_order, instant};
use super::problem::Problem;

/// A read call's query. What is not asked for by name is ignored.
#[derive(Debug)]
pub struct Filters(String);

impl FromRequestParts<Arc<Desk>> for Filters {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Desk>) -> Result<Self, Problem> {
        Ok(Self::of(parts.uri.query().unwrap_or("")))
    }
}

impl Filters {
    /// Of what stands after the `?`.
    pub fn of(query: &str) -> Self {
        Self(query.to_owned())
    }

    /// Any text.
    pub fn text(&self, name: &str) -> Result<Option<String>, Problem> {
        Ok(Query::parse(&self.0).text(name)?)
    }

    /// The name of a merchant, a sub-account or an application. Whether there is one is for those who look it up.
    pub fn id(&self, name: &str) -> Result<Option<String>, Problem> {
        self.read(name, |text| is_name(text).then(|| text.to_owned()), "must be 1 to 64 of A-Z a-z 0-9 _ -")
    }

    /// A text of 1 to `max` characters.
    pub fn words(&self, name: &str, max: usize) -> Result<Option<String>, Problem> {
        self.text(name)?.map(|text| checked_text(name, text, 1, max)).transpose()
    }

    /// `true` or `false`.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, Problem> {
        self.read(name, |text| text.parse().ok(), "must be true or false")
    }

    /// What `read` makes of the text; `rule` is what it breaks where that is nothing.
    pub fn read<T>(&self, name: &str, read: impl Fn(&str) -> Option<T>, rule: &str) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        read(&text).map(Some).ok_or_else(|| Problem::field(name, rule))
    }

    /// The `state` of orders, which is their member `status`: whoever filters by that name is not shown all of them.
    pub fn status<T>(&self, read: impl Fn(&str) -> Option<T>, rule: &str) -> Result<Option<T>, Problem> {
        match (self.text("state")?, self.text("status")?) {
            (Some(_), Some(_)) => Err(Problem::field("status", "must not stand beside state, which is the same")),
            (None, Some(_)) => self.read("status", read, rule),
            (_, None) => self.read("state", read, rule),
        }
    }

    /// `from` (in) and `to` (out), which must leave something between them.
    pub fn span(&self) -> Result<(Option<UnixMillis>, Option<UnixMillis>), Problem> {
        let at = |name| self.text(name)?.map(|text| instant(name, &text)).transpose();
        in_order(at("from")?, at("to")?)
    }

    /// `amount_from` and `amount_to`, both in.
    pub fn amounts(&self) -> Result<(Option<Amount>, Option<Amount>), Problem> {
        let bound = |name: &str| -> Result<Option<Amount>, Problem> {
            let refuse = |why| Problem::of_field(Code::InvalidAmount, name, why);
            self.text(name)?.map(|text| Amount::parse(&text).map_err(refuse)).transpose()
        };
        let (from, to) = (bound("amount_from")?, bound("amount_to")?);
        if from.zip(to).is_some_and(|(from, to)| from > to) {
            return Err(Problem::field("amount_to", "must not be less than amount_from"));
        }
        Ok((from, to))
    }
}

/// A parameter that must be there.
pub fn needed<T>(name: &str, value: Option<T>) -> Result<T, Problem> {
    value.ok_or_else(|| Problem::field(name, "is required"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<T: std::fmt::Debug>(read: Result<T, Problem>) -> String {
        read.expect_err("refused").sentence
    }

    #[test]
    fn an_id_is_judged_by_its_form_and_an_empty_one_has_none() {
        let id = |query: &str| Filters::of(query).id("client_id");
        assert_eq!(id("").expect("reads"), None);
        assert_eq!(id("client_id=nobody-1_A").expect("reads").as_deref(), Some("nobody-1_A"));
        let long = format!("client_id={}", "a".repeat(65));
        for refused in ["client_id=", "client_id", "client_id=a%20b", "client_id=%C3%BC", &long] {
            assert!(refusal(id(refused)).starts_with("field client_id: must be 1 to 64"), "{refused}");
        }
    }

    #[test]
    fn ranges_that_hold_nothing_are_refused_by_their_end() {
        let span = |query: &str| Filters::of(query).span();
        let (one, two) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        assert!(span(&format!("from={one}&to={two}")).is_ok());
        for to in [one, "2025-12-31T00:00:00Z"] {
            assert_eq!(refusal(span(&format!("from={one}&to={to}"))), "field to: must be later than from");
        }
        let amounts = |query: &str| Filters::of(query).amounts();
        assert!(amounts("amount_from=2&amount_to=2.000").is_ok(), "both ends are in");
        assert_eq!(
            refusal(amounts("amount_from=2.01&amount_to=2")),
            "field amount_to: must not be less than amount_from"
        );
    }
}
