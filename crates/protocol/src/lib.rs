//! The wire of Countersign: what merchants, SDKs and the server must agree on, byte for byte.
//!
//! Invariant: nothing here reads a clock, the environment or chance, and nothing does IO; time is an argument.
//! Invariant: this crate does not know the domain. It knows forms (a JSON number, 13 digits), not meanings (a fee).
//! Invariant: the files under `vectors/` are the protocol. A changed vector is a changed protocol.

pub mod body;
pub mod callback;
pub mod code;
pub mod endpoint;
pub mod envelope;
pub mod exact;
pub mod headers;
pub mod query;
pub mod replay;
pub mod sentence;
pub mod signing;
