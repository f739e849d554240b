//! How the database is reached: its hosts in turn, the limits of time, and what every session is set to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::Severity;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Notification, Socket};

use super::PostgresOptions;
use super::address::parsed;
use super::fault::{Failure, fault, words};
use super::hosts::{Misses, each_host, guarded, unreached};
use super::incumbent::{Incumbent, LEFT_BEHIND, Office};
use super::limits::Limits;
use super::room::Room;
use super::served::Served;
use super::session::Session;
use super::tls::MakeTls;
use crate::contract::StoreError;

/// How long one address of a host may take to be reached, and how long a connection may be silent below TCP, unless the address says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a silent one is asked for a sign of life after that.
const KEEPALIVE_PERIOD: Duration = Duration::from_secs(1);
/// After a failure nobody tries again for this long: everybody hears of the failure at once.
const BACKOFF: Duration = Duration::from_millis(200);
/// What a server says to an address that no waiting makes right, by its SQLSTATE, and what to change.
const TO_CHANGE: [(&str, &str); 3] = [
    ("28P01", "put the right user and password into it"),
    ("28000", "put another user or sslmode into it, or let this one in by the server's pg_hba.conf"),
    ("3D000", "create it there, or put the name of another one into it"),
];
/// The unit of all limits: see [`Limits`].
const SECOND: Duration = Duration::from_secs(1);

/// What every session is set to. Durable commits, whatever the server's own setting (a stronger one is kept): said also where it is so already, since
/// a session that has not said it follows the server's when that is changed. Generic plans that follow
/// indexes: a plan made while a table is empty must not scan it when it has grown, nor gather and sort what an index has in order. And a server that
/// notices a client that is gone: one that vanishes within a pipeline leaves its transaction open, with its locks, and no other limit ends it.
const SETTINGS: &str = "
    SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false);
    SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 10; SET tcp_user_timeout = 30000;
    SET jit = off; SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_bitmapscan = off;
    SET default_transaction_isolation = 'read committed'; SET client_min_messages = warning;";

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// No time limit on its statements: it would also end the wait for a synchronous standby, and leave a commit that only one server has.
    Writes,
    /// With one: what nobody waits for any more ends.
    Reads,
}

/// The statements that set a session up.
fn settings(purpose: Purpose, limits: Limits) -> String {
    let statement = match purpose {
        Purpose::Writes => 0,
        Purpose::Reads => limits.statement().as_millis(),
    };
    let (lock, idle) = (limits.lock().as_millis(), limits.idle().as_millis());
    // Whoever asked may have gone: a list that nobody waits for any more ends.
    let gone = match purpose {
        Purpose::Writes => 0,
        Purpose::Reads => limits.gone().as_millis(),
    };
    format!(
        "{SETTINGS} SET statement_timeout = {statement}; SET client_connection_check_interval = {gone}; SET lock_timeout = {lock};
         SET idle_in_transaction_session_timeout = {idle}"
    )
}

/// How to reach the database.
pub(super) struct Dial {
    /// One for each host of the address, in its order.
    hosts: Vec<Config>,
    /// The host that answered last: the first to be asked.
    last: AtomicUsize,
    tls: Option<MakeTls>,
    /// How long the address says that a host may take; at least our own limit.
    asked: Duration,
    limits: Limits,
    failed: Mutex<Option<(Instant, String)>>,
    incumbent: Incumbent,
    served: Served,
    room: Room,
    /// Whether all hosts were asked, and one was connected to after that.
    has_begun: AtomicBool,
    /// Whether what is found then belongs into the log.
    tells: bool,
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts: Vec<_> = self.hosts.iter().map(Config::get_hosts).collect();
        f.debug_struct("Dial").field("hosts", &hosts).finish_non_exhaustive()
    }
}

/// Takes an address apart whose every host may be asked.
fn usable(url: &str) -> Result<Config, String> {
    let config = parsed(url)?;
    guarded(&config)?;
    each_host(&config)?;
    Ok(config)
}

/// Why an address cannot be that of a database, whether or not one is there; none: it can. Names nothing that may be part of a password.
pub fn why_not_usable(url: &str) -> Option<String> {
    usable(url).err()
}

