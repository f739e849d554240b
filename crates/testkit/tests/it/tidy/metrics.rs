//! What the server counts is in the table that operators read, and what alerts go by is counted.

use super::source::{Source, line_of};
use super::{SERVER, keeps};

const PAGE: &str = "docs/RUNBOOK.md";

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

/// What rules for Prometheus go by.
fn alerts(sources: &[Source]) -> Vec<String> {
    let page = sources.iter().find(|source| source.path == PAGE).map_or("", |source| source.text.as_str());
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with("dist/alerts")) {
        for (at, _) in source.text.match_indices("countersign_") {
            let of_name = |c: char| c.is_ascii_lowercase() || c == '_';
            let name = source.text[at..].split(|c| !of_name(c)).next().unwrap_or_default();
            if !page.contains(&format!("| `{}` |", name.trim_end_matches("_bucket"))) {
                let line = line_of(&source.text, at);
                complaints.push(format!("{}:{line} goes by {name}, which {PAGE} does not know", source.path));
            }
        }
    }
    complaints
}

#[test]
fn alerts_go_by_metrics_that_there_are() {
    keeps(alerts, &[("dist/alerts.yml", "expr: rate(countersign_of_nobody_total[5m]) > 0\n")]);
    let rules = include_str!("../../../../../dist/alerts.yml");
    assert!(rules.matches("- alert: ").count() > 10 && rules.contains("countersign_callback_delay_seconds_bucket"));
    let page = include_str!("../../../../../docs/RUNBOOK.md");
    for name in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(page.contains(&format!("| `{name}` |")), "{PAGE} does not say what to do about {name}");
    }
}

#[test]
fn each_metric_has_a_line_for_operators() {
    keeps(metrics, &[("crates/server/src/a.rs", "fn a() { counter!(\"countersign_of_nobody_total\"); }\n")]);
}
