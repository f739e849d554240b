//! The behaviours, each with an application of its own and one attempt after the other through the dispatcher.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use countersign::app::events::{self, Happening};
use countersign::app::identity::{self, NewApplication, NewMerchant, Standing};
use countersign::app::{Actor, App};
use countersign::clock::Clock;
use countersign::config::Config;
use countersign::dispatch::{DispatchSettings, Dispatcher};
use countersign::run as server;
use countersign_domain::ids::SortedId;
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::attempt_log::AttemptBytes;
use countersign_store::contract::{Asker, AttemptRow, EndpointSettings, EventRow};
use tempfile::TempDir;

use super::{Behaviour, Endpoint};
use crate::backing::Backing;

/// Of each attempt in the command.
const DEADLINE: Duration = Duration::from_millis(500);
/// What an attempt may take beyond it, and what the process may grow by, in the command: where nothing else runs.
const GRACE: Duration = Duration::from_millis(100);
const GROWTH_KIB_MAX: i64 = 1_024;
/// No lane is lost by time.
const LEASE: Duration = Duration::from_secs(60);
/// 2026-01-01T00:00:00Z.
const START: UnixMillis = UnixMillis(1_767_225_600_000);

/// What was recorded of a behaviour.
#[derive(Debug)]
pub struct Made {
    /// How it behaved.
    pub behaviour: Behaviour,
    /// The event as it stands.
    pub event: EventRow,
    /// Its attempts.
    pub attempts: Vec<AttemptRow>,
    /// What went over the wire in the last one.
    pub bytes: Option<AttemptBytes>,
}

/// Endpoints that behave, applications that call them back, and a clock that a test moves.
#[derive(Debug)]
pub struct Stage {
    app: Arc<App>,
    dispatcher: Arc<Dispatcher>,
    cast: Vec<(Behaviour, Endpoint, String, Vec<SortedId>)>,
    _folder: TempDir,
    _backing: Backing,
}

fn actor() -> Actor {
    Actor::named("token:tok_test")
}

impl Stage {
    /// Starts them all; no event is written yet.
    pub async fn set(behaviours: Vec<Behaviour>, backing: Backing, deadline: Duration) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut config = Config { data: folder.path().join("data"), ..Config::default() };
        backing.lay(&mut config);
        server::initialise(&config).await?;
        let app = Arc::new(server::open_app(&config, Clock::manual(START), None).await?);
        let mut cast = Vec::new();
        let mut trusted = String::new();
        for behaviour in behaviours {
            let endpoint = Endpoint::start(&behaviour.does).await?;
            trusted.push_str(endpoint.trusted().unwrap_or_default());
            let client_id = application(&app, endpoint.url()).await?;
            cast.push((behaviour, endpoint, client_id, Vec::new()));
        }
        let settings = DispatchSettings {
            allow_private: true,
            connect_timeout: deadline,
            deadline,
            lease: LEASE,
            extra_roots: trusted.into_bytes(),
            ..DispatchSettings::default()
        };
        let dispatcher = Arc::new(Dispatcher::new(app.clone(), settings)?);
        Ok(Self { app, dispatcher, cast, _folder: folder, _backing: backing })
    }

    /// How many they are.
    pub fn size(&self) -> usize {
        self.cast.len()
    }

    /// Writes an event for this one.
    pub async fn emit(&mut self, at: usize) -> Result<()> {
        let (behaviour, _, client_id, ids) = &mut self.cast[at];
        let what = Happening {
            client_id: client_id.clone(),
            biz_type: "PAYMENT_ORDER".to_owned(),
            biz_id: format!("{} {}", behaviour.name, ids.len()),
            biz_status: "SUCCESS".to_owned(),
            data: r#"{"merchantTradeNo":"M-1"}"#.to_owned(),
        };
        ids.push(events::emit(&self.app, &what, &|_| None, &actor()).await?.event_id);
        Ok(())
    }

    /// Makes all attempts that are due by the clock: how many they were.
    pub async fn deliver(&self) -> usize {
        self.dispatcher.deliver_due(self.now()).await
    }

    /// The clock's time.
    pub fn now(&self) -> UnixMillis {
        self.app.clock.now()
    }

    /// Moves the clock to an instant.
    pub fn move_to(&self, at: UnixMillis) {
        self.app.clock.advance_ms(at.0 - self.now().0);
    }

    /// What was recorded of its last event.
    pub async fn made(&self, at: usize) -> Result<Made> {
        let (behaviour, _, _, ids) = &self.cast[at];
        let id = *ids.last().context("an event was written")?;
        let (event, attempts) = self.app.store.event(Asker::Operator, id).await?.context("the event is there")?;
        let bytes = match attempts.last() {
            Some(last) => self.app.store.attempt_bytes(event.tenant, event.no, last.attempt, last.at).await?,
            None => None,
        };
        Ok(Made { behaviour: behaviour.clone(), event, attempts, bytes })
    }
}

