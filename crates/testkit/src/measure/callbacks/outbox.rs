//! The dispatcher by itself, over a store on SQLite in a process of its own: attempts that nothing records, and events that were queued.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use countersign::app::events::{self, Happening};
use countersign::app::identity::{self, NewApplication, NewMerchant, Standing};
use countersign::app::{Actor, App};
use countersign::clock::Clock;
use countersign::config::Config;
use countersign::dispatch::{DispatchSettings, Dispatcher};
use countersign::run;
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_store::Store as _;
use countersign_store::contract::{Asker, EndpointSettings, EventRow};
use tokio::task::JoinSet;
use tokio::time::interval;

use super::{APPLICATIONS, AT_ONCE, DATA};
use crate::measure::cpu_ns;

const SOON: Duration = Duration::from_secs(1);

fn actor() -> Actor {
    Actor::named("token:tok_measure")
}

/// What is measured, and whom it calls back.
struct Outbox {
    app: Arc<App>,
    dispatcher: Arc<Dispatcher>,
    clients: Vec<String>,
    /// An event of each, delivered.
    samples: Vec<EventRow>,
    made: AtomicUsize,
}

impl Outbox {
    async fn open(url: &str, data: PathBuf, extra_roots: Vec<u8>) -> Result<Self> {
        let config = Config { data, ..Config::default() };
        run::initialise(&config).await?;
        let app = Arc::new(run::open_app(&config, Clock::System, None).await?);
        let mut clients = Vec::new();
        for n in 0..APPLICATIONS {
            let name = format!("merchant-{n}");
            let ask = NewMerchant {
                merchant_id: Some(name.clone()),
                name: name.clone(),
                standing: Standing::Merchant,
                user_id: None,
            };
            identity::create_merchant(&app, &ask, &|_| None, &actor()).await?;
            let (merchant_id, endpoint) = (name.clone(), EndpointSettings::default());
            let ask = NewApplication { merchant_id, name, callback_url: Some(url.to_owned()), endpoint };
            clients.push(identity::create_application(&app, &ask, &|_| None, &actor()).await?.application.client_id);
        }
        let settings = DispatchSettings { allow_private: true, extra_roots, ..DispatchSettings::default() };
        let dispatcher = Arc::new(Dispatcher::new(app.clone(), settings)?);
        let mut outbox = Self { app, dispatcher, clients, samples: Vec::new(), made: AtomicUsize::new(0) };
        for _ in 0..APPLICATIONS {
            let sample = outbox.emit().await?;
            outbox.deliver(&sample).await?;
            outbox.samples.push(sample);
        }
        Ok(outbox)
    }

    async fn emit(&self) -> Result<EventRow> {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        let what = Happening {
            client_id: self.clients[n % self.clients.len()].clone(),
            biz_type: "PAYMENT_ORDER".to_owned(),
            biz_id: format!("{n:012}"),
            biz_status: "SUCCESS".to_owned(),
            data: DATA.to_owned(),
        };
        Ok(events::emit(&self.app, &what, &|_| None, &actor()).await?)
    }

    /// So many attempts, nothing recorded.
    async fn attempts(self: &Arc<Self>, wanted: usize) -> Result<()> {
        let each = wanted.div_ceil(AT_ONCE);
        let mut tasks = JoinSet::new();
        for n in 0..AT_ONCE {
            let outbox = self.clone();
            let event = self.samples[n % self.samples.len()].clone();
            tasks.spawn(async move {
                for _ in 0..each {
                    let outcome = outbox.dispatcher.attempt_only(&event).await?;
                    ensure!(outcome == Outcome::Delivered, "an attempt came to {}", outcome.name());
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn enqueue(self: &Arc<Self>, wanted: usize) -> Result<EventRow> {
        let mut tasks = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (outbox, each) = (self.clone(), wanted.div_ceil(AT_ONCE));
            tasks.spawn(async move {
                for _ in 1..each {
                    outbox.emit().await?;
                }
                outbox.emit().await
            });
        }
        let mut last = None;
        while let Some(ended) = tasks.join_next().await {
            last = Some(ended??);
        }
        last.context("one at least")
    }

    /// Everything that is queued.
    async fn deliver(&self, last: &EventRow) -> Result<()> {
        self.dispatcher.deliver_due(self.app.clock.now()).await;
        let (event, attempts) =
            self.app.store.event(Asker::Operator, last.event_id).await?.context("the event is there")?;
        ensure!(event.state == DeliveryState::Delivered && attempts.len() == 1, "an event was not delivered");
        Ok(())
    }
}

/// Reads lines from stdin, `attempts N` or `outbox N`, does it, and prints the CPU time that took, in ns. `certificate`: one that is trusted, too.
pub fn serve(url: &str, data: PathBuf, certificate: Option<&Path>) -> Result<()> {
    let extra_roots = certificate.map(std::fs::read).transpose()?.unwrap_or_default();
    // As `serve` has it on a machine of one core.
    let runtime = run::threads::runtime(1)?;
    let outbox = Arc::new(runtime.block_on(Outbox::open(url, data, extra_roots))?);
    // In a server something always waits for a moment soon. Where nothing does, the runtime wakes itself for each deadline that is set.
    runtime.spawn(async {
        let mut soon = interval(SOON);
        loop {
            soon.tick().await;
        }
    });
    let pid = std::process::id();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (what, wanted) = line.split_once(' ').context("what, and how many")?;
        let wanted = wanted.parse()?;
        let began;
        match what {
            "attempts" => {
                began = cpu_ns(pid);
                runtime.block_on(outbox.attempts(wanted))?;
            }
            "outbox" => {
                let last = runtime.block_on(outbox.enqueue(wanted))?;
                began = cpu_ns(pid);
                let outbox = outbox.clone();
                runtime.block_on(runtime.spawn(async move { outbox.deliver(&last).await }))??;
            }
            other => bail!("{other}: attempts or outbox"),
        }
        println!("{}", cpu_ns(pid) - began);
    }
    Ok(())
}
