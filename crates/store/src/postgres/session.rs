//! One connection: how it is made, what is set on it, and the statements prepared on it.

use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, Notification, Row, Socket, Statement, Transaction};

use super::fault::words;
use super::statements::{Sql, TEXTS};
use super::tls::MakeTls;
use crate::contract::StoreError;

/// How long making a connection may take, and how long one may be silent, unless the address says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// After a failure nobody tries again for this long: everybody hears of the failure at once.
const BACKOFF: Duration = Duration::from_millis(200);

/// What every session is set to. Durable commits, whatever the server's own setting (a stronger one is kept). Generic plans that follow
/// indexes: a plan made while a table is empty must not scan it when it has grown. No time limit on statements that write: it would
/// also end the wait for a synchronous standby, and leave a commit that only this server has.
const SETTINGS: &str = "
    SELECT set_config('synchronous_commit', 'on', false)
      WHERE current_setting('synchronous_commit') IN ('off', 'local', 'remote_write');
    SET jit = off; SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
    SET default_transaction_isolation = 'read committed'; SET client_min_messages = warning;
    SET statement_timeout = 0; SET lock_timeout = '4s'; SET idle_in_transaction_session_timeout = '5s'";

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A statement on its way.
pub(super) type Step<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

/// How to reach the database.
pub(super) struct Dial {
    config: Config,
    tls: Option<MakeTls>,
    failed: Mutex<Option<(Instant, String)>>,
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dial").field("hosts", &self.config.get_hosts()).finish_non_exhaustive()
    }
}

impl Dial {
    /// Takes the address apart.
    pub(super) fn new(url: &str, tls: Option<Arc<rustls::ClientConfig>>) -> Result<Self, StoreError> {
        let unfit = |why: String| StoreError::Unfit(format!("the address of the database is not usable: {why}"));
        let mut config = Config::from_str(url).map_err(|error| unfit(words(&error)))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE_TIMEOUT);
        }
        config.keepalives_idle(SILENCE_TIMEOUT);
        if config.get_application_name().is_none() {
            config.application_name("countersign");
        }
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            // After a failover the old address may answer, but take no writes.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls = match config.get_ssl_mode() {
            SslMode::Require => {
                let roots = tls.ok_or_else(|| unfit("sslmode=require, but no authorities were given".to_owned()))?;
                Some(MakeTls(roots))
            }
            _ => None,
        };
        Ok(Self { config, tls, failed: Mutex::default() })
    }

    /// Hosts and database in words, without user and password.
    pub(super) fn place(&self) -> String {
        let port = |at: usize| match self.config.get_ports() {
            [] => 5432,
            [all] => *all,
            each => each.get(at).copied().unwrap_or(5432),
        };
        let hosts = self.config.get_hosts().iter().enumerate().map(|(at, host)| match host {
            Host::Tcp(host) => format!("{host}:{}", port(at)),
            Host::Unix(folder) => folder.display().to_string(),
        });
        let hosts: Vec<String> = hosts.collect();
        format!("{}/{}", hosts.join(","), self.config.get_dbname().or(self.config.get_user()).unwrap_or_default())
    }

    /// A new connection, set up.
    pub(super) async fn session(&self) -> Result<Session, StoreError> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, why)) = failed
            && at.elapsed() < BACKOFF
        {
            return Err(StoreError::Unavailable(why));
        }
        let made = self.connect().await.map_err(|error| format!("the database cannot be reached: {}", words(&error)));
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        *failed = made.as_ref().err().map(|why| (Instant::now(), why.clone()));
        made.map_err(StoreError::Unavailable)
    }

    /// Hears what is called out on the channels that `sql` listens to, until the connection ends: why it did. `hear` gets `None` when
    /// it has begun.
    pub(super) async fn listen(&self, sql: &str, hear: impl FnMut(Option<Notification>) + Send) -> String {
        let ended = match &self.tls {
            Some(tls) => listen(&self.config, tls.clone(), sql, hear).await,
            None => listen(&self.config, NoTls, sql, hear).await,
        };
        ended.map_or_else(|error| words(&error), |()| "the connection was closed".to_owned())
    }

    async fn connect(&self) -> Result<Session, Error> {
        let client = match &self.tls {
            Some(tls) => connect(&self.config, tls.clone()).await?,
            None => connect(&self.config, NoTls).await?,
        };
        client.batch_execute(SETTINGS).await?;
        Ok(Session { client, kept: TEXTS.iter().map(|_| OnceCell::new()).collect() })
    }
}

