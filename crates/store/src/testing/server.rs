//! A cluster of a test's own, and standbys of it: for what happens when a server dies and another takes over.
//!
//! A shell watches the process that made it, and ends and removes the cluster when that is gone, however it went.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::port::free_port;
use super::programs::{command, given_folder, initdb, programs};

/// Waits for the end of process $2, which made the cluster in folder $1, unless the folder goes before.
const WATCHER: &str = r#"while { kill -0 "$2" 2>/dev/null || [ -d "/proc/$2" ]; } && [ -d "$1" ]; do sleep 1; done
    [ -d "$1" ] || exit 0
    p=$(head -n 1 "$1/d/postmaster.pid" 2>/dev/null) && kill -QUIT "$p" && while kill -0 "$p" 2>/dev/null; do sleep 1; done
    rm -rf "$1""#;

/// How long a server may take to start, stop, catch up or be promoted.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a cluster is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerOptions {
    /// Whether commits wait for the disk. A test that crashes the process only, not the machine, needs it no more than the product does.
    pub fsync: bool,
    /// Whether it listens on a free port of 127.0.0.1, too, and [`Server::url`] leads there instead of to its socket.
    pub tcp: bool,
    /// Whether it has the memory and the log of a server in use, not of one of many beside each other: what is measured is measured so.
    pub large: bool,
}

/// A PostgreSQL cluster that is nobody else's. It is stopped and removed when this is dropped.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    port: u16,
    options: ServerOptions,
    /// Whose process it is, unless it is ours.
    owner: Option<(u32, u32)>,
    /// None while it is stopped.
    process: Option<Child>,
    /// Its senders that were stopped.
    held_back: Vec<u32>,
}

impl Server {
    /// Makes a cluster and starts it: no standby, `synchronous_standby_names` empty.
    pub fn start(options: ServerOptions) -> Self {
        let mut server = Self::in_new_folder(options);
        initdb(&server.folder, server.owner);
        server.watch();
        server.start_again();
        server
    }

