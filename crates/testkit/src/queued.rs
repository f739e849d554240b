//! A server that starts with very many events queued: how soon it is ready, what it takes in memory, and how fast each endpoint is served
//! when all of them come back at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{EventNo, SortedId, time_ordered};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::{ApplicationRow, EventRow};
use countersign_store::{AnyStore, Batch, Store as _, Write};
use tokio::time::{Instant, sleep};

use crate::backing::{Backing, StoreKind};
use crate::patience::{until, until_so};
use crate::process::{Deployment, Server};
use crate::receiver::{Received, Receiver, Reply};
use crate::wire::{once, wall_ms};

/// Events of one batch.
const PORTION: usize = 1_000;
/// An event was written so long ago, in ms.
const AGE_MS: i64 = 3_600_000;
const PATIENCE: Duration = Duration::from_secs(60);
/// Attempts of one endpoint that may be under way at once. Where the server stands still, as many of earlier seconds may be stamped in one.
const AT_ONCE: usize = 8;

/// How a run is made.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Events that are queued at the start, over all endpoints.
    pub events: usize,
    /// Endpoints.
    pub endpoints: usize,
    /// Attempts a second that each endpoint may get.
    pub rate_per_s: u32,
    /// How long the endpoints are away, and how long they are watched when they are back.
    pub watched: Duration,
}

/// What a run has shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// From the start of the process until it listens.
    pub listens_in: Duration,
    /// Until `/readyz` says so.
    pub ready_in: Duration,
    /// Largest size in memory, in MiB, with all endpoints away.
    pub peak_away_mib: u64,
    /// The same at the end.
    pub peak_mib: u64,
    /// Callbacks that each endpoint got after it was back, one at least.
    pub came: Vec<usize>,
    /// The most that the server stamped for each within any second, attempts while it was away included.
    pub most_in_a_second: Vec<usize>,
}

/// Runs it.
pub async fn run(kind: StoreKind, plan: Plan) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let backing = Backing::fresh(kind).await;
    let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing)?;
    deployment.config.push_str("callback_rate_per_s = ");
    deployment.config.push_str(&plan.rate_per_s.to_string());
    deployment.config.push_str("\ncallback_concurrency_per_application = ");
    deployment.config.push_str(&AT_ONCE.to_string());
    deployment.config.push('\n');
    let mut receivers = Vec::new();
    let mut owners = Vec::new();
    let server = deployment.serve()?;
    for n in 0..plan.endpoints {
        let receiver = Receiver::start().await?;
        receiver.answer_with(Reply::Reset);
        owners.push(server.access.institution(&format!("merchant-{n}"), 0, Some(&receiver.url())).await?.client_id);
        receivers.push(receiver);
    }
    ensure!(server.terminate()?, "the server did not end with code 0 after SIGTERM");
    let store = backing.open_store(&deployment.data).await?;
    fill(&store, &owners, plan.events).await?;
    drop(store);

    let started = Instant::now();
    let server = deployment.serve()?;
    until("the server is ready", PATIENCE, async || Ok(is_ready(&server).await?.then_some(()))).await?;
    let (listens_in, ready_in) = (server.ready_in, started.elapsed());
    sleep(plan.watched).await;
    let peak_away_mib = peak_mib(&server)?;
    let back = Instant::now();
    for receiver in &receivers {
        receiver.answer_with(Reply::Success);
    }
    let came = |receiver: &Receiver| receiver.received().iter().filter(|request| request.at >= back).count();
    // How long each was left alone goes by when it was tried last.
    until_so("each is called again", PATIENCE, || receivers.iter().all(|receiver| came(receiver) > 0)).await?;
    sleep(plan.watched).await;
    let peak_mib = peak_mib(&server)?;
    server.kill();
    Ok(Report {
        listens_in,
        ready_in,
        peak_away_mib,
        peak_mib,
        came: receivers.iter().map(came).collect(),
        most_in_a_second: receivers.iter().map(|of| most_in_a_second(&of.received())).collect::<Result<_>>()?,
    })
}

/// By the server's stamps: when this process reads what came says less of when it was sent.
fn most_in_a_second(received: &[Received]) -> Result<usize> {
    let stamp = |of: &Received| of.header("x-service-timestamp").and_then(|text| text.parse::<i64>().ok());
    let mut at: Vec<i64> = received.iter().map(stamp).collect::<Option<_>>().context("each has its timestamp")?;
    at.sort_unstable();
    let until = |from: i64| at.partition_point(|at| *at < from + 1_000);
    Ok(at.iter().enumerate().map(|(n, from)| until(*from) - n).max().unwrap_or(0))
}

