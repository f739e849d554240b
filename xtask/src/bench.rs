//! `cargo xtask bench [hmac|query|upgrades|postgres]`: figures, each beside its yardstick in the same run.

use std::process::ExitCode;

use anyhow::ensure;

use crate::tools;

const TABLES: [&str; 4] = ["hmac", "query", "upgrades", "postgres"];

/// The tables that are named; all where none is. A table that fails does not keep the others from being measured.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let known = wanted.iter().all(|table| TABLES.contains(table));
    ensure!(known, "usage: cargo xtask bench [{}]", TABLES.join("|"));
    let mut code = ExitCode::SUCCESS;
    for table in if wanted.is_empty() { &TABLES[..] } else { &wanted } {
        if tools::run("measure", &[table])? != ExitCode::SUCCESS {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