    /// Makes a standby of this server that streams from it, called `name` in `synchronous_standby_names` and `pg_stat_replication`.
    /// It waits for nobody's commits when it is promoted.
    #[must_use]
    pub fn standby(&self, name: &str) -> Self {
        let mut standby = Self::in_new_folder(self.options);
        standby.watch();
        let from = format!("host={} port={} user=postgres application_name={name}", self.folder.display(), self.port);
        let made = standby
            .command("pg_basebackup")
            .args(["-d", &from, "-D", "d", "-R", "-N", "-c", "fast", "-X", "stream"])
            .output()
            .expect("pg_basebackup can be started");
        assert!(made.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&made.stderr));
        // The last line of a name counts; the primary's own demand came with its settings.
        let settings = standby.folder.join("d/postgresql.auto.conf");
        let mut lines = fs::read_to_string(&settings).expect("came with the backup");
        lines.push_str("synchronous_standby_names = ''\n");
        fs::write(&settings, lines).expect("the file is there");
        standby.start_again();
        let streams =
            format!("SELECT 1 FROM pg_stat_replication WHERE application_name = '{name}' AND state = 'streaming'");
        self.wait_until(&streams);
        standby
    }

    /// Sets `synchronous_standby_names` and waits until the server goes by it: with `*` and a standby every commit waits for that one.
    pub fn set_synchronous(&self, names: &str) {
        self.ask("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        self.ask("postgres", "SELECT pg_reload_conf()");
        self.wait_until(&format!("SELECT 1 WHERE current_setting('synchronous_standby_names') = '{names}'"));
        // Standbys are weighed anew at their next report.
        let wanted = i32::from(names.is_empty());
        self.wait_until(&format!(
            "SELECT 1 WHERE {wanted} = 1 OR NOT EXISTS (SELECT FROM pg_stat_replication)
                OR EXISTS (SELECT FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))"
        ));
        // Whether commits wait at all is said by the checkpointer, when it hears of the setting: before it makes a checkpoint that it is asked for.
        self.ask("postgres", "CHECKPOINT");
    }

    /// The address of one of its databases.
    pub fn url(&self, database: &str) -> String {
        Self::url_of(&[self], database)
    }

    /// One address for several servers, tried in this order: whoever takes writes is used.
    pub fn url_of(servers: &[&Self], database: &str) -> String {
        let hosts: Vec<String> = servers.iter().map(|server| server.host()).collect();
        format!("postgres://postgres@{}/{database}", hosts.join(","))
    }

    /// Makes a table of somebody else.
    pub fn make_table(&self, database: &str, name: &str) {
        self.ask(database, &format!("CREATE TABLE {name} (a int)"));
    }

    /// Its place in an address: host, or the folder of its socket, and port.
    fn host(&self) -> String {
        let folder = || self.folder.to_str().expect("a temporary folder is UTF-8").replace('/', "%2F");
        let host = if self.options.tcp { "127.0.0.1".to_owned() } else { folder() };
        format!("{host}:{}", self.port)
    }

    /// The folder of its socket, its log (`log`) and its data (`d`).
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The number of its socket, and its TCP port if it has one.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the postmaster, while it runs.
    pub fn process(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// Sends its standbys nothing from here on, as a network that is slow would. It ends with the server, which then dies with what they lack.
    pub fn hold_back(&mut self) {
        let senders = self.ask("postgres", "SELECT pid FROM pg_stat_replication");
        self.held_back = senders.lines().filter_map(|pid| pid.parse().ok()).collect();
        assert!(!self.held_back.is_empty(), "a standby streams");
        for pid in &self.held_back {
            tell("-STOP", *pid);
        }
    }

    /// From here on whoever comes over TCP has to have this password.
    pub fn demand_password(&self, password: &str) {
        let demand = format!(
            "ALTER USER postgres PASSWORD '{password}';
             DO $$ BEGIN EXECUTE format('COPY (VALUES (''local all all trust''), (''host all all all scram-sha-256'')) TO %L',
               current_setting('hba_file')); END $$;
             SELECT pg_reload_conf()"
        );
        self.ask("postgres", &demand);
    }

    /// What `psql` prints for a statement: columns apart by `|`. It panics where the server refuses.
    pub fn ask(&self, database: &str, statement: &str) -> String {
        self.try_ask(database, statement).expect("the server answers")
    }

    /// The same, or what it said against it.
    pub fn try_ask(&self, database: &str, statement: &str) -> Result<String, String> {
        let (folder, port) = (self.folder.display().to_string(), self.port.to_string());
        let asked = self
            .command("psql")
            .args([
                "-XAtq",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                &folder,
                "-p",
                &port,
                "-U",
                "postgres",
                "-d",
                database,
                "-c",
                statement,
            ])
            .output()
            .map_err(|error| error.to_string())?;
        if asked.status.success() {
            Ok(String::from_utf8_lossy(&asked.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&asked.stderr).trim_end().to_owned())
        }
    }

    /// Waits until a query of the database `postgres` has a row.
    pub fn wait_until(&self, query: &str) {
        self.patiently(query, || self.try_ask("postgres", query).is_ok_and(|rows| !rows.is_empty()));
    }

    /// Kills it as a crash would: SIGQUIT to the postmaster, nothing is written down, no connection is told. Returns when it is gone.
    pub fn stop_immediately(&mut self) {
        self.end("-QUIT");
    }

    /// Stops it in order: connections are ended, standbys get the rest.
    pub fn stop(&mut self) {
        self.end("-INT");
    }

    fn end(&mut self, signal: &str) {
        let Some(mut process) = self.process.take() else { return };
        tell(signal, process.id());
        // A process that is stopped does not hear it.
        for pid in self.held_back.drain(..) {
            // The server may have done so itself by now.
            drop(signalled("-KILL", pid));
        }
        process.wait().expect("it is our child");
    }

    /// Starts it where it was stopped, with its data, and waits until it answers.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log =
            fs::File::options().create(true).append(true).open(self.folder.join("log")).expect("a log can be made");
        let listen = if self.options.tcp { "listen_addresses=127.0.0.1" } else { "listen_addresses=" };
        let fsync = if self.options.fsync { "fsync=on" } else { "fsync=off" };
        let (folder, port) = (self.folder.display().to_string(), self.port.to_string());
        let mut postgres = self.command("postgres");
        postgres.args(["-D", "d", "-k", &folder, "-p", &port]);
        let (buffers, wal) = if self.options.large {
            ("shared_buffers=1GB", "max_wal_size=8GB")
        } else {
            ("shared_buffers=64MB", "max_wal_size=1GB")
        };
        for setting in [listen, fsync, buffers, wal, "wal_level=replica", "max_connections=200", "wal_keep_size=256MB"]
        {
            postgres.args(["-c", setting]);
        }
        // A standby whose sender is held back does not ask for another one, however long a test takes.
        postgres.args(["-c", "wal_receiver_timeout=0", "-c", "wal_sender_timeout=0"]);
        // A group of its own: an interrupt at the terminal is for the test, and the watcher ends the server after it.
        postgres.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        self.process = Some(postgres.spawn().expect("PostgreSQL can be started"));
        self.wait_until("SELECT 1");
    }

    /// Makes a standby the primary, and waits until it takes writes.
    pub fn promote(&self) {
        self.ask("postgres", "SELECT pg_promote(false)");
        self.wait_until("SELECT 1 WHERE NOT pg_is_in_recovery()");
    }

    fn in_new_folder(options: ServerOptions) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("countersign-server-{}-{number}", std::process::id()));
        // One that a process of the same id left behind is nobody's now.
        drop(fs::remove_dir_all(&folder));
        let owner = given_folder(&folder);
        Self {
            folder,
            port: if options.tcp { free_port() } else { 5432 },
            options,
            owner,
            process: None,
            held_back: Vec::new(),
        }
    }

    pub(super) fn command(&self, program: &str) -> Command {
        command(&programs().join(program), &self.folder, self.owner)
    }

    fn watch(&self) {
        let mut shell = command(Path::new("/bin/sh"), Path::new("/"), self.owner);
        shell.arg("-c").arg(WATCHER).arg("watcher").arg(&self.folder).arg(std::process::id().to_string());
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        drop(shell.spawn().expect("a shell can be started"));
    }

    #[expect(clippy::disallowed_methods, reason = "another process is looked at again and again, with a deadline")]
    fn patiently(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}; its log: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn signalled(signal: &str, process: u32) -> std::io::Result<ExitStatus> {
    Command::new("kill").args([signal, &process.to_string()]).stderr(Stdio::null()).status()
}

fn tell(signal: &str, process: u32) {
    let told = signalled(signal, process);
    assert!(told.is_ok_and(|told| told.success()), "a process of the server can be told {signal}");
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end("-QUIT");
        drop(fs::remove_dir_all(&self.folder));
    }
}
