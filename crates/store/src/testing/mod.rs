//! For tests, here and above: a PostgreSQL of their own, one cluster for all tests of a run, on a Unix socket that nobody else can find, a database for each test.
//! Where a test is about the server itself (a standby, a failover), [`Server`] is a cluster of its own.
//!
//! The first test that wants it makes it. A shell keeps it, and ends and removes it when the program that runs the tests is gone,
//! however it went. Started by root, it runs as `postgres` or `nobody`, since PostgreSQL refuses to be root's.

mod chosen;
mod damage;
mod feigned;
mod lane_log;
mod least_outbox;
mod pgbench;
mod pooler;
mod port;
mod programs;
pub mod rows;
mod server;
mod tampering;

use std::fs::{self, File};
use std::mem::ManuallyDrop;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use countersign_domain::payment_order::PrepayId;
use tokio::time::sleep;
use tokio_postgres::{Client, Config, NoTls};

use crate::{PostgresOptions, PostgresStore};
pub use chosen::{Chosen, VARIABLE};
pub use damage::Damage;
pub use feigned::Feigned;
pub use lane_log::{LaneLog, Term};
pub use least_outbox::LeastOutbox;
pub use pooler::{PoolMode, Pooler};
pub use port::free_port;
use programs::{command, given_folder, initdb, programs};
pub use server::{Server, ServerOptions};
pub use tampering::Tampering;

/// A folder in memory, where a machine has one. Databases come and go by the hundred, each of three hundred files, and some file systems take
/// longer to make a file the more were just removed; nothing here has to outlive the machine.
const IN_MEMORY: &str = "/dev/shm";
/// What must be free there, in KiB: far more than the log and the databases of tests that run at once.
const FREE_KIB_MIN: u64 = 2 * 1024 * 1024;

/// Ends the server when process $2 is gone: looks each second. $0 is the program, $1 the folder. Asking for a process of somebody
/// else's by `kill` says no, so a look into /proc comes after it.
const KEEPER: &str = r#""$0" -D "$1/d" -k "$1" -c listen_addresses= -c fsync=off -c max_connections=300 \
    -c shared_buffers=64MB -c max_wal_size=256MB -c autovacuum_naptime=5s >"$1/log" 2>&1 & p=$!
    while { kill -0 "$2" 2>/dev/null || [ -d "/proc/$2" ]; } && kill -0 $p 2>/dev/null; do sleep 1; done
    kill -INT $p 2>/dev/null; wait $p; rm -rf "$1""#;

/// A database of a test's own; it goes when this is dropped.
#[derive(Debug)]
pub struct Database {
    folder: PathBuf,
    name: String,
}

impl Database {
    /// Makes one, and the cluster if this is the first.
    pub async fn new() -> Self {
        let folder = cluster();
        let server = connect(&folder, "postgres").await;
        Self::copy_of("template0", folder, &server).await
    }

    /// The same with the schema in it, as `migrate` makes it, for whoever is not about how that comes about: the steps take far longer than a copy.
    pub async fn with_schema() -> Self {
        let folder = cluster();
        let server = connect(&folder, "postgres").await;
        // One makes what is copied, all others wait; who ends lets go.
        server.batch_execute("SELECT pg_advisory_lock(1)").await.expect("the lock is taken");
        let there = "SELECT FROM pg_database WHERE datname = 'with_schema'";
        if server.query_opt(there, &[]).await.expect("reads").is_none() {
            // It goes with the cluster, under another name.
            let made = ManuallyDrop::new(Self::copy_of("template0", folder.clone(), &server).await);
            let options = PostgresOptions::new(made.url(), [0; 16], [0; 16]);
            PostgresStore::migrate(&options).await.expect("the steps are applied");
            end_connections(&server, &made.name).await;
            let rename = format!("ALTER DATABASE {} RENAME TO with_schema", made.name);
            server.batch_execute(&rename).await.expect("is renamed");
        }
        server.batch_execute("SELECT pg_advisory_unlock(1)").await.expect("the lock is let go");
        Self::copy_of("with_schema", folder, &server).await
    }

    async fn copy_of(template: &str, folder: PathBuf, server: &Client) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("t{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        // Files are copied: a log of each of their pages takes twice as long.
        let create = format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy");
        server.batch_execute(&create).await.expect("makes a database");
        Self { folder, name }
    }

    /// Its address.
    pub fn url(&self) -> String {
        let folder = self.folder.to_str().expect("a temporary folder is UTF-8").replace('/', "%2F");
        format!("postgres://postgres@{folder}/{}", self.name)
    }

    /// The folder of the cluster's socket.
    pub fn folder(&self) -> PathBuf {
        self.folder.clone()
    }

