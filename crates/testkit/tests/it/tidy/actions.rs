//! What the audit log says that was done has a name that operators can look up.

use super::source::{Source, line_of};
use super::{SERVER, keeps};

const PAGE: &str = "docs/OPERATOR-API.md";
/// What actions begin with.
const OF: [&str; 18] = [
    "application",
    "audit",
    "convert_order",
    "delivery",
    "deployment",
    "event",
    "events",
    "evidence",
    "fee_rule",
    "institution",
    "master_key",
    "merchant",
    "payment_order",
    "rate",
    "redelivery",
    "secret",
    "sub_account",
    "token",
];
/// Texts of the same form that are none.
const NOT_ACTIONS: [&str; 2] = ["audit.chain", "merchant.json"];

fn actions(sources: &[Source]) -> Vec<String> {
    let page = sources.iter().find(|source| source.path == PAGE).map_or("", |source| source.text.as_str());
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust() && source.path.starts_with(SERVER)) {
        for of in OF {
            for (at, _) in source.text.match_indices(&format!("\"{of}.")) {
                let name = source.text[at + 1..].split('"').next().unwrap_or_default();
                let is_one = |c: char| c.is_ascii_lowercase() || c == '_' || c == '.';
                let is_action = name.chars().all(is_one) && !name.ends_with('.') && !NOT_ACTIONS.contains(&name);
                if is_action && !name.ends_with(".example") && !page.contains(&format!("`{name}`")) {
                    let line = line_of(&source.text, at);
                    complaints.push(format!("{}:{line} does {name}, which {PAGE} does not list", source.path));
                }
            }
        }
    }
    complaints
}

#[test]
fn each_action_of_the_audit_log_has_a_place_for_operators() {
    keeps(actions, &[("crates/server/src/a.rs", "fn a() { did(\"token.forget\"); }\n")]);
}
