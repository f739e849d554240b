//! How soon a server is ready on an existing data folder, and how much memory it holds when it has nothing to do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;

use crate::measure::table;
use crate::process::{Deployment, Server};
use crate::wire::{Connection, Signer, once};

/// Starts that are timed.
const STARTS: usize = 20;
/// How long a start may take.
const READY_LIMIT_MS: f64 = 200.0;
/// How much an idle server may hold.
const RESIDENT_LIMIT_MIB: f64 = 30.0;
/// And once it has had a load. Some 20 of either are pages of the program's own file, which the kernel maps around those that are used.
const RESIDENT_AFTER_LIMIT_MIB: f64 = 40.0;
/// What is there before the starts.
const SUB_ACCOUNTS: usize = 200;
const UPGRADES_BEFORE: usize = 2_000;
/// The load before the second look at the memory.
const REQUESTS: usize = 20_000;
const CONNECTIONS: usize = 64;
/// So many that none comes near the default limit of 1,000 requests a second.
const APPLICATIONS: usize = 40;
const QUIET_BEFORE: Duration = Duration::from_secs(2);
const QUIET_AFTER: Duration = Duration::from_secs(5);

/// Runs and prints both tables. An error if a limit is passed.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let deployment = Deployment::init(&folder.path().join("data"))?;
    let people = Arc::new(furnish(&deployment).await?);
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let (server, start) = timed_start(&deployment, &people).await?;
        ensure!(server.terminate()?, "the server did not end with code 0 after SIGTERM");
        starts.push(start);
    }
    let slowest = print_starts(&starts);
    let server = deployment.serve()?;
    tokio::time::sleep(QUIET_BEFORE).await;
    let before = Memory::of(server.pid())?;
    let took = load(server.listen, &people, REQUESTS, true).await?;
    tokio::time::sleep(QUIET_AFTER).await;
    let after = Memory::of(server.pid())?;
    print_memory(before, after, took);
    ensure!(server.terminate()?, "the server did not end with code 0 after SIGTERM");
    ensure!(slowest <= READY_LIMIT_MS, "a start took {slowest:.0} ms; the limit is {READY_LIMIT_MS} ms");
    for (memory, limit) in [(before, RESIDENT_LIMIT_MIB), (after, RESIDENT_AFTER_LIMIT_MIB)] {
        let resident = memory.resident;
        ensure!(resident <= limit, "{resident:.1} MiB are resident; the limit is {limit} MiB");
    }
    Ok(())
}

/// Who asks, and for what.
struct People {
    signers: Vec<Signer>,
    order: String,
}

/// Fills a deployment as some use of it would, and stops the server.
async fn furnish(deployment: &Deployment) -> Result<People> {
    let server = deployment.serve()?;
    let mut signers = vec![server.access.institution("bank", SUB_ACCOUNTS, None).await?];
    for _ in 1..APPLICATIONS {
        signers.push(server.access.application("bank", None).await?);
    }
    let order = server.access.convert_order("bank").await?;
    let people = Arc::new(People { signers, order });
    load(server.listen, &people, UPGRADES_BEFORE, false).await?;
    ensure!(server.terminate()?, "the server did not end with code 0 after SIGTERM");
    Arc::into_inner(people).context("the load has ended")
}

/// Milliseconds from the start of the process.
struct Start {
    first_line: f64,
    ready: f64,
    answered: f64,
}

async fn timed_start(deployment: &Deployment, people: &People) -> Result<(Server, Start)> {
    let began = Instant::now();
    let since = || began.elapsed().as_secs_f64() * 1e3;
    let server = deployment.serve()?;
    let first_line = since();
    let ready = server.access.call("GET", "/readyz", None).await?;
    ensure!(ready.status == 200, "/readyz answers {} right after the first line", ready.status);
    let ready = since();
    let signer = people.signers.first().context("there are some")?;
    let answer = once(server.listen, &query(signer, people).bytes()).await?;
    ensure!(answer.code() == "000000", "the first signed request was answered {}", answer.json());
    Ok((server, Start { first_line, ready, answered: since() }))
}

