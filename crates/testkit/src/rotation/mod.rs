//! Payment API Secrets are rotated while requests are signed and callbacks go out. Each merchant changes the secret that it signs with, and the one that its
//! receiver verifies with, at moments of its own in the overlap; an operator switches callbacks at another, or nobody does.
//!
//! What must hold: no honest request is refused, no callback fails at a receiver that knows one secret at a time, and after the end
//! the old secret is refused.

mod shop;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::backing::{Backing, StoreKind};
use crate::dice::Dice;
use crate::operator::OperatorAccess;
use crate::patience::until;
use crate::process::{Deployment, Server};
use crate::wire::{once, wall_ms};
use shop::{Front, Shop};

/// How long both secrets are good.
const OVERLAP: Duration = Duration::from_secs(6);
/// Whoever changes his secret has done so by then: a request that is signed with the old one shall be there before its end.
const LATEST_MS: i64 = 5_500;
/// No node signs as before a rotation or a switch any more: it has heard of it by then, also from another one. A receiver that knows one secret at a
/// time changes it no sooner after the rotation.
const SETTLED_MS: i64 = 2_500;
/// Nobody's clock is further from this one's: what must hold from a moment on may hold so much sooner.
const APART_MS: i64 = 500;
const SETTLED: Duration = Duration::from_millis(SETTLED_MS.unsigned_abs());
/// For what must happen: far longer than it takes.
const SOON: Duration = Duration::from_secs(60);

/// What a run has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Nodes that served.
    pub nodes: usize,
    /// Applications, each with its own load and receiver.
    pub applications: usize,
    /// Rotations made.
    pub rotations: usize,
    /// Of these, how many had their callbacks switched by an operator within the overlap.
    pub switched: usize,
    /// Signed requests that were answered with success; no other answer was.
    pub requests: usize,
    /// Callbacks that a receiver verified at their first attempt; none failed.
    pub callbacks: usize,
    /// Requests signed with a secret after its end, all refused.
    pub refused_after_the_end: usize,
}

/// Rotates every secret of `applications` applications so many times, at moments that `seed` draws.
pub async fn run(kind: StoreKind, rounds: usize, applications: usize, seed: u64) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let backing = Backing::fresh(kind).await;
    let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing)?;
    deployment.config.push_str("rate_limit_per_s = 0\n");
    let mut servers = vec![deployment.serve()?];
    if kind == StoreKind::Postgres {
        servers.push(deployment.join(&folder.path().join("node2"))?.serve()?);
    }
    let access = servers[0].access.clone();
    let front = Front::open().await?;
    let mut shops = Vec::new();
    for n in 0..applications {
        let shop = Arc::new(Shop::furnish(&access, n, &front).await?);
        front.take_in(&shop);
        shops.push(shop);
    }
    let mut load = start(&servers, &shops);
    let mut report = Report { nodes: servers.len(), applications, ..Report::default() };
    let mut dice = Dice::new(seed);
    for round in 0..rounds {
        let mut rotations = JoinSet::new();
        for (n, shop) in shops.iter().enumerate() {
            let rotation = Rotation {
                by_hand: (n + round) % 2 == 0,
                access: access.clone(),
                shop: shop.clone(),
                dice: dice.fork(),
            };
            rotations.spawn(rotation.run(servers.iter().map(|server| server.listen).collect()));
        }
        while let Some(done) = rotations.join_next().await {
            let done = done.context("a rotation ended")??;
            report.rotations += 1;
            report.switched += usize::from(done.by_hand);
            report.refused_after_the_end += done.refused;
        }
    }
    for shop in &shops {
        shop.stop();
    }
    while load.join_next().await.is_some() {}
    for shop in &shops {
        judge(shop, &mut report).await?;
    }
    for server in servers {
        ensure!(server.terminate()?, "a server did not end with code 0 after SIGTERM");
    }
    Ok(report)
}

/// Everybody sends to every node.
fn start(servers: &[Server], shops: &[Arc<Shop>]) -> JoinSet<()> {
    let mut load = JoinSet::new();
    for (n, shop) in shops.iter().enumerate() {
        for server in servers {
            load.spawn(shop.clone().send(server.listen));
        }
        load.spawn(shop.clone().emit(servers[n % servers.len()].access.clone()));
    }
    load
}

