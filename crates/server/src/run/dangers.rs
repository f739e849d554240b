//! Settings that are allowed and less safe than they could be: `serve` says them at its start, `doctor` whenever it is asked.

use std::time::Duration;

use crate::config::Config;
use crate::process;

/// A captured request can be sent on for this long; longer than this is more than clocks need.
const TOLERANCE_MS_LARGE: i64 = 300_000;
/// Slow clients keep their place for so long.
const TIMEOUT_LONG: Duration = Duration::from_secs(120);

/// A sentence for each.
pub fn unsafe_settings(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let mut put = |is_unsafe: bool, text: String| {
        if is_unsafe {
            found.push(text);
        }
    };
    let limits = &config.limits;
    let private = "allow_private_callbacks is on: whoever may set a callback URL reaches your inner network; for development and tests only";
    put(config.allow_private_callbacks, private.to_owned());
    let unguarded = "this program was built without the guard over callbacks, to test that guard: serve nobody with it";
    put(cfg!(countersign_guard_off), unguarded.to_owned());
    put(config.core_dumps, "core_dumps is on: a crash writes the keys in use to a disk".to_owned());
    put(config.serve_moved, "serve_moved is on: what the database has acknowledged is not here".to_owned());
    put(
        config.timestamp_tolerance_ms > TOLERANCE_MS_LARGE,
        format!(
            "timestamp_tolerance_ms is {}: clocks need seconds, and whoever holds a request back may let it go for that long",
            config.timestamp_tolerance_ms
        ),
    );
    put(config.rate_limit_per_s == 0, "rate_limit_per_s is 0: one application may take everything".to_owned());
    put(
        config.failed_auth_per_s == 0 || config.failed_auth_burst == 0,
        "failed_auth_per_s or failed_auth_burst is 0: a stranger may guess as fast as he can send".to_owned(),
    );
    put(
        limits.connections_per_address == 0,
        "limits.connections_per_address is 0: one address may take every connection".to_owned(),
    );
    for (name, period) in [("head_timeout", limits.head_timeout), ("body_timeout", limits.body_timeout)] {
        let seconds = period.0.as_secs();
        put(period.0 > TIMEOUT_LONG, format!("limits.{name} is {seconds} s: slow clients keep their places that long"));
    }
    for text in about_operators(config) {
        put(true, text);
    }
    put(
        config.behind_proxy && config.trusted_proxies.is_empty(),
        "behind_proxy is on and trusted_proxies is empty: limits per address and the audit log see the proxy in place of callers".to_owned(),
    );
    let lack = process::allow_files(config.connections_at_most()).lack();
    put(lack.is_some(), lack.unwrap_or_default());
    found
}

fn about_operators(config: &Config) -> Vec<String> {
    let address = config.operator_listen;
    if address.ip().to_canonical().is_loopback() {
        return Vec::new();
    }
    let reached = format!(
        "operator_listen {address} can be reached from other machines: let a firewall admit operators and the back end only"
    );
    let heard = format!(
        "operator_listen {address} speaks plain HTTP: whoever is on the way to the proxy reads operators' tokens"
    );
    let mut found = vec![reached];
    if config.tls.cert.get().is_none() {
        found.push(heard);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shipped_is_safe() {
        assert_eq!(unsafe_settings(&Config::default()), Vec::<String>::new());
    }

    #[test]
    fn tokens_in_the_clear_are_named_where_others_reach_the_listener() {
        let config = Config {
            operator_listen: "0.0.0.0:8081".parse().expect("an address"),
            behind_proxy: true,
            ..Config::default()
        };
        let found = unsafe_settings(&config);
        assert!(found.iter().any(|text| text.contains("plain HTTP") && text.contains("tokens")), "{found:?}");
    }
}
