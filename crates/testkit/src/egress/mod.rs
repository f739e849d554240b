//! Never aimed inside: the real server, in a network where every address is owned by listeners, is given hostile URLs and names whose answers
//! flip. It may connect to no forbidden address. What it passes to `connect` is recorded by strace, what arrives by the listeners, and both
//! are judged by a table of the testkit's own.

use std::fmt::Write as _;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::connect_proxy::ConnectProxy;
use crate::dns::Dns;
use crate::dns::zone::{Sides, Tally, Zone};
use crate::process::{Deployment, Server};
use crate::receiver::Receiver;
use crate::strace::whole;

mod asking;
pub mod naive;
pub mod namespace;
pub mod recorder;
pub mod special;
#[path = "../../../server/src/dispatch/spellings.rs"]
mod spellings;
pub mod urls;

use asking::{Done, Work};
use recorder::{Counts, Seen, connects};

/// Ports that callbacks may go to in the run; TLS is spoken there.
const OPEN_PORTS: [u16; 2] = [443, 8443];
/// Other ports that hostile URLs name, and that services inside of a network like to have.
const OTHER_PORTS: [u16; 8] = [22, 25, 80, 2375, 3000, 6379, 8080, 9200];
/// Where the run's name server is asked.
const NAME_SERVER: SocketAddr = SocketAddr::new(namespace::RESOLVER, 53);

/// How much a run tries.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Hostile URLs.
    pub urls: usize,
    /// Attempts at names that flip, each compared with what its look-up was told.
    pub trials: usize,
    /// Answers on the other side than the one before, of events' attempts.
    pub flips: usize,
}

impl Size {
    /// `cargo xtask egress`.
    pub const FULL: Self = Self { urls: 12_000, trials: 2_000, flips: 20_000 };
    /// In CI.
    pub const SAMPLE: Self = Self { urls: 500, trials: 60, flips: 200 };
    /// With the guard off: enough to see it.
    pub const CONTROL: Self = Self { urls: 1_500, trials: 200, flips: 400 };
}

/// What a run has shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What came of the server's attempts.
    pub done: Done,
    /// What the name server said.
    pub tally: Tally,
    /// What the server connected to.
    pub counts: Counts,
    /// What the listeners accepted from it.
    pub accepted: usize,
    /// What a proxy was asked for, of a server that has one.
    pub tunnels: usize,
    /// Forbidden addresses that it connected to, each with who saw it.
    pub offences: Vec<String>,
    /// The same of a client without a guard, in the same network.
    pub naive: Vec<String>,
}

/// The network's listeners and name server, and a deployment whose server is not started.
#[derive(Debug)]
struct Stage {
    deployment: Deployment,
    listeners: Vec<Receiver>,
    zone: Arc<Zone>,
    _dns: Dns,
    folder: TempDir,
}

impl Stage {
    async fn set() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let zone = Arc::new(Zone::new(7, sides(), urls::names()));
        let dns = Dns::start(NAME_SERVER, zone.clone()).await?;
        let (mut listeners, mut trusted) = (Vec::new(), Vec::new());
        for port in OPEN_PORTS {
            let listener = Receiver::start_tls_on(everywhere(port).await?, vec!["*.flip.example".to_owned()])?;
            trusted.extend(listener.ca_pem());
            listeners.push(listener);
        }
        for port in OTHER_PORTS {
            listeners.push(Receiver::start_on(everywhere(port).await?)?);
        }
        let mut deployment = Deployment::init(&folder.path().join("data"))?;
        let authorities = folder.path().join("authorities.pem");
        std::fs::write(&authorities, trusted)?;
        let schedule = ["\"1ms\""; 32].join(", ");
        writeln!(
            deployment.config,
            "callback_ports = {OPEN_PORTS:?}\ncallback_ca_file = \"{}\"\ncallback_schedule = [{schedule}]\nrate_limit_per_s = 0\nlimits.head_timeout = \"10m\"",
            authorities.display()
        )?;
        Ok(Self { deployment, listeners, zone, _dns: dns, folder })
    }

    /// The server as it is shipped, its calls written to `file`.
    fn serve(&self, file: &Path) -> Result<Server> {
        let file = file.to_str().context("the folder's name is UTF-8")?;
        let wrapper = [&["strace"][..], &naive::RECORD, &["-o", file, "--"]].concat();
        self.deployment.serve_strictly_under(&wrapper)
    }

    /// Our own ends of the connections that each listener has accepted.
    fn accepted(&self) -> Vec<Vec<SocketAddr>> {
        let of = |listener: &Receiver| listener.accepted().iter().map(|accepted| accepted.local).collect();
        self.listeners.iter().map(of).collect()
    }
}

