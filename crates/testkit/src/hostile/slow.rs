//! Thousands of clients that dawdle from one address, beside honest ones from another who must notice nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::process::Deployment;
use crate::wire::{Answer, Signer};

const HARMFUL: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
/// An honest client gives up after this.
const PATIENCE: Duration = Duration::from_secs(5);
/// Honest clients at once, half of them with a new connection for each request.
const HONEST_CLIENTS: usize = 8;
/// Between two requests of one honest client.
const PACE: Duration = Duration::from_millis(40);
/// Those that dawdle come again for so long at most, until honest ones have asked often enough.
const ASKED_WITHIN: Duration = Duration::from_secs(90);
/// Between two bytes of one that dawdles.
const DRIP: Duration = Duration::from_millis(500);
/// Requests that one sends before it reads anything. More would be a flood of requests, which is another matter; that a server which cannot
/// write gives the place back is shown with one place, in the listener's own tests.
const PIPELINED: usize = 50;
/// What an answer may be squeezed through, in bytes.
const SMALL_WINDOW: u32 = 1_024;

/// The four modes of slowhttptest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A head that comes line by line and never ends.
    Headers,
    /// A body that comes byte by byte.
    Body,
    /// Very many ranges asked for.
    Range,
    /// Answers that are asked for and not read.
    Read,
}

impl Mode {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Headers, Self::Body, Self::Range, Self::Read];

    /// Where slowhttptest asks: a body must be wanted, or nobody waits for it.
    const fn path(self) -> &'static str {
        match self {
            Self::Body => "/rate/commission_rule/upgrade",
            Self::Headers | Self::Range | Self::Read => "/v1/time",
        }
    }

    const fn flag(self) -> &'static str {
        match self {
            Self::Headers => "-H",
            Self::Body => "-B",
            Self::Range => "-R",
            Self::Read => "-X",
        }
    }
}

/// Who dawdles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// Clients of our own.
    Own,
    /// The program slowhttptest.
    Slowhttptest,
}

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How they dawdle.
    pub mode: Mode,
    /// Who does.
    pub generator: Generator,
    /// Connections of theirs.
    pub connections: usize,
    /// How long.
    pub lasts: Duration,
    /// Whether connections of one loopback address are counted, as those of any other address are.
    pub is_counted: bool,
    /// How many places there are in all, and what gives them back; none is as shipped, which is more than these take.
    pub scarce: Option<Scarce>,
}

/// Fewer places than there are clients that want to keep one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scarce {
    /// Connections in all.
    pub places: usize,
    /// How long a head, and a body, may take.
    pub patience: Duration,
}

impl Plan {
    /// Requests of honest clients, fewer of which show nothing.
    fn asked_min(&self) -> u64 {
        let paces = self.lasts.as_millis() / PACE.as_millis();
        let pace = u64::try_from(paces).unwrap_or(u64::MAX).saturating_mul(HONEST_CLIENTS as u64);
        // A machine that is busy with something else makes few of them. Where places are scarce, half of the honest clients wait for one each time.
        if self.scarce.is_some() { 20 } else { pace / 10 }
    }
}

/// What honest clients saw.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The plan.
    pub plan: Plan,
    /// Requests of honest clients while others dawdled.
    pub asked: u64,
    /// Those that were answered with success in time.
    pub succeeded: u64,
    /// The most connections that the server held at once, of all that were looked at.
    pub held_max: usize,
    /// How long others dawdled.
    pub took: Duration,
}

impl Report {
    /// Whether honest clients noticed: fewer than 999 in 1,000 of their requests succeeded.
    pub const fn is_noticed(&self) -> bool {
        self.succeeded * 1_000 < self.asked * 999
    }

    /// An error where fewer than 999 in 1,000 succeeded, or where nobody dawdled as much as was planned: then it shows nothing.
    pub fn verdict(&self) -> Result<()> {
        let Plan { lasts, connections, mode, is_counted, scarce, .. } = self.plan;
        ensure!(self.took >= lasts.mul_f64(0.9), "they dawdled for {:?} of {lasts:?}", self.took);
        let asked_min = self.plan.asked_min();
        ensure!(self.asked >= asked_min, "{} honest requests were made, and {asked_min} are the least", self.asked);
        let held_min = match (scarce, is_counted, mode) {
            (Some(scarce), _, _) => scarce.places.min(connections) * 9 / 10,
            // Who asks for ranges has an answer at once.
            (None, _, Mode::Range) => 1,
            (None, true, _) => connections.min(200),
            (None, false, Mode::Headers | Mode::Body | Mode::Read) => connections * 9 / 10,
        };
        ensure!(
            self.held_max >= held_min,
            "the server held {} connections, and {held_min} are the least",
            self.held_max
        );
        ensure!(!self.is_noticed(), "{self:?}: too many honest requests failed");
        Ok(())
    }
}