impl Dial {
    /// Takes the address apart.
    pub(super) fn new(url: &str, tls: Option<Arc<rustls::ClientConfig>>) -> Result<Self, StoreError> {
        let unfit = |why: String| StoreError::Unfit(format!("the address of the database is not usable: {why}"));
        let mut config = usable(url).map_err(unfit)?;
        let asked = config.get_connect_timeout().copied().unwrap_or_default();
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE_TIMEOUT);
        }
        config.keepalives_idle(SILENCE_TIMEOUT).keepalives_interval(KEEPALIVE_PERIOD);
        if config.get_application_name().is_none() {
            config.application_name("countersign");
        }
        // After a failover the old address may answer, but take no writes.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let tls = match config.get_ssl_mode() {
            SslMode::Require => {
                let roots = tls.ok_or_else(|| unfit("sslmode=require, but no authorities were given".to_owned()))?;
                Some(MakeTls(roots))
            }
            _ => None,
        };
        let hosts = each_host(&config).map_err(unfit)?;
        let limits = Limits::of(SECOND);
        Ok(Self {
            hosts,
            last: AtomicUsize::new(0),
            tls,
            asked,
            limits,
            failed: Mutex::default(),
            incumbent: Incumbent::new(None),
            served: Served::new(),
            room: Room::default(),
            has_begun: AtomicBool::new(false),
            tells: false,
        })
    }

    /// As a store's options say.
    pub(super) fn of(options: &PostgresOptions) -> Result<Self, StoreError> {
        let dial = Self::new(&options.url, options.tls.clone())?;
        Ok(Self { incumbent: Incumbent::new(options.served.clone()), ..dial })
    }

    /// The same for a process that serves: its log tells of a second server that takes writes.
    #[must_use]
    pub(super) fn that_tells(self) -> Self {
        Self { tells: true, ..self }
    }

    /// The same with another unit of its limits.
    #[must_use]
    pub(super) fn within(self, unit: Duration) -> Self {
        Self { limits: Limits::of(unit), ..self }
    }

    pub(super) const fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) const fn room(&self) -> &Room {
        &self.room
    }

    pub(super) fn hosts(&self) -> &[Config] {
        &self.hosts
    }

    pub(super) fn tls(&self) -> Option<MakeTls> {
        self.tls.clone()
    }

    /// How long one host may take.
    pub(super) fn patience(&self) -> Duration {
        self.asked.max(self.limits.connect())
    }

    pub(super) const fn incumbent(&self) -> &Incumbent {
        &self.incumbent
    }

    /// Whether a connection goes to the server that takes the deployment's writes, as far as anybody here has seen.
    pub(super) fn is_in_office(&self, session: &Session) -> bool {
        self.incumbent.is_in_office(session.term())
    }

    /// From now on connections are made only to the deployment that the database holds now.
    pub(super) async fn settle(&self, client: &Client) -> Result<(), StoreError> {
        self.served.settle(client).await.map_err(fault)
    }

    /// Looks again whether a connection goes to it: a schema can be replaced under connections that stay. Where it does not, all are given up.
    pub(super) async fn still_served(&self, session: &Session) -> Result<(), StoreError> {
        let met = self.served.meets(session.client()).await.map_err(fault)?;
        met.map_err(|why| {
            self.incumbent.give_up();
            StoreError::Unavailable(why.to_owned())
        })
    }

    pub(super) const fn served(&self) -> &Served {
        &self.served
    }

    /// Hosts and database in words, without user and password.
    pub(super) fn place(&self) -> String {
        let hosts: Vec<String> = (0..self.hosts.len()).map(|host| self.place_of(host)).collect();
        let one = self.hosts.first();
        let name = one.and_then(|one| one.get_dbname().or(one.get_user())).unwrap_or_default();
        format!("{}/{name}", hosts.join(","))
    }

    /// The same of one of the hosts.
    pub(super) fn place_of(&self, host: usize) -> String {
        let config = &self.hosts[host];
        let port = config.get_ports().first().copied().unwrap_or(5432);
        match (config.get_hosts().first(), config.get_hostaddrs().first()) {
            (Some(Host::Tcp(host)), _) => format!("{host}:{port}"),
            (Some(Host::Unix(folder)), _) => folder.display().to_string(),
            (None, address) => address.map_or_else(String::new, |address| format!("{address}:{port}")),
        }
    }

    /// What some short reads on a session come to, unless the server falls silent. Making the session has limits of its own, for each host. They are
    /// boxed: no caller carries room for them while it does other things.
    pub(super) async fn in_time<T>(&self, look: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let silent = || Err(StoreError::Unavailable(Failure::silent().why));
        timeout(self.limits.commit(), look).await.unwrap_or_else(|_| silent())
    }

    /// A new connection, set up.
    pub(super) async fn session(&self) -> Result<Session, StoreError> {
        self.session_elsewhere(&[]).await
    }

    /// The same, but not to these hosts.
    pub(super) async fn session_elsewhere(&self, shunned: &[usize]) -> Result<Session, StoreError> {
        self.made(Purpose::Writes, shunned).await
    }

    /// A new connection for reads only: the server ends what takes too long.
    pub(super) async fn reading(&self) -> Result<Session, StoreError> {
        self.made(Purpose::Reads, &[]).await
    }

    async fn made(&self, purpose: Purpose, shunned: &[usize]) -> Result<Session, StoreError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, why)) = failed
            && at.elapsed() < BACKOFF
        {
            return Err(StoreError::Unavailable(why));
        }
        let made = self.connect(purpose, shunned).await;
        // A host that one writer shuns may do for everybody else.
        if shunned.is_empty() || made.is_ok() {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed = made.as_ref().err().map(|why| (Instant::now(), why.clone()));
        }
        made.map_err(StoreError::Unavailable)
    }

    /// Hears what is called out on the channels that `sql` listens to, until the connection ends: why it did. `hear` gets `None` when
    /// it has begun.
    pub(super) async fn listen(&self, sql: &str, mut hear: impl FnMut(Option<Notification>) + Send) -> String {
        let first = self.last.load(Ordering::Relaxed);
        let mut why = String::new();
        for host in (0..self.hosts.len()).map(|n| (first + n) % self.hosts.len()) {
            let (config, patience) = (&self.hosts[host], self.patience());
            let ended = match &self.tls {
                Some(tls) => listen(config, tls.clone(), patience, &self.incumbent, sql, &mut hear).await,
                None => listen(config, NoTls, patience, &self.incumbent, sql, &mut hear).await,
            };
            match ended {
                Ok(why) => return why,
                Err(unreached) => why = unreached,
            }
        }
        why
    }

    /// Asks one host after the other. Each has its own time: one that takes connections and says nothing keeps nobody from the next.
    async fn connect(&self, purpose: Purpose, shunned: &[usize]) -> Result<Session, String> {
        if !self.has_begun.load(Ordering::Acquire)
            && let Some(newest) = Box::pin(self.look_round(self.tells)).await.map_err(|why| unreached(&why))?
        {
            self.last.store(newest.host, Ordering::Relaxed);
            // Where it is refused, that is said when it is connected to.
            let _ = self.incumbent.meets(Some(newest.office));
        }
        let first = self.last.load(Ordering::Relaxed);
        let mut misses = Misses::default();
        for host in (0..self.hosts.len()).map(|n| (first + n) % self.hosts.len()) {
            let place = self.place_of(host);
            if shunned.contains(&host) {
                misses.is_away(host, place, "it still owes an answer to an earlier connection".to_owned());
                continue;
            }
            match timeout(self.patience(), self.connect_to(host, purpose)).await {
                Ok(Ok(Ok(session))) => {
                    self.last.store(host, Ordering::Relaxed);
                    self.has_begun.store(true, Ordering::Release);
                    return Ok(session);
                }
                Ok(Ok(Err(why))) => misses.is_another(host, place, why),
                Ok(Err(error)) => match change(&error) {
                    Some(change) => misses.refuses(host, place, format!("{}: {change}", words(&error))),
                    None => misses.is_away(host, place, words(&error)),
                },
                Err(_) => misses.is_away(host, place, "it takes connections, but does not answer".to_owned()),
            }
        }
        Err(misses.told())
    }

    /// An error in words where another server has taken over from that one, or it holds another deployment.
    async fn connect_to(&self, host: usize, purpose: Purpose) -> Result<Result<Session, String>, Error> {
        let config = &self.hosts[host];
        let warned = Arc::new(AtomicBool::new(false));
        let (client, connection) = match &self.tls {
            Some(tls) => connect(config, tls.clone(), Arc::clone(&warned)).await?,
            None => connect(config, NoTls, Arc::clone(&warned)).await?,
        };
        let office = Office::of(&client).await;
        // Asked before the server counts as the one in office: a server that is refused must not end the connections to the server that is in office.
        if let Err(why) = self.served.meets(&client).await? {
            return Ok(Err(why.to_owned()));
        }
        let term = match self.incumbent.meets(office) {
            Ok(term) => term,
            Err(why) => return Ok(Err(why)),
        };
        let session = Session::new(client, host, term, connection, warned);
        session.client().batch_execute(&settings(purpose, self.limits)).await?;
        Ok(Ok(session))
    }
}

