//! What the dispatcher needs of the configuration.

use std::time::Duration;

use countersign_domain::delivery::Schedule;
use countersign_protocol::headers::Prefixes;
use countersign_store::nodes::Who;
use thiserror::Error;

use super::egress::Egress;
use super::idle::IDLE_TOTAL_MAX;
use super::route::Route;

/// The longest time for a whole attempt, as shipped (`callback_deadline`): docs/PROTOCOL.md, Callbacks.
pub const DEADLINE: Duration = Duration::from_secs(15);

/// How callbacks go out; fixed at start.
#[derive(Clone, Debug)]
pub struct DispatchSettings {
    /// Prefixes of header names; the first one is sent.
    pub prefixes: Prefixes,
    /// When failed attempts are repeated.
    pub schedule: Schedule,
    /// How long, from its own creation, a callback waits for an earlier one of the same bizId, in ms.
    pub order_hold_ms: i64,
    /// Allows plain http, any port, loopback and private addresses (development only).
    pub allow_private: bool,
    /// Ports allowed besides 443.
    pub allowed_ports: Vec<u16>,
    /// The way out: a proxy, addresses of ours.
    pub route: Route,
    /// Attempts at once, in all, that have not taken long yet.
    pub concurrency: usize,
    /// Attempts at once, in all, that have taken longer than a second.
    pub slow: usize,
    /// Connections that are kept for the next attempt, in all.
    pub kept: usize,
    /// Attempts at once for one merchant that have not taken long yet: an institution with its sub-accounts, or a plain merchant.
    pub per_merchant: usize,
    /// Attempts at once for one application.
    pub per_application: usize,
    /// Attempts in a second for one application; none: as many as there are.
    pub per_application_per_s: Option<u32>,
    /// A kept connection is used again within this time only: some common servers close idle ones after 2 s, and a request that meets that is lost.
    pub idle_max: Duration,
    /// Longest time for a name's look-up, and again for connecting.
    pub connect_timeout: Duration,
    /// Longest time for a whole attempt: look-up, connect, TLS, head and body.
    pub deadline: Duration,
    /// How long attempts in flight may take to end when the process is told to stop.
    pub drain_grace: Duration,
    /// Certificates in PEM form that are trusted besides the machine's own roots; empty for none.
    pub extra_roots: Vec<u8>,
    /// Which node this is, where others share the store. No two running ones may have the same id.
    pub who: Who,
    /// How long lanes stay this node's own without a heartbeat.
    pub lease: Duration,
    /// How often a shared store is asked what is due even if nobody rings.
    pub look_every: Duration,
}

impl Default for DispatchSettings {
    /// What the settings say unless they are set.
    fn default() -> Self {
        Self {
            prefixes: Prefixes::new(&["X-Service-".to_owned()]).expect("the contract's prefix is one"),
            schedule: Schedule::default(),
            order_hold_ms: 600_000,
            allow_private: false,
            allowed_ports: vec![443],
            route: Route::default(),
            concurrency: 256,
            slow: 1_024,
            kept: IDLE_TOTAL_MAX,
            per_merchant: 192,
            per_application: 8,
            per_application_per_s: None,
            idle_max: Duration::from_millis(1_500),
            connect_timeout: Duration::from_secs(5),
            deadline: DEADLINE,
            drain_grace: Duration::from_millis(7_200),
            extra_roots: Vec::new(),
            who: Who::NOBODY,
            lease: Duration::from_secs(5),
            look_every: Duration::from_secs(1),
        }
    }
}

impl DispatchSettings {
    /// Where callbacks may go.
    pub fn egress(&self) -> Egress {
        Egress { allow_private: self.allow_private, allowed_ports: self.allowed_ports.clone() }
    }
}

/// Why the dispatcher does not start.
#[derive(Debug, Error)]
pub enum DispatchError {
    /// A certificate of `extra_roots` cannot be read.
    #[error("the extra roots for callbacks hold no certificate that can be read")]
    ExtraRoots,
    /// Without roots no https callback could ever be delivered.
    #[error(
        "this machine has no root certificates: install them (Debian: ca-certificates) or name extra roots for callbacks"
    )]
    NoRoots,
    /// The same: they are there.
    #[error("the root certificates of this machine cannot be read: {0}")]
    UnreadRoots(String),
    /// The TLS library refuses the versions.
    #[error("TLS for callbacks cannot be set up")]
    Tls(#[source] rustls::Error),
    /// A limit is zero.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
}
