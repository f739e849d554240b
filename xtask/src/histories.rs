//! `cargo xtask histories [N] [SEED] [STORE]`: random histories of fee rules, conversions and payment orders on each store or on one, against oracles.

use std::process::ExitCode;

use crate::tools::Numbered;

const RUN: Numbered = Numbered {
    program: "histories",
    most: 2,
    default: "100000",
    stores: &["model", "sqlite", "postgres"],
    usage: "histories [N] [SEED] [model|sqlite|postgres]",
};

/// 100,000 histories on each store unless told otherwise; the seed is the time unless it is given.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
