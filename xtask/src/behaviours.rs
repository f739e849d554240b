//! `cargo xtask behaviours`: attempts at endpoints of every kind: outcome, time, memory.

use std::process::ExitCode;

use anyhow::ensure;

use crate::tools;

/// No arguments.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    ensure!(arguments.is_empty(), "behaviours takes no arguments");
    tools::run("behaviours", &[])
}
