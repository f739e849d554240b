//! `cargo xtask victim [SECONDS] [STORE]`: bad signatures in a merchant's name at 1,000 a second, beside its own requests.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered = Numbered {
    program: "victim",
    most: 1,
    default: "30",
    stores: &LASTING,
    usage: "victim [SECONDS] [sqlite|postgres]",
};

/// 30 seconds on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
