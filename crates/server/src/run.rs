//! From settings to a running server, and back to silence.
//!
//! `serve`, the demo and in-process tests all start here.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::Router;
use countersign_protocol::headers::Prefixes;
use countersign_store::nodes::NodeId;
use countersign_store::{AnyStore, Store as _};
use hyper::service::service_fn;
use hyper::{Request, Response};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::app::uses::{self};
use crate::app::{App, Nodes, Parts, delivery, rates, retention, token_ends};
use crate::clock::Clock;
use crate::config::Config;
use crate::datadir::{self, DataDir, DataLock};
use crate::dispatch::Dispatcher;
use crate::dispatch::egress::Egress;
use crate::edges::IntakeLimits;
use crate::listen::{self, AddressLimit, ListenSettings, RequestLimit, Upload};
use crate::log::{LogGuard, LogSink};
use crate::merchant::{Answer, Budget, Edge, EdgeSettings};
use crate::operator::{Desk, Entrance, Gate, OperatorSettings};
use crate::process::{self, Places};
use crate::source::Sources;
use crate::vault::Vault;
use crate::{keys, meters, operator};

pub mod backup;
pub mod before_upgrade;
mod certificate;
pub mod chain;
pub mod dangers;
mod database;
pub mod deployment_settings;
mod dispatching;
pub mod durability;
mod housekeeping;
mod initialise;
mod listening;
mod machine;
pub mod missing_deployment;
mod needs;
mod nodes;
mod recover;
mod server_tasks;
mod stop;
pub mod threads;
mod timeline;
mod trials;
mod way_out;

use certificate::Renewal;
pub(crate) use database::Opening;
pub use database::{
    Database, cannot_be_used, cause, close_store, demand_not_moved, moved_away, nameless_boot, open_store,
    open_store_unserved, postgres_cannot_be_used, postgres_options, sqlite_options,
};
pub use initialise::{Initialised, Prepared, initialise, prepare};
use listening::Listening;
pub use machine::Machine;
pub use missing_deployment::{command, demand_database, demand_deployment, folder, is_bare, misled};
use needs::Needs;
pub use nodes::clock_ahead_ms;
pub use recover::{Recovered, recover};
use server_tasks::ServerTasks;
pub use way_out::{callback_roots, way_out};

/// How often nonces that can no longer be accepted are forgotten, and meters and budgets are tidied.
const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(5);
/// How long a connection for health may ask nothing, or not take its answer.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest body of a call of the operator API, in bytes, whatever a merchant may send.
const OPERATOR_BODY_BYTES_MAX: usize = 64 * 1024;
/// Beyond the drain: for the dispatcher's attempts under way and the store's last commit.
const STOP_MARGIN: Duration = Duration::from_millis(500);

/// A server that runs until it is told to stop.
#[derive(Debug)]
pub struct Running {
    /// Where merchants call: the real address.
    pub listen: SocketAddr,
    /// Where operators call: the real address.
    pub operator_listen: SocketAddr,
    /// Where load balancers and Prometheus ask, if that is a place of its own: the real address.
    pub health_listen: Option<SocketAddr>,
    /// The deployment behind both.
    pub app: Arc<App>,
    certificate: Option<Renewal>,
    shutdown: watch::Sender<bool>,
    /// True when neither listener answers anybody any more.
    silent: watch::Receiver<bool>,
    tasks: ServerTasks,
    stop_delay: Duration,
    drain: Duration,
    log_guard: Option<LogGuard>,
    _lock: DataLock,
}

/// What tests put in the place of the machine's.
#[derive(Debug)]
pub struct Surroundings {
    /// Where the time comes from.
    pub clock: Clock,
    /// Where request lines go.
    pub log: LogSink,
}

/// Starts everything that `config` describes; request lines go to stderr.
pub async fn start(config: Config) -> anyhow::Result<Running> {
    let (log, guard) = LogSink::start(std::io::stderr()).context("the log cannot be started")?;
    let mut running = start_in(config, Surroundings { clock: Clock::System, log }).await?;
    running.log_guard = Some(guard);
    Ok(running)
}

