//! Answers of the operator API as people read them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use countersign_domain::time::{UnixMillis, rfc3339};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::operator::Call;
use super::pretty::{Layout, pretty};
use crate::visible::{for_terminals, json_for_terminals};

pub(super) type Members<'a> = BTreeMap<&'a str, &'a RawValue>;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    items: Vec<Members<'a>>,
    #[serde(default)]
    next: Option<String>,
    #[serde(default)]
    count_is_at_least: bool,
}

/// The answer for people: a table of a list, or one line per member of a single thing.
pub fn table(call: &Call, body: &str) -> String {
    if body.trim().is_empty() {
        return "done\n".to_owned();
    }
    if call.columns.is_empty() {
        return single(body).unwrap_or_else(|| pretty(body, 0, Layout::Tall) + "\n");
    }
    let Ok(page) = serde_json::from_str::<Page<'_>>(body) else { return pretty(body, 0, Layout::Tall) + "\n" };
    if page.items.is_empty() {
        // So many are looked at for a page: it may be empty, and not the last one.
        return page.next.map_or_else(
            || "none\n".to_owned(),
            |next| format!("none among those that were looked at: repeat with --after {next}\n"),
        );
    }
    let mut table = plain_table();
    table.set_header(call.columns);
    for item in &page.items {
        table.add_row(
            call.columns
                .iter()
                .map(|column| item.get(column).map_or_else(String::new, |value| cell(column, value.get()))),
        );
    }
    let more = page.next.map_or_else(String::new, |next| format!("there are more: repeat with --after {next}\n"));
    let at_least = if page.count_is_at_least { "counting has a bound: there may be more of each\n" } else { "" };
    format!("{table}\n{at_least}{more}")
}

/// A list for people who want all of each thing: one below the other, each by its members.
pub fn one_by_one(call: &Call, body: &str) -> String {
    #[derive(Deserialize)]
    struct Whole<'a> {
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
        next: Option<String>,
    }
    let Ok(page) = serde_json::from_str::<Whole<'_>>(body) else { return table(call, body) };
    if page.items.is_empty() {
        return table(call, body);
    }
    let things: Vec<String> = page.items.iter().filter_map(|item| single(item.get())).collect();
    things.join("\n")
        + &page.next.map_or_else(String::new, |next| format!("\nthere are more: repeat with --after {next}\n"))
}

/// Members in the order of the answer. Lists inside (attempts) are shown as indented JSON.
fn single(body: &str) -> Option<String> {
    let members = ordered_members(body)?;
    let width = members.iter().map(|(name, _)| name.chars().count()).max()?;
    Some(members.iter().fold(String::new(), |mut out, (name, value)| {
        let value =
            if value.starts_with(['{', '[']) { pretty(value, width + 2, Layout::Tall) } else { cell(name, value) };
        let _ = writeln!(out, "{name:width$}  {value}");
        out
    }))
}

fn ordered_members(body: &str) -> Option<Vec<(String, String)>> {
    struct InOrder(Vec<(String, String)>);
    impl<'de> Deserialize<'de> for InOrder {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = InOrder;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an object")
                }
                fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<InOrder, A::Error> {
                    let mut members = Vec::new();
                    while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                        members.push((name, value.get().to_owned()));
                    }
                    Ok(InOrder(members))
                }
            }
            deserializer.deserialize_map(Visitor)
        }
    }
    serde_json::from_str::<InOrder>(body).ok().map(|members| members.0)
}

/// A value as people read it: an instant of the wire (`expireTime`, ms) as a date.
fn cell(name: &str, value: &str) -> String {
    let instant = name.ends_with("Time").then(|| value.parse().ok()).flatten();
    instant.map_or_else(|| unquoted(value), |ms| rfc3339(UnixMillis(ms)))
}

