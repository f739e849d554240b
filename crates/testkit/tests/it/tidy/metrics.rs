//! What the server counts is in the table that operators read.

use super::source::{Source, line_of};
use super::{SERVER, keeps};

const PAGE: &str = "docs/OPERATING.md";

fn metrics(sources: &[Source]) -> Vec<String> {
    let page = sources.iter().find(|source| source.path == PAGE).map_or("", |source| source.text.as_str());
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust() && source.path.starts_with(SERVER)) {
        for (at, _) in source.text.match_indices("\"countersign_") {
            let name = source.text[at + 1..].split('"').next().unwrap_or_default();
            if !page.contains(&format!("| `{name}` |")) {
                complaints.push(format!(
                    "{}:{} counts {name}: {PAGE} has no line of it",
                    source.path,
                    line_of(&source.text, at)
                ));
            }
        }
    }
    complaints
}

#[test]
fn each_metric_has_a_line_for_operators() {
    keeps(metrics, &[("crates/server/src/a.rs", "fn a() { counter!(\"countersign_of_nobody_total\"); }\n")]);
}
