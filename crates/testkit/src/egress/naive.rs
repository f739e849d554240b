//! A client without a guard: it looks names up and connects to whatever it is told. What the run sees of it shows that the run can see.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// For one address.
const PATIENCE: Duration = Duration::from_millis(500);
/// What strace is told, but for the file that it writes to: every call of `connect`, in every thread, with the kind of each socket.
pub const RECORD: [&str; 9] = ["-D", "-f", "--seccomp-bpf", "-tt", "-yy", "-s", "64", "-e", "trace=connect"];

/// Reads `HOST PORT` from standard input, a line each, and connects to all that each stands for.
pub async fn run() -> Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (host, port) = line.split_once(' ').context("a line is HOST PORT")?;
        let Ok(found) = lookup_host((host, port.parse::<u16>()?)).await else { continue };
        for address in found {
            drop(timeout(PATIENCE, TcpStream::connect(address)).await);
        }
    }
    Ok(())
}

/// Starts it as a process of its own for these hosts, with its calls written to `file`.
pub fn record(hosts: &[(String, u16)], file: &Path) -> Result<()> {
    let mut words = RECORD.to_vec();
    // Nobody takes its place: strace ends with it.
    words.remove(0);
    let mut child = Command::new("strace")
        .args(words)
        .arg("-o")
        .arg(file)
        .arg("--")
        .arg(std::env::current_exe()?)
        .arg("naive")
        .stdin(Stdio::piped())
        .spawn()
        .context("strace is not installed")?;
    let mut input = child.stdin.take().context("its input is piped")?;
    for (host, port) in hosts {
        writeln!(input, "{host} {port}")?;
    }
    drop(input);
    ensure!(child.wait()?.success(), "the client without a guard did not end well");
    Ok(())
}