/// A text without its quotes; anything else as it is written. What moves a cursor, or makes a text look like another one, is never sent to a
/// terminal: merchants write many of these texts.
fn unquoted(value: &str) -> String {
    match serde_json::from_str::<String>(value) {
        Ok(text) => for_terminals(&text),
        Err(_) if value == "null" => "-".to_owned(),
        Err(_) => json_for_terminals(value),
    }
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::*;

    #[test]
    fn a_list_becomes_a_table_and_says_how_to_go_on() {
        let call = Call::list("/events", &["event_id", "sequence"]);
        let text =
            table(&call, r#"{"items":[{"sequence":12345678901234567890123,"event_id":"evt_1","x":null}],"next":"77"}"#);
        assert!(
            text.contains("event_id") && text.contains("evt_1") && text.contains("12345678901234567890123"),
            "{text}"
        );
        assert!(text.ends_with("--after 77\n"), "{text}");
        assert_eq!(table(&call, r#"{"items":[],"next":null}"#), "none\n");
        assert_eq!(
            table(&call, r#"{"items":[],"next":"17"}"#),
            "none among those that were looked at: repeat with --after 17\n"
        );
        let text = table(&call, r#"{"items":[{"event_id":"evt_1"}],"count_is_at_least":true}"#);
        assert!(text.ends_with("there may be more of each\n"), "{text}");
    }

    #[test]
    fn a_list_of_whole_things_has_all_members_of_each() {
        let call = Call::list("/audit", &["at"]);
        let body = r#"{"items":[{"at":"1","before":{"name":"A"}},{"at":"2","before":null}],"next":"7"}"#;
        let wanted =
            "at      1\nbefore  {\"name\": \"A\"}\n\nat      2\nbefore  -\n\nthere are more: repeat with --after 7\n";
        assert_eq!(one_by_one(&call, body), wanted);
        assert_eq!(one_by_one(&call, r#"{"items":[],"next":null}"#), "none\n");
    }

    #[test]
    fn an_instant_of_the_wire_is_a_date_for_people() {
        let call = Call::list("/payment-orders", &["prepayId", "expireTime"]);
        let text = table(&call, r#"{"items":[{"prepayId":"1","expireTime":1795598943741}]}"#);
        assert!(text.contains("2026-11-25T09:29:03.741Z") && !text.contains("1795598943741"), "{text}");
        let call = Call::new(Method::GET, "/payment-orders/1");
        let text = table(&call, r#"{"expireTime":1795598943741,"transactTime":null,"amount":1795598943741}"#);
        assert_eq!(text, "expireTime    2026-11-25T09:29:03.741Z\ntransactTime  -\namount        1795598943741\n");
    }

    #[test]
    fn one_thing_is_shown_member_by_member_in_its_own_order() {
        let call = Call::new(Method::POST, "/merchants");
        let text = table(&call, r#"{"name":"A\u001b[31m\u202e","merchant_id":"m1","gone":null,"n":0.10}"#);
        assert_eq!(text, "name         A\u{fffd}[31m\u{fffd}\nmerchant_id  m1\ngone         -\nn            0.10\n");
        assert_eq!(table(&call, ""), "done\n");
    }

    #[test]
    fn what_is_inside_of_a_thing_moves_no_cursor_either() {
        let call = Call::new(Method::GET, "/events/evt_1/attempts/1");
        let inside = "{\"answer\":{\"body\":\"\u{9b}2J\u{202e}\u{2066}\u{7f}\"},\"half\":\"\\ud800\u{202e}\"}";
        let wanted = "answer  {\"body\": \"\\u009b2J\\u202e\\u2066\\u007f\"}\nhalf    \"\\ud800\\u202e\"\n";
        assert_eq!(table(&call, inside), wanted);
        let list = Call::list("/events", &["answer"]);
        let page = format!("{{\"items\":[{inside}],\"next\":null}}");
        let shown = table(&list, &page) + &one_by_one(&list, &page);
        assert!(!shown.chars().any(|c| c != '\n' && for_terminals(&c.to_string()) != c.to_string()), "{shown:?}");
        assert_eq!(table(&call, "<b>\u{1b}[2J</b>"), "<b>\u{fffd}[2J</b>\n", "somebody else's answer");
    }
}
