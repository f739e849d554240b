//! The hosts that an address names.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How it begins where a server does not take the address.
pub(super) const REFUSES: &str = "the PostgreSQL server refuses the address";

/// Why the database is of no use now.
pub(super) fn unreached(why: &str) -> String {
    format!("the database cannot be reached: {why}")
}

/// Why each host that was asked cannot be used now. Every host is told of: the host that matters is seldom the last one asked.
#[derive(Debug, Default)]
pub(super) struct Misses {
    /// By the host's place in the address: where it is, and why.
    of: BTreeMap<usize, (String, String)>,
    refuses: usize,
    /// Whether a host answered that is not the deployment's server. Such a host is named even where the address has only one host.
    is_another: bool,
}

impl Misses {
    /// A host that is away, or cannot do it now.
    pub(super) fn is_away(&mut self, host: usize, place: String, why: String) {
        self.of.insert(host, (place, why));
    }

    /// A server that answers but must not be used: another server has taken over from it, or it holds another deployment.
    pub(super) fn is_another(&mut self, host: usize, place: String, why: String) {
        self.is_another = true;
        self.is_away(host, place, why);
    }

    /// A server that does not take the address: waiting does not make the address right.
    pub(super) fn refuses(&mut self, host: usize, place: String, why: String) {
        self.refuses += 1;
        self.is_away(host, place, why);
    }

    /// Why no host can be used, in the order of the address.
    pub(super) fn told(self) -> String {
        // A host that is away may take the address once the host is back, so a refusal is final only where every host refuses.
        let is_final = self.refuses == self.of.len() && self.refuses > 0;
        let is_named = self.is_another || self.of.len() > 1;
        let said = self.of.into_values().map(|(place, why)| if is_named { format!("{place}: {why}") } else { why });
        let said = said.collect::<Vec<_>>().join("; ");
        if is_final { format!("{REFUSES}: {said}") } else { unreached(&said) }
    }
}

/// Whether a connection to this host leaves the machine.
fn is_remote(host: Option<&Host>, address: Option<&IpAddr>) -> bool {
    match (address, host) {
        (Some(address), _) => !address.is_loopback(),
        (None, Some(Host::Tcp(name))) => {
            name != "localhost" && !name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        (None, Some(_) | None) => false,
    }
}

/// Refuses an address over a network that does not say whether the connection is encrypted: the password and every row go over it.
pub(super) fn guarded(config: &Config) -> Result<(), String> {
    let says_so = matches!(config.get_ssl_mode(), SslMode::Require | SslMode::Disable);
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let is_remote = |at| is_remote(hosts.get(at), addresses.get(at));
    if says_so || !(0..hosts.len().max(addresses.len())).any(is_remote) {
        return Ok(());
    }
    Err("it names a server on a network, but not how the connection is protected: write sslmode=require or, if the network is trusted, sslmode=disable".to_owned())
}

/// The same address for each of its hosts alone, in order.
pub(super) fn each_host(config: &Config) -> Result<Vec<Config>, String> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    if count == 0 {
        return Err("it names no host".to_owned());
    }
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(format!("it has {} hosts, but {} addresses (hostaddr) for them", hosts.len(), addresses.len()));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(format!("it has {} ports for {count} hosts", ports.len()));
    }
    let of_host = |at: usize| {
        let mut one = without_hosts(config);
        match hosts.get(at) {
            Some(Host::Tcp(name)) => _ = one.host(name.as_str()),
            Some(Host::Unix(folder)) => _ = one.host_path(folder),
            None => {}
        }
        if let Some(address) = addresses.get(at) {
            one.hostaddr(*address);
        }
        if let Some(port) = ports.get(at).or_else(|| ports.first()) {
            one.port(*port);
        }
        one
    };
    Ok((0..count).map(of_host).collect())
}

/// Everything but the hosts: they can only be added to.
fn without_hosts(config: &Config) -> Config {
    let mut one = Config::new();
    one.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(limit) = config.get_connect_timeout() {
        one.connect_timeout(*limit);
    }
    if let Some(limit) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*limit);
    }
    if let Some(period) = config.get_keepalives_interval() {
        one.keepalives_interval(period);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one
}
