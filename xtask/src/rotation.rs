//! `cargo xtask rotation [ROUNDS] [STORE]`: rotates the secrets of 8 applications that often under load.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered = Numbered {
    program: "rotation",
    most: 1,
    default: "20",
    stores: &LASTING,
    usage: "rotation [ROUNDS] [sqlite|postgres]",
};

/// 20 rounds on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