async fn application(app: &App, url: &str) -> Result<String> {
    let ask =
        NewMerchant { merchant_id: None, name: "A merchant".to_owned(), standing: Standing::Merchant, user_id: None };
    let merchant = identity::create_merchant(app, &ask, &|_| None, &actor()).await?;
    let ask = NewApplication {
        merchant_id: merchant.merchant_id,
        name: "An application".to_owned(),
        callback_url: Some(url.to_owned()),
        endpoint: EndpointSettings::default(),
    };
    Ok(identity::create_application(app, &ask, &|_| None, &actor()).await?.application.client_id)
}

/// What is wrong with the last attempt; none: it is what it must be.
pub fn fault(made: &Made) -> Option<String> {
    let Made { behaviour, attempts, .. } = made;
    let Some(last) = attempts.last() else { return Some("no attempt".to_owned()) };
    let is_named = (last.outcome, last.http_status) == (behaviour.outcome, behaviour.status);
    let is_told = last.detail.contains(behaviour.detail) && last.detail.is_empty() == behaviour.detail.is_empty();
    let found = || format!("{} {:?} {:?}", last.outcome.name(), last.http_status, last.detail);
    (!is_named || !is_told).then(found)
}

/// A figure of this process in KiB, as the kernel knows it.
fn memory_kib(name: &str) -> Result<i64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("the kernel says so")?;
    Ok(line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse()?)
}

/// The one with this number after a plain success, in a process that has done nothing else: outcome, time and memory, printed. Fails where it
/// is not what it must be, is late or grows too much.
pub async fn run(at: usize) -> Result<()> {
    let behaviour = super::all().into_iter().nth(at).context("there is no such behaviour")?;
    let named =
        |name: &str| super::all().into_iter().find(|other| other.name == name).context("a behaviour to begin with");
    let handshake = super::HANDSHAKES.into_iter().find(|name| *name != behaviour.name).context("a handshake")?;
    let mut stage =
        Stage::set(vec![named(super::PLAIN)?, named(handshake)?, behaviour], Backing::sqlite(), DEADLINE).await?;
    // What is made at the first attempt of all, and at the first handshake of all, is no growth.
    for first in 0..2 {
        stage.emit(first).await?;
    }
    ensure!(stage.deliver().await == 2, "two are due");
    stage.emit(2).await?;
    fs::write("/proc/self/clear_refs", "5").context("the kernel forgets the largest size so far")?;
    let before = memory_kib("VmRSS")?;
    ensure!(stage.deliver().await == 1, "one is due");
    let grew = memory_kib("VmHWM")? - before;
    match print(&stage.made(2).await?, grew) {
        Some(wrong) => bail!("{wrong}"),
        None => Ok(()),
    }
}

/// Prints a line; what is wrong with it.
fn print(made: &Made, grew_kib: i64) -> Option<String> {
    let name = made.behaviour.name;
    let Some(last) = made.attempts.last() else { return Some(format!("{name}: no attempt")) };
    let took = Duration::from_micros(last.phases.total_us.unwrap_or_default().unsigned_abs());
    let status = last.http_status.map_or_else(|| "-".to_owned(), |status| status.to_string());
    let (outcome, detail, took_ms) = (last.outcome.name(), &last.detail, took.as_secs_f64() * 1_000.0);
    println!("{name:<36} {outcome:<15} {status:>6} {took_ms:>6.1} ms {grew_kib:>6} KiB  {detail}");
    if let Some(fault) = fault(made) {
        return Some(format!("{name}: {fault}"));
    }
    if took > DEADLINE + GRACE {
        return Some(format!("{name}: took {took:?}"));
    }
    (grew_kib > GROWTH_KIB_MAX).then(|| format!("{name}: grew by {grew_kib} KiB"))
}
