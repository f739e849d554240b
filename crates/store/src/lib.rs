//! What Countersign keeps, behind one contract: [`Store`].
//!
//! A change is a value: the use case decides, builds one [`Batch`], and the store applies it whole or not at all.
//! Acknowledged means durable: [`Store::commit`] answers only after the change is on stable storage.
//!
//! Invariant: this crate is the only one that knows SQL. It knows no HTTP, no JSON and no secret in the clear.

pub mod attempt_log;
pub mod audit_gaps;
pub mod backlog;
pub mod backup;
pub mod batch;
pub mod chain;
pub mod contract;
pub mod conversion;
pub mod event_list;
pub mod model;
pub mod moving;
pub mod nodes;
pub mod own_events;
pub mod paid_order;
mod payment_listing;
pub mod payment_order;
pub mod postgres;
pub mod public_ids;
pub mod redelivery;
pub mod rows;
pub mod sqlite;
#[cfg(feature = "testing")]
pub mod testing;

mod any;
mod asker;
mod check;
mod conditions;
mod conflict;
mod earlier_event;
mod joined;
mod panicked;
mod read;
mod rule_page;
mod steps;
mod window;
mod words;
mod work_clock;

pub use any::AnyStore;
pub use batch::{Batch, Committed, Write};
pub use contract::{CommitError, Store, StoreError};
pub use conversion::ConvertStore;
pub use model::{Lost, ModelStore};
pub use postgres::{PostgresOptions, PostgresStore};
pub use sqlite::{SqliteOptions, SqliteStore};
pub use steps::SchemaState;
