//! The settings: one struct, one documented file of defaults, four layers.
//!
//! Invariant: `defaults.toml` names every setting (no field has a default of its own), and nothing else reads the environment.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use countersign_domain::delivery::Schedule;
use countersign_domain::fees::MarkupUnit;
use countersign_domain::time::RuleZone;
use serde::Deserialize;
use thiserror::Error;
use toml::{Table, Value};

use crate::app::Policy;
use crate::app::rates::PricePolicy;
use crate::app::retention::Lives;
use crate::dispatch::{IDLE_TOTAL_MAX, LOOK_UPS_MAX};
use crate::process::{Connections, ToReceivers};
use crate::run::threads::threads;
use crate::source::Network;

mod callbacks;
mod checks;
mod kinds;
mod layers;
mod of_all_nodes;

pub use kinds::{KeyText, Life, Optional, Period};
use layers::in_words;
pub(crate) use layers::{ADDRESS_WANTED, without_password};
pub use layers::{Layers, Setting};
pub use of_all_nodes::{OF_ONE_NODE, differing};

/// `defaults.toml` as it was compiled in: every setting with its meaning.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// Connections of the listener for health alone: some balancers and scrapers, and whoever else finds it.
const HEALTH_CONNECTIONS_MAX: usize = 64;

/// What the variables of settings begin with.
pub const ENVIRONMENT_PREFIX: &str = "COUNTERSIGN_";

/// What is stamped an hour ago is no request of now.
pub const TOLERANCE_MS_MAX: i64 = 3_600_000;

/// Variables with our prefix that are no settings: they belong to single commands.
pub const NOT_SETTINGS: [&str; 7] = [
    // Where scripts of yours find the program.
    "COUNTERSIGN_BIN",
    "COUNTERSIGN_CONFIG",
    "COUNTERSIGN_URL",
    "COUNTERSIGN_CLIENT_ID",
    "COUNTERSIGN_SECRET",
    "COUNTERSIGN_OPERATOR_URL",
    "COUNTERSIGN_OPERATOR_TOKEN",
];