    /// Lets nobody connect to it and ends every connection, as if its server were away.
    pub async fn take_away(&self) {
        let server = connect(&self.folder, "postgres").await;
        let name = &self.name;
        let shut = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false");
        server.batch_execute(&shut).await.expect("is shut");
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        server.batch_execute(&end).await.expect("connections end");
    }

    /// Lets everybody connect again.
    pub async fn bring_back(&self) {
        let server = connect(&self.folder, "postgres").await;
        server.batch_execute(&format!("ALTER DATABASE {} ALLOW_CONNECTIONS true", self.name)).await.expect("is back");
    }

    /// Another one takes its name, and everybody has to connect anew.
    pub async fn give_way_to(&self, other: Self) {
        let server = connect(&self.folder, "postgres").await;
        for name in [&self.name, &other.name] {
            server.batch_execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await.expect("is shut");
            end_connections(&server, name).await;
        }
        let (name, other) = (&self.name, &other.name);
        // What had the name before goes with the other one.
        let swap = format!(
            "ALTER DATABASE {name} RENAME TO {name}_before; ALTER DATABASE {other} RENAME TO {name}; \
             ALTER DATABASE {name}_before RENAME TO {other}; ALTER DATABASE {name} ALLOW_CONNECTIONS true"
        );
        for statement in swap.split(';') {
            server.batch_execute(statement).await.expect("is renamed");
        }
    }

    /// Rows that a move has copied into it so far.
    pub async fn moved_rows(&self) -> u64 {
        let sum = "SELECT sum(row_count)::bigint FROM move_progress";
        // The first of them are copied after the schema was made.
        let found = self.client().await.query_one(sum, &[]).await;
        found.ok().and_then(|row| row.get::<_, Option<i64>>(0)).and_then(|rows| u64::try_from(rows).ok()).unwrap_or(0)
    }

    /// Rows of one of its tables.
    pub async fn count_rows(&self, table: &str) -> u64 {
        let count = self.client().await.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await;
        u64::try_from(count.expect("is counted").get::<_, i64>(0)).expect("not negative")
    }

    /// From here on it refuses rows of a table for which `condition` does not hold.
    pub async fn refuse_unless(&self, table: &str, condition: &str) {
        let alter = format!("ALTER TABLE {table} ADD CONSTRAINT refused CHECK ({condition})");
        self.client().await.batch_execute(&alter).await.expect("is altered");
    }

    /// Takes that back.
    pub async fn refuse_no_more(&self, table: &str) {
        let alter = format!("ALTER TABLE {table} DROP CONSTRAINT refused");
        self.client().await.batch_execute(&alter).await.expect("is altered");
    }

    /// Revokes every secret without counting that as a change of the directory: how many.
    pub async fn revoke_unsaid(&self) -> u64 {
        self.set_revoked("1").await
    }

    /// Takes that back, as quietly.
    pub async fn restore_unsaid(&self) {
        self.set_revoked("NULL").await;
    }

    async fn set_revoked(&self, at: &str) -> u64 {
        let revoke =
            format!("WITH a AS (UPDATE application SET revision = revision + 1) UPDATE secret SET revoked_at = {at}");
        self.client().await.execute(&revoke, &[]).await.expect("the database takes it")
    }

    /// Loses every fee rule, as a failover to a server that never had them does.
    pub async fn lose_rules(&self) {
        let lose = "DELETE FROM fee_rule_head; DELETE FROM fee_rule";
        self.client().await.batch_execute(lose).await.expect("are lost");
    }

    /// How many nodes hold lanes, and how many there are.
    pub async fn holders_and_nodes(&self) -> (i64, i64) {
        let asked = "SELECT count(DISTINCT node), (SELECT count(*) FROM node) FROM delivery_lane";
        let found = self.client().await.query_one(asked, &[]).await.expect("is counted");
        (found.get(0), found.get(1))
    }

    /// Forgets every other node than this one, as a failover to a server that never heard of them does, and takes no heartbeat of theirs until
    /// `refuse_no_more("node")`.
    pub async fn list_only(&self, node: Option<[u8; 16]>) {
        let is_it =
            node.map_or_else(|| "false".to_owned(), |node| format!("node_id = '\\x{}'", crate::read::hex(&node)));
        let unlist = format!(
            "LOCK TABLE node IN ACCESS EXCLUSIVE MODE; DELETE FROM node WHERE NOT ({is_it});
             ALTER TABLE node ADD CONSTRAINT refused CHECK ({is_it})"
        );
        self.client().await.batch_execute(&unlist).await.expect("are forgotten");
    }