/// Starts everything that `config` describes in the given surroundings.
pub async fn start_in(config: Config, surroundings: Surroundings) -> anyhow::Result<Running> {
    let data = folder_to_serve(&config)?;
    let lock = data.lock()?;
    warn_of_danger(&config, &data)?;
    demand_deployment(&config, &data).await?;
    let vault = keys::vault(&config, &data)?;
    before_upgrade::compare(&config, &data, &vault).await?;
    // Boxed: it is there through all that is waited for until the server begins.
    let needs = Box::new(Needs::of(&config, &data)?);
    let store = open_store(&config, &data).await?;
    deployment_settings::compare(&config, &vault, &store).await?;
    let app = Arc::new(make_app(&config, vault, store, surroundings.clock)?);
    nodes::first_time(&app.store, &app.clock).await?;
    chain::take_up(&data, &app.vault, &app.store).await?;
    let handle = meters::install().context("the meters cannot be started")?;
    app.begin().await?;
    let Needs { certificate, tls, mut dispatch, node, doors } = *needs;
    let listeners = doors.open()?;
    let (listen, operator_listen, health_listen) = listeners.addresses()?;

    let edge = Arc::new(open_edge(&config, app.clone(), surroundings.log.clone())?);
    dispatch.who = nodes::who(&app, node, listen, &config);
    let egress = dispatch.egress();
    app.node.serves(node);
    let dispatcher = Arc::new(Dispatcher::new(app.clone(), dispatch)?);
    let operator = operator_settings(&config, egress, dispatcher.clone(), handle.clone(), surroundings.log)?;
    let gate = operator.gate.clone();
    let entrance = Entrance { request_limit: request_limit(&config), sources: operator.sources.clone() };
    let desk = Desk::new(app.clone(), operator)?;
    let settings = listen_settings(&config, tls, app.clock.clone());
    let for_operators = for_operators(&config, settings.clone(), operator_listen);
    let (shutdown, ended) = watch::channel(false);
    let (listening, silent) = Listening::begin();
    // Other nodes see this one before it answers anybody, if the database takes its first heartbeat.
    Box::pin(dispatcher.join()).await;
    let mut tasks = ServerTasks::new();
    let for_merchants = serve_merchants(listeners.merchants, settings.clone(), edge.clone(), ended.clone());
    tasks.start("merchant listener", listening.clone().while_it_runs(for_merchants));
    let (router, operators) = (operator::router(&desk), listeners.operators);
    let for_operators = serve_operators(operators, for_operators, router, entrance, ended.clone());
    tasks.start("operator listener", listening.while_it_runs(for_operators));
    if let Some(listener) = listeners.health {
        tasks.start("health listener", serve_health(listener, &config, settings, &desk, ended.clone()));
    }
    tasks.start("dispatcher", dispatcher.run(ended.clone(), silent.clone()));
    tasks.start("upkeep of meters", housekeeping::keep_small(edge, gate, handle, ended.clone()));
    start_upkeep(&mut tasks, &app, &ended);
    tasks.start("note of backups", backup::watch_note(data.clone(), ended.clone()));
    if let Some(renewal) = &certificate {
        tasks.start("certificate", renewal.clone().watch(app.clock.clone(), ended.clone()));
    }
    if app.store.is_shared() {
        start_beside_others(&mut tasks, &app, data, (node, &ended, &silent));
    }
    let (stop_delay, drain) = (config.limits.stop_delay.0, config.limits.drain_timeout.0);
    Ok(Running {
        listen,
        operator_listen,
        health_listen,
        app,
        certificate,
        shutdown,
        silent,
        tasks,
        stop_delay,
        drain,
        log_guard: None,
        _lock: lock,
    })
}

/// What is done for the store, whoever asks.
fn start_upkeep(tasks: &mut ServerTasks, app: &Arc<App>, ended: &watch::Receiver<bool>) {
    tasks.start("watch over the disk", durability::watch(app.clone(), ended.clone()));
    tasks.start("watch over held callbacks", delivery::watch(app.clone(), ended.clone()));
    tasks.start("housekeeping", housekeeping::forget_what_is_old(app.clone(), ended.clone()));
    tasks.start("look-ups beside", housekeeping::look_up_callers(app.clone(), ended.clone()));
    tasks.start("retention", retention::keep(app.clone(), ended.clone()));
    tasks.start("watch over rates", rates::watch(app.clone(), ended.clone()));
    tasks.start("notes of uses", note_uses(app.clone(), ended.clone()));
    tasks.start("watch over tokens", token_ends::watch(app.clone(), ended.clone()));
    tasks.start("trials of the store", trials::watch(app.clone(), ended.clone()));
}

/// What is done because other nodes are there, or may be.
fn start_beside_others(
    tasks: &mut ServerTasks,
    app: &Arc<App>,
    data: DataDir,
    (node, ended, silent): (NodeId, &watch::Receiver<bool>, &watch::Receiver<bool>),
) {
    tasks.start("note of the timeline", timeline::watch(app.clone(), data, ended.clone()));
    tasks.start("database's time", nodes::keep_time(app.clone(), silent.clone()));
    tasks.start("watch over applications", nodes::watch_directory(app.clone(), node, silent.clone()));
}

/// The data folder, where there is something to serve.
fn folder_to_serve(config: &Config) -> anyhow::Result<DataDir> {
    let database = Database::of(config)?;
    let data = folder(config)?;
    data.demand_closed()?;
    if database == Database::Sqlite {
        demand_database(config, &data)?;
    }
    Ok(data)
}

