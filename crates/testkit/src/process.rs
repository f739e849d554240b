//! The real binary as a real process, in a data folder of its own.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::operator::OperatorAccess;

/// The binary of this build, beside the test's own.
pub fn binary() -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    let folder = own.ancestors().find(|p| p.join("countersign").is_file());
    folder
        .map(|p| p.join("countersign"))
        .expect("the binary is not built: run `cargo build -p countersign` with the same profile")
}

/// A command of the binary without the variables of the test run: the server refuses settings that it does not know.
pub fn bare() -> Command {
    bare_under(&[])
}

/// The same, started by another program: its name and its arguments.
fn bare_under(wrapper: &[&str]) -> Command {
    let mut command = match wrapper.split_first() {
        None => Command::new(binary()),
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).arg(binary());
            command
        }
    };
    for variable in ["COUNTERSIGN_TRIALS", "COUNTERSIGN_BLESS"] {
        command.env_remove(variable);
    }
    command
}

/// A deployment on disk: data folder and first operator token.
#[derive(Debug)]
pub struct Deployment {
    /// The data folder.
    pub data: PathBuf,
    /// Lines for a configuration file, before start.
    pub config: String,
    token: String,
}

/// A running `countersign serve`. Killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// The merchant listener.
    pub listen: SocketAddr,
    /// Its operator API.
    pub access: OperatorAccess,
    /// From the start of the process until its first line.
    pub ready_in: Duration,
}

impl Deployment {
    /// Runs `countersign init` in `data`.
    pub fn init(data: &Path) -> Result<Self> {
        let out = bare().args(["init", "--json", "--data"]).arg(data).output()?;
        ensure!(out.status.success(), "init failed: {}", String::from_utf8_lossy(&out.stderr));
        let said: Value = serde_json::from_slice(&out.stdout).context("init --json prints one JSON object")?;
        let token = said["operator_token"].as_str().context("init gives an operator token")?.to_owned();
        Ok(Self { data: data.to_owned(), config: String::new(), token })
    }

    /// Runs `countersign serve` on free loopback ports and waits for its first line. The log goes to `serve.log` in the data folder.
    pub fn serve(&self) -> Result<Server> {
        self.serve_under(&[])
    }

    /// The same with further flags.
    pub fn serve_with(&self, more: &[&str]) -> Result<Server> {
        self.start(bare_under(&[]), more)
    }

    /// The same, started by another program that makes way for it: the process started must become the server.
    pub fn serve_under(&self, wrapper: &[&str]) -> Result<Server> {
        self.start(bare_under(wrapper), &[])
    }

    fn start(&self, mut command: Command, more: &[&str]) -> Result<Server> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.data.join("serve.log"))?;
        command.args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--operator-listen",
            "127.0.0.1:0",
            "--allow-private-callbacks",
        ]);
        command.args(more).arg("--data").arg(&self.data).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        if !self.config.is_empty() {
            let file = self.data.join("test.toml");
            std::fs::write(&file, &self.config)?;
            command.arg("--config").arg(file);
        }
        let started = Instant::now();
        let mut child = command.spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("stdout is piped")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let ready_in = started.elapsed();
        if line.is_empty() {
            let mut log = String::new();
            std::fs::File::open(self.data.join("serve.log"))?.read_to_string(&mut log)?;
            bail!("serve ended at once: {}", log.lines().last().unwrap_or("without a word"));
        }
        let said: Value = serde_json::from_str(&line).context("serve's first line is JSON")?;
        let address = |name: &str| -> Result<SocketAddr> { Ok(said[name].as_str().context("an address")?.parse()?) };
        Ok(Server {
            listen: address("listen")?,
            access: OperatorAccess::new(address("operator_listen")?, self.token.clone()),
            child,
            ready_in,
        })
    }
}

impl Server {
    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM; answers whether it ended with code 0.
    pub fn terminate(mut self) -> Result<bool> {
        let told = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        ensure!(told.success(), "kill -TERM failed");
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
