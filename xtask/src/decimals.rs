//! `cargo xtask decimals [N] [SEED]`: random markups and amounts from end to end, beside sums on paper.

use std::process::ExitCode;

use crate::tools::Numbered;

const RUN: Numbered =
    Numbered { program: "decimals", most: 2, default: "100000", stores: &[], usage: "decimals [N] [SEED]" };

/// 100,000 cases unless told otherwise; the seed is the time unless it is given.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
