//! `cargo xtask one-order [ROUNDS] [STORE]`: one trade number, one `clientReqId` sent by 64 clients at once, and answers that never arrive.

use std::process::ExitCode;

use crate::tools::{LASTING, Numbered};

const RUN: Numbered = Numbered {
    program: "one_order",
    most: 1,
    default: "1000",
    stores: &LASTING,
    usage: "one-order [ROUNDS] [sqlite|postgres]",
};

/// 1,000 rounds on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
