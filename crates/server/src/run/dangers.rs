//! Settings that are allowed and less safe than they could be: `serve` says them at its start, `doctor` whenever it is asked.

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::{Config, Period};
use crate::process;

/// A captured request can be sent on for this long; longer than this is more than clocks need.
const TOLERANCE_MS_LARGE: i64 = 300_000;
/// Whoever is slow on purpose keeps a place for so long, or a stop waiting.
const TIMEOUT_LONG: Duration = Duration::from_secs(120);
/// So many times what is shipped (or so small a part, where less is what harms) is no setting for a machine that is a little
/// larger or a merchant that is a little slower: it is no bound.
const TIMES_SHIPPED: u32 = 10;
/// The one port below 1024 that callbacks are for, and ports above it that databases and the like listen on.
const PORT_OF_CALLBACKS: u16 = 443;
const PORTS_OF_OTHERS: [u16; 10] = [1433, 1521, 2049, 2375, 3306, 5432, 6379, 9200, 11211, 27017];

/// A sentence for each.
pub fn unsafe_settings(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    let mut put = |is_unsafe: bool, text: String| {
        if is_unsafe {
            found.push(text);
        }
    };
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
    for text in about_waits(config)
        .into_iter()
        .chain(about_counts(config))
        .chain(about_prices(config))
        .chain(about_callbacks(config))
        .chain(about_operators(config))
        .chain(about_health(config))
    {
        put(true, text);
    }
    put(
        config.behind_proxy && config.trusted_proxies.is_empty(),
        "behind_proxy is on and trusted_proxies is empty: limits per address and the audit log see the proxy in place of callers".to_owned(),
    );
    let lack = process::allow_files(config.connections()).lack();
    put(lack.is_some(), lack.unwrap_or_default());
    found
}

/// Times that a stranger can use up.
fn about_waits(config: &Config) -> Vec<String> {
    let limits = &config.limits;
    let places = "slow clients keep their places that long";
    let receivers = "receivers that hang keep their places that long";
    let waits = [
        ("limits.tls_handshake_timeout", limits.tls_handshake_timeout, places),
        ("limits.head_timeout", limits.head_timeout, places),
        ("limits.body_timeout", limits.body_timeout, places),
        ("limits.drain_timeout", limits.drain_timeout, "a slow client may hold up the stop that long"),
        ("callback_deadline", config.callback_deadline, receivers),
        ("callback_connect_timeout", config.callback_connect_timeout, receivers),
        ("dispatch_poll", config.dispatch_poll, "callbacks that no other node told of lie that long"),
    ];
    let long = waits.into_iter().filter(|(_, period, _)| period.0 > TIMEOUT_LONG);
    long.map(|(name, period, harm)| format!("{name} is {} s: {harm}", period.0.as_secs())).collect()
}

/// Bounds that are off, or so large that they are none.
fn about_counts(config: &Config) -> Vec<String> {
    let (limits, shipped) = (&config.limits, Config::default());
    let mut found = Vec::new();
    if limits.connections_per_address == 0 || limits.connections_per_address >= limits.connections {
        let count = limits.connections_per_address;
        found.push(format!("limits.connections_per_address is {count}: one address may take every connection"));
    }
    let one = "one application may take everything";
    let guesses = "a stranger may guess as fast as they can send";
    let rates = [
        ("rate_limit_per_s", config.rate_limit_per_s, shipped.rate_limit_per_s, one),
        ("failed_auth_per_s", config.failed_auth_per_s, shipped.failed_auth_per_s, guesses),
        ("failed_auth_burst", config.failed_auth_burst, shipped.failed_auth_burst, guesses),
    ];
    for (name, set, shipped, harm) in rates {
        if set == 0 || set > shipped.saturating_mul(TIMES_SHIPPED) {
            found.push(format!("{name} is {set}: {harm}"));
        }
    }
    let (set, shipped) = (limits.connections, shipped.limits.connections);
    if set > shipped.saturating_mul(TIMES_SHIPPED as usize) {
        found.push(format!("limits.connections is {set}, {shipped} as shipped: requests may fill the memory"));
    }
    found
}

