//! Names of settings that belong to the deployment for ever: written by `init`, compared at every start.

/// When `init` was done.
pub const INITIALISED_AT: &str = "initialised_at";
/// The zone of rule dates.
pub const RULE_TIMEZONE: &str = "rule_timezone";
/// What `r_markup` means.
pub const MARKUP_UNIT: &str = "markup_unit";
