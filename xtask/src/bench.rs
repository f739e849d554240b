//! `cargo xtask bench [hmac|query|tls|callbacks|ways|upgrades|orders|flat|query-postgres|postgres]`: figures, each beside its yardstick in the same run.

use std::process::ExitCode;

use anyhow::ensure;

use crate::tools;

/// The tables, and what the measuring program calls them.
const TABLES: [(&str, &[&str]); 10] = [
    ("hmac", &["hmac"]),
    ("query", &["query", "sqlite"]),
    ("tls", &["tls"]),
    ("callbacks", &["callbacks"]),
    ("ways", &["ways"]),
    ("upgrades", &["upgrades"]),
    ("orders", &["orders"]),
    ("flat", &["flat", "10000", "5000000"]),
    ("query-postgres", &["query", "postgres"]),
    ("postgres", &["postgres"]),
];

/// The tables that are named; all where none is. A table that fails does not keep the others from being measured.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let wanted: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let names = TABLES.map(|(name, _)| name);
    ensure!(wanted.iter().all(|table| names.contains(table)), "usage: cargo xtask bench [{}]", names.join("|"));
    let mut code = ExitCode::SUCCESS;
    for (name, words) in TABLES {
        if (wanted.is_empty() || wanted.contains(&name)) && tools::run("measure", words)? != ExitCode::SUCCESS {
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}