/// What costs money: prices that are held while the market goes on, and changes that are made twice.
fn about_prices(config: &Config) -> Vec<String> {
    let shipped = Config::default();
    let is_long = |set: Period, shipped: Period| set.0 > shipped.0.saturating_mul(TIMES_SHIPPED);
    let mut found = Vec::new();
    if is_long(config.quote_life, shipped.quote_life) {
        let seconds = config.quote_life.0.as_secs();
        found.push(format!(
            "quote_life is {seconds} s: who holds a quote waits that long for the market to move their way"
        ));
    }
    if is_long(config.rate_max_age, shipped.rate_max_age) {
        let seconds = config.rate_max_age.0.as_secs();
        found.push(format!(
            "rate_max_age is {seconds} s: prices that old are quoted, and held, as if they were today's"
        ));
    }
    if config.idempotency_life.0 < shipped.idempotency_life.0 / TIMES_SHIPPED {
        let seconds = config.idempotency_life.0.as_secs();
        found.push(format!("idempotency_life is {seconds} s: a request that is repeated after that is done twice"));
    }
    if config.checkout_url.to_ascii_lowercase().starts_with("http://") {
        found.push("checkout_url is plain http: whoever is on the way may change whom payers pay".to_owned());
    }
    found
}

fn about_callbacks(config: &Config) -> Vec<String> {
    let shipped = Config::default();
    let mut found = Vec::new();
    let is_of_others = |port: u16| port != PORT_OF_CALLBACKS && port < 1024 || PORTS_OF_OTHERS.contains(&port);
    for port in config.callback_ports.iter().filter(|port| is_of_others(**port)) {
        found.push(format!(
            "callback_ports has {port}: whoever may set a callback URL knocks at services that are no receivers"
        ));
    }
    let shares = [
        ("merchant", config.callback_concurrency_per_merchant, shipped.callback_concurrency_per_merchant),
        ("application", config.callback_concurrency_per_application, shipped.callback_concurrency_per_application),
    ];
    for (who, set, shipped) in shares {
        // Not where there are few in all: then shares are larger than all of them as shipped, too.
        if set > shipped && set >= config.callback_concurrency {
            found.push(format!(
                "callback_concurrency_per_{who} is {set}: one {who} may take every attempt at callbacks"
            ));
        }
    }
    // Of all, or of this program; a library whose warnings are not wanted is no danger.
    let hides = |word: &str| {
        let (target, level) = word.trim().rsplit_once('=').unwrap_or(("countersign", word.trim()));
        target.starts_with("countersign") && matches!(level.to_ascii_lowercase().as_str(), "off" | "error")
    };
    if config.log_level.split(',').any(hides) {
        found.push(format!("log_level is {:?}: warnings such as these are not written", config.log_level));
    }
    found
}

