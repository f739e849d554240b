//! `cargo xtask egress [control]`: hostile URLs and names whose answers flip, in a network of the run's own with no way out.

use std::process::ExitCode;

use anyhow::bail;

use crate::cargo::holds_with;
use crate::{packages, tools};

/// Leaves the guard out of a debug build; a build for release refuses it.
const GUARD_OFF: (&str, &str) = ("RUSTFLAGS", "--cfg countersign_guard_off");
/// Such builds have a folder of their own, so that none is ever taken for another.
const FOLDER: [&str; 2] = ["--target-dir", "target/guard-off"];
const BUILD: &[&str] = &["build", "--locked", "--package", "countersign", "--package", "countersign-testkit", "--bins"];
const RUN: &[&str] = &["run", "--locked", "--quiet", "--package", "countersign-testkit", "--bin", "egress"];

/// The run, or with `control` the same with the guard off, which must find what the run looks for.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => {
            packages::provide()?;
            tools::run("egress", &["full"])
        }
        ["control"] => {
            packages::provide()?;
            let build = [BUILD, &FOLDER].concat();
            let run = [RUN, &FOLDER, &["--", "control"]].concat();
            let held = holds_with(&build, GUARD_OFF)? && holds_with(&run, GUARD_OFF)?;
            Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        _ => bail!("usage: cargo xtask egress [control]"),
    }
}
