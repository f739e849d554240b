//! What one setting alone cannot tell, and the bounds of each.

use std::net::SocketAddr;
use std::time::Duration;

use countersign_protocol::headers::Prefixes;
use hyper::Uri;

use super::{Config, ConfigRefused, TOLERANCE_MS_MAX, refused};
use crate::evidence::{LINE_BYTES_MAX, REQUEST_BODY_BYTES_MAX};
use crate::listen::{PARSER_HEAD_BYTES_MAX, PARSER_HEADERS_MAX};
use crate::log;
use crate::source::Network;

/// Shorter, and a slow database would make nodes lose their lanes for nothing; longer, and callbacks wait for a node that is dead.
const DISPATCH_LEASE_MIN: Duration = Duration::from_secs(1);
const DISPATCH_LEASE_MAX: Duration = Duration::from_secs(60);
const STOP_DELAY_MAX: Duration = Duration::from_secs(600);
/// Shorter, and an Idempotency-Key would be forgotten before its request can be repeated.
const IDEMPOTENCY_LIFE_MIN: Duration = Duration::from_secs(1);

/// More threads than any machine has processors, and few enough for their stacks.
const WORKER_THREADS_MAX: usize = 1_024;
/// Fewer, and hardly any signed request would pass.
const HEADERS_MIN: usize = 16;
/// Shorter, and questions with several filters would not pass.
const REQUEST_LINE_BYTES_MIN: usize = 1_024;
/// As much of a QR code as a phone reads well.
const CHECKOUT_URL_BYTES_MAX: usize = 512;
// Head and body of an order's request are one line of its evidence.
const _: () = assert!(2 * (REQUEST_BODY_BYTES_MAX + PARSER_HEAD_BYTES_MAX) + 4096 <= LINE_BYTES_MAX);
/// More connections or attempts at once than any machine has files for.
const AT_ONCE_MAX: usize = 100_000_000;

impl Config {
    /// Checks what one setting alone cannot tell.
    pub(super) fn check(&self) -> Result<(), ConfigRefused> {
        if self.data.as_os_str().is_empty() {
            return refused("data is empty: name the data folder (in the environment COUNTERSIGN_DATA)");
        }
        if let Err(error) = Prefixes::new(&self.header_prefixes) {
            return refused(format!("header_prefixes: {error}"));
        }
        if !(1..=TOLERANCE_MS_MAX).contains(&self.timestamp_tolerance_ms) {
            return refused("timestamp_tolerance_ms must be from 1 to 3600000 (an hour)");
        }
        if self.rule_zone().is_none() {
            return refused(format!(
                "rule_timezone: {:?} is no IANA time zone, such as \"UTC\" or \"Asia/Singapore\"",
                self.rule_timezone
            ));
        }
        if !log::is_filter(&self.log_level) {
            return refused(format!(
                "log_level: {:?} is none of \"error\", \"warn\", \"info\", \"debug\", \"trace\", \"off\", nor a list such as \
                 \"info,countersign::dispatch=debug\"",
                self.log_level
            ));
        }
        if self.worker_threads > WORKER_THREADS_MAX {
            return refused(format!(
                "worker_threads must be at most {WORKER_THREADS_MAX}; 0 is one for each processor"
            ));
        }
        if !is_checkout_url(&self.checkout_url) {
            return refused(
                "checkout_url must be an address such as https://pay.example/checkout, without query and without a slash at its end: a slash and \
                 the prepayId are put behind it",
            );
        }
        if self.callback_ports.contains(&0) {
            return refused("callback_ports: 0 is no port that can be called");
        }
        let attempts = [
            ("callback_concurrency", self.callback_concurrency),
            ("callback_concurrency_per_merchant", self.callback_concurrency_per_merchant),
            ("callback_concurrency_per_application", self.callback_concurrency_per_application),
            ("callback_concurrency_slow", self.callback_concurrency_slow),
        ];
        if let Some((name, _)) = attempts.iter().find(|(_, count)| !(1..=AT_ONCE_MAX).contains(count)) {
            return refused(format!("{name} must be from 1 to {AT_ONCE_MAX}"));
        }
        self.check_trusted_proxies()?;
        if !(DISPATCH_LEASE_MIN..=DISPATCH_LEASE_MAX).contains(&self.dispatch_lease.0) {
            return refused("dispatch_lease must be from 1s to 1m");
        }
        self.check_limits()?;
        self.check_way_out()
    }

    fn check_trusted_proxies(&self) -> Result<(), ConfigRefused> {
        for text in &self.trusted_proxies {
            let Some(network) = Network::parse(text) else {
                return refused(format!(
                    "trusted_proxies: {text:?} is no address and no network such as \"10.1.0.0/16\""
                ));
            };
            if network.is_too_wide() {
                return refused(format!(
                    "trusted_proxies: {text:?} is wider than any fleet of proxies: whoever calls from there could choose the address that limits \
                     count and the audit log names; give the addresses of your proxies, or networks of /8 at the widest (IPv6: /16)"
                ));
            }
            let ((address, bits), first) = (network.written(), network.first());
            if address != first {
                return refused(format!(
                    "trusted_proxies: {text:?} names a network by an address in it: give \"{first}/{bits}\" for all of the network, or \
                     \"{address}\" for that one address"
                ));
            }
        }
        Ok(())
    }

