//! `cargo xtask neighbours [HUNG] [STORE]`: endpoints that hang beside one that works.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered = Numbered {
    program: "neighbours",
    most: 1,
    default: "10000",
    stores: &LASTING,
    usage: "neighbours [HUNG] [sqlite|postgres]",
};

/// 10,000 on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
