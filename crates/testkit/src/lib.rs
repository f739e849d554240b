//! What tests and measurements share: a raw client, the real binary as a process, kills under load, measuring by slices.

pub mod backing;
pub mod backups;
pub mod behaviours;
pub mod books;
pub mod decimals;
pub mod dice;
pub mod fleet;
pub mod histories;
pub mod hostile;
pub mod idle;
pub mod in_process;
pub mod kill;
pub mod measure;
pub mod moves;
pub mod neighbours;
pub mod on_paper;
pub mod operator;
pub mod patience;
pub mod process;
pub mod receiver;
pub mod rewraps;
pub mod rotation;
pub mod strace;
pub mod victim;
pub mod wire;
pub mod world;
