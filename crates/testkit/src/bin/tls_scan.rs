//! `tls_scan`: testssl.sh on the TLS listener of a server that is started for it.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use countersign_testkit::process::Deployment;
use serde_json::Value;

const PROGRAM: &str = "/usr/bin/testssl";
/// Protocols, kinds of cipher, forward secrecy, vulnerabilities, the server's own order.
const SECTIONS: [&str; 5] = ["--protocols", "--std", "--pfs", "--vulnerable", "--server-preference"];
/// What testssl.sh calls what is as it should be.
const FINE: [&str; 2] = ["OK", "INFO"];
/// What it says of the machine that it runs on.
const ABOUT_ITSELF: [&str; 1] = ["engine_problem"];

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem())?;
    std::fs::write(&key, made.signing_key.serialize_pem())?;
    let deployment = Deployment::init(&folder.path().join("data"))?;
    let server = deployment.serve_with(&["--tls-cert", text(&cert)?, "--tls-key", text(&key)?])?;
    let findings = folder.path().join("findings.json");
    let mut command = Command::new(PROGRAM);
    command.args(["--quiet", "--warnings", "off", "--color", "0", "--jsonfile", text(&findings)?]).args(SECTIONS);
    let status =
        command.arg(server.listen.to_string()).stdin(Stdio::null()).status().context("testssl.sh cannot be started")?;
    let said: Value =
        serde_json::from_str(&std::fs::read_to_string(&findings)?).context("testssl.sh says what it found as JSON")?;
    let lines = said.as_array().context("a list of findings")?;
    let word = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let bad: Vec<String> = lines
        .iter()
        .filter(|line| !ABOUT_ITSELF.contains(&word(line, "id").as_str()))
        .filter(|line| !FINE.contains(&word(line, "severity").as_str()))
        .map(|line| format!("{} {}: {}", word(line, "severity"), word(line, "id"), word(line, "finding")))
        .collect();
    println!("{} checks of testssl.sh ({status}), {} of them a finding", lines.len(), bad.len());
    for line in &bad {
        println!("  {line}");
    }
    ensure!(lines.len() > 30, "testssl.sh has not looked at much");
    ensure!(bad.is_empty(), "testssl.sh has something to say");
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a temporary path is text")
}
