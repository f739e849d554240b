//! What the lists of orders share: how a page of them is asked for.

use crate::body::{FieldRefused, Fields};

/// Orders on a page where nothing is said.
pub const LIMIT_DEFAULT: u32 = 50;
/// Most orders on a page.
pub const LIMIT_MAX: u32 = 100;

/// `after` (absent where it is empty) and `limit` of a body.
pub(super) fn read(fields: &Fields<'_>) -> Result<(Option<String>, u32), FieldRefused> {
    let limit = fields.integer_within("limit", 1, i64::from(LIMIT_MAX))?;
    let after = fields.text("after")?.filter(|after| !after.is_empty());
    Ok((after, limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(LIMIT_DEFAULT)))
}
