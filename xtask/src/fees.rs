//! `cargo xtask fees [ORDERS] [STORE]`: every fee beside one worked out on paper, a what-if beside really running the rule, statements beside their orders.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered = Numbered {
    program: "fees",
    most: 1,
    default: "100000",
    stores: &LASTING,
    usage: "fees [ORDERS] [sqlite|postgres]",
};

/// 100,000 orders on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
