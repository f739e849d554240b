//! `countersign move` of many rows, killed with SIGKILL midway again and again, and taken up each time.
//!
//! Kills are spread over the rows: three of four fall while they are copied, each in another part of the deployment, the others while
//! they are compared.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use countersign_store::testing::Database;
use serde_json::{Value, json};

use crate::process::{Deployment, bare};

mod rows;

/// How long one run of the program may take to come to the point where it is killed.
const PATIENCE: Duration = Duration::from_secs(300);

/// What all runs together have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Rows that were moved.
    pub rows: u64,
    /// Kills while rows were copied.
    pub kills_copying: u64,
    /// Kills while rows were compared.
    pub kills_comparing: u64,
    /// Rows that were there when a run began, for each run but the first.
    pub found: Vec<u64>,
    /// What the last run printed: each table with its rows and digest.
    pub tables: Vec<(String, u64, String)>,
    /// Time of the last run, in ms: the rest of the copying, and the comparing.
    pub last_ms: u128,
}

/// What a run begins with that goes on behind another one.
const GOING_ON: &str = "going on: ";

/// A run of the program that may be killed.
struct Mover {
    child: Child,
    says: BufReader<ChildStderr>,
    /// What it said and was read so far.
    said: String,
}

/// Moves a deployment of about `rows` rows, killed `kills` times. An error names what was lost, doubled or accepted.
pub async fn run(rows: u64, kills: u64) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let deployment = Deployment::init(&folder.path().join("data"))?;
    rows::fill(&deployment.data, rows).await?;
    let database = Database::new().await;
    let mut report = Report { kills_comparing: kills / 4, kills_copying: kills - kills / 4, ..Report::default() };
    let copying = report.kills_copying;
    // As long as the end of the move is held, no run comes to it, however late it is killed.
    for kill in 1..=copying {
        let (mut mover, held);
        if kill > 1 {
            held = database.hold_move().await;
            mover = Mover::start(&deployment, &database)?;
            // So many rows may be there before it has begun.
            mover.until_it_goes_on()?;
        } else {
            mover = Mover::start(&deployment, &database)?;
            mover.until_copied(&database, 1).await?;
            held = database.hold_move().await;
        }
        mover.until_copied(&database, rows * kill / (copying + 1)).await?;
        mover.kill_midway()?;
        drop(held);
        report.take_up(&mover.rest()?)?;
    }
    for kill in 1..=report.kills_comparing {
        let held = database.hold_move().await;
        let mut mover = Mover::start(&deployment, &database)?;
        mover.until_percent(50 + 45 * kill / (report.kills_comparing + 1))?;
        mover.kill_midway()?;
        drop(held);
        report.take_up(&mover.rest()?)?;
    }
    ensure!(report.found.len() + 1 == usize::try_from(kills)?, "a run began anew: {:?}", report.found);
    ensure!(report.found.is_sorted(), "rows were lost between runs: {:?}", report.found);
    let begun = Instant::now();
    let out = command(&deployment, &database).arg("--json").output()?;
    report.last_ms = begun.elapsed().as_millis();
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "the last run failed: {said}");
    report.take_up(&said)?;
    report.read(&serde_json::from_slice(&out.stdout).context("--json prints JSON")?)?;
    check_counts(&report, &database).await?;
    served_there_and_not_here(&deployment, &database).await?;
    Ok(report)
}

fn command(deployment: &Deployment, database: &Database) -> Command {
    let mut command = bare();
    command.arg("move").arg("--from").arg(&deployment.data).args(["--to", &database.url()]);
    command.stdin(Stdio::null());
    command
}

impl Mover {
    fn start(deployment: &Deployment, database: &Database) -> Result<Self> {
        let mut child = command(deployment, database).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let says = BufReader::new(child.stderr.take().context("stderr is piped")?);
        Ok(Self { child, says, said: String::new() })
    }

