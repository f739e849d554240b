//! One connection, and the statements prepared on it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, RowStream, Statement, Transaction};

use super::pipeline::each_in_order;
use super::statements::{Sql, TEXTS};

pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A statement on its way.
pub(super) type Step<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

/// A connection and its statements. Any number of tasks may use it: their statements are sent one behind the other, without waiting.
pub(super) struct Session {
    client: Client,
    kept: Vec<OnceCell<Statement>>,
    /// Which host of the address it goes to.
    host: usize,
    /// In which term of which server it was made.
    term: u64,
    /// Reads and writes the socket; ends with the connection.
    connection: JoinHandle<()>,
    /// Whether the server warned since this was last asked.
    warned: Arc<AtomicBool>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("is_closed", &self.client.is_closed()).finish_non_exhaustive()
    }
}

impl Session {
    /// A connection to that host, made in that term.
    pub(super) fn new(
        client: Client,
        host: usize,
        term: u64,
        connection: JoinHandle<()>,
        warned: Arc<AtomicBool>,
    ) -> Self {
        Self { client, kept: TEXTS.iter().map(|_| OnceCell::new()).collect(), host, term, connection, warned }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    pub(super) const fn term(&self) -> u64 {
        self.term
    }

    pub(super) const fn host(&self) -> usize {
        self.host
    }

    /// Whether the server warned since this was last asked. Behind a commit it means that somebody ended its wait for the synchronous
    /// standby: the answer is a success, but only this server has the commit.
    pub(super) fn was_warned(&self) -> bool {
        self.warned.swap(false, Ordering::SeqCst)
    }

    /// Lets go of the connection: it ends by itself when the server has answered what it was asked.
    pub(super) fn into_connection(self) -> JoinHandle<()> {
        self.connection
    }

    /// Ends the connection now, whatever is under way. The server notices when it wants to answer.
    pub(super) fn abort(&self) {
        self.connection.abort();
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

    /// Prepares statements, all in one go, so that a pipeline of them is sent without a stop.
    pub(super) async fn prepare(&self, all: &[Sql]) -> Result<(), Error> {
        let one = |sql: &Sql| -> Step<'_> {
            let sql = *sql;
            Box::pin(async move { self.statement(sql).await.map(|_| Vec::new()) })
        };
        each_in_order(all.iter().map(one).collect()).await.into_iter().try_for_each(|prepared| prepared.map(drop))
    }

    /// Runs one statement.
    pub(super) async fn run(&self, sql: Sql, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.client.query(self.statement(sql).await?, params).await
    }

    /// The same, row by row as they come: for what may be long.
    pub(super) async fn stream(&self, sql: Sql, params: Params<'_>) -> Result<RowStream, Error> {
        self.client.query_raw(self.statement(sql).await?, params.iter().copied()).await
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
