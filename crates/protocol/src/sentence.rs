//! The one form of a sentence that refuses a part of a request: which part, a colon, and what to change.

use std::borrow::Cow;
use std::fmt::Display;

/// As much of a field's name as a sentence holds.
const NAME_CHARS_SHOWN: usize = 64;

/// What is wrong with a field of the body or the query: `field NAME: must be ...`. Names that are none of ours may be as long as a body: the
/// beginning tells which one is meant.
pub fn of_field(name: &str, why: impl Display) -> String {
    format!("field {}: {why}", shown(name))
}

/// As much of a name as a sentence holds.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(NAME_CHARS_SHOWN) {
        Some((end, _)) => format!("{}...", &name[..end]).into(),
        None => name.into(),
    }
}

/// What is wrong with the body as a whole: `body: must be ...`.
pub fn of_body(why: impl Display) -> String {
    format!("body: {why}")
}

/// What is wrong with a header: `header NAME: must be ...`.
pub fn of_header(name: impl Display, why: impl Display) -> String {
    format!("header {name}: {why}")
}
