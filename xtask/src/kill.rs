//! `cargo xtask kill [ROUNDS] [STORE]`: kills the real server that often under load, and finds everything again.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered =
    Numbered { program: "kill", most: 1, default: "200", stores: &LASTING, usage: "kill [ROUNDS] [sqlite|postgres]" };

/// 200 rounds on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
