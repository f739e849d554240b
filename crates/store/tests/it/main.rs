//! One binary: the contract on every store, what only SQLite promises, and both stores against each other.

mod contract;
mod corrupt;
mod data_md;
mod fixtures;
mod property;
mod sqlite;
