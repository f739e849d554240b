//! Evidence: all that is known of one payment order in one file, which anybody can check without a server.
//!
//! Each line is chained to the ones before it by SHA-256, and the last one is signed by the deployment's Ed25519 key. What the file holds and
//! how it is checked in any language: docs/EVIDENCE.md.
//!
//! Invariant: nothing here knows the store, the network or the clock. `app::evidence` gathers the entries, this module writes and judges lines.

mod chain;
mod entry;
mod key;
mod story;
mod sums;
mod verify;
mod words;

#[cfg(test)]
mod tests;

pub use chain::{Chain, Head, HeadLine, SIGNED_AS};
pub use entry::{
    At, Attempt, Callback, Entry, Fee, Header, Kind, Move, Octets, Order, Request, RuleVersion, Sum, Wire,
};
pub use key::{KEY_BYTES, PublicKey, SIGNATURE_BYTES, SigningKey};
pub use verify::{Failed, Fault, Verifier, verify};
pub use words::{CallbackSummary, Verified};

/// What the first entry calls the format.
pub const FORMAT: &str = "countersign-evidence";
/// Its version. A program that does not know a version refuses the file.
pub const VERSION: u32 = 1;
/// Longest line, in bytes without its end: an attempt with all that is kept of its bytes, each written as six.
pub const LINE_BYTES_MAX: usize = 1024 * 1024;
/// Longest body of a request that fits on a line beside its head: a byte of JSON is written as two at the most.
pub const REQUEST_BODY_BYTES_MAX: usize = 400 * 1024;
/// Callbacks of one order.
pub const CALLBACKS_MAX: usize = 10_000;
