//! CPU of a callback beside a client on bare sockets that posts the same bytes, in the same run: without the outbox, with it on SQLite, and from
//! end to end. One core for whoever sends, the other for the receiver and whoever emits.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::{spawn_blocking, spawn_local, yield_now};

use self::sink::Sink;
use self::whole::{EVENTS, Whole};
use super::load::{Asker, slice};
use super::query::{bare, pin};
use super::{Spread, spread, table};

pub mod least;
pub(super) mod library;
pub mod outbox;
pub mod raw;
pub mod sink;
pub mod ways;
mod whole;

/// Kinds of a round. They take turns in being the first: whoever comes after a pause or a heavy neighbour has another machine.
const KINDS: usize = 8;
/// Each kind stands at each place of the order once.
const ROUNDS: usize = KINDS;
/// Callbacks of a round, of each kind.
const CALLBACKS: usize = 16_000;
/// Attempts at once, and callers at once.
const AT_ONCE: usize = 64;
/// Each may have eight attempts at once by default.
const APPLICATIONS: usize = 8;
/// What every event tells; the whole body has about 260 bytes with it.
const DATA: &str = r#"{"merchantTradeNo":"M-0000000001","currency":"USDT","orderAmount":"12.5","status":"PAID"}"#;
const SLICE: Duration = Duration::from_millis(600);

/// A process that does what a line says and answers with the CPU time it took. Ends with its owner.
struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Worker {
    fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("stdin is piped")?;
        let stdout = Some(BufReader::new(child.stdout.take().context("stdout is piped")?));
        Ok(Self { child, stdin, stdout })
    }

    /// The CPU time in ns; what is received meanwhile is answered by this thread.
    async fn ask(&mut self, what: &str) -> Result<u64> {
        self.stdin.write_all(what.as_bytes())?;
        let mut stdout = self.stdout.take().context("one question at a time")?;
        let (line, stdout) = spawn_blocking(move || {
            let mut line = String::new();
            stdout.read_line(&mut line).map(|_| (line, stdout))
        })
        .await??;
        self.stdout = Some(stdout);
        line.trim().parse().context("the worker has ended: its error stands above")
    }
}

/// What a round has shown: CPU of the sending process, in us for each callback or request.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    raw: f64,
    library: f64,
    least: f64,
    attempt: f64,
    outbox: f64,
    bare: f64,
    closed: f64,
    emitted: f64,
}

/// Prints the table.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let sink = Sink::start().await?;
    let url = format!("http://{}/callback", sink.address);
    let mut outbox = Worker::start(&["outbox", &url, &folder.path().join("outbox").display().to_string()])?;
    outbox.ask(&format!("attempts {AT_ONCE}\n")).await?;
    let sample = sink.first();
    let mut raw = Worker::start(&["post", &sink.address.to_string()])?;
    raw.stdin.write_all(&[format!("{}\n", sample.len()).as_bytes(), &sample].concat())?;
    raw.ask(&format!("sockets {AT_ONCE}\n")).await?;
    let mut least = Worker::start(&["least", &folder.path().join("least").display().to_string()])?;
    let whole = Whole::open(&folder.path().join("data"), &url).await?;
    let (bare, bare_address) = bare(r#"{"event_id":"evt_01KA0000000000000000000000","state":"pending"}"#, &[])?;
    for pid in [outbox.child.id(), raw.child.id(), least.child.id(), whole.server.pid(), bare.id()] {
        pin(pid, "0");
    }
    pin(std::process::id(), "1");
    // Over a network nobody who sends pays for waking who receives. Here a receiver that sleeps has the sender's system call wake it, the more
    // often the slower the sender is: so it never sleeps.
    spawn_local(async {
        loop {
            yield_now().await;
        }
    });
    let nobody = Rc::new(vec![Asker { client_id: "x".into(), secret: b"x".to_vec(), target: "/".into() }]);
    let mut rounds = Vec::new();
    for first in 0..ROUNDS {
        let mut round = Round::default();
        for place in 0..KINDS {
            match (first + place) % KINDS {
                0 => round.library = per_callback(raw.ask(&format!("library {CALLBACKS}\n")).await?, CALLBACKS),
                1 => round.raw = per_callback(raw.ask(&format!("sockets {CALLBACKS}\n")).await?, CALLBACKS),
                2 => round.least = per_callback(least.ask(&format!("{CALLBACKS}\n")).await?, CALLBACKS),
                3 => round.attempt = per_callback(outbox.ask(&format!("attempts {CALLBACKS}\n")).await?, CALLBACKS),
                4 => round.outbox = per_callback(outbox.ask(&format!("outbox {CALLBACKS}\n")).await?, CALLBACKS),
                5 => round.bare = slice(bare_address, bare.id(), &nobody, AT_ONCE, SLICE).await?.cpu_us,
                6 => round.closed = per_callback(whole.closed(&sink).await?, EVENTS),
                _ => round.emitted = per_callback(whole.emitted(&sink).await?, EVENTS),
            }
        }
        rounds.push(round);
    }
    print(&rounds, sample.len());
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52 ns")]
fn per_callback(ns: u64, count: usize) -> f64 {
    ns as f64 / 1e3 / count as f64
}

fn print(rounds: &[Round], bytes: usize) {
    let of = |field: &dyn Fn(&Round) -> f64| -> Spread { spread(&rounds.iter().map(field).collect::<Vec<_>>()) };
    println!("CPU of whoever sends, for each callback of {bytes} bytes that is signed afresh and answered SUCCESS");
    println!(
        "({ROUNDS} rounds, {CALLBACKS} callbacks each and {EVENTS} from end to end, {AT_ONCE} at once; the sender on one core, the receiver on the other)\n"
    );
    let row = |name: &str, us: Spread, ratio: Option<Spread>, limit: &str| {
        vec![name.to_owned(), us.to_string(), ratio.map_or_else(|| "1".to_owned(), |r| r.to_string()), limit.to_owned()]
    };
    let ends = |r: &Round| r.bare + r.raw;
    let least = |r: &Round| r.raw + r.least;
    let bare_sqlite =
        format!("bare sockets, and bare SQLite reads, marks and appends, {} in a commit", least::TOGETHER);
    let rows = [
        row("bare sockets", of(&|r| r.raw), None, ""),
        row("the HTTP library by itself", of(&|r| r.library), Some(of(&|r| r.library / r.raw)), ""),
        row(&bare_sqlite, of(&least), Some(of(&|r| least(r) / r.raw)), ""),
        row("attempt, nothing recorded", of(&|r| r.attempt), Some(of(&|r| r.attempt / r.raw)), "1.6"),
        row("queued on SQLite, delivered, marked", of(&|r| r.outbox), Some(of(&|r| r.outbox / r.raw)), "2.2"),
        row("bare hyper answers a request, bare sockets post a callback", of(&ends), None, ""),
        row(
            "order closed by a signed request, durable, told, marked",
            of(&|r| r.closed),
            Some(of(&|r| r.closed / ends(r))),
            "3.5",
        ),
        row(
            "event emitted by an operator's call, durable, delivered, marked",
            of(&|r| r.emitted),
            Some(of(&|r| r.emitted / ends(r))),
            "",
        ),
    ];
    println!("{}", table(&["sender", "CPU us each", "ratio", "at most"], &rows));
}
