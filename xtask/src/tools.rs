//! The testkit's own programs, built for release beside the server that they start.

use std::process::ExitCode;

use anyhow::{Context, ensure};

use crate::cargo::holds;

const BUILD: &[&str] =
    &["build", "--release", "--locked", "--package", "countersign", "--package", "countersign-testkit", "--bins"];
const RUN: &[&str] = &["run", "--release", "--locked", "--quiet", "--package", "countersign-testkit", "--bin"];

/// Builds everything for release and runs one program of the testkit. Its failure is ours.
pub fn run(program: &str, arguments: &[&str]) -> anyhow::Result<ExitCode> {
    if !holds(BUILD)? || !holds(&[RUN, &[program, "--"], arguments].concat())? {
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The same with up to `most` whole numbers as arguments; the first is `default` where none is given.
pub fn run_with_numbers(
    program: &str,
    arguments: &[String],
    most: usize,
    default: &str,
    usage: &str,
) -> anyhow::Result<ExitCode> {
    ensure!(arguments.len() <= most, "usage: cargo xtask {usage}");
    for argument in arguments {
        argument.parse::<u64>().with_context(|| format!("{argument} is no number; usage: cargo xtask {usage}"))?;
    }
    let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(program, if given.is_empty() { std::slice::from_ref(&default) } else { &given })
}
