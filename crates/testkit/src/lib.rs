//! What tests and measurements share: a raw client, the real binary as a process, kills under load, measuring by slices.

pub mod kill;
pub mod measure;
pub mod operator;
pub mod process;
pub mod receiver;
pub mod wire;
pub mod world;
