//! `cargo xtask strace`: proves from system calls what is on disk before an answer leaves.

use std::process::ExitCode;

use anyhow::ensure;

use crate::tools;

/// No arguments.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    ensure!(arguments.is_empty(), "strace takes no arguments");
    tools::run("strace", &[])
}
