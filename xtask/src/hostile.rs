//! `cargo xtask matrix | canaries | timing | slow | tls-scan`: what whoever means harm may try, in large, on release builds.

use std::process::ExitCode;

use anyhow::ensure;

use crate::packages;
use crate::tools::{self, LASTING, Numbered};

const MATRIX: Numbered =
    Numbered { program: "matrix", most: 1, default: "1", stores: &LASTING, usage: "matrix [ONE_IN] [sqlite|postgres]" };
const CANARIES: Numbered = Numbered {
    program: "canaries",
    most: 1,
    default: "1000",
    stores: &LASTING,
    usage: "canaries [N] [sqlite|postgres]",
};
const TIMING: Numbered =
    Numbered { program: "timing", most: 1, default: "100000", stores: &LASTING, usage: "timing [N] [sqlite|postgres]" };
const SLOW: Numbered =
    Numbered { program: "slow", most: 2, default: "2000", stores: &[], usage: "slow [CONNECTIONS] [SECONDS]" };

/// Who may see and do what: every route, every kind of key, every combination of headers; both stores unless one is named.
pub fn matrix(arguments: &[String]) -> anyhow::Result<ExitCode> {
    packages::provide()?;
    MATRIX.run(arguments)
}

/// Secrets that are made, used, rotated and shown to a crash, and looked for everywhere.
pub fn canaries(arguments: &[String]) -> anyhow::Result<ExitCode> {
    packages::provide()?;
    CANARIES.run(arguments)
}

/// Whether the time of a refusal tells anything.
pub fn timing(arguments: &[String]) -> anyhow::Result<ExitCode> {
    packages::provide()?;
    TIMING.run(arguments)
}

/// Clients that dawdle, beside honest ones.
pub fn slow(arguments: &[String]) -> anyhow::Result<ExitCode> {
    packages::provide_also(&packages::SLOWHTTPTEST)?;
    SLOW.run(arguments)
}

/// testssl.sh on the TLS listener.
pub fn tls_scan(arguments: &[String]) -> anyhow::Result<ExitCode> {
    ensure!(arguments.is_empty(), "tls-scan takes no arguments");
    packages::provide_also(&packages::TESTSSL)?;
    tools::run("tls_scan", &[])
}
