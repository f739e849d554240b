//! `cargo xtask check`: the quick part of `cargo xtask test`.

use std::process::ExitCode;

use anyhow::ensure;

use crate::cargo::{has, holds};

const FORMATTING: &[&str] = &["fmt", "--all", "--check"];
const LINTS: &[&str] = &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
const LICENCES: &[&str] = &["deny", "--offline", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];
const RULES: &[&str] =
    &["test", "--locked", "--quiet", "--package", "countersign-testkit", "--test", "it", "--", "tidy::"];

/// Formatting, lints, dependencies and the rules of the house.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    ensure!(arguments.is_empty(), "check takes no arguments");
    let mut failed = before_tests()?;
    if !holds(RULES)? {
        failed.push("the rules of the house do not hold: each failure above names the file and the rule");
    }
    Ok(verdict(&failed))
}

/// What needs no test to run. Returns a sentence for each part that did not hold.
pub fn before_tests() -> anyhow::Result<Vec<&'static str>> {
    let mut failed = Vec::new();
    if !holds(FORMATTING)? {
        failed.push("formatting differs: run `cargo fmt --all`");
    }
    if !holds(LINTS)? {
        failed.push("clippy has warnings, and here they are errors");
    }
    if !has("deny") {
        eprintln!(
            "cargo-deny is not installed, so deny.toml was not checked; `cargo install --locked cargo-deny` adds it"
        );
    } else if !holds(LICENCES)? {
        failed.push("deny.toml does not permit a dependency: its licence, its source, or the crate itself");
    }
    Ok(failed)
}

/// Prints what failed, and makes the exit code of it.
pub fn verdict(failed: &[&str]) -> ExitCode {
    for sentence in failed {
        eprintln!("FAILED: {sentence}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
