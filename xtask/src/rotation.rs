//! `cargo xtask rotation [ROUNDS] [STORE]`: rotates the secrets of 8 applications that often under load.

use std::process::ExitCode;

use crate::tools::Numbered;

const RUN: Numbered = Numbered {
    program: "rotation",
    most: 1,
    default: "20",
    on_a_store: true,
    usage: "rotation [ROUNDS] [sqlite|postgres]",
};

/// 20 rounds on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
