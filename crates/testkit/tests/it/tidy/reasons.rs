//! The reasons of refusals, as the log has them, are in the table that operators read, and what that table has is written.

use super::source::{Source, line_of};
use super::{SERVER, keeps};

const PAGE: &str = "docs/RUNBOOK.md";
const EXPLAIN: &str = "crates/server/src/explain.rs";
/// What stands before a reason where one is given, and where `explain` tells one.
const GIVEN: [&str; 5] =
    [".because(\"", "Failure::internal(\"", "Outcome::Gone(\"", "over_budget(\"", "Err(\"on_behalf_of_"];
const TOLD: &str = "(_, \"";

fn rows(sources: &[Source]) -> Vec<(usize, String)> {
    let page = sources.iter().find(|source| source.path == PAGE).map_or("", |source| source.text.as_str());
    let (begin, end) = ("<!-- reasons -->", "<!-- end of reasons -->");
    let begun = page.find(begin).map_or(page.len(), |at| at + begin.len());
    let until = page.find(end).unwrap_or(begun).max(begun);
    let table = page[begun..until].lines().filter_map(|line| line.strip_prefix("| `"));
    table.filter_map(|line| Some((line_of(page, begun), line.split_once('`')?.0.to_owned()))).collect()
}

fn reasons(sources: &[Source]) -> Vec<String> {
    let rows = rows(sources);
    let server = || sources.iter().filter(|source| source.is_rust() && source.path.starts_with(SERVER));
    let mut complaints = Vec::new();
    for source in server() {
        let told = (source.path == EXPLAIN).then_some(TOLD);
        for before in GIVEN.into_iter().chain(told) {
            for (at, _) in source.text.match_indices(before) {
                let quote = at + before.find('"').map_or(0, |quote| quote + 1);
                let name = source.text[quote..].split('"').next().unwrap_or_default();
                if !rows.iter().any(|(_, row)| row == name) {
                    let line = line_of(&source.text, at);
                    complaints
                        .push(format!("{}:{line} gives the reason {name}, which {PAGE} does not list", source.path));
                }
            }
        }
    }
    for (line, name) in rows {
        let written = GIVEN.map(|before| format!("{}\"{name}\"", &before[..before.find('"').unwrap_or_default()]));
        let named = [format!("=> \"{name}\","), format!(": &str = \"{name}\";")];
        let gives = |source: &Source| written.iter().chain(&named).any(|given| source.text.contains(given));
        if !server().any(|source| source.path != EXPLAIN && gives(source)) {
            complaints.push(format!("{PAGE}:{line} lists the reason {name}, which nothing gives"));
        }
    }
    complaints
}

#[test]
fn each_reason_of_a_refusal_has_a_line_for_operators() {
    let page = "<!-- reasons -->\n| `of_nobody` | x |\n<!-- end of reasons -->\n";
    let planted = [
        ("crates/server/src/a.rs", "fn a() { f.because(\"of_nobody\"); }\n"),
        (PAGE, page),
        (EXPLAIN, "(_, \"of_nobody\") => x"),
    ];
    keeps(reasons, &planted);
}