/// What to change where the server does not take the address.
fn change(error: &Error) -> Option<&'static str> {
    let code = error.code()?.code();
    TO_CHANGE.iter().find(|(refused, _)| *refused == code).map(|(_, change)| *change)
}

pub(super) async fn connect<T>(
    config: &Config,
    tls: T,
    warned: Arc<AtomicBool>,
) -> Result<(Client, JoinHandle<()>), Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (client, mut connection) = config.connect(tls).await?;
    let connection = tokio::spawn(async move {
        while let Some(message) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                // Seen before the answer that it belongs to is handed on.
                Ok(AsyncMessage::Notice(notice)) => {
                    if notice.parsed_severity() == Some(Severity::Warning) {
                        warned.store(true, Ordering::SeqCst);
                    }
                    tracing::warn!(code = notice.code().code(), "The database warns: {}", notice.message());
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = %words(&error), "A connection to the database ended");
                    return;
                }
            }
        }
    });
    Ok((client, connection))
}

/// Listens to one server; an error where it was not reached.
async fn listen<T>(
    config: &Config,
    tls: T,
    patience: Duration,
    incumbent: &Incumbent,
    sql: &str,
    hear: &mut (impl FnMut(Option<Notification>) + Send),
) -> Result<String, String>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let reached = timeout(patience, config.connect(tls)).await;
    let reached = reached.map_err(|_| "it takes connections, but does not answer".to_owned())?;
    let (client, mut connection) = reached.map_err(|error| words(&error))?;
    let begin = async {
        let term = incumbent.meets(Office::of(&client).await)?;
        client.batch_execute(sql).await.map_err(|error| words(&error))?;
        Ok(term)
    };
    let mut begin = std::pin::pin!(timeout(patience, begin));
    let mut term = None;
    loop {
        let ends = async {
            match term {
                Some(term) => incumbent.ends(term).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            begun = &mut begin, if term.is_none() => match begun {
                Ok(Ok(begun)) => {
                    term = Some(begun);
                    hear(None);
                }
                Ok(Err(why)) => return Err(why),
                Err(_) => return Err("it does not answer".to_owned()),
            },
            () = ends => return Ok(LEFT_BEHIND.to_owned()),
            message = std::future::poll_fn(|cx| connection.poll_message(cx)) => match message {
                Some(Ok(AsyncMessage::Notification(heard))) => hear(Some(heard)),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Ok(words(&error)),
                None => return Ok("the connection was closed".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Server, ServerOptions};

    #[tokio::test]
    async fn a_session_goes_on_with_durable_commits_when_the_server_is_set_to_weaker_ones() {
        let server = Server::start(ServerOptions::default());
        let dial = Dial::new(&server.url("postgres"), None).expect("an address");
        let session = dial.session().await.expect("a server");
        server.ask("postgres", "ALTER SYSTEM SET synchronous_commit = off");
        server.ask("postgres", "SELECT pg_reload_conf()");
        server.wait_until("SELECT 1 WHERE current_setting('synchronous_commit') = 'off'");
        let set = session.client().query_one("SHOW synchronous_commit", &[]).await.expect("answers");
        assert_eq!(set.get::<_, &str>(0), "on");
    }
}
