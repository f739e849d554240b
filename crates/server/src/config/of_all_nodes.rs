//! Which settings have to be the same on all nodes of a deployment, and which are each node's own.
//!
//! The first are noted in the database that nodes share, so that each can tell where others differ. Invariant: every setting is in one of the two lists,
//! and no secret is among those that are noted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Config, Life, Period};

/// Settings that a node may have as its machine, its network and its place in the fleet want them. Secrets, files and addresses with passwords are all
/// here. The master key has to be the same on all nodes, too, and is compared by its id at every start.
pub const OF_ONE_NODE: [&str; 36] = [
    "data",
    "database_url",
    "database_ca_file",
    "serve_moved",
    "master_key_file",
    "master_key",
    "master_key_command",
    "master_key_command_timeout",
    "master_key_previous_file",
    "master_key_previous",
    "master_key_previous_command",
    "listen",
    "operator_listen",
    "health_listen",
    "behind_proxy",
    "trusted_proxies",
    "limit_loopback",
    // Its way out, and whom it trusts there.
    "callback_proxy",
    "callback_proxy_credentials_file",
    "callback_proxy_credentials",
    "callback_source_address",
    "callback_ca_file",
    // How much a machine can do at once, and how that is shared out.
    "callback_concurrency",
    "callback_concurrency_per_merchant",
    "callback_concurrency_slow",
    "limits.connections",
    "limits.connections_per_address",
    "worker_threads",
    "core_dumps",
    "log_level",
    "tls.cert",
    "tls.key",
    // How connections come to it, and how long its balancer takes to notice.
    "limits.tls_handshake_timeout",
    "limits.stop_delay",
    "limits.drain_timeout",
    // How soon it finds by itself what nobody told it of.
    "dispatch_poll",
];

/// This port may always be called, whether it is named or not.
const PORT_ALWAYS: u16 = 443;

impl Config {
    /// The settings that merchants would see differ by the node that they meet: one JSON object, from name to value. However it was written in a file,
    /// what means the same is the same text.
    pub fn of_all_nodes(&self) -> String {
        let settings: BTreeMap<&str, Value> = self.values_of_all_nodes().into_iter().collect();
        json!(settings).to_string()
    }

