//! What a setting for the log may say.

use tracing_subscriber::EnvFilter;

/// Words for how much is logged.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Whether [`super::install`] would take it as it was meant. A filter by its own rules takes any word for the name of a part of the program, and then
/// shows nothing but that part: `warning` would switch off what `warn` asks for.
pub fn is_filter(text: &str) -> bool {
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let is_meant = |word: &str| match word.split_once('=') {
        Some((part, level)) => !part.is_empty() && is_level(level),
        None => is_level(word),
    };
    text.split(',').all(is_meant) && EnvFilter::try_new(text).is_ok()
}
