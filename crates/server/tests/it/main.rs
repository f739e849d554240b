//! The real binary, called as people and programs call it.

mod absent;
mod addresses;
mod audit;
mod calls;
mod commands;
mod demo;
mod desk;
mod elsewhere;
mod failover;
mod full;
mod hanging_disk;
mod hardening;
mod health;
mod lost_answers;
mod mistakes;
mod moving;
mod no_deployment;
mod node_settings;
mod refused_restores;
mod series;
mod shared;
mod shown_once;
mod sqlite_file;
mod stopping;
mod strangers;
mod tls;
mod token_ends;
mod upgrades;
mod words;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use countersign_store::testing::{Chosen, Database, Tampering};
use serde_json::Value;
use tempfile::TempDir;

/// The binary that this build has made.
pub const BINARY: &str = env!("CARGO_BIN_EXE_countersign");

/// For what must happen: far longer than it takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again and again until there is an answer, and for no longer than this.
pub fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        let answer = ask();
        if answer.is_some() || began.elapsed() >= limit {
            return answer;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// The same for what a running program makes true.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    assert!(within(PATIENCE, || is_so().then_some(())).is_some(), "{what}: not within {PATIENCE:?}");
}

/// A folder of its own for one test and, where the run is about PostgreSQL, a database.
#[derive(Debug)]
pub struct Place {
    folder: TempDir,
    database: Option<Database>,
}

impl Place {
    /// An empty one.
    pub fn fresh() -> Self {
        let database = match Chosen::of_this_run() {
            Chosen::Sqlite => None,
            Chosen::Postgres => Some(database()),
        };
        Self { folder: tempfile::tempdir().expect("a temporary folder"), database }
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Whether this run is about a database that many may write to.
    pub fn has_database(&self) -> bool {
        self.database.is_some()
    }

    /// Does this to the store behind the back of the program, which does not run.
    pub fn tamper(&self, with: Tampering) {
        let Some(database) = &self.database else {
            return with.of_file(&self.path("data/countersign.db"));
        };
        std::thread::scope(|scope| scope.spawn(|| on_a_thread(database.tamper(with))).join()).expect("it is done");
    }

    /// The data folder.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// The binary with arguments, to be run in the folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        for variable in ["COUNTERSIGN_TRIALS", "COUNTERSIGN_BLESS"] {
            command.env_remove(variable);
        }
        if let Some(database) = &self.database {
            command.env("COUNTERSIGN_DATABASE_URL", database.url());
        }
        command
    }

    /// Runs it to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary runs")
    }

    /// Runs it and wants this exit code; its stdout and stderr.
    pub fn ends(&self, arguments: &[&str], code: i32) -> (String, String) {
        let out = self.run(arguments);
        let (stdout, stderr) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert_eq!(out.status.code(), Some(code), "{arguments:?}\n{stdout}\n{stderr}");
        (stdout.into_owned(), stderr.into_owned())
    }

    /// `init --json` in the data folder; what it printed.
    pub fn init(&self) -> Value {
        let (stdout, _) = self.ends(&["init", "--json", "--data", "data"], 0);
        serde_json::from_str(&stdout).expect("init --json prints one JSON object")
    }

    /// `serve` on free loopback ports with further arguments.
    pub fn serve(&self, more: &[&str]) -> Serving {
        self.serve_to(more, &[], Stdio::null())
    }

    /// The same with its log in a file.
    pub fn serve_logging(&self, more: &[&str], log: &Path) -> Serving {
        self.serve_with(more, &[], log)
    }

    /// The same with variables.
    pub fn serve_with(&self, more: &[&str], variables: &[(&str, &str)], log: &Path) -> Serving {
        self.serve_to(more, variables, std::fs::File::create(log).expect("a log").into())
    }

    fn serve_to(&self, more: &[&str], variables: &[(&str, &str)], log: Stdio) -> Serving {
        let mut arguments =
            vec!["serve", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
        arguments.extend(more);
        let mut command = self.command(&arguments);
        command.stdout(Stdio::piped()).stderr(log).envs(variables.iter().copied());
        Serving::started(command)
    }
}

/// A database of a test's own, made on a runtime of its own: some of these tests are inside of one.
pub fn database() -> Database {
    std::thread::spawn(|| on_a_thread(Database::new())).join().expect("a database is made")
}

/// Waits for it on a runtime of its own, on a thread that has none.
fn on_a_thread<T>(what: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(what)
}

/// A running server; killed when it is dropped.
#[derive(Debug)]
pub struct Serving {
    child: Child,
    /// Address of the merchants' listener.
    pub listen: String,
    /// Address of the operators' listener.
    pub operator_listen: String,
    /// Address of the listener for health alone, where there is one.
    pub health_listen: Option<String>,
}

impl Serving {
    /// `serve` with its stdout in a pipe, once it has said where it listens.
    pub fn started(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the binary starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a first line");
        let said: Value = serde_json::from_str(&line).expect("the first line is JSON");
        let address = |name: &str| said[name].as_str().map(str::to_owned);
        let [listen, operator_listen] = ["listen", "operator_listen"].map(|name| address(name).expect("an address"));
        Self { child, listen, operator_listen, health_listen: address("health_listen") }
    }

    /// Waits until it ends by itself, and for no longer than this: the exit code.
    pub fn ends_within(&mut self, limit: Duration) -> Option<i32> {
        let status = within(limit, || self.child.try_wait().expect("it is ours"));
        status.unwrap_or_else(|| panic!("it has not ended after {limit:?}")).code()
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal: `-HUP`.
    pub fn signal(&self, signal: &str) {
        let told = Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(told.success());
    }

    /// Waits until it ends; whether by a signal of this number.
    pub fn ended_by(mut self, signal: i32) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        self.child.wait().expect("it ends").signal() == Some(signal)
    }

    /// Sends SIGTERM; the exit code.
    pub fn terminate(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is in a data folder, in the order of the names.
pub fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.data()).expect("is read");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("is read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The one sentence of a command that is refused.
pub fn refused(place: &Place, words: &[&str]) -> String {
    let (stdout, stderr) = place.ends(words, 1);
    assert_eq!((stdout.as_str(), stderr.lines().count()), ("", 1), "{words:?}: {stderr}");
    stderr.strip_prefix("countersign: ").expect("who says so").trim_end().to_owned()
}

/// The permission bits of a file.
pub fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).expect("is there").permissions().mode() & 0o777
}
