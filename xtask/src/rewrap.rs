//! `cargo xtask rewrap [N] [STORE]`: changes the master key while the server runs, killed at a random point each time.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered =
    Numbered { program: "rewrap", most: 1, default: "50", stores: &LASTING, usage: "rewrap [N] [sqlite|postgres]" };

/// 50 rounds on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