    /// Waits until so many rows are in the database.
    async fn until_copied(&mut self, database: &Database, rows: u64) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while database.moved_rows().await < rows {
            ensure!(Instant::now() < deadline, "{rows} rows were not copied in {PATIENCE:?}");
            self.must_run()?;
        }
        Ok(())
    }

    /// Waits until it says that it has come so far.
    fn until_percent(&mut self, wanted: u64) -> Result<()> {
        let percent = |line: &str| line.split_once(" %").and_then(|(number, _)| number.parse::<u64>().ok());
        let is_there = self.until_says(|line| percent(line).is_some_and(|percent| percent >= wanted))?;
        ensure!(is_there, "it ended before {wanted} %");
        Ok(())
    }

    /// Waits until it says how many rows it has found.
    fn until_it_goes_on(&mut self) -> Result<()> {
        ensure!(self.until_says(|line| line.starts_with(GOING_ON))?, "it began anew: {}", self.said);
        Ok(())
    }

    /// Reads what it says up to such a line; no: it has ended.
    fn until_says(&mut self, wanted: impl Fn(&str) -> bool) -> Result<bool> {
        let mut line = String::new();
        while self.says.read_line(&mut line)? > 0 {
            self.said.push_str(&line);
            if wanted(&line) {
                return Ok(true);
            }
            line.clear();
        }
        Ok(false)
    }

    fn must_run(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it ended before it was killed ({status}): {}", self.rest()?);
        }
        Ok(())
    }

    /// Kills it; an error if it had ended.
    fn kill_midway(&mut self) -> Result<()> {
        self.must_run()?;
        self.child.kill()?;
        let status = self.child.wait()?;
        ensure!(status.code().is_none(), "it had ended before it was killed ({status})");
        Ok(())
    }

    /// All that it said until it ended.
    fn rest(&mut self) -> Result<String> {
        self.says.read_to_string(&mut self.said)?;
        Ok(std::mem::take(&mut self.said))
    }
}

impl Report {
    /// Notes with how many rows a run began.
    fn take_up(&mut self, said: &str) -> Result<()> {
        let Some(line) = said.lines().find_map(|line| line.strip_prefix(GOING_ON)) else { return Ok(()) };
        let already = line.split(' ').next().context("a number")?;
        self.found.push(already.parse()?);
        Ok(())
    }

    fn read(&mut self, said: &Value) -> Result<()> {
        for table in said["tables"].as_array().context("tables")? {
            let name = table["table"].as_str().context("a name")?.to_owned();
            let rows = table["rows"].as_u64().context("a count")?;
            self.rows += rows;
            self.tables.push((name, rows, table["sha256"].as_str().context("a digest")?.to_owned()));
        }
        ensure!(said["chains"].as_array().is_some_and(|chains| !chains.is_empty()), "chains were followed");
        Ok(())
    }
}

/// What the report says, counted once more by the database itself.
async fn check_counts(report: &Report, database: &Database) -> Result<()> {
    for (table, rows, _) in &report.tables {
        let counted = database.count_rows(table).await;
        ensure!(*rows > 0, "{table} was moved empty");
        ensure!(counted == *rows, "{table} has {counted} rows, the report says {rows}");
    }
    Ok(())
}

async fn served_there_and_not_here(deployment: &Deployment, database: &Database) -> Result<()> {
    let Err(refused) = deployment.serve() else { bail!("the old folder is served") };
    ensure!(refused.to_string().contains("was moved to"), "{refused}");
    let server = deployment.serve_with(&["--database-url", &database.url()])?;
    // An order goes on where it was.
    server.access.provision("PATCH", "/convert-orders/100000001", json!({"status": 3})).await?;
    ensure!(server.terminate()?, "the server ends in order");
    Ok(())
}

/// Prints what was found.
pub fn print(report: &Report) {
    let kills = report.kills_copying + report.kills_comparing;
    println!("rows moved, every one compared        {}", report.rows);
    println!(
        "kills                                 {kills} ({} while copying, {} while comparing)",
        report.kills_copying, report.kills_comparing
    );
    let found: Vec<String> = report.found.iter().map(u64::to_string).collect();
    println!("rows found by the runs after them     {}", found.join(" "));
    println!("last run (comparing every row)        {} ms", report.last_ms);
    for (table, rows, digest) in &report.tables {
        println!("{rows:>9}  {table:<20} {digest}");
    }
}