fn query(signer: &Signer, people: &People) -> crate::wire::Draft {
    signer.draft("GET", &format!("/v1/pay/convert/order?orderId={}", people.order), b"")
}

fn upgrade(signer: &Signer, n: usize) -> crate::wire::Draft {
    let sub = format!("bank-{}", n % SUB_ACCOUNTS + 1);
    let body = json!({"sub_merchant_id": sub, "r_markup": 0.3, "effective_date": "2020-01-01 00:00:00"});
    signer.draft("POST", "/rate/commission_rule/upgrade", body.to_string().as_bytes())
}

/// Signed requests over connections that are kept: upgrades only, or one among ten with queries.
async fn load(address: SocketAddr, people: &Arc<People>, requests: usize, queries: bool) -> Result<Duration> {
    let next = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (people, next) = (people.clone(), next.clone());
        tasks.spawn(async move {
            let mut connection = Connection::open(address).await?;
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= requests {
                    return Ok(());
                }
                let signer = &people.signers[n % people.signers.len()];
                let draft = if queries && n % 10 != 0 { query(signer, &people) } else { upgrade(signer, n) };
                let answer = connection.send(&draft.bytes()).await?;
                ensure!(answer.code() == "000000", "{} was answered {}", draft.target, answer.json());
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(began.elapsed())
}

/// MiB of a process.
#[derive(Clone, Copy)]
struct Memory {
    /// VmRSS: all pages in memory, those shared with others too.
    resident: f64,
    /// Pss: shared pages count in parts.
    proportional: f64,
    /// Not backed by a file: heap and stacks.
    anonymous: f64,
}

impl Memory {
    fn of(pid: u32) -> Result<Self> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        Ok(Self {
            resident: mib(&status, "VmRSS:")?,
            proportional: mib(&rollup, "Pss:")?,
            anonymous: mib(&rollup, "Anonymous:")?,
        })
    }
}

/// The value of a line such as `VmRSS:  12345 kB`.
fn mib(text: &str, name: &str) -> Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let kib: u32 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(f64::from(kib) / 1024.0)
}

/// Prints the starts and answers with the slowest, up to the first signed answer.
fn print_starts(starts: &[Start]) -> f64 {
    let row = |name: &str, of: fn(&Start) -> f64| {
        let mut values: Vec<f64> = starts.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let (median, slowest) = (values[values.len() / 2], values[values.len() - 1]);
        (
            vec![name.to_owned(), format!("{median:.1}"), format!("{slowest:.1}"), format!("{READY_LIMIT_MS:.0}")],
            slowest,
        )
    };
    println!("{STARTS} starts on a data folder with {SUB_ACCOUNTS} sub-accounts, {UPGRADES_BEFORE} rule versions and");
    println!("{APPLICATIONS} applications; milliseconds from the start of the process\n");
    let rows = [
        row("first line on stdout", |start| start.first_line),
        row("/readyz says 200", |start| start.ready),
        row("first signed answer", |start| start.answered),
    ];
    let slowest = rows.iter().map(|(_, slowest)| *slowest).fold(0.0, f64::max);
    println!("{}", table(&["until", "median", "slowest", "limit"], &rows.map(|(row, _)| row)));
    slowest
}

fn print_memory(before: Memory, after: Memory, took: Duration) {
    let row = |name: &str, memory: Memory, limit: f64| {
        let Memory { resident, proportional, anonymous } = memory;
        let values = [resident, proportional, anonymous, limit].map(|value| format!("{value:.1}"));
        [vec![name.to_owned()], values.to_vec()].concat()
    };
    println!(
        "Memory in MiB; load: {REQUESTS} signed requests, one in ten an upgrade, in {:.1} s\n",
        took.as_secs_f64()
    );
    let rows = [
        row(&format!("{} s after the start", QUIET_BEFORE.as_secs()), before, RESIDENT_LIMIT_MIB),
        row(&format!("{} s after the load", QUIET_AFTER.as_secs()), after, RESIDENT_AFTER_LIMIT_MIB),
    ];
    println!("{}", table(&["when", "resident (VmRSS)", "Pss", "anonymous", "limit of VmRSS"], &rows));
}
