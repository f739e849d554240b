//! The real binary as a real process, in a data folder of its own.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::backing::Backing;
use crate::operator::OperatorAccess;
use crate::patience::until;

/// Lets callbacks go to receivers on this machine.
const PRIVATE: &str = "--allow-private-callbacks";
/// A thread that is told to stop has done so by then.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

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
    /// Where merchants call: port 0 is a free one at each start.
    pub listen: SocketAddr,
    /// Where operators call.
    pub operator_listen: SocketAddr,
    /// The address of its database; none is SQLite in the data folder.
    database_url: Option<String>,
    /// The master key's file, where it is not in the data folder.
    master_key: Option<PathBuf>,
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
    /// Runs `countersign init` in `data`; the rows are in SQLite there, too.
    pub fn init(data: &Path) -> Result<Self> {
        Self::init_on(data, &Backing::sqlite())
    }

    /// Runs `countersign init` in `data` with the rows where `backing` says.
    pub fn init_on(data: &Path, backing: &Backing) -> Result<Self> {
        Self::init_at(data, backing.url())
    }

    /// The same with the address of a database, or none for SQLite.
    pub fn init_at(data: &Path, database_url: Option<String>) -> Result<Self> {
        let mut deployment = Self::unmade(data, database_url, None);
        let said = deployment.run_init()?;
        said["operator_token"].as_str().context("init gives an operator token")?.clone_into(&mut deployment.token);
        Ok(deployment)
    }

    /// Runs `countersign init` for a further node of this deployment in a data folder of its own.
    pub fn join(&self, data: &Path) -> Result<Self> {
        let master_key = Some(self.data.join("master.key"));
        let mut joined =
            Self { token: self.token.clone(), ..Self::unmade(data, self.database_url.clone(), master_key) };
        let said = joined.run_init()?;
        ensure!(said["operator_token"].is_null(), "a further node made a deployment of its own");
        joined.config.clone_from(&self.config);
        Ok(joined)
    }

    fn unmade(data: &Path, database_url: Option<String>, master_key: Option<PathBuf>) -> Self {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            data: data.to_owned(),
            config: String::new(),
            listen: anywhere,
            operator_listen: anywhere,
            database_url,
            master_key,
            token: String::new(),
        }
    }

    fn run_init(&self) -> Result<Value> {
        let out = self.settled(bare()).args(["init", "--json", "--data"]).arg(&self.data).output()?;
        ensure!(out.status.success(), "init failed: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).context("init --json prints one JSON object")
    }

    /// The command with this deployment's own settings, by variables: an address may hold a password, and a list of processes is public.
    fn settled(&self, mut command: Command) -> Command {
        if let Some(url) = &self.database_url {
            command.env("COUNTERSIGN_DATABASE_URL", url);
        }
        if let Some(file) = &self.master_key {
            command.env("COUNTERSIGN_MASTER_KEY_FILE", file);
        }
        command
    }

    /// Runs `countersign backup FILE`, while a server may run; what it says of the file.
    pub fn backup(&self, file: &Path) -> Result<Value> {
        let out = self.settled(bare()).args(["backup", "--json"]).arg(file).arg("--data").arg(&self.data).output()?;
        ensure!(out.status.success(), "backup failed: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).context("backup --json prints one JSON object")
    }

    /// Runs `countersign doctor` while no server runs: whether all is well, and what it says.
    pub fn doctor(&self) -> Result<(bool, String)> {
        let mut command = self.settled(bare());
        self.configured(command.args(["doctor", "--data"]).arg(&self.data))?;
        let out = command.output()?;
        Ok((out.status.success(), String::from_utf8_lossy(&out.stdout).into_owned()))
    }

    /// Runs `countersign restore FILE` into a new data folder, with the master key in it, and a database where one is named.
    pub fn restore(&self, file: &Path, data: &Path, database_url: Option<String>) -> Result<Self> {
        let restored = Self { token: self.token.clone(), ..Self::unmade(data, database_url, None) };
        std::fs::create_dir_all(data)?;
        std::fs::copy(self.data.join("master.key"), data.join("master.key"))?;
        let out = restored.settled(bare()).args(["restore", "--json"]).arg(file).arg("--data").arg(data).output()?;
        ensure!(out.status.success(), "restore failed: {}", String::from_utf8_lossy(&out.stderr));
        let said: Value = serde_json::from_slice(&out.stdout).context("restore --json prints one JSON object")?;
        ensure!(said["delivery_held"] == true && said["has_master_key"] == true, "restore says {said}");
        Ok(restored)
    }

    /// The first operator token's access to another address of this deployment, such as a proxy's.
    pub fn access_at(&self, address: SocketAddr) -> OperatorAccess {
        OperatorAccess::new(address, self.token.clone())
    }

    /// Runs `countersign serve` on its addresses and waits for its first line. The log goes to `serve.log` in the data folder.
    pub fn serve(&self) -> Result<Server> {
        self.serve_under(&[])
    }

    /// The same with further flags.
    pub fn serve_with(&self, more: &[&str]) -> Result<Server> {
        self.start(bare_under(&[]), &[&[PRIVATE][..], more].concat())
    }

    /// The same, started by another program that makes way for it: the process started must become the server.
    pub fn serve_under(&self, wrapper: &[&str]) -> Result<Server> {
        self.start(bare_under(wrapper), &[PRIVATE])
    }

    /// The same without private callbacks: with the guard as it is shipped.
    pub fn serve_strictly_under(&self, wrapper: &[&str]) -> Result<Server> {
        self.start(bare_under(wrapper), &[])
    }

    /// A server that this command starts, with all its arguments; the process started must become the server.
    pub fn serve_as(&self, command: Command) -> Result<Server> {
        self.spawned(self.settled(command))
    }

    /// The first operator token.
    pub fn operator_token(&self) -> &str {
        &self.token
    }

    fn start(&self, mut command: Command, more: &[&str]) -> Result<Server> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.data.join("serve.log"))?;
        command = self.settled(command);
        let (listen, operator_listen) = (self.listen.to_string(), self.operator_listen.to_string());
        command.args(["serve", "--listen", &listen, "--operator-listen", &operator_listen]);
        command.args(more).arg("--data").arg(&self.data).stderr(log);
        self.configured(&mut command)?;
        self.spawned(command)
    }

    /// The command with the file of settings, if there is one.
    fn configured(&self, command: &mut Command) -> Result<()> {
        if !self.config.is_empty() {
            let file = self.data.join("test.toml");
            std::fs::write(&file, &self.config)?;
            command.arg("--config").arg(file);
        }
        Ok(())
    }

    fn spawned(&self, mut command: Command) -> Result<Server> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
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
        Ok(Server { listen: address("listen")?, access: self.access_at(address("operator_listen")?), child, ready_in })
    }
}

impl Server {
    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it where it stands (SIGSTOP) until [`Server::resume`]. When this returns none of its threads runs: on a busy machine one that the
    /// signal has not reached yet goes on for a while.
    pub async fn pause(&self) -> Result<()> {
        self.signal("-STOP")?;
        let threads = format!("/proc/{}/task", self.child.id());
        let stands = async || {
            let mut stand = true;
            for thread in std::fs::read_dir(&threads)? {
                // One that has ended meanwhile is looked for anew.
                let told = std::fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
                // The name before it may hold anything, parentheses among it.
                stand &= told.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'));
            }
            Ok(stand.then_some(()))
        };
        until("every thread stands still", STOPS_WITHIN, stands).await.map(drop)
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.signal("-CONT")
    }

    /// SIGTERM, and does not wait.
    pub fn tell_to_stop(&self) -> Result<()> {
        self.signal("-TERM")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let told = Command::new("kill").args([signal, &self.child.id().to_string()]).status()?;
        ensure!(told.success(), "kill {signal} failed");
        Ok(())
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended by itself.
    pub fn wait(mut self) -> Result<()> {
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM; answers whether it ended with code 0.
    pub fn terminate(mut self) -> Result<bool> {
        self.tell_to_stop()?;
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