async fn connect<T>(config: &Config, tls: T) -> Result<Client, Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (client, connection) = config.connect(tls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(error = %words(&error), "A connection to the database ended");
        }
    });
    Ok(client)
}

async fn listen<T>(
    config: &Config,
    tls: T,
    sql: &str,
    mut hear: impl FnMut(Option<Notification>) + Send,
) -> Result<(), Error>
where
    T: MakeTlsConnect<Socket>,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (client, mut connection) = config.connect(tls).await?;
    let mut asked = std::pin::pin!(client.batch_execute(sql));
    let mut has_begun = false;
    loop {
        tokio::select! {
            begun = &mut asked, if !has_begun => {
                begun?;
                has_begun = true;
                hear(None);
            }
            message = std::future::poll_fn(|cx| connection.poll_message(cx)) => match message {
                Some(Ok(AsyncMessage::Notification(heard))) => hear(Some(heard)),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
        }
    }
}

/// A connection and its statements. Any number of tasks may use it: their statements are sent one behind the other, without waiting.
pub(super) struct Session {
    client: Client,
    kept: Vec<OnceCell<Statement>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("is_closed", &self.client.is_closed()).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// A transaction that is rolled back when it is dropped.
    pub(super) async fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        self.client.transaction().await
    }

    async fn statement(&self, sql: Sql) -> Result<&Statement, Error> {
        let at = sql as usize;
        self.kept[at].get_or_try_init(|| self.client.prepare(TEXTS[at])).await
    }

    /// Prepares statements, so that a pipeline of them is sent without a stop.
    pub(super) async fn prepare(&self, all: &[Sql]) -> Result<(), Error> {
        for sql in all {
            self.statement(*sql).await?;
        }
        Ok(())
    }

    /// Runs one statement.
    pub(super) async fn run(&self, sql: Sql, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.client.query(self.statement(sql).await?, params).await
    }

    /// The same, to be sent in a pipeline.
    pub(super) fn step<'a>(&'a self, sql: Sql, params: Vec<&'a (dyn ToSql + Sync)>) -> Step<'a> {
        Box::pin(async move { self.run(sql, &params).await })
    }

    /// `BEGIN`, `COMMIT` or `ROLLBACK`, to be sent in a pipeline.
    pub(super) fn word<'a>(&'a self, word: &'static str) -> Step<'a> {
        Box::pin(async move { self.client.batch_execute(word).await.map(|()| Vec::new()) })
    }
}

/// Sends all steps in this order without waiting, then waits for all: the rows of each, or the first error and which step it was.
/// Their statements must have been prepared.
pub(super) async fn in_order(steps: Vec<Step<'_>>) -> Result<Vec<Vec<Row>>, (usize, Error)> {
    let found = each_in_order(steps).await;
    found.into_iter().enumerate().map(|(at, rows)| rows.map_err(|error| (at, error))).collect()
}

/// The same for steps of several transactions: what became of each.
pub(super) async fn each_in_order(steps: Vec<Step<'_>>) -> Vec<Result<Vec<Row>, Error>> {
    let mut waiting: Vec<Option<Step<'_>>> = steps.into_iter().map(Some).collect();
    let mut found: Vec<Option<Result<Vec<Row>, Error>>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut open = false;
        for (step, found) in waiting.iter_mut().zip(&mut found) {
            let Some(future) = step else { continue };
            match future.as_mut().poll(cx) {
                Poll::Ready(rows) => {
                    *found = Some(rows);
                    *step = None;
                }
                Poll::Pending => open = true,
            }
        }
        if open { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    found.into_iter().flatten().collect()
}
