//! What came to a receiver.

use std::net::SocketAddr;

use tokio::time::Instant;

/// One request that came.
#[derive(Clone, Debug)]
pub struct Received {
    /// Path and query.
    pub target: String,
    /// Request line and headers as they came, with the blank line.
    pub head: Vec<u8>,
    /// Names in lower case, in the order of arrival.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
    /// When it had come in full.
    pub at: Instant,
    /// Which connection brought it: 1, 2, ...
    pub connection: usize,
}

impl Received {
    /// A header's value; none where it is absent.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// A header that must be there.
    pub fn need(&self, name: &str) -> &str {
        self.header(name).unwrap_or_else(|| panic!("the callback has no header {name}"))
    }
}

/// A connection that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The address that was called.
    pub local: SocketAddr,
    /// Whoever called.
    pub peer: SocketAddr,
}
