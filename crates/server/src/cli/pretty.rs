//! JSON for people: indented again, every figure and letter as it came.
//!
//! Reading numbers and writing them anew would lose digits, so only the white space between tokens changes; and what a terminal would obey, or
//! not show, stands as an escape.

use crate::visible::{json_for_terminals, lines_for_terminals};

/// A list or object that does not fit on a line of so many characters is broken.
const LINE_CHARS_MAX: usize = 100;

/// How what does not fit on one line is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One member a line.
    Tall,
    /// As many members on a line as fit.
    Filled,
}

/// Indents a JSON text by `margin` spaces. What is no JSON comes back line by line as it is, but for what a terminal would obey.
pub fn pretty(text: &str, margin: usize, layout: Layout) -> String {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return lines_for_terminals(text);
    }
    let mut out = String::with_capacity(text.len() * 2);
    write_value(&json_for_terminals(&compact(text)), margin, layout, &mut out);
    out
}

/// Removes the white space between tokens.
pub fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_text, mut escaped) = (false, false);
    for c in text.chars() {
        if in_text {
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            in_text = c == '"';
        }
        out.push(c);
    }
    out
}

/// The brackets and the parts of a list or object; none for anything else.
fn opened(value: &str) -> Option<(char, Vec<&str>, char)> {
    let (open, close) = (value.chars().next()?, value.chars().last()?);
    matches!((open, close), ('{', '}') | ('[', ']')).then(|| (open, parts(&value[1..value.len() - 1]), close))
}

fn write_value(value: &str, indent: usize, layout: Layout, out: &mut String) {
    let whole = one_line(value);
    let Some((open, parts, close)) = opened(value) else { return out.push_str(value) };
    let has_inner =
        parts.iter().any(|part| opened(&part[key_length(part)..]).is_some_and(|(_, inner, _)| !inner.is_empty()));
    let stays_whole = layout == Layout::Filled || !has_inner;
    if parts.is_empty() || (stays_whole && indent + whole.chars().count() <= LINE_CHARS_MAX) {
        return out.push_str(&whole);
    }
    let inner = indent + 2;
    let mut column = LINE_CHARS_MAX;
    out.push(open);
    for (at, part) in parts.iter().enumerate() {
        let short = one_line(part);
        let width = short.chars().count() + 1;
        let key_end = key_length(part);
        let fits_alone = inner + width <= LINE_CHARS_MAX || opened(&part[key_end..]).is_none();
        if at > 0 {
            out.push(',');
        }
        if layout == Layout::Filled && fits_alone && column + 1 + width <= LINE_CHARS_MAX {
            out.push(' ');
            column += 1 + width;
        } else {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', inner));
            column = inner + width;
        }
        if fits_alone && layout == Layout::Filled {
            out.push_str(&short);
        } else {
            out.push_str(&part[..key_end]);
            out.push_str(if key_end > 0 { " " } else { "" });
            write_value(&part[key_end..], inner, layout, out);
            column = LINE_CHARS_MAX;
        }
    }
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
    out.push(close);
}

/// A value or a member on one line, with blanks where people expect them.
fn one_line(part: &str) -> String {
    let key_end = key_length(part);
    let value = &part[key_end..];
    let value = match opened(value) {
        Some((open, parts, close)) => {
            let inner: Vec<String> = parts.into_iter().map(one_line).collect();
            format!("{open}{}{close}", inner.join(", "))
        }
        None => value.to_owned(),
    };
    if key_end == 0 { value } else { format!("{} {value}", &part[..key_end]) }
}

/// Length of `"key":` at the beginning of a member; 0 for an element of a list.
fn key_length(part: &str) -> usize {
    if !part.starts_with('"') {
        return 0;
    }
    let mut escaped = false;
    for (at, c) in part.char_indices().skip(1) {
        if c == '"' && !escaped {
            return if part[at + 1..].starts_with(':') { at + 2 } else { 0 };
        }
        escaped = !escaped && c == '\\';
    }
    0
}

/// Splits at the commas of the outermost level.
fn parts(inside: &str) -> Vec<&str> {
    let (mut depth, mut in_text, mut escaped, mut begin) = (0_u32, false, false, 0);
    let mut found = Vec::new();
    for (at, c) in inside.char_indices() {
        if in_text {
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => in_text = true,
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(&inside[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if begin < inside.len() {
        found.push(&inside[begin..]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_stay_on_one_line_and_long_ones_are_broken() {
        assert_eq!(pretty(r#" { "a" : 1 } "#, 0, Layout::Tall), r#"{"a": 1}"#);
        assert_eq!(pretty("[]", 0, Layout::Tall), "[]");
        assert_eq!(pretty(r#"{"a":{}}"#, 4, Layout::Tall), r#"{"a": {}}"#);
        assert_eq!(pretty(r#"{"a":1,"b":[1,2]}"#, 0, Layout::Tall), "{\n  \"a\": 1,\n  \"b\": [1, 2]\n}");
        assert_eq!(pretty(r#"{"a":1,"b":[1,2]}"#, 0, Layout::Filled), r#"{"a": 1, "b": [1, 2]}"#);
        assert_eq!(pretty(r#"[{"a":1}]"#, 2, Layout::Tall), "[\n    {\"a\": 1}\n  ]");
    }

    #[test]
    fn filled_lines_end_before_the_margin() {
        let members: Vec<String> = (0..20).map(|n| format!(r#""name{n}":"value {n}""#)).collect();
        let text = format!("{{{},\"inner\":{{{}}}}}", members.join(","), members.join(","));
        let filled = pretty(&text, 5, Layout::Filled);
        assert!(filled.lines().all(|line| line.chars().count() <= LINE_CHARS_MAX), "{filled}");
        assert!(filled.lines().count() < 15, "{filled}");
        assert_eq!(compact(&filled), text);
    }

    #[test]
    fn every_figure_and_letter_stays_as_it_came() {
        let text = r#"{"rate":0.123456789012345678901,"big":123456789012345678901234567890,"t":"a, \"b\": {x} \\","e":"\u00e9"}"#;
        assert_eq!(compact(&pretty(text, 3, Layout::Filled)), text);
        assert_eq!(compact(&pretty(text, 3, Layout::Tall)), text);
        assert_eq!(compact(text), text);
    }

    #[test]
    fn what_a_terminal_would_obey_is_an_escape() {
        let text = "{\"a\u{9b}31m\":[\"\u{202e}\u{7f}\"],\"b\":\"\\u001b\"}";
        let shown = pretty(text, 0, Layout::Filled);
        assert_eq!(shown, r#"{"a\u009b31m": ["\u202e\u007f"], "b": "\u001b"}"#);
        let value = |text| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(&shown), value(text));
    }

    #[test]
    fn what_is_no_json_comes_back_as_it_is_but_for_what_a_terminal_would_obey() {
        for text in ["", "<html>", "{\"a\":1", "ok\n"] {
            assert_eq!(pretty(text, 2, Layout::Tall), text);
        }
        assert_eq!(pretty("<b>\n\u{1b}[2J\u{9b}\n", 0, Layout::Tall), "<b>\n\u{fffd}[2J\u{fffd}\n");
    }
}