    fn values_of_all_nodes(&self) -> [(&'static str, Value); 30] {
        let zone = self.rule_zone();
        let ports: BTreeSet<u16> = self.callback_ports.iter().copied().chain([PORT_ALWAYS]).collect();
        [
            ("group_by_tenant", json!(self.group_by_tenant)),
            ("header_prefixes", json!(self.header_prefixes)),
            ("timestamp_tolerance_ms", json!(self.timestamp_tolerance_ms)),
            ("rate_limit_per_s", json!(self.rate_limit_per_s)),
            ("failed_auth_per_s", json!(self.failed_auth_per_s)),
            ("failed_auth_burst", json!(self.failed_auth_burst)),
            ("rule_timezone", json!(zone.as_ref().map_or(self.rule_timezone.as_str(), |zone| zone.name()))),
            ("markup_unit", json!(self.markup_unit.name())),
            ("checkout_url", json!(self.checkout_url)),
            ("callback_schedule", json!(self.callback_schedule.texts())),
            ("order_hold", period(self.order_hold)),
            ("callback_ports", json!(ports)),
            ("allow_private_callbacks", json!(self.allow_private_callbacks)),
            ("callback_concurrency_per_application", json!(self.callback_concurrency_per_application)),
            ("callback_rate_per_s", json!(self.callback_rate_per_s)),
            ("callback_deadline", period(self.callback_deadline)),
            ("callback_connect_timeout", period(self.callback_connect_timeout)),
            ("dispatch_lease", period(self.dispatch_lease)),
            ("idempotency_life", period(self.idempotency_life)),
            ("quote_life", period(self.quote_life)),
            ("rate_max_age", period(self.rate_max_age)),
            ("limits.body_bytes", json!(self.limits.body_bytes)),
            ("limits.head_bytes", json!(self.limits.head_bytes)),
            ("limits.request_line_bytes", json!(self.limits.request_line_bytes)),
            ("limits.headers", json!(self.limits.headers)),
            ("limits.body_timeout", period(self.limits.body_timeout)),
            ("limits.head_timeout", period(self.limits.head_timeout)),
            ("retention.attempt_bytes", life(self.retention.attempt_bytes)),
            ("retention.events", life(self.retention.events)),
            ("retention.held_events", life(self.retention.held_events)),
        ]
    }
}

fn period(Period(period): Period) -> Value {
    json!(written(period))
}

fn life(Life(life): Life) -> Value {
    json!(life.map_or_else(|| "off".to_owned(), written))
}

/// A period as a file has it, in the largest unit that it is a whole number of.
fn written(period: Duration) -> String {
    const UNITS_MS: [(&str, u128); 4] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let ms = period.as_millis();
    let (unit, of) = UNITS_MS.into_iter().find(|(_, of)| ms.is_multiple_of(*of)).unwrap_or(("ms", 1));
    format!("{}{unit}", ms / of)
}

/// The names of settings in which two nodes differ, by what they have noted, in the order of the alphabet; none where one of them has noted nothing. A
/// setting that only one of their two programs has is not compared.
pub fn differing(one: &str, other: &str) -> Option<Vec<String>> {
    let read = |noted| serde_json::from_str::<BTreeMap<String, Value>>(noted).ok();
    let (one, other) = (read(one)?, read(other)?);
    let differs =
        |(name, value): (String, Value)| other.get(&name).is_some_and(|of_other| *of_other != value).then_some(name);
    Some(one.into_iter().filter_map(differs).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::layers::{SECRETS, names};
    use crate::config::{KeyText, Optional};

    fn noted() -> Vec<&'static str> {
        Config::default().values_of_all_nodes().into_iter().map(|(name, _)| name).collect()
    }

    fn with(name: &str, value: &str) -> Config {
        let variable = format!("COUNTERSIGN_{}", name.replace('.', "__").to_uppercase());
        Config::load(None, &BTreeMap::from([(variable, value.to_owned())]), &[]).expect(name)
    }

    fn differ(one: &Config, other: &Config) -> Vec<String> {
        differing(&one.of_all_nodes(), &other.of_all_nodes()).expect("both say")
    }

    #[test]
    fn every_setting_is_one_of_all_nodes_or_one_of_each_node_and_none_is_both() {
        let listed: Vec<&str> = noted().into_iter().chain(OF_ONE_NODE).collect();
        let shipped = names();
        let of_shipped: BTreeSet<&str> = shipped.iter().map(String::as_str).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), of_shipped);
        assert_eq!(listed.len(), shipped.len(), "one is named twice");
    }

    #[test]
    fn each_that_is_of_all_nodes_differs_by_its_own_name_and_no_other_does() {
        let (shipped, mut changed) = (Config::default(), BTreeSet::new());
        for (name, value) in [
            ("group_by_tenant", "true"),
            ("header_prefixes", "X-Other-,X-Service-"),
            ("timestamp_tolerance_ms", "29999"),
            ("rate_limit_per_s", "999"),
            ("failed_auth_per_s", "99"),
            ("failed_auth_burst", "999"),
            ("rule_timezone", "Asia/Singapore"),
            ("markup_unit", "fraction"),
            ("checkout_url", "https://pay.example"),
            ("callback_schedule", "5s,30s"),
            ("order_hold", "11m"),
            ("callback_ports", "443,8443"),
            ("allow_private_callbacks", "true"),
            ("callback_concurrency_per_application", "9"),
            ("callback_rate_per_s", "1"),
            ("callback_deadline", "16s"),
            ("callback_connect_timeout", "6s"),
            ("dispatch_lease", "6s"),
            ("idempotency_life", "25h"),
            ("quote_life", "31s"),
            ("rate_max_age", "61s"),
            ("limits.body_bytes", "65535"),
            ("limits.head_bytes", "32767"),
            ("limits.request_line_bytes", "8191"),
            ("limits.headers", "99"),
            ("limits.body_timeout", "11s"),
            ("limits.head_timeout", "31s"),
            ("retention.attempt_bytes", "29d"),
            ("retention.events", "off"),
            ("retention.held_events", "401d"),
        ] {
            assert_eq!(differ(&shipped, &with(name, value)), [name]);
            changed.insert(name);
        }
        assert_eq!(changed, noted().into_iter().collect::<BTreeSet<_>>());
        assert_eq!(differ(&shipped, &with("log_level", "debug")), [] as [&str; 0]);
    }

    #[test]
    fn what_means_the_same_does_not_differ_however_it_is_written() {
        for (name, one, other) in [
            ("order_hold", "600s", "10m"),
            ("order_hold", "1500ms", "1500ms"),
            ("idempotency_life", "24h", "1d"),
            ("callback_schedule", "60s,1h", "1m,60m"),
            ("callback_ports", "8443", "443,8443,8443"),
            ("rule_timezone", "asia/singapore", "Asia/Singapore"),
            ("retention.events", "24h", "1d"),
        ] {
            assert_eq!(with(name, one).of_all_nodes(), with(name, other).of_all_nodes(), "{name}");
        }
        assert_eq!(differ(&with("order_hold", "1500ms"), &with("order_hold", "1s")), ["order_hold"]);
    }

    #[test]
    fn a_node_that_has_noted_nothing_is_unknown_and_what_only_one_of_two_programs_has_is_not_compared() {
        let noted = Config::default().of_all_nodes();
        for nothing in ["", "null", "[]", "nonsense"] {
            assert_eq!(differing(&noted, nothing), None, "{nothing}");
            assert_eq!(differing(nothing, &noted), None, "{nothing}");
        }
        let newer = r#"{"quote_life":"31s","of_later":1}"#;
        assert_eq!(differing(&noted, newer), Some(vec!["quote_life".to_owned()]));
        assert_eq!(differing(&noted, &noted), Some(vec![]));
    }

    #[test]
    fn no_secret_and_no_address_with_a_password_is_noted() {
        let key = || Optional(Some(KeyText::from("canary".to_owned())));
        let text = || Optional(Some("http://canary:canary@canary".to_owned()));
        let file = || Optional(Some("canary".into()));
        let config = Config {
            data: "canary".into(),
            database_url: text(),
            database_ca_file: file(),
            master_key_file: file(),
            master_key: key(),
            master_key_command: vec!["canary".to_owned()],
            master_key_previous_file: file(),
            master_key_previous: key(),
            master_key_previous_command: vec!["canary".to_owned()],
            callback_proxy: text(),
            callback_proxy_credentials_file: file(),
            callback_proxy_credentials: key(),
            callback_ca_file: file(),
            ..Config::default()
        };
        let noted = config.of_all_nodes();
        assert_eq!(noted, Config::default().of_all_nodes());
        assert!(!noted.contains("canary"), "{noted}");
        for secret in SECRETS.iter().chain(&["database_url", "callback_proxy"]) {
            assert!(OF_ONE_NODE.contains(secret), "{secret}");
        }
    }
}
