//! Somebody sends bad signatures in a merchant's name, from other addresses and from the merchant's own: the merchant is served all the same.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use countersign_protocol::signing::SigningKey;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use crate::backing::{Backing, StoreKind};
use crate::patience::until;
use crate::process::Deployment;
use crate::wire::{Connection, Signer};

/// Bad signatures a second, over all attackers.
const ATTACKS_PER_S: u64 = 1_000;
/// Where they come from. The first is also one of the victim's own addresses: a neighbour behind the same gateway.
const SHARED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Each with its number of connections, which all send as often: the shared address has soon used its budget up.
const ATTACKERS: [(Ipv4Addr, u64); 4] = [
    (SHARED, 14),
    (Ipv4Addr::new(127, 0, 0, 3), 2),
    (Ipv4Addr::new(127, 0, 0, 4), 2),
    (Ipv4Addr::new(127, 0, 0, 5), 2),
];
/// Where the victim calls from.
const VICTIMS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 9), SHARED];
/// Between two requests of the victim from one address.
const VICTIM_EVERY: Duration = Duration::from_millis(20);
/// How many requests the victim sends from each of its addresses at the least, however slow the machine is.
const VICTIM_CALLS: usize = 25;
/// How much longer it may take until a budget is used up.
const PATIENCE: Duration = Duration::from_secs(60);
const TARGET: &str = "/v1/pay/events?limit=1";

/// What a run has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How long it went on, in ms.
    pub took_ms: u128,
    /// Bad signatures that were answered 401.
    pub refused: usize,
    /// Bad signatures that were answered 429: their address had no budget left.
    pub limited: usize,
    /// Of the victim's requests from an address of its own: how many succeeded, and how many there were.
    pub own: (usize, usize),
    /// The same from an address that an attacker has, too.
    pub shared: (usize, usize),
}

impl Report {
    /// Bad signatures a second.
    pub fn rate(&self) -> u128 {
        u128::try_from(1_000 * (self.refused + self.limited)).unwrap_or(0) / self.took_ms.max(1)
    }

    /// An error where the victim was refused anything, or where the attack was none: `rate_min` bad signatures a second are one.
    pub fn verdict(&self, rate_min: u128) -> Result<()> {
        let is_served = |(good, all): (usize, usize)| good == all && all > 0;
        ensure!(is_served(self.own) && is_served(self.shared), "an honest request was refused: {self:?}");
        ensure!(self.rate() >= rate_min, "only {} bad signatures a second were sent", self.rate());
        ensure!(self.limited > 0 && self.refused > 0, "no address had its budget used up: {self:?}");
        Ok(())
    }
}

#[derive(Debug, Default)]
struct Counts {
    refused: AtomicUsize,
    limited: AtomicUsize,
    other: AtomicUsize,
    /// The victim has called for long enough.
    enough: AtomicBool,
    stopped: AtomicBool,
}

/// Attacks for so long, and counts. Where the machine is slow it takes longer: until a budget is used up, half as long from then on, and until the victim has called
/// often enough from each address.
/// `settings` are further lines of the server's configuration file.
pub async fn run(kind: StoreKind, seconds: u64, settings: &str) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let backing = Backing::fresh(kind).await;
    let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing)?;
    // As for addresses from outside: loopback is exempt otherwise.
    deployment.config.push_str("limit_loopback = true\n");
    deployment.config.push_str(settings);
    let server = deployment.serve()?;
    let victim = Arc::new(server.access.institution("victim", 0, None).await?);
    let (counts, began) = (Arc::new(Counts::default()), Instant::now());
    let mut attackers = JoinSet::new();
    for (from, lines) in ATTACKERS {
        for _ in 0..lines {
            let bad =
                Signer { client_id: victim.client_id.clone(), key: SigningKey::new(b"guessed"), merchant_id: None };
            attackers.spawn(attack(server.listen, from, bad, counts.clone()));
        }
    }
    let [own, shared] = VICTIMS.map(|from| tokio::spawn(call(server.listen, from, victim.clone(), counts.clone())));
    let least = Duration::from_secs(seconds);
    let is_limited = async || Ok((counts.limited.load(Ordering::SeqCst) > 0).then_some(()));
    // Where none is, the verdict says so.
    if until("a budget is used up", least + PATIENCE, is_limited).await.is_ok() {
        sleep_until((began + least).max(Instant::now() + least / 2)).await;
    }
    counts.enough.store(true, Ordering::SeqCst);
    let (own, shared) = (own.await??, shared.await??);
    counts.stopped.store(true, Ordering::SeqCst);
    while let Some(ended) = attackers.join_next().await {
        ended?.context("an attacker could not go on")?;
    }
    ensure!(counts.other.load(Ordering::SeqCst) == 0, "a bad signature was answered with neither 401 nor 429");
    let took_ms = began.elapsed().as_millis();
    ensure!(server.terminate()?, "the server did not end with code 0 after SIGTERM");
    Ok(Report {
        took_ms,
        refused: counts.refused.load(Ordering::SeqCst),
        limited: counts.limited.load(Ordering::SeqCst),
        own,
        shared,
    })
}

async fn attack(listen: SocketAddr, from: Ipv4Addr, bad: Signer, counts: Arc<Counts>) -> Result<()> {
    let lines: u64 = ATTACKERS.iter().map(|(_, lines)| lines).sum();
    let mut ticks = interval(Duration::from_micros(1_000_000 * lines / ATTACKS_PER_S));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut connection = Connection::open_from(IpAddr::V4(from), listen).await?;
    while !counts.stopped.load(Ordering::SeqCst) {
        ticks.tick().await;
        let answer = connection.send(&bad.draft("GET", TARGET, b"").bytes()).await?;
        let count = match (answer.status, answer.code().as_str()) {
            (401, "400002") => &counts.refused,
            (429, "400429") => &counts.limited,
            _ => &counts.other,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

/// Successes and requests of the victim.
async fn call(listen: SocketAddr, from: Ipv4Addr, victim: Arc<Signer>, counts: Arc<Counts>) -> Result<(usize, usize)> {
    let mut ticks = interval(VICTIM_EVERY);
    let (mut good, mut all) = (0, 0);
    let mut connection = Connection::open_from(IpAddr::V4(from), listen).await?;
    while all < VICTIM_CALLS || !counts.enough.load(Ordering::SeqCst) {
        ticks.tick().await;
        let answer = connection.send(&victim.draft("GET", TARGET, b"").bytes()).await?;
        good += usize::from(answer.code() == "000000");
        all += 1;
    }
    Ok((good, all))
}

/// Prints a report, and what it comes to.
pub fn print(report: &Report) {
    let rate = report.rate();
    println!("bad signatures                {rate} a second, {} of them 401, {} 429", report.refused, report.limited);
    println!("the victim's own address      {} of {} succeeded", report.own.0, report.own.1);
    println!("an address that they share    {} of {} succeeded", report.shared.0, report.shared.1);
}
