//! How a PostgreSQL store is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use super::incumbent::NotedOffice;
use crate::asker::Asker;

/// How a PostgreSQL store is opened. [`PostgresOptions::new`] has the shipped settings.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:port/database?...`; a folder as `host` (percent-encoded) is a Unix socket. With `sslmode=require`
    /// the connection is encrypted and the server's certificate is checked; without it, it is not encrypted.
    pub url: String,
    /// Authorities that a server's certificate may come from, for `sslmode=require`.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// Which server was in office when this node last served. A server that the one in office had taken over from is refused.
    pub served: Option<NotedOffice>,
    /// 16 random bytes: the key of nonce hashes if this opening makes the schema. Later openings use the stored one.
    pub window_key: [u8; 16],
    /// 16 random bytes: names this opening among all others.
    pub node: [u8; 16],
    /// Connections for writes; each commits groups of batches on its own.
    pub lanes: usize,
    /// Connections for reads.
    pub readers: usize,
    /// Batches in one transaction at most; 1 is the yardstick of the benchmark.
    pub group_max: usize,
    /// Whether a transaction carries the batches, or claims, of one tenant only, so that the tables can be spread over many servers by
    /// tenant. On a single server it only makes the groups smaller.
    pub group_by_tenant: bool,
    /// Batches that may wait for one lane; one more is answered `Unavailable` at once.
    pub queue_max: usize,
    /// The unit of all limits of time: how long a connection, a lock, an answer is waited for. A test makes it shorter than a second.
    pub second: Duration,
}

impl PostgresOptions {
    /// The shipped settings.
    pub fn new(url: impl Into<String>, window_key: [u8; 16], node: [u8; 16]) -> Self {
        Self {
            url: url.into(),
            tls: None,
            served: None,
            window_key,
            node,
            lanes: 2,
            readers: 2,
            group_max: 256,
            group_by_tenant: false,
            queue_max: 4096,
            second: Duration::from_secs(1),
        }
    }

    /// Whether the address asks for `sslmode=require`, so that `tls` is needed. Not where it cannot be read; opening says so.
    pub fn demands_tls(&self) -> bool {
        self.url.parse::<Config>().is_ok_and(|config| config.get_ssl_mode() == SslMode::Require)
    }

    /// Connections that a node with a store opened like this may have at once.
    pub const fn connections(&self) -> usize {
        /// For nonces, leases, signals and announcements, and a few that come and go: start, housekeeping, questions about the server.
        const OTHERS: usize = 6;
        self.lanes + self.readers + super::LISTS_MAX * Asker::COUNT + OTHERS
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("PostgresOptions")
            .field("lanes", &self.lanes)
            .field("readers", &self.readers)
            .field("group_max", &self.group_max)
            .field("group_by_tenant", &self.group_by_tenant)
            .field("queue_max", &self.queue_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_an_address_spells_it_tls_is_asked_for() {
        for (url, demands) in [
            ("postgres://u@h/d?sslmode=require", true),
            ("postgres://u@h/d?application_name=a&sslmode=%72equire", true),
            ("host=h user=u sslmode = 'require'", true),
            ("postgres://u@h/d?sslmode=prefer", false),
            ("postgres://u@h/d?application_name=sslmode%3Drequire", false),
            ("host=h application_name='sslmode=require'", false),
            ("no address", false),
        ] {
            assert_eq!(PostgresOptions::new(url, [0; 16], [0; 16]).demands_tls(), demands, "{url}");
        }
    }
}
