//! Fee-rule upgrades per second on PostgreSQL through the whole use case, beside pgbench writing the same rows by one statement for each: same
//! server, same schema, every commit synced. Then two nodes beside one.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use countersign::clock::Clock;
use countersign::config::{Config, Optional};
use countersign::run;
use countersign_store::testing::{Server, ServerOptions};

use super::callers::{ALL, Loaded, Share};
use super::{Spread, cpu_ns, cpu_ns_of_children, spread, table};

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_millis(1500);
const PGBENCH_S: u64 = 2;
const INSTITUTIONS: usize = 100;
const SUBS: usize = 10;
const CLIENTS: [usize; 3] = [1, 16, 128];

/// Prints both tables.
pub async fn run() -> Result<()> {
    let server = Server::start(ServerOptions { fsync: true, large: true, ..ServerOptions::default() });
    let folder = tempfile::tempdir()?;
    beside_pgbench(&server, folder.path()).await?;
    nodes(&server, folder.path()).await
}

/// One thing that is measured, and what came of it.
struct Row {
    name: &'static str,
    callers: usize,
    rates: Vec<f64>,
    ours_us: Vec<f64>,
    server_us: Vec<f64>,
}

impl Row {
    const fn new(name: &'static str, callers: usize) -> Self {
        Self { name, callers, rates: Vec::new(), ours_us: Vec::new(), server_us: Vec::new() }
    }

    fn cells(&self) -> Vec<String> {
        let rate = |s: Spread| format!("{:.0} [{:.0}-{:.0}]", s.median, s.low, s.high);
        let of = |list: &[f64]| if list.is_empty() { "-".to_owned() } else { format!("{:.0}", spread(list).median) };
        vec![
            self.name.to_owned(),
            self.callers.to_string(),
            rate(spread(&self.rates)),
            of(&self.ours_us),
            of(&self.server_us),
        ]
    }
}

async fn beside_pgbench(server: &Server, folder: &Path) -> Result<()> {
    let many = loaded(server, "many", folder, INSTITUTIONS, SUBS).await?;
    let one = loaded(server, "one", folder, 1, INSTITUTIONS * SUBS).await?;
    let theirs = loaded(server, "theirs", folder, INSTITUTIONS, SUBS).await?;
    // Every sub-account has a rule before anybody is measured.
    for each in [&many, &one, &theirs] {
        each.first_rules().await?;
    }
    let mut pgbench = CLIENTS.map(|clients| Row::new("pgbench, one statement each", clients));
    let mut ours = CLIENTS.map(|callers| Row::new("Countersign", callers));
    let mut single = Row::new("Countersign, all of one institution", 128);
    for _ in 0..ROUNDS {
        for row in &mut pgbench {
            let cpu = server_cpu(server);
            let rate = server.pgbench("theirs", INSTITUTIONS, SUBS, row.callers, PGBENCH_S);
            #[expect(clippy::cast_precision_loss, reason = "a slice is far below 2^52 ns")]
            row.server_us.push((server_cpu(server) - cpu) as f64 / 1e3 / rate / PGBENCH_S as f64);
            row.rates.push(rate);
        }
        for row in &mut ours {
            slice(server, &many, row).await?;
        }
        slice(server, &one, &mut single).await?;
    }
    // What pgbench wrote is what the product writes: it goes on from there.
    theirs.slice(1, theirs.keys(), Duration::from_millis(200)).await?;
    println!(
        "Durable fee-rule upgrades per second on PostgreSQL, {ROUNDS} interleaved rounds, {INSTITUTIONS} institutions\n"
    );
    let head = ["writer", "callers", "1/s, median [quartiles]", "CPU us, our process", "CPU us, PostgreSQL"];
    let rows: Vec<&Row> = pgbench.iter().chain(&ours).chain([&single]).collect();
    println!("{}", table(&head, &rows.iter().map(|row| row.cells()).collect::<Vec<_>>()));
    let best = |at: usize| pgbench.iter().map(|row| row.rates[at]).fold(0.0, f64::max);
    let ratio = |row: &Row| spread(&row.rates.iter().enumerate().map(|(at, rate)| rate / best(at)).collect::<Vec<_>>());
    println!("128 callers, ratio to the best of pgbench in the round: {}", ratio(&ours[2]));
    println!("the same, all of one institution:                       {}\n", ratio(&single));
    Ok(())
}

fn server_cpu(server: &Server) -> u64 {
    server.process().map_or(0, cpu_ns_of_children)
}