    fn check_limits(&self) -> Result<(), ConfigRefused> {
        let limits = &self.limits;
        if !(1..=AT_ONCE_MAX).contains(&limits.connections) {
            return refused(format!("limits.connections must be from 1 to {AT_ONCE_MAX}"));
        }
        if !(1..=REQUEST_BODY_BYTES_MAX).contains(&limits.body_bytes) {
            return refused(format!(
                "limits.body_bytes must be from 1 to {REQUEST_BODY_BYTES_MAX}: evidence of an order has its request on one line, which is not longer than \
                 {LINE_BYTES_MAX} bytes"
            ));
        }
        if limits.headers < HEADERS_MIN {
            return refused(format!(
                "limits.headers must be at least {HEADERS_MIN}: a signed request has four of its own, and what clients and proxies add"
            ));
        }
        for (name, set, most) in [
            ("limits.headers", limits.headers, PARSER_HEADERS_MAX),
            ("limits.head_bytes", limits.head_bytes, PARSER_HEAD_BYTES_MAX),
        ] {
            if set > most {
                return refused(format!("{name} must be at most {most}, which is what is read of a head"));
            }
        }
        if !(REQUEST_LINE_BYTES_MIN..=limits.head_bytes).contains(&limits.request_line_bytes) {
            return refused(format!(
                "limits.request_line_bytes must be at least {REQUEST_LINE_BYTES_MIN}, as long as lists with filters need, and at most limits.head_bytes"
            ));
        }
        let periods = [
            ("limits.tls_handshake_timeout", limits.tls_handshake_timeout),
            ("limits.head_timeout", limits.head_timeout),
            ("limits.body_timeout", limits.body_timeout),
            ("callback_deadline", self.callback_deadline),
            ("callback_connect_timeout", self.callback_connect_timeout),
            ("dispatch_poll", self.dispatch_poll),
            ("quote_life", self.quote_life),
            ("rate_max_age", self.rate_max_age),
            ("master_key_command_timeout", self.master_key_command_timeout),
        ];
        if limits.stop_delay.0 > STOP_DELAY_MAX {
            return refused("limits.stop_delay must be at most 10m");
        }
        if self.idempotency_life.0 < IDEMPOTENCY_LIFE_MIN {
            return refused(
                "idempotency_life must be at least 1s: a key that is forgotten at once lets a repeated request act twice",
            );
        }
        match periods.iter().find(|(_, period)| period.0.is_zero()) {
            Some((name, _)) => refused(format!("{name} must be longer than nothing")),
            None => Ok(()),
        }
    }

    /// Checks what is asked of the listeners. Not of a command that opens none: under systemd the unit's environment may name the certificate, and
    /// such a command is run without it.
    pub fn check_listeners(&self) -> Result<(), ConfigRefused> {
        let listeners = self.listeners();
        for (place, first) in listeners.iter().enumerate() {
            for second in &listeners[place + 1..] {
                Self::check_apart(*first, *second)?;
            }
        }
        self.check_tls()
    }

    fn check_apart(
        (name, address): (&str, SocketAddr),
        (other, of_other): (&str, SocketAddr),
    ) -> Result<(), ConfigRefused> {
        let covers = |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
        let is_everywhere = covers(address, of_other) || covers(of_other, address);
        if address.port() != of_other.port() || address.port() == 0 {
            return Ok(());
        }
        if address == of_other {
            return refused(format!("{name} and {other} are both {address}: give each its own"));
        }
        if is_everywhere {
            return refused(format!(
                "{name} ({address}) and {other} ({of_other}) have one port, and one of them is on all addresses: give each its own"
            ));
        }
        Ok(())
    }

    fn check_tls(&self) -> Result<(), ConfigRefused> {
        match (&self.tls.cert.0, &self.tls.key.0) {
            (Some(_), Some(_)) => Ok(()),
            (Some(_), None) => refused("tls.cert is set without tls.key: give both --tls-cert and --tls-key"),
            (None, Some(_)) => refused("tls.key is set without tls.cert: give both --tls-cert and --tls-key"),
            (None, None) => {
                for (name, address) in [("listen", self.listen), ("operator_listen", self.operator_listen)] {
                    if !address.ip().to_canonical().is_loopback() && !self.behind_proxy {
                        return refused(format!(
                            "{name} {address} can be reached from other machines and would speak plain HTTP: \
                             give --tls-cert and --tls-key, or --behind-proxy if a proxy in front speaks TLS"
                        ));
                    }
                }
                Ok(())
            }
        }
    }
}

/// Whether a slash and an order's number make an address of it: of a page, or of an app by a scheme of its own.
fn is_checkout_url(text: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && !"?#".contains(c);
    let is_address = text.parse::<Uri>().is_ok_and(|uri| {
        // What a browser runs is no address, and every order would show a password.
        let is_script = uri.scheme_str().is_none_or(|scheme| scheme.eq_ignore_ascii_case("javascript"));
        uri.authority().is_some_and(|authority| !authority.as_str().contains('@')) && !is_script
    });
    is_address && text.len() <= CHECKOUT_URL_BYTES_MAX && text.chars().all(is_plain) && !text.ends_with('/')
}