    /// Whoever reads an event of one application hears of an error, as where a block of its rows is damaged; none: of no application any more.
    pub async fn damage_events_of(&self, application: Option<i64>) {
        let damaged = application.map_or_else(|| "false".to_owned(), |no| format!("application = {no}"));
        let readable = format!(
            "CREATE OR REPLACE FUNCTION readable(application bigint) RETURNS boolean LANGUAGE plpgsql AS
             $$ BEGIN IF {damaged} THEN RAISE EXCEPTION 'could not read block'; END IF; RETURN true; END $$"
        );
        let client = self.client().await;
        client.batch_execute(&readable).await.expect("is made");
        let is_whole =
            client.query_opt("SELECT FROM pg_views WHERE viewname = 'event'", &[]).await.expect("reads").is_none();
        if is_whole {
            let view = "ALTER TABLE event RENAME TO whole_event; CREATE VIEW event AS SELECT * FROM whole_event WHERE readable(application_no)";
            client.batch_execute(view).await.expect("is made");
        }
    }

    /// Ends every lease, as if all nodes had been stopped for longer than one: each lane is free, also for who has just begun.
    pub async fn end_leases(&self) {
        let end = "UPDATE delivery_lane SET node = NULL, expires_at = 0; UPDATE node SET seen_at = 0";
        self.client().await.batch_execute(end).await.expect("are ended");
    }

    /// Holds a table, so that nobody can look at it, until what is given is dropped.
    pub async fn hold_table(&self, table: &str) -> Client {
        let holder = self.client().await;
        let lock = format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        holder.batch_execute(&lock).await.expect("is held");
        holder
    }

    /// Holds payment orders, as a commit on its way does, until what is given is dropped.
    pub async fn hold_orders(&self) -> Client {
        let holder = self.client().await;
        holder.batch_execute("BEGIN; SELECT FROM payment_order FOR UPDATE").await.expect("are held");
        holder
    }

    /// The same of one of them.
    pub async fn hold_order(&self, id: PrepayId) -> Client {
        let holder = self.client().await;
        let hold = format!("BEGIN; SELECT FROM payment_order WHERE order_no = {} FOR UPDATE", id.number());
        holder.batch_execute(&hold).await.expect("is held");
        holder
    }

    /// The same of the end of a move that has begun.
    pub async fn hold_move(&self) -> Client {
        let holder = self.client().await;
        holder.batch_execute("BEGIN; SELECT FROM move_record FOR UPDATE").await.expect("is held");
        holder
    }

    /// The same of deliveries: a step of the schema that changes their table waits for it.
    pub async fn hold_deliveries(&self) -> Client {
        let holder = self.client().await;
        holder.batch_execute("BEGIN; SELECT FROM delivery FOR UPDATE").await.expect("are held");
        holder
    }

    /// The same of the heads of fee rules.
    pub async fn hold_rules(&self) -> Client {
        let holder = self.client().await;
        holder.batch_execute("BEGIN; SELECT FROM fee_rule_head FOR UPDATE").await.expect("are held");
        holder
    }

    /// Who holds payment orders closes them and lets them go.
    pub async fn close_orders(holder: Client) {
        let close = "UPDATE payment_order SET status = 'CLOSED', revision = revision + 1; COMMIT";
        holder.batch_execute(close).await.expect("are closed");
    }

    /// Who holds one order closes it, and lets it go.
    pub async fn close_order(holder: Client, id: PrepayId) {
        let closed = "status = 'CLOSED', revision = revision + 1";
        let close = format!("UPDATE payment_order SET {closed} WHERE order_no = {}; COMMIT", id.number());
        holder.batch_execute(&close).await.expect("is closed");
    }

    /// Holds quotes, as a commit on its way does, until what is given is dropped.
    pub async fn hold_quotes(&self) -> Client {
        let holder = self.client().await;
        holder.batch_execute("BEGIN; SELECT FROM convert_quote FOR UPDATE").await.expect("are held");
        holder
    }