/// Every setting. `defaults.toml` says what each one means.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct Config {
    /// The data folder.
    pub data: PathBuf,
    /// A database for many nodes; none is SQLite in the data folder.
    pub database_url: Optional<String>,
    /// Further certificate authorities for the database, PEM.
    pub database_ca_file: Optional<PathBuf>,
    /// Whether a transaction of the database carries one tenant's changes only.
    pub group_by_tenant: bool,
    /// Whether a folder whose deployment was moved away is served all the same.
    pub serve_moved: bool,
    /// The file of the master key; none is `master.key` in the data folder.
    pub master_key_file: Optional<PathBuf>,
    /// The master key itself, from the environment only.
    pub master_key: Optional<KeyText>,
    /// A command that prints the master key: program and arguments.
    pub master_key_command: Vec<String>,
    /// How long such a command may take.
    pub master_key_command_timeout: Period,
    /// The file of the master key that this one takes the place of.
    pub master_key_previous_file: Optional<PathBuf>,
    /// That key itself, from the environment only.
    pub master_key_previous: Optional<KeyText>,
    /// A command that prints that key.
    pub master_key_previous_command: Vec<String>,
    /// Address of the merchants' listener.
    pub listen: SocketAddr,
    /// Address of the operators' listener.
    pub operator_listen: SocketAddr,
    /// Address of a listener for health alone; none: only operators' listener tells of it.
    #[serde(deserialize_with = "kinds::optional_address")]
    pub health_listen: Option<SocketAddr>,
    /// Whether a proxy in front speaks TLS.
    pub behind_proxy: bool,
    /// Proxies whose `X-Forwarded-For` counts.
    pub trusted_proxies: Vec<String>,
    /// Prefixes of the signed headers; the first is sent.
    pub header_prefixes: Vec<String>,
    /// Largest distance of a request's timestamp from now, in ms.
    pub timestamp_tolerance_ms: i64,
    /// Requests per second of an application without an own limit; 0 is off.
    pub rate_limit_per_s: u32,
    /// Failed authentications per second and source address.
    pub failed_auth_per_s: u32,
    /// How many of them may come at once.
    pub failed_auth_burst: u32,
    /// Whether that budget also counts for loopback.
    pub limit_loopback: bool,
    /// IANA name of the zone of rule dates.
    pub rule_timezone: String,
    /// What `r_markup` means.
    #[serde(deserialize_with = "kinds::markup_unit")]
    pub markup_unit: MarkupUnit,
    /// Where payers pay: the number of an order is put behind it, after a slash.
    pub checkout_url: String,
    /// Waits between attempts at a callback.
    #[serde(deserialize_with = "kinds::schedule")]
    pub callback_schedule: Schedule,
    /// Longest wait of a callback for an earlier one of its bizId.
    pub order_hold: Period,
    /// Ports that callback URLs may name.
    pub callback_ports: Vec<u16>,
    /// An HTTP proxy that callbacks go through.
    pub callback_proxy: Optional<String>,
    /// The file of our name and password there.
    pub callback_proxy_credentials_file: Optional<PathBuf>,
    /// These themselves, from the environment only.
    pub callback_proxy_credentials: Optional<KeyText>,
    /// Addresses of this machine that callbacks come from: at most one of each family.
    pub callback_source_address: Vec<IpAddr>,
    /// Whether private callback addresses and plain http are allowed.
    pub allow_private_callbacks: bool,
    /// Attempts under way at once, in all.
    pub callback_concurrency: usize,
    /// Attempts under way at once for one merchant.
    pub callback_concurrency_per_merchant: usize,
    /// Attempts under way at once for one application.
    pub callback_concurrency_per_application: usize,
    /// Attempts under way at once that have taken longer than a second.
    pub callback_concurrency_slow: usize,
    /// Attempts in a second for one application; 0 is off.
    pub callback_rate_per_s: u32,
    /// Time of a whole attempt.
    pub callback_deadline: Period,
    /// Time of a look-up, and of each connect.
    pub callback_connect_timeout: Period,
    /// A PEM file of further certificate authorities for callbacks.
    pub callback_ca_file: Optional<PathBuf>,
    /// How long a node delivers for its lanes without a heartbeat.
    pub dispatch_lease: Period,
    /// How often a shared database is asked what is due even if nobody said so.
    pub dispatch_poll: Period,
    /// How long the answer to an idempotency key is kept.
    pub idempotency_life: Period,
    /// How long a quote is good.
    pub quote_life: Period,
    /// How old a rate may be to be quoted.
    pub rate_max_age: Period,
    /// Threads that serve; 0 is one for each processor.
    pub worker_threads: usize,
    /// Whether a crash may leave the memory on a disk.
    pub core_dumps: bool,
    /// A level or a list of filters for the log.
    pub log_level: String,
    /// Certificate and key of the listeners.
    pub tls: Tls,
    /// Bounds on connections and requests.
    pub limits: Limits,
    /// How long things are kept.
    pub retention: Retention,
    /// Where systemd puts credentials for this process, in the environment only: it shows files there to nobody else, whatever their mode says.
    #[serde(skip)]
    pub credentials: Option<PathBuf>,
    /// The file that `--config` named: a command that is to be typed for this deployment names it, too.
    #[serde(skip)]
    pub named_file: Option<PathBuf>,
}

/// TLS of the listeners: both files or none.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// PEM file of the certificate chain.
    pub cert: Optional<PathBuf>,
    /// PEM file of its private key.
    pub key: Optional<PathBuf>,
}

/// How long things are kept before they are freed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// What went over the wire in attempts.
    pub attempt_bytes: Life,
    /// Events that are over.
    pub events: Life,
    /// Events that are held.
    pub held_events: Life,
}

/// Bounds on what one connection may ask.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Connections open at once, per listener.
    pub connections: usize,
    /// How many of them one address may have; 0 is no limit.
    pub connections_per_address: usize,
    /// Largest body of a request, in bytes.
    pub body_bytes: usize,
    /// Largest head of a request, in bytes.
    pub head_bytes: usize,
    /// Longest request line, in bytes.
    pub request_line_bytes: usize,
    /// Most headers of a request.
    pub headers: usize,
    /// Time for the TLS handshake.
    pub tls_handshake_timeout: Period,
    /// Time for a request's body.
    pub body_timeout: Period,
    /// Time for a request's head, counted from the last answer.
    pub head_timeout: Period,
    /// How long all goes on after a stop signal, not ready, before the listeners close.
    pub stop_delay: Period,
    /// Time for requests under way after a stop signal.
    pub drain_timeout: Period,
}