/// Waits until every event was delivered, and counts.
async fn judge(shop: &Shop, report: &mut Report) -> Result<()> {
    ensure!(shop.refused().is_empty(), "an honest request was refused: {:?}", shop.refused().first());
    let owed = shop.emitted();
    let all = async || Ok((shop.verified() >= owed || !shop.failed().is_empty()).then_some(()));
    until("every callback", SOON, all).await?;
    ensure!(shop.failed().is_empty(), "a callback failed at its receiver: {:?}", shop.failed().first());
    ensure!(owed > 0 && shop.answered() > 0, "an application without load");
    report.requests += shop.answered();
    report.callbacks += shop.verified();
    Ok(())
}

/// One rotation of one application's secret.
struct Rotation {
    by_hand: bool,
    access: OperatorAccess,
    shop: Arc<Shop>,
    dice: Dice,
}

/// What came of it.
struct Rotated {
    by_hand: bool,
    refused: usize,
}

impl Rotation {
    async fn run(mut self, listeners: Vec<std::net::SocketAddr>) -> Result<Rotated> {
        let path = format!("/applications/{}/secrets", self.shop.client_id);
        let (began, began_ms) = (Instant::now(), wall_ms());
        let made = self.access.provision("POST", &path, json!({"overlap_s": OVERLAP.as_secs()})).await?;
        let overlap_ms = i64::try_from(OVERLAP.as_millis())?;
        let (ended, made_ms) = (Instant::now() + OVERLAP, wall_ms());
        ensure!(made["old_secrets_end_at"].is_string(), "a rotation says when the old secret ends");
        let secret = made["payment_api_secret"].as_str().context("it is shown once")?.to_owned();
        let id = made["secret_id"].as_str().context("an id")?.to_owned();
        let before = self.shop.replace(&secret, began + OVERLAP);
        let mut moment = |from: i64| self.dice.between(from, LATEST_MS);
        let (signs, verifies, switches) = (moment(0), moment(SETTLED_MS), moment(0));
        let after = |ms: i64| began + Duration::from_millis(ms.unsigned_abs());
        let old = self.shop.signer();
        self.shop.verify_with(&secret, (began_ms + verifies).max(made_ms + SETTLED_MS));
        let signing = async {
            sleep_until(after(signs)).await;
            self.shop.sign_with(&secret);
        };
        let switching = async {
            if self.by_hand {
                sleep_until(after(switches)).await;
                self.shop.signed_first_by(&[&before, &secret], wall_ms() - APART_MS);
                self.access.provision("POST", &format!("{path}/{id}/use-for-callbacks"), json!({})).await?;
                self.shop.signed_first_by(&[&secret], wall_ms() + SETTLED_MS);
            } else {
                // Nobody says so: the end of the old one does.
                self.shop.signed_first_by(&[&before, &secret], began_ms + overlap_ms - APART_MS);
                self.shop.signed_first_by(&[&secret], made_ms + overlap_ms + SETTLED_MS);
            }
            anyhow::Ok(())
        };
        let ((), switched) = tokio::join!(signing, switching);
        switched?;
        sleep_until(ended).await;
        for listen in &listeners {
            let answer = once(*listen, &old.draft("GET", shop::TARGET, b"").bytes()).await?;
            ensure!(answer.code() == "400002", "after its end a secret came to {} {}", answer.status, answer.json());
        }
        // Some are sent that only the new one may have signed.
        sleep(SETTLED).await;
        Ok(Rotated { by_hand: self.by_hand, refused: listeners.len() })
    }
}

/// Prints a report.
pub fn print(report: &Report) {
    println!("nodes, applications                     {}, {}", report.nodes, report.applications);
    println!("rotations under load                    {}", report.rotations);
    println!("callbacks switched by an operator       {}", report.switched);
    println!("signed requests, none refused           {}", report.requests);
    println!("callbacks verified, none failed         {}", report.callbacks);
    println!("after the end of a secret, all refused  {}", report.refused_after_the_end);
}
