//! `cargo xtask histories [N] [SEED]`: random histories of fee rules on each store, against an oracle.

use std::process::ExitCode;

use crate::tools::run_with_numbers;

/// 100,000 histories unless told otherwise; the seed is the time unless it is given.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    run_with_numbers("histories", arguments, 2, "100000", "histories [N] [SEED]")
}