    /// Who holds the one quote there is makes an order of it for a request, and lets it go.
    pub async fn use_quote(holder: Client, client_req_id: &str) {
        let order = format!(
            "WITH q AS (UPDATE convert_quote SET order_id = 7 RETURNING *), o AS (
                INSERT INTO convert_order (tenant_no, order_id, merchant_no, user_id, sell_currency, buy_currency, sell_amount, buy_amount, status,
                    rate, quote_id, created_at, revision)
                SELECT tenant_no, order_id, merchant_no, 1, sell_currency, buy_currency, sell_amount, buy_amount, 1,
                    rate, quote_id, created_at, 1 FROM q)
             INSERT INTO convert_request (tenant_no, merchant_no, client_req_id, order_id)
             SELECT tenant_no, merchant_no, '{client_req_id}', order_id FROM q; COMMIT"
        );
        holder.batch_execute(&order).await.expect("is made");
    }

    /// Keeps everybody out who is kept out while a move runs, until what is given is dropped; none: somebody keeps moves out.
    pub async fn hold_moves(&self) -> Option<Client> {
        let holder = self.client().await;
        let lock = "SELECT pg_try_advisory_lock(4851337210 # (hashtext(coalesce(current_schema(), ''))::bigint << 32))";
        let held = holder.query_one(lock, &[]).await;
        held.expect("is answered").get::<_, bool>(0).then_some(holder)
    }

    /// Waits until somebody waits for a lock.
    pub async fn somebody_waits(&self) {
        let client = self.client().await;
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while client.query_one(waiting, &[]).await.expect("reads").get::<_, i64>(0) == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Moves its clock, as whoever connects from now on sees it, by so many hours.
    pub async fn move_clock(&self, hours: i32) {
        let moved = format!(
            "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
             AS $$ SELECT pg_catalog.clock_timestamp() + interval '{hours} h' $$;
             ALTER DATABASE {} SET search_path = public, pg_catalog",
            self.name
        );
        self.client().await.batch_execute(&moved).await.expect("is moved");
    }

    /// A plain connection to it.
    pub async fn client(&self) -> Client {
        connect(&self.folder, &self.name).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (folder, name) = (self.folder.clone(), self.name.clone());
        // The test's own runtime may be gone, or be the one that drops this.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let server = connect(&folder, "postgres").await;
                server.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await.expect("drops a database");
            });
        });
        dropped.join().expect("the database is dropped");
    }
}

/// Ends whoever is connected to a database of this server, and waits until they are gone.
async fn end_connections(server: &Client, database: &str) {
    let end = format!("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{database}'");
    server.batch_execute(&end).await.expect("connections end");
}

async fn connect(folder: &Path, database: &str) -> Client {
    try_connect(folder, database).await.expect("the cluster answers")
}

async fn try_connect(folder: &Path, database: &str) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = Config::new().host_path(folder).user("postgres").dbname(database).connect(NoTls).await?;
    // It ends when the client is dropped.
    tokio::spawn(async { drop(connection.await) });
    Ok(client)
}

/// The folder of the run's cluster, which answers. In memory where there is room.
fn cluster() -> PathBuf {
    // Under nextest every test is a process of its own, under cargo test they share one: the parent is the same for a whole run.
    let name = format!("countersign-postgres-{}", parent_id());
    let folders = [Path::new(IN_MEMORY).join(&name), std::env::temp_dir().join(&name)];
    // The folder of the test programs is the same for all of them.
    let program = std::env::current_exe().expect("a test is a program");
    let lock = File::open(program.parent().expect("it lies in a folder")).expect("the folder can be opened");
    lock.lock().expect("the lock is taken");
    if let Some(up) = folders.iter().find(|folder| is_up(folder)) {
        return up.clone();
    }
    for left in &folders {
        drop(fs::remove_dir_all(left));
    }
    let [in_memory, on_disk] = folders;
    let folder = if has_room(Path::new(IN_MEMORY)) { in_memory } else { on_disk };
    start(&folder);
    folder
}

/// Whether a folder is there and has the room that a cluster may need.
fn has_room(folder: &Path) -> bool {
    let told = std::process::Command::new("df").args(["-k", "--output=avail"]).arg(folder).output();
    let told = told.ok().filter(|told| told.status.success()).map(|told| told.stdout).unwrap_or_default();
    let free = String::from_utf8_lossy(&told).lines().nth(1).and_then(|line| line.trim().parse().ok());
    free.is_some_and(|free: u64| free >= FREE_KIB_MIN)
}

fn is_up(folder: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(folder.join(".s.PGSQL.5432")).is_ok()
}

fn start(folder: &Path) {
    let owner = given_folder(folder);
    initdb(folder, owner);
    let mut keeper = command(Path::new("/bin/sh"), folder, owner);
    keeper.arg("-c").arg(KEEPER).arg(programs().join("postgres")).arg(folder).arg(parent_id().to_string());
    // A group of its own: an interrupt at the terminal is for the tests, and the keeper ends after them.
    keeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    drop(keeper.spawn().expect("a shell can be started"));
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let answers = |folder: PathBuf| {
        std::thread::spawn(move || runtime().block_on(async { try_connect(&folder, "postgres").await.is_ok() }))
            .join()
            .expect("ends")
    };
    while !answers(folder.to_path_buf()) {
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(std::time::Instant::now() < deadline, "PostgreSQL does not start: {log}");
        std::thread::yield_now();
    }
}
