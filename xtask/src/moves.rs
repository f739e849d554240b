//! `cargo xtask move [ROWS]`: moves a deployment from SQLite to PostgreSQL, kills the move again and again, and compares every row.

use std::process::ExitCode;

use crate::postgres;
use crate::tools::run_with_numbers;

/// 1,000,000 rows unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    postgres::provide()?;
    run_with_numbers("moves", arguments, 1, "1000000", "move [ROWS]")
}
