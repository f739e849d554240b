//! Settings that are allowed and less safe than they could be, a line each.

use super::{Findings, Verdict};
use crate::config::Config;
use crate::run::dangers;

/// Looks at every setting.
pub(super) fn examine(config: &Config, findings: &mut Findings) {
    let found = dangers::unsafe_settings(config);
    if found.is_empty() {
        findings.note(Verdict::Ok, "safety", "no setting is less safe than it is shipped");
    }
    for text in found {
        findings.note(Verdict::Warn, "safety", text);
    }
}