fn is_beyond_this_machine(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

fn about_health(config: &Config) -> Option<String> {
    let address = config.health_listen.filter(|address| is_beyond_this_machine(*address))?;
    Some(format!(
        "health_listen {address} can be reached from other machines and says how busy the deployment is: let a firewall admit load balancers and \
         Prometheus only"
    ))
}

fn about_operators(config: &Config) -> Vec<String> {
    let address = config.operator_listen;
    if !is_beyond_this_machine(address) {
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
    use toml::Value;

    use super::*;
    use crate::config::DEFAULTS;

    type Pair = (&'static str, &'static str);

    /// Settings with a value of which a line is said, and what else they are set with.
    const UNSAFE: [(&str, &str, &[Pair]); 37] = [
        ("serve_moved", "true", &[]),
        ("operator_listen", "0.0.0.0:8081", &[("behind_proxy", "true")]),
        ("health_listen", "0.0.0.0:8082", &[]),
        ("behind_proxy", "true", &[]),
        ("timestamp_tolerance_ms", "300001", &[]),
        ("rate_limit_per_s", "0", &[]),
        ("rate_limit_per_s", "4294967295", &[]),
        ("failed_auth_per_s", "0", &[]),
        ("failed_auth_per_s", "4294967295", &[]),
        ("failed_auth_burst", "0", &[]),
        ("failed_auth_burst", "4294967295", &[]),
        ("checkout_url", "http://pay.example", &[]),
        ("callback_ports", "443,22", &[]),
        ("callback_ports", "5432", &[]),
        ("allow_private_callbacks", "true", &[]),
        ("callback_concurrency_per_merchant", "256", &[]),
        ("callback_concurrency_per_application", "256", &[]),
        ("callback_deadline", "365d", &[]),
        ("callback_connect_timeout", "365d", &[]),
        ("dispatch_poll", "365d", &[]),
        ("quote_life", "365d", &[]),
        ("rate_max_age", "365d", &[]),
        ("idempotency_life", "1s", &[]),
        ("core_dumps", "true", &[]),
        ("log_level", "off", &[]),
        ("log_level", "info,countersign=OFF", &[]),
        ("log_level", "error", &[]),
        ("limits.connections", "100000000", &[]),
        ("limits.connections_per_address", "0", &[]),
        ("limits.connections_per_address", "4096", &[]),
        ("limits.connections_per_address", "100", &[("limits.connections", "100")]),
        ("limits.tls_handshake_timeout", "365d", &[]),
        ("limits.tls_handshake_timeout", "121s", &[]),
        ("limits.body_timeout", "365d", &[]),
        ("limits.head_timeout", "365d", &[]),
        ("limits.drain_timeout", "365d", &[]),
        ("limits.drain_timeout", "121s", &[]),
    ];

    /// Settings that are refused where they would be unsafe, that say only where something is or belong to the data, that are looked at
    /// elsewhere (the key, the database, the proxy, certificates), or that are shipped as loose as they can be.
    const HARMLESS: [&str; 39] = [
        "data",
        "database_url",
        "database_ca_file",
        "group_by_tenant",
        "master_key_file",
        "master_key",
        "master_key_command",
        "master_key_command_timeout",
        "master_key_previous_file",
        "master_key_previous",
        "master_key_previous_command",
        "listen",
        "trusted_proxies",
        "header_prefixes",
        "limit_loopback",
        "rule_timezone",
        "markup_unit",
        "callback_schedule",
        "order_hold",
        "callback_proxy",
        "callback_proxy_credentials_file",
        "callback_proxy_credentials",
        "callback_source_address",
        // Places and memory for them are said by LimitNOFILE.
        "callback_concurrency",
        "callback_concurrency_slow",
        "callback_rate_per_s",
        "callback_ca_file",
        "dispatch_lease",
        "worker_threads",
        "tls.cert",
        "tls.key",
        "limits.body_bytes",
        "limits.head_bytes",
        "limits.request_line_bytes",
        "limits.headers",
        "limits.stop_delay",
        "retention.attempt_bytes",
        "retention.events",
        "retention.held_events",
    ];

    fn set(pairs: &[(&str, &str)]) -> Config {
        let variable = |name: &str| format!("COUNTERSIGN_{}", name.replace('.', "__").to_uppercase());
        let pairs = pairs.iter().map(|(name, value)| (variable(name), (*value).to_owned())).collect();
        Config::load(None, &pairs, &[]).expect("these settings are taken")
    }

    #[test]
    fn each_setting_that_is_less_safe_than_it_is_shipped_has_a_line() {
        for (name, value, with) in UNSAFE {
            let found = unsafe_settings(&set(&[&[(name, value)], with].concat()));
            assert!(found.iter().any(|text| text.contains(name)), "{name} = {value}: {found:?}");
        }
    }

    #[test]
    fn somebody_has_decided_about_each_setting() {
        let defaults: toml::Table = DEFAULTS.parse().expect("they are TOML");
        for (name, value) in defaults {
            let names = match value {
                Value::Table(section) => section.keys().map(|key| format!("{name}.{key}")).collect(),
                Value::String(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::Boolean(_)
                | Value::Datetime(_)
                | Value::Array(_) => vec![name],
            };
            for name in names {
                let is_unsafe = UNSAFE.iter().any(|(unsafe_one, ..)| *unsafe_one == name);
                assert_ne!(is_unsafe, HARMLESS.contains(&name.as_str()), "{name}");
            }
        }
    }

    #[test]
    fn settings_for_a_larger_machine_have_no_line() {
        let larger = set(&[
            ("rate_limit_per_s", "10000"),
            ("failed_auth_per_s", "1000"),
            ("limits.body_bytes", "409600"),
            ("limits.connections_per_address", "4095"),
            ("limits.drain_timeout", "2m"),
            ("quote_life", "5m"),
            ("rate_max_age", "10m"),
            ("callback_ports", "443,8443"),
            ("callback_concurrency", "8"),
            ("log_level", "debug,countersign::dispatch=trace"),
            ("log_level", "info,hyper=error"),
            ("checkout_url", "https://pay.example"),
        ]);
        assert_eq!(unsafe_settings(&larger), Vec::<String>::new());
    }

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
