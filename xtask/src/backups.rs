//! `cargo xtask backups [N] [STORE]`: takes backups under load and restores each elsewhere.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered =
    Numbered { program: "backups", most: 1, default: "20", stores: &LASTING, usage: "backups [N] [sqlite|postgres]" };

/// 20 rounds on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
