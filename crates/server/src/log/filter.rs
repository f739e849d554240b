//! What a setting for the log may say.

use tracing_subscriber::EnvFilter;

/// Words for how much is logged.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// What the HTTP/2 library warns of is what strangers do to their own connections, a line for each: it is shown where it is asked for by name.
const OF_STRANGERS: &str = "h2=error";

/// The filter that a setting means.
pub(super) fn made_of(text: &str) -> EnvFilter {
    let whole = |text: &str| format!("{OF_STRANGERS},{text}");
    EnvFilter::try_new(whole(text)).unwrap_or_else(|_| EnvFilter::new(whole("info")))
}

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

#[cfg(test)]
mod tests {
    use tracing::{Level, enabled, subscriber};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn what_strangers_do_to_their_own_connections_is_shown_where_it_is_asked_for_by_name() {
        // Whether a warning is shown that is ours, and one of the library's; and whether its error is.
        for (filter, wanted) in [
            ("info", [true, false, true]),
            ("trace", [true, false, true]),
            ("error", [false, false, true]),
            ("warn,h2=warn", [true, true, true]),
            ("info,h2=off", [true, false, false]),
            ("==", [true, false, true]),
        ] {
            let shown = subscriber::with_default(tracing_subscriber::registry().with(made_of(filter)), || {
                [
                    enabled!(target: "countersign::run", Level::WARN),
                    enabled!(target: "h2::proto::streams::recv", Level::WARN),
                    enabled!(target: "h2::proto::streams::recv", Level::ERROR),
                ]
            });
            assert_eq!(shown, wanted, "{filter}");
        }
    }
}
