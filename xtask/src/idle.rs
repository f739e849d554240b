//! `cargo xtask idle`: start-up time and memory of the real server.

use std::process::ExitCode;

use anyhow::ensure;

use crate::tools;

/// No arguments.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    ensure!(arguments.is_empty(), "idle takes no arguments");
    tools::run("idle", &[])
}