/// One slice of ours, with the CPU that it took on both sides.
async fn slice(server: &Server, loaded: &Loaded, row: &mut Row) -> Result<()> {
    let (own, theirs) = (cpu_ns(std::process::id()), server_cpu(server));
    let pace = loaded.slice(row.callers, loaded.keys(), SLICE).await?;
    let upgrades = pace.rate * SLICE.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a slice is far below 2^52 ns")]
    let per_upgrade = |ns: u64| ns as f64 / 1e3 / upgrades;
    row.ours_us.push(per_upgrade(cpu_ns(std::process::id()) - own));
    row.server_us.push(per_upgrade(server_cpu(server) - theirs));
    row.rates.push(pace.rate);
    Ok(())
}

fn config(server: &Server, name: &str, folder: &Path) -> Config {
    Config { data: folder.join(name), database_url: Optional(Some(server.url(name))), ..Config::default() }
}

async fn loaded(server: &Server, name: &str, folder: &Path, institutions: usize, subs: usize) -> Result<Loaded> {
    server.ask("postgres", &format!("CREATE DATABASE {name}"));
    let config = config(server, name, folder);
    run::initialise(&config).await?;
    Loaded::fill(Arc::new(run::open_app(&config, Clock::System, None).await?), institutions, subs).await
}

/// A node in a process of its own.
struct Node {
    child: Child,
    tell: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Node {
    fn start(config: &Config) -> Result<Self> {
        let url = config.database_url.get().context("has an address")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["node", url])
            .arg(&config.data)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (tell, hear) = (child.stdin.take().context("is piped")?, child.stdout.take().context("is piped")?);
        Ok(Self { child, tell, hear: BufReader::new(hear) })
    }

    fn begin(&mut self, callers: usize, Share { part, of }: Share) -> Result<()> {
        Ok(writeln!(self.tell, "{callers} {part} {of}")?)
    }

    fn rate(&mut self) -> Result<f64> {
        let mut line = String::new();
        self.hear.read_line(&mut line)?;
        line.trim().parse().with_context(|| format!("a node said {line:?}"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a node's process does: for each line with a number of callers and a share one slice, and its rate as the answer.
pub async fn node(url: &str, data: PathBuf) -> Result<()> {
    let config = Config { data, database_url: Optional(Some(url.to_owned())), ..Config::default() };
    let app = Arc::new(run::open_app(&config, Clock::System, None).await?);
    let loaded = Loaded::over(app, INSTITUTIONS, SUBS)?;
    loop {
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line)? == 0 {
            return Ok(());
        }
        let asked: Vec<usize> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let &[callers, part, of] = asked.as_slice() else { bail!("{line:?} is no number of callers and share") };
        println!("{}", loaded.only(Share { part, of }).slice(callers, loaded.keys(), SLICE).await?.rate);
    }
}

/// Two nodes beside one, with as many callers each: both for the same sub-accounts, and each for institutions of its own.
async fn nodes(server: &Server, folder: &Path) -> Result<()> {
    let both = loaded(server, "nodes", folder, INSTITUTIONS, SUBS).await?;
    both.first_rules().await?;
    drop(both);
    let config = config(server, "nodes", folder);
    let (mut first, mut second) = (Node::start(&config)?, Node::start(&config)?);
    let (mut alone, mut own, mut same) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        first.begin(128, ALL)?;
        alone.push(first.rate()?);
        first.begin(128, Share { part: 0, of: 2 })?;
        second.begin(128, Share { part: 1, of: 2 })?;
        own.push(first.rate()? + second.rate()?);
        first.begin(128, ALL)?;
        second.begin(128, ALL)?;
        same.push(first.rate()? + second.rate()?);
    }
    let ratio =
        |two: &[f64]| spread(&two.iter().zip(&alone).map(|(two, one)| two / one).collect::<Vec<_>>()).to_string();
    println!("Two nodes beside one, 128 callers each, {ROUNDS} interleaved rounds\n");
    let row =
        |name: &str, rates: &[f64], ratio: String| vec![name.to_owned(), format!("{:.0}", spread(rates).median), ratio];
    let rows = [
        row("1", &alone, "1".to_owned()),
        row("2, each for institutions of its own", &own, ratio(&own)),
        row("2, both for the same sub-accounts", &same, ratio(&same)),
    ];
    println!("{}", table(&["nodes", "upgrades/s", "ratio to one"], &rows));
    Ok(())
}