/// Why the settings are refused: one sentence that names the setting and where it stood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ConfigRefused(String);

fn refused<T>(why: impl Into<String>) -> Result<T, ConfigRefused> {
    Err(ConfigRefused(why.into()))
}

/// A setting given by a flag: its name (`tls__cert` for a key of a section) and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// As the user knows it: `--tls-cert`.
    pub flag: &'static str,
    /// The setting.
    pub setting: &'static str,
    /// Its value. Empty: it takes back what was set otherwise.
    pub text: String,
}

impl Default for Config {
    fn default() -> Self {
        Self::from_table(defaults()).expect("the compiled-in defaults are good: a test reads them")
    }
}

fn defaults() -> Table {
    DEFAULTS.parse().expect("the compiled-in defaults are TOML: a test reads them")
}

/// The environment of this process. What is not UTF-8 is left out where it is somebody else's; of ours, another setting would count in its place.
pub fn environment() -> Result<BTreeMap<String, String>, ConfigRefused> {
    let mut read = BTreeMap::new();
    for (name, value) in std::env::vars_os() {
        match (name.to_str(), value.into_string()) {
            (Some(name), Ok(value)) => {
                read.insert(name.to_owned(), value);
            }
            (None, _) | (_, Err(_)) if name.as_encoded_bytes().starts_with(b"COUNTERSIGN_") => {
                let name = name.to_string_lossy();
                return refused(format!("{name} in the environment is not UTF-8: set it again in UTF-8, or unset it"));
            }
            (None, _) | (_, Err(_)) => {}
        }
    }
    Ok(read)
}

impl Config {
    /// How long things are kept. A repeated call that emitted an event is answered by the event, which stays as long as the call's key. An event that is
    /// held is kept no shorter than one that is over.
    pub fn lives(&self) -> Lives {
        let Retention { attempt_bytes, events, held_events } = self.retention;
        let events = events.0.map(|life| life.max(self.idempotency_life.0));
        let held_events = events.zip(held_events.0).map(|(events, held)| held.max(events));
        Lives { attempt_bytes: attempt_bytes.0, events, held_events }
    }

    /// Lays defaults, file, environment and flags over each other, and checks the whole, but for what is asked of listeners.
    pub fn load(
        file: Option<&Path>,
        environment: &BTreeMap<String, String>,
        flags: &[Flag],
    ) -> Result<Self, ConfigRefused> {
        let config = Self::of(Layers::laid(file, environment, flags)?, environment)?;
        Ok(Self { named_file: file.map(Path::to_path_buf), ..config })
    }

    /// What was laid over each other, checked in the same way.
    pub fn of(layers: Layers, environment: &BTreeMap<String, String>) -> Result<Self, ConfigRefused> {
        Self::checked(layers, environment, Self::check)
    }

    /// The same, and what is asked of listeners.
    pub fn of_server(layers: Layers, environment: &BTreeMap<String, String>) -> Result<Self, ConfigRefused> {
        Self::checked(layers, environment, |config| config.check().and_then(|()| config.check_listeners()))
    }

    fn checked(
        layers: Layers,
        environment: &BTreeMap<String, String>,
        check: impl FnOnce(&Self) -> Result<(), ConfigRefused>,
    ) -> Result<Self, ConfigRefused> {
        let (table, set_by) = layers.into_parts();
        let of = || {
            let mut config = Self::from_table(table)?;
            config.credentials = environment.get("CREDENTIALS_DIRECTORY").map(PathBuf::from);
            check(&config)?;
            Ok(config)
        };
        of().map_err(|refused| with_origins(refused, &set_by))
    }

    fn from_table(table: Table) -> Result<Self, ConfigRefused> {
        // One setting at a time first, so that a refusal names it: serde alone says only what is wrong, not where.
        for (name, value) in &table {
            let Some(section) = value.as_table() else {
                Self::probe(name, |probe| probe.insert(name.clone(), value.clone()))?;
                continue;
            };
            for (inner, value) in section {
                Self::probe(&format!("{name}.{inner}"), |probe| {
                    probe.get_mut(name)?.as_table_mut()?.insert(inner.clone(), value.clone())
                })?;
            }
        }
        Value::Table(table).try_into().map_err(|error| ConfigRefused(first_line(&error.to_string()).to_owned()))
    }

