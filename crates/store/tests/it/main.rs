//! One binary: the contract on every store, what only one kind promises, and all against each other.

mod answers;
mod breaks;
mod chain_trials;
mod contract;
mod corrupt;
mod data_md;
mod failover;
mod fixtures;
mod forgetting;
mod gone;
mod last_paid;
mod locks;
mod moving;
mod nodes;
mod patience;
mod pooled;
mod postgres;
mod property;
mod proxy;
mod ready;
mod room;
mod schemas;
mod served;
mod sqlite;
mod sqlite_files;
mod tenancy;