/// A server, those who dawdle, and the honest ones.
pub async fn run(plan: Plan) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let mut deployment = Deployment::init(&folder.path().join("data"))?;
    deployment.config = settings(&plan);
    let server = deployment.serve()?;
    let before = open_files(server.pid());
    let signer = Arc::new(server.access.institution("bank", 0, None).await?);
    let ended = Arc::new(AtomicBool::new(false));
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let mut honest = JoinSet::new();
    for n in 0..HONEST_CLIENTS {
        let (signer, ended, counts) = (signer.clone(), ended.clone(), counts.clone());
        let late = plan.scarce.map_or(PATIENCE, |scarce| scarce.patience) / 2;
        honest.spawn(be_honest((server.listen, late), signer, n % 2 == 0, ended, counts));
    }
    let held = tokio::spawn(watch(server.pid(), before, ended.clone()));
    let began = Instant::now();
    // Honest clients of a machine that is busy with something else need longer for as many requests.
    loop {
        dawdle(server.listen, plan).await?;
        if counts[0].load(Ordering::Acquire) >= plan.asked_min() || began.elapsed() >= ASKED_WITHIN {
            break;
        }
    }
    let took = began.elapsed();
    ended.store(true, Ordering::Release);
    while honest.join_next().await.is_some() {}
    let [asked, succeeded] = [0, 1].map(|n| counts[n].load(Ordering::Acquire));
    Ok(Report { plan, asked, succeeded, held_max: held.await?, took })
}

fn settings(plan: &Plan) -> String {
    let limits = plan.scarce.map_or_else(String::new, |Scarce { places, patience }| {
        let ms = patience.as_millis();
        format!("[limits]\nconnections = {places}\nhead_timeout = \"{ms}ms\"\nbody_timeout = \"{ms}ms\"\n")
    });
    format!("limit_loopback = {}\nfailed_auth_per_s = 0\n{limits}", plan.is_counted)
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// The most files that the process has open, without those that it has when nobody is there.
async fn watch(pid: u32, before: usize, ended: Arc<AtomicBool>) -> usize {
    let mut most = 0;
    let mut ticks = interval(Duration::from_millis(100));
    while !ended.load(Ordering::Acquire) {
        ticks.tick().await;
        most = most.max(open_files(pid).saturating_sub(before));
    }
    most
}

async fn connect(from: IpAddr, to: SocketAddr, window: Option<u32>) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(window) = window {
        socket.set_recv_buffer_size(window)?;
    }
    socket.bind(SocketAddr::new(from, 0))?;
    Ok(socket.connect(to).await?)
}

/// Asks again and again. Whoever takes until `late` to ask may find the connection ended: that says nothing about the server.
async fn be_honest(
    (to, late): (SocketAddr, Duration),
    signer: Arc<Signer>,
    keeps: bool,
    ended: Arc<AtomicBool>,
    counts: Arc<[AtomicU64; 2]>,
) {
    let mut kept: Option<TcpStream> = None;
    let mut pace = interval(PACE);
    while !ended.load(Ordering::Acquire) {
        pace.tick().await;
        let bytes = signer.draft("GET", "/v1/pay/events", b"").bytes();
        counts[0].fetch_add(1, Ordering::AcqRel);
        let mut took_to_ask = Duration::ZERO;
        let asked = async {
            // On a kept connection that has ended meanwhile nothing was done: it is asked on another one.
            if let Some(mut stream) = kept.take()
                && let Some(answer) = ask(&mut stream, &bytes).await?
            {
                return anyhow::Ok(Some((answer, stream)));
            }
            let began = Instant::now();
            let mut stream = connect(HONEST, to, None).await?;
            let written = stream.write_all(&bytes).await;
            took_to_ask = began.elapsed();
            let answer = if written.is_ok() { read_one(&mut stream).await? } else { None };
            Ok(answer.map(|answer| (answer, stream)))
        };
        match timeout(PATIENCE, asked).await {
            Ok(Ok(Some((answer, stream)))) => {
                if answer.code() == "000000" {
                    counts[1].fetch_add(1, Ordering::AcqRel);
                }
                kept = keeps.then_some(stream);
            }
            Ok(Ok(None)) if took_to_ask >= late => _ = counts[0].fetch_sub(1, Ordering::AcqRel),
            Ok(Ok(None) | Err(_)) | Err(_) => {}
        }
    }
}

/// The answer to this on a connection that is open; none where it has ended without one.
async fn ask(stream: &mut TcpStream, bytes: &[u8]) -> Result<Option<Answer>> {
    match stream.write_all(bytes).await {
        Ok(()) => read_one(stream).await,
        Err(_) => Ok(None),
    }
}

