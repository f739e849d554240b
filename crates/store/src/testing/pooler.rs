//! A real PgBouncer before a test's database.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use super::Database;
use super::port::free_port;
use super::programs::{command, given_folder};

/// Where Debian and people who build it themselves put it; `cargo xtask test` looks there, too.
const PROGRAMS: [&str; 2] = ["/usr/sbin/pgbouncer", "/usr/local/bin/pgbouncer"];
/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// For how long a client has a connection of the server to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// Until it leaves.
    Session,
    /// Until its transaction ends. Whoever comes next is given the connection that was used last.
    Transaction,
    /// The same, but connections take turns.
    InTurn,
}

/// A pooler on a free port of 127.0.0.1. It ends when this is dropped.
#[derive(Debug)]
pub struct Pooler {
    child: Child,
    folder: PathBuf,
    port: u16,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Pooler {
    /// Starts it and waits until it takes connections.
    ///
    /// # Panics
    ///
    /// Where there is no PgBouncer on this machine.
    #[expect(clippy::disallowed_methods, reason = "another process is looked at again and again, with a deadline")]
    pub fn start(before: &Database, mode: PoolMode) -> Self {
        let program = PROGRAMS.iter().map(Path::new).find(|path| path.exists()).expect(
            "this test needs PgBouncer on this machine: `cargo xtask test` installs it on Debian, or install the package pgbouncer",
        );
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("countersign-pooler-{}-{port}", std::process::id()));
        let owner = given_folder(&folder);
        fs::write(folder.join("pgbouncer.ini"), settings(before, port, mode)).expect("its settings are written");
        let log = File::create(folder.join("log")).expect("a log");
        let child = command(program, &folder, owner)
            .arg("pgbouncer.ini")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the log"))
            .stderr(log)
            .spawn()
            .expect("PgBouncer can be started");
        let mut pooler = Self { child, folder, port };
        let until = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = pooler.child.try_wait().expect("its state");
            let log = || fs::read_to_string(pooler.folder.join("log")).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < until, "PgBouncer does not start: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        pooler
    }

    /// Has it hold two connections to the server, as under load: two clients are in a transaction at once.
    pub async fn hold_two(&self) {
        let mut clients = Vec::new();
        for _ in 0..2 {
            let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.expect("it takes connections");
            tokio::spawn(connection);
            client.simple_query("BEGIN").await.expect("begins");
            clients.push(client);
        }
        for client in clients {
            client.simple_query("COMMIT").await.expect("ends");
        }
    }

    /// The address of the database behind it.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/behind", self.port)
    }
}

fn settings(before: &Database, port: u16, mode: PoolMode) -> String {
    let (folder, name) = (before.folder.display(), &before.name);
    let mode = match mode {
        PoolMode::Session => "session",
        PoolMode::Transaction => "transaction",
        PoolMode::InTurn => "transaction\nserver_round_robin = 1",
    };
    format!(
        "[databases]\nbehind = host={folder} dbname={name} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         unix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
    )
}
