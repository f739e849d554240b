//! `cargo xtask decimals [N] [SEED]`: random markups and amounts from end to end, beside sums on paper.

use std::process::ExitCode;

use crate::tools::run_with_numbers;

/// 100,000 cases unless told otherwise; the seed is the time unless it is given.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    run_with_numbers("decimals", arguments, 2, "100000", "decimals [N] [SEED]")
}