    /// Whether the defaults with this one setting are good.
    fn probe(name: &str, set: impl FnOnce(&mut Table) -> Option<Value>) -> Result<(), ConfigRefused> {
        let mut probe = defaults();
        set(&mut probe);
        let refuse =
            |error: toml::de::Error| format!("the setting {name} is not good: {}", in_words(&error.to_string()));
        Value::Table(probe).try_into::<Self>().map(|_| ()).map_err(|error| ConfigRefused(refuse(error)))
    }

    /// How prices are promised.
    pub fn prices(&self) -> PricePolicy {
        PricePolicy { quote_life: self.quote_life.0, rate_max_age: self.rate_max_age.0 }
    }

    /// What use cases go by; none where the zone of rule dates is unknown.
    pub fn policy(&self) -> Option<Policy> {
        Some(Policy {
            rule_zone: self.rule_zone()?,
            markup_unit: self.markup_unit,
            checkout_url: self.checkout_url.clone(),
            timestamp_tolerance_ms: self.timestamp_tolerance_ms,
            rate_limit_per_s: self.rate_limit_per_s,
            allow_private_callbacks: self.allow_private_callbacks,
            idempotency_life: self.idempotency_life.0,
            retention: self.lives(),
            prices: self.prices(),
        })
    }

    /// The zone of rule dates, if its name is known.
    pub fn rule_zone(&self) -> Option<RuleZone> {
        RuleZone::named(&self.rule_timezone)
    }

    /// Connections that may be open at once.
    pub fn connections(&self) -> Connections {
        let (attempts, slow) = (self.callback_concurrency, self.callback_concurrency_slow);
        let to_receivers = ToReceivers { attempts, slow, kept: IDLE_TOTAL_MAX };
        // A thread reads from PostgreSQL over a connection of its own, or from a file, which is two: itself, and its log.
        let of_store = threads(self.worker_threads).saturating_mul(2);
        Connections {
            of_each_listener: self.limits.connections,
            to_receivers,
            look_ups: LOOK_UPS_MAX,
            of_store,
            of_health: self.health_connections(),
        }
    }

    /// Connections of the listener for health alone, if there is one.
    pub fn health_connections(&self) -> usize {
        self.health_listen.map_or(0, |_| HEALTH_CONNECTIONS_MAX.min(self.limits.connections))
    }

    /// Every listener: the setting of its address, and the address.
    pub fn listeners(&self) -> Vec<(&'static str, SocketAddr)> {
        let always = [("listen", self.listen), ("operator_listen", self.operator_listen)];
        always.into_iter().chain(self.health_listen.map(|address| ("health_listen", address))).collect()
    }

    /// Proxies whose word about addresses is taken.
    pub fn trusted_networks(&self) -> Vec<Network> {
        self.trusted_proxies.iter().filter_map(|text| Network::parse(text)).collect()
    }
}

/// The same with what set those settings that it is about: of file, unit and shell nobody need guess which is to be changed.
fn with_origins(ConfigRefused(said): ConfigRefused, set_by: &BTreeMap<String, String>) -> ConfigRefused {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let begins = said.strip_prefix("the setting ").unwrap_or(&said);
    // What is quoted is a value.
    let begins: String = begins.split('"').step_by(2).collect();
    // One of a single word, as `data`, may stand in a sentence for what it means.
    let names = |name: &str| {
        let is_plain = !name.contains(['_', '.']);
        let mut words = begins.split(|c| !is_of_name(c)).map(|word| word.trim_end_matches('.'));
        if is_plain { words.next() == Some(name) } else { words.any(|word| word == name) }
    };
    let is_told = |origin: &str| said.contains(origin);
    let about: Vec<_> = set_by.iter().filter(|(name, origin)| names(name) && !is_told(origin)).collect();
    ConfigRefused(match about.as_slice() {
        [] => said,
        [(_, origin)] => format!("{said} (set by {origin})"),
        several => {
            let each: Vec<_> = several.iter().map(|(name, origin)| format!("{name} by {origin}")).collect();
            format!("{said} (set: {})", each.join(", "))
        }
    })
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
