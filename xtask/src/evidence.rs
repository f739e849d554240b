//! `cargo xtask evidence [TRIALS] [STORE]`: a real order's evidence, spoiled and forged; each place found, each forger refused.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered = Numbered {
    program: "evidence",
    most: 1,
    default: "1000",
    stores: &LASTING,
    usage: "evidence [TRIALS] [sqlite|postgres]",
};

/// 1,000 trials of each way on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