/// A listener for this port of every address.
async fn everywhere(port: u16) -> Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await.with_context(|| format!("nobody can listen on port {port}"))
}

fn sides() -> Sides {
    let forbidden_v4 = special::v4_samples();
    let mut forbidden_v6 = special::v6_samples();
    forbidden_v6.extend(forbidden_v4.iter().flat_map(|v4| special::carriers(*v4)));
    Sides { public_v4: special::PUBLIC_V4.to_vec(), public_v6: special::PUBLIC_V6.to_vec(), forbidden_v4, forbidden_v6 }
}

/// Runs it, in the network that [`namespace::prepare`] has made.
pub async fn run(size: Size) -> Result<Report> {
    let has_strace = Command::new("strace").arg("-V").stdout(Stdio::null()).status();
    ensure!(has_strace.is_ok_and(|status| status.success()), "strace is not installed: the package strace has it");
    let mut stage = Stage::set().await?;
    // A server that allows private callbacks takes URLs that the next one, which does not, finds stored.
    let lenient = stage.deployment.serve()?;
    let stored = asking::store(&lenient).await?;
    ensure!(lenient.terminate()?, "the lenient server did not end with code 0 after SIGTERM");

    let file = stage.folder.path().join("trace");
    let server = stage.serve(&file)?;
    let pid = server.pid();
    let work = Work { access: server.access.clone(), zone: stage.zone.clone() };
    let done = work.all(size, stored).await?;
    ensure!(server.terminate()?, "the server did not end with code 0 after SIGTERM");
    let tally = stage.zone.tally();
    let seen = Seen { connects: connects(&whole(&file, pid).await?)?, accepted: stage.accepted().concat() };
    let mut report = Report {
        done,
        tally,
        counts: seen.counts(NAME_SERVER),
        accepted: seen.accepted.len(),
        offences: seen.offences(NAME_SERVER),
        ..Report::default()
    };
    through_proxy(&mut stage, size, &mut report).await?;
    report.naive = without_guard(&stage)?;
    Ok(report)
}

/// Attempts at names that flip by way of a proxy: the server connects to it and to nobody else, and tells it public addresses only.
async fn through_proxy(stage: &mut Stage, size: Size, report: &mut Report) -> Result<()> {
    let proxy = ConnectProxy::start().await?;
    writeln!(stage.deployment.config, "callback_proxy = \"{}\"", proxy.url())?;
    let file = stage.folder.path().join("proxied");
    let server = stage.serve(&file)?;
    let pid = server.pid();
    let work = Work { access: server.access.clone(), zone: stage.zone.clone() };
    report.done.add(work.trials("proxied", size.trials.div_ceil(4)).await?);
    ensure!(server.terminate()?, "the server with a proxy did not end with code 0 after SIGTERM");
    let calls = connects(&whole(&file, pid).await?)?;
    let stray = calls.iter().filter(|call| call.is_stream && ![proxy.address(), NAME_SERVER].contains(&call.address));
    report.offences.extend(stray.map(|call| format!("system call: past the proxy to {}", call.address)));
    let asked = proxy.asked();
    report.tunnels = asked.len();
    report.offences.extend(asked.iter().filter_map(|asked| match asked.target().parse::<SocketAddr>() {
        Ok(address) => special::why_forbidden(address.ip()).map(|why| format!("proxy: a tunnel to {address} ({why})")),
        Err(_) => Some(format!("proxy: a tunnel to {}, which is a name", asked.target())),
    }));
    Ok(())
}

