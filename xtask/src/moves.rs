//! `cargo xtask move [ROWS]`: moves a deployment from SQLite to PostgreSQL, kills the move again and again, and compares every row.

use std::process::ExitCode;

use crate::packages;
use crate::tools::Numbered;

const RUN: Numbered = Numbered { program: "moves", most: 1, default: "1000000", stores: &[], usage: "move [ROWS]" };

/// 1,000,000 rows unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    packages::provide()?;
    RUN.run(arguments)
}
