//! `cargo xtask queued [EVENTS] [STORE]`: a start with very many events queued.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered = Numbered {
    program: "queued",
    most: 1,
    default: "1000000",
    stores: &LASTING,
    usage: "queued [EVENTS] [sqlite|postgres]",
};

/// 1,000,000 on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