/// Says in the log what is allowed and dangerous; `doctor` says the same.
fn warn_of_danger(config: &Config, data: &DataDir) -> anyhow::Result<()> {
    if data.is_open_to_others()? {
        let folder = data.path().display();
        tracing::warn!("The data folder {folder} may be entered by its group: run `chmod 700 {folder}`");
    }
    if let Some(key) = config.tls.key.get()
        && let Ok(mode) = datadir::mode_of(key)
        && datadir::is_open_to_others(mode)
    {
        let key = key.display();
        tracing::warn!("The key of the certificate may be read by others (mode {mode:03o}): run `chmod 600 {key}`");
    }
    if let Some(told) = nameless_boot(config) {
        tracing::warn!("This machine's boot has no name: {told}");
    }
    for danger in dangers::unsafe_settings(config) {
        tracing::warn!("Less safe than it could be: {danger}");
    }
    Ok(())
}

impl Running {
    /// Reads the certificate of the listeners again. Answers whether there is one.
    pub fn renew_certificate(&self) -> bool {
        self.certificate.as_ref().inspect(|renewal| renewal.asked.notify_one()).is_some()
    }

    /// Waits until a part of the server has broken: its name. The others go on, but the process should not.
    pub async fn broken(&self) -> &'static str {
        tokio::select! {
            part = self.tasks.broken() => part,
            part = self.app.store.broken() => part,
        }
    }
}

/// The use cases over the store of a data folder, without listeners or dispatcher. `group_max` is the most batches that the
/// writer takes at once; none is the shipped setting. For measurements and tests: the folder is not locked.
pub async fn open_app(config: &Config, clock: Clock, group_max: Option<usize>) -> anyhow::Result<App> {
    open_app_with(config, clock, Opening { group_max, ..Opening::default() }).await
}

/// The same with more that a test wants otherwise.
pub(crate) async fn open_app_with(config: &Config, clock: Clock, opening: Opening) -> anyhow::Result<App> {
    let data = DataDir::open(&config.data)?;
    let vault = keys::vault(config, &data)?;
    let store = database::open_store_with(config, &data, opening).await?;
    deployment_settings::compare(config, &vault, &store).await?;
    let app = make_app(config, vault, store, clock)?;
    chain::take_up(&data, &app.vault, &app.store).await?;
    app.begin().await?;
    Ok(app)
}

/// The merchant listener's answers over `app`, without its sockets. For measurements.
pub fn open_edge(config: &Config, app: Arc<App>, log: LogSink) -> anyhow::Result<Edge> {
    Ok(Edge::new(app, edge_settings(config)?, log)?)
}

fn make_app(config: &Config, vault: Vault, store: AnyStore, clock: Clock) -> anyhow::Result<App> {
    // A clock that a test moves stays; the machine's gives way to the one that all nodes share.
    let clock = match clock {
        Clock::System if store.is_shared() => Clock::shared(),
        clock => clock,
    };
    let unknown = || anyhow!("rule_timezone: {:?} is no IANA time zone", config.rule_timezone);
    let policy = config.policy().ok_or_else(unknown)?;
    let nodes = if store.is_shared() { Nodes::Many } else { Nodes::One };
    Ok(App::new(Parts { store, clock, vault, policy }, nodes))
}

fn listen_settings(config: &Config, tls: Option<Arc<rustls::ServerConfig>>, clock: Clock) -> ListenSettings {
    let (limits, places) = (&config.limits, places(config).merchants);
    ListenSettings {
        tls,
        plain_too: false,
        connections_max: places,
        per_address: address_limit(config, places),
        head_timeout: limits.head_timeout.0,
        handshake_timeout: limits.tls_handshake_timeout.0,
        drain: limits.drain_timeout.0,
        clock,
        ..ListenSettings::default()
    }
}

fn places(config: &Config) -> Places {
    process::allow_files(config.connections()).places()
}

/// Each listener counts its own. Where it has fewer places than the settings say, one address may have a quarter of them.
fn address_limit(config: &Config, places: usize) -> Arc<AddressLimit> {
    let (share, quarter) = (config.limits.connections_per_address, (places / 4).max(1));
    let share = if places < config.limits.connections { share.min(quarter) } else { share };
    Arc::new(AddressLimit::new(share, config.trusted_networks(), config.limit_loopback))
}

/// As many requests over HTTP/2 as connections, and for each address the same share: whoever is served over HTTP/1 is bounded alike.
fn request_limit(config: &Config) -> Arc<RequestLimit> {
    Arc::new(RequestLimit::new(config.limits.connections, address_limit(config, config.limits.connections)))
}

fn prefixes(config: &Config) -> anyhow::Result<Prefixes> {
    Prefixes::new(&config.header_prefixes).map_err(|refused| anyhow!("header_prefixes: {refused}"))
}