/// Queues events of all endpoints in turn, as they would have been written an hour ago.
async fn fill(store: &AnyStore, owners: &[String], events: usize) -> Result<()> {
    let mut applications: Vec<ApplicationRow> = Vec::new();
    for client_id in owners {
        applications.push(store.application(client_id).await?.context("an application")?.application);
    }
    let begun = wall_ms() - AGE_MS;
    let mut made = 0;
    while made < events {
        let portion = (made..events.min(made + PORTION)).filter_map(|n| {
            let of = applications.get(n % applications.len().max(1))?;
            Some((n, of))
        });
        // A batch is of one tenant.
        let mut batches: Vec<Vec<Write>> = applications.iter().map(|_| Vec::new()).collect();
        for (n, of) in portion {
            let row = event(of, n, UnixMillis(begun + i64::try_from(n / 1_000)?))?;
            batches[n % applications.len()].push(Write::EnqueueEvent(Arc::new(row)));
        }
        for batch in batches.into_iter().filter(|batch| !batch.is_empty()) {
            store.commit(Batch(batch)).await.context("events are queued")?;
        }
        made += PORTION;
    }
    Ok(())
}

fn event(of: &ApplicationRow, n: usize, at: UnixMillis) -> Result<EventRow> {
    let data = format!("{{\"orderId\":\"{n}\",\"amount\":\"12.50\",\"currency\":\"USDT\"}}");
    let body = serde_json::json!({
        "bizType": "PAYMENT_ORDER", "bizId": n.to_string(), "bizStatus": "SUCCESS", "client_id": of.client_id, "data": data,
    });
    Ok(EventRow {
        no: EventNo(time_ordered(at, u64::try_from(n)?)),
        tenant: of.tenant,
        application: of.no,
        client_id: of.client_id.clone(),
        event_id: SortedId(u128::try_from(n)? + (u128::from(at.0.unsigned_abs()) << 80)),
        seq: 0,
        sequence: 0,
        biz_type: "PAYMENT_ORDER".to_owned(),
        biz_id: n.to_string(),
        biz_status: "SUCCESS".to_owned(),
        data,
        body: serde_json::to_vec(&body)?,
        created_at: at,
        state: DeliveryState::Pending,
        attempts: 0,
        due_at: Some(at),
        behind: None,
        by_hand: false,
    })
}

async fn is_ready(server: &Server) -> Result<bool> {
    Ok(once(server.access.address, &server.access.draft("GET", "/readyz", None).bytes()).await?.status == 200)
}

/// The largest size in memory since the start, in MiB.
fn peak_mib(server: &Server) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib.div_ceil(1024))
}

impl Report {
    /// No endpoint saw more than its rate.
    pub fn rates(&self, plan: Plan) -> Result<()> {
        let rate = usize::try_from(plan.rate_per_s)?;
        let most = self.most_in_a_second.iter().max().copied().unwrap_or(0);
        ensure!(most <= rate + AT_ONCE, "an endpoint got {most} in a second, {rate} were allowed");
        Ok(())
    }

    /// The figures that are asked for.
    pub fn figures(&self) -> Result<()> {
        ensure!(self.ready_in <= Duration::from_secs(1), "ready after {:?}", self.ready_in);
        ensure!(self.peak_mib < 256, "{} MiB of memory", self.peak_mib);
        Ok(())
    }
}

/// A table for people.
pub fn print(report: &Report, plan: Plan) {
    let ms = |took: Duration| took.as_secs_f64() * 1_000.0;
    println!("{} events queued for {} endpoints, {} a second each", plan.events, plan.endpoints, plan.rate_per_s);
    println!("  listens after {:.0} ms, ready after {:.0} ms", ms(report.listens_in), ms(report.ready_in));
    println!(
        "  largest size in memory: {} MiB with all away, {} MiB at the end",
        report.peak_away_mib, report.peak_mib
    );
    let (least, most) = (report.came.iter().min().copied(), report.came.iter().max().copied());
    println!(
        "  back for {:.0} s: each endpoint got {} to {} callbacks, {} in a second at the most",
        plan.watched.as_secs_f64(),
        least.unwrap_or(0),
        most.unwrap_or(0),
        report.most_in_a_second.iter().max().copied().unwrap_or(0)
    );
}
