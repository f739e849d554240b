//! What the log says at WARN and ERROR is in the tables that operators look it up in.

use super::source::{Source, line_of};
use super::{SERVER, keeps};

const PAGE: &str = "docs/RUNBOOK.md";
const STORE: &str = "crates/store/src/";
const MACROS: [&str; 2] = ["tracing::warn!(", "tracing::error!("];

/// The message up to its first value that is not the name of what a line is about, as it stands in its table.
fn begin(literal: &str) -> String {
    let text = literal.replace("\\\n", " ");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    words.split(['{', ';']).next().unwrap_or_default().trim().to_owned()
}

fn log_lines(sources: &[Source]) -> Vec<String> {
    let page = sources.iter().find(|source| source.path == PAGE).map_or("", |source| source.text.as_str());
    // Each of a line's names, up to what differs.
    let listed: Vec<String> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .flat_map(|line| line.split(" | ").next().unwrap_or_default().split('`').skip(1).step_by(2))
        .map(begin)
        .collect();
    let mut complaints = Vec::new();
    let of_program = |path: &str| (path.starts_with(SERVER) || path.starts_with(STORE)) && !path.contains("tests");
    for source in sources.iter().filter(|source| source.is_rust() && of_program(&source.path)) {
        let text = source.code_and_strings.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (at, name) in MACROS.iter().flat_map(|name| text.match_indices(name)) {
            let literal = text[at + name.len()..].split('"').nth(1).unwrap_or_default();
            let begun = begin(literal);
            if !listed.iter().any(|one| !one.is_empty() && begun.starts_with(one)) {
                let line = line_of(text, at);
                complaints.push(format!("{}:{line} logs {literal:?}, which {PAGE} does not list", source.path));
            }
        }
    }
    complaints
}

#[test]
fn each_line_at_warn_and_error_has_a_place_for_operators() {
    keeps(log_lines, &[("crates/server/src/a.rs", "fn a() { tracing::warn!(\"Nobody knows\"); }\n")]);
}