fn intake_limits(config: &Config) -> IntakeLimits {
    let limits = &config.limits;
    IntakeLimits {
        body_bytes_max: limits.body_bytes,
        line_bytes_max: limits.request_line_bytes,
        head_bytes_max: limits.head_bytes,
        headers_max: limits.headers,
        body_timeout: limits.body_timeout.0,
    }
}

fn edge_settings(config: &Config) -> anyhow::Result<EdgeSettings> {
    Ok(EdgeSettings {
        prefixes: prefixes(config)?,
        limits: intake_limits(config),
        sources: Sources::behind(config.trusted_networks()),
        budget: budget(config),
        request_limit: request_limit(config),
    })
}

fn budget(config: &Config) -> Budget {
    Budget { per_s: config.failed_auth_per_s, burst: config.failed_auth_burst, limit_loopback: config.limit_loopback }
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Answer>, Infallible>> + Send>>;

async fn serve_merchants(
    listener: TcpListener,
    settings: ListenSettings,
    edge: Arc<Edge>,
    ended: watch::Receiver<bool>,
) {
    let service_for = |peer: IpAddr| {
        let edge = edge.clone();
        service_fn(move |request: Request<Upload>| {
            // At once: of what is turned away no task holds the head, nor the room that an answer would need.
            match edge.admit(request, peer) {
                Ok(admitted) => {
                    let edge = edge.clone();
                    Box::pin(async move { Ok(edge.answer(admitted).await) }) as Answering
                }
                Err(refusal) => Box::pin(std::future::ready(Ok(*refusal))),
            }
        })
    };
    listen::serve(listener, settings, service_for, ended).await;
}

/// Operators on this machine may leave TLS out: the certificate is for the name that merchants call.
fn for_operators(config: &Config, settings: ListenSettings, address: SocketAddr) -> ListenSettings {
    let places = places(config).operators;
    let plain_too = address.ip().to_canonical().is_loopback();
    ListenSettings { plain_too, connections_max: places, per_address: address_limit(config, places), ..settings }
}

/// Plain HTTP, and places of its own: who fills it takes none from merchants or operators, nor they from it. Whoever asks nothing or takes no answer does not keep
/// a place for long.
fn serve_health(
    listener: TcpListener,
    config: &Config,
    settings: ListenSettings,
    desk: &Arc<Desk>,
    ended: watch::Receiver<bool>,
) -> impl Future<Output = ()> + use<> {
    let places = config.health_connections();
    let per_address = || address_limit(config, places);
    let request_limit = Arc::new(RequestLimit::new(places, per_address()));
    let entrance = Entrance { request_limit, sources: Sources::behind(config.trusted_networks()) };
    let settings = ListenSettings {
        tls: None,
        connections_max: places,
        per_address: per_address(),
        head_timeout: settings.head_timeout.min(HEALTH_TIMEOUT),
        request_timeout: HEALTH_TIMEOUT,
        ..settings
    };
    serve_operators(listener, settings, operator::health_router(desk), entrance, ended)
}

/// Operators' listener, or that for health.
async fn serve_operators(
    listener: TcpListener,
    settings: ListenSettings,
    router: Router,
    entrance: Entrance,
    ended: watch::Receiver<bool>,
) {
    let service_for = |peer: IpAddr| operator::connection::<Upload>(&router, &entrance, peer);
    listen::serve(listener, settings, service_for, ended).await;
}

fn operator_settings(
    config: &Config,
    egress: Egress,
    dispatcher: Arc<Dispatcher>,
    metrics: PrometheusHandle,
    log: LogSink,
) -> anyhow::Result<OperatorSettings> {
    Ok(OperatorSettings {
        prefixes: prefixes(config)?,
        egress,
        sources: Sources::behind(config.trusted_networks()),
        body_bytes_max: OPERATOR_BODY_BYTES_MAX,
        body_timeout: config.limits.body_timeout.0,
        metrics,
        log,
        limits: intake_limits(config),
        is_tls: config.tls.cert.get().is_some(),
        gate: Arc::new(Gate::new(&budget(config))),
        dispatcher,
    })
}

/// Until the end: notes how often secrets and tokens were used.
async fn note_uses(app: Arc<App>, mut ended: watch::Receiver<bool>) {
    let mut ticks = tokio::time::interval(uses::NOTE_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = uses::note(&app).await {
            app.trouble.met(&format!("uses of secrets and tokens could not be noted, and are counted on: {error}"));
        }
    }
}

/// Waits for the next time; false at the end.
async fn housekeeping_is_due(ended: &mut watch::Receiver<bool>) -> bool {
    tokio::time::timeout(HOUSEKEEPING_PERIOD, ended.wait_for(|ended| *ended)).await.is_err()
}

#[cfg(test)]
mod tests;
