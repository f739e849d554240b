//! `cargo xtask kill [ROUNDS]`: kills the real server that often under load, and finds everything again.

use std::process::ExitCode;

use crate::tools::run_with_numbers;

/// 200 rounds unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    run_with_numbers("kill", arguments, 1, "200", "kill [ROUNDS]")
}
