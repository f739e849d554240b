//! Client and callback verifier for merchants of Countersign.
//!
//! [`Client`] signs every request with a fresh nonce and timestamp, follows the server's clock, and tells refusals apart by
//! their code. [`CallbackVerifier`] checks what the server sends to a merchant's callback URL, and [`EventData`] reads what it tells.
//! [`EventWalk`] fetches the events of an application again, in order, and says which are missing.
//!
//! ```no_run
//! use countersign_sdk::{Client, Error, protocol::code::Code, protocol::endpoint::rule_query};
//!
//! # async fn example() -> Result<(), Error> {
//! let client = Client::builder("https://pay.example.com", "app_...", "the Payment API Secret, all of its characters")
//!     .merchant_id("main-merchant")
//!     .build()?;
//! match client.rule_query(&rule_query::Request::new("10002")).await {
//!     Ok(rule) => println!("a markup is in force: {}", rule.has_markup),
//!     Err(Error::Refused { code: Code::SubMerchantNotFound, .. }) => println!("no such sub-account"),
//!     Err(other) => return Err(other),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Invariant: secrets are kept as signing keys only, print as nothing, and their texts are wiped. None is empty.
//! Invariant: nothing global is installed: each client has its own TLS configuration. It knows no proxy unless told. Of the environment only
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` are read, where the machine's own root certificates are to be trusted.
//! Invariant: `ambient` is the only module that reads the clock and draws chance, and both can be replaced.

mod ambient;
pub mod answer;
pub mod callback;
pub mod client;
mod error;
pub mod event_data;
mod http_date;
mod identity;
mod operations;
pub mod pull;
mod secret;
mod tls;

pub use answer::Answer;
pub use callback::{Callback, CallbackRefused, CallbackVerifier};
pub use client::{Client, ClientBuilder};
pub use countersign_protocol as protocol;
pub use countersign_protocol::exact::Exact;
pub use countersign_protocol::replay::WindowRefused;
pub use error::{Advice, Error};
pub use event_data::{EventData, PaymentOrderData, PaymentOrderStatus};
pub use pull::{EventCursor, EventWalk, Gap, NotMoved, PullError};
pub use rust_decimal::Decimal;
pub use secret::{Secret, SecretRefused};

/// The code of the README is compiled and run with the examples of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