/// None where the connection ended before the first byte of an answer.
async fn read_one(stream: &mut TcpStream) -> Result<Option<Answer>> {
    let mut said = Vec::new();
    loop {
        if let Some((answer, _)) = crate::wire::parse(&said) {
            return Ok(Some(answer));
        }
        match stream.read_buf(&mut said).await {
            Ok(1..) => {}
            Ok(0) | Err(_) if said.is_empty() => return Ok(None),
            Ok(0) => bail!("the connection ended in an answer"),
            Err(error) => return Err(error.into()),
        }
    }
}

async fn dawdle(to: SocketAddr, plan: Plan) -> Result<()> {
    match plan.generator {
        Generator::Slowhttptest => {
            let end = Instant::now() + plan.lasts;
            // Where it is answered at once it ends at once: then it comes again, as our own do.
            while Instant::now() < end {
                slowhttptest(to, plan, end.saturating_duration_since(Instant::now())).await?;
                sleep(DRIP).await;
            }
            Ok(())
        }
        Generator::Own => {
            let end = Instant::now() + plan.lasts;
            let mut slow = JoinSet::new();
            for _ in 0..plan.connections {
                slow.spawn(async move { while_it_lasts(to, plan.mode, end).await });
            }
            while slow.join_next().await.is_some() {}
            Ok(())
        }
    }
}

async fn slowhttptest(to: SocketAddr, plan: Plan, lasts: Duration) -> Result<()> {
    let lasts = lasts.as_secs().max(1).to_string();
    let (connections, url) = (plan.connections.to_string(), format!("http://{to}{}", plan.mode.path()));
    let mut command = Command::new("slowhttptest");
    command.args([
        plan.mode.flag(),
        "-c",
        &connections,
        "-r",
        "1000",
        "-i",
        "2",
        "-l",
        &lasts,
        "-u",
        &url,
        "-v",
        "0",
        "-p",
        "5",
    ]);
    command.args([
        "-f",
        "application/json",
        "-x",
        "24",
        "-s",
        "8192",
        "-a",
        "10",
        "-b",
        "3000",
        "-w",
        "512",
        "-y",
        "1024",
        "-n",
        "2",
        "-z",
        "16",
        "-k",
        "5",
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let ran = tokio::task::spawn_blocking(move || command.status()).await?;
    let ended = ran.context("slowhttptest cannot be started: `cargo xtask slow` installs it on Debian")?;
    ensure!(ended.success(), "slowhttptest has not done what it was told: {ended}");
    Ok(())
}

/// One that dawdles, and comes again when it is sent away.
async fn while_it_lasts(to: SocketAddr, mode: Mode, end: Instant) {
    let mut pause = interval(DRIP);
    while Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        let _ = timeout(left, dawdle_once(to, mode)).await;
        pause.tick().await;
    }
}

async fn dawdle_once(to: SocketAddr, mode: Mode) -> Result<()> {
    let window = (mode == Mode::Read).then_some(SMALL_WINDOW);
    let mut stream = connect(HARMFUL, to, window).await?;
    let (begin, more): (Vec<u8>, &[u8]) = match mode {
        Mode::Headers => (b"GET /v1/time HTTP/1.1\r\nHost: x\r\n".to_vec(), b"X-Slow: 1\r\n"),
        Mode::Body => {
            let head = "POST /rate/commission_rule/upgrade HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 8192\r\n\r\n";
            (head.as_bytes().to_vec(), b" ")
        }
        Mode::Range => {
            let ranges: Vec<String> = (0..1_500).map(|n| format!("5-{n}")).collect();
            let request = format!("GET /v1/time HTTP/1.1\r\nHost: x\r\nRange: bytes=0-,{}\r\n\r\n", ranges.join(","));
            (request.into_bytes(), b"")
        }
        Mode::Read => ("GET /v1/time HTTP/1.1\r\nHost: x\r\n\r\n".repeat(PIPELINED).into_bytes(), b""),
    };
    let mut ticks = interval(DRIP);
    let mut byte = [0; 1];
    stream.write_all(&begin).await?;
    loop {
        ticks.tick().await;
        stream.write_all(more).await?;
        // Whoever sends reads too, a byte now and then, and so hears that he was sent away.
        if let Ok(read) = timeout(DRIP, stream.read(&mut byte)).await {
            ensure!(read? > 0, "sent away");
        }
    }
}

/// One line for people.
pub fn print(report: &Report) {
    let Report { plan, asked, succeeded, held_max, .. } = report;
    let counted = match plan.scarce {
        Some(scarce) => format!("{} places in all", scarce.places),
        None if plan.is_counted => "counted by address".to_owned(),
        None => "not counted by address".to_owned(),
    };
    println!(
        "{:<8} {:?}, {} connections for {} s, {counted}: the server held at most {held_max}; honest requests {succeeded} of {asked}",
        format!("{:?}", plan.mode),
        plan.generator,
        plan.connections,
        plan.lasts.as_secs()
    );
}