/// What the same recorders see of a client without a guard that is given some names and literals.
fn without_guard(stage: &Stage) -> Result<Vec<String>> {
    let before = stage.accepted();
    let file = stage.folder.path().join("naive");
    let named = urls::names().into_iter().map(|(name, _)| name).step_by(7).take(40);
    let flipping = (0..40).map(|n| format!("naive{n}.flip.example"));
    let literals =
        ["2130706433", "0x7f.1", "010.0.0.1", "169.254.169.254", "fd00::1", "::ffff:10.0.0.1"].map(str::to_owned);
    let hosts: Vec<(String, u16)> = named.chain(flipping).chain(literals).map(|host| (host, OPEN_PORTS[0])).collect();
    naive::record(&hosts, &file)?;
    let since = stage.accepted().into_iter().zip(before).flat_map(|(all, before)| all.into_iter().skip(before.len()));
    let seen = Seen { connects: connects(&std::fs::read_to_string(&file)?)?, accepted: since.collect() };
    Ok(seen.offences(NAME_SERVER))
}

/// Whether both recorders have told of forbidden addresses.
fn seen_twice(offences: &[String]) -> bool {
    ["system call:", "listener:"].iter().all(|side| offences.iter().any(|line| line.starts_with(side)))
}

impl Report {
    /// Whether the guard held, and the run could have seen it if not.
    pub fn verdict(&self, size: Size) -> Result<()> {
        ensure!(
            seen_twice(&self.naive),
            "a client without a guard was not seen: the recorders are blind, and nothing is shown"
        );
        let first: Vec<&str> = self.offences.iter().chain(&self.done.complaints).take(10).map(String::as_str).collect();
        let (offences, complaints) = (self.offences.len(), self.done.complaints.len());
        ensure!(
            offences + complaints == 0,
            "{offences} sightings of a forbidden address, {complaints} other complaints. The first:\n{}",
            first.join("\n")
        );
        let Done { urls, delivered, refused, .. } = self.done;
        ensure!(urls >= size.urls, "{urls} hostile URLs, {} are needed", size.urls);
        ensure!(self.tally.flips >= size.flips, "{} answers flipped, {} are needed", self.tally.flips, size.flips);
        ensure!(delivered > 0 && refused > 0, "not both delivered ({delivered}) and refused ({refused}) attempts");
        let (tunnels, accepted) = (self.tunnels, self.accepted);
        ensure!(
            self.counts.streams > 0 && accepted > 0 && tunnels > 0,
            "the server connected to nobody, so nothing was recorded"
        );
        Ok(())
    }

    /// With the guard off the same run must fail, and for the connections that both recorders saw.
    pub fn control(&self, size: Size) -> Result<()> {
        ensure!(
            seen_twice(&self.offences),
            "with the guard off no forbidden address was connected to: the run sees nothing"
        );
        let Err(verdict) = self.verdict(size) else { anyhow::bail!("with the guard off the run finds nothing wrong") };
        println!("the guard is off, and the run fails as it must: {verdict}");
        Ok(())
    }

    /// Prints the figures.
    pub fn print(&self) {
        let Done {
            urls,
            refused_form,
            refused_attempt,
            stored,
            trials,
            attempts,
            delivered,
            refused,
            unresolved,
            other,
            ..
        } = self.done;
        let Tally { look_ups, answers, hostile, flips } = self.tally;
        let Counts { streams, addresses, questions, soundings } = self.counts;
        println!(
            "hostile URLs: {urls}; {refused_form} refused by the operator API, {refused_attempt} taken and refused at the attempt"
        );
        println!("stored by a server that allowed them: {stored}, refused at each attempt");
        println!(
            "look-ups of names that flip: {look_ups}; answers {answers}, {hostile} with a forbidden address, {flips} on the other side than the one before"
        );
        println!("attempts compared with what their look-up was told: {trials}");
        println!(
            "attempts of events: {attempts}; {delivered} delivered, {refused} refused, {unresolved} without an address, {other} other"
        );
        println!(
            "calls of connect: {streams} connections to {addresses} addresses; {questions} to the name server; {soundings} soundings of the C library, which send nothing"
        );
        println!("accepted by listeners: {}; tunnels through a proxy, to addresses: {}", self.accepted, self.tunnels);
        println!(
            "sightings of a forbidden address: {}; of a client without a guard: {}",
            self.offences.len(),
            self.naive.len()
        );
    }
}
