//! The database as the target of a move: who moves into it, how far it is, and rows copied with that in one transaction.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;

use countersign_domain::time::UnixMillis;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Portal, Transaction};

use super::dial::Dial;
use super::fault::{Trouble, fault, trouble, words};
use super::hosts::REFUSES;
use super::options::PostgresOptions;
use super::session::Session;
use super::{pooled, schema};
use crate::contract::StoreError;
use crate::moving::{Cell, TABLES, Table, filled, read};

/// Held as long as a move into our schema of the database runs.
const LOCK: &str = "SELECT pg_advisory_lock(4851337210 # (hashtext(coalesce(current_schema(), ''))::bigint << 32))";
/// Held with others who keep moves out; false while one runs.
const LOCK_AGAINST: &str =
    "SELECT pg_try_advisory_lock_shared(4851337210 # (hashtext(coalesce(current_schema(), ''))::bigint << 32))";
/// Large reads in order, unlike those of a server. A move that was killed may hold the lock until its last statement has ended.
const SETTINGS: &str =
    "SET enable_seqscan = on; SET enable_hashjoin = on; SET enable_mergejoin = on; SET enable_bitmapscan = on; SET plan_cache_mode = auto;
    SET work_mem = '64MB'; SET lock_timeout = '20s'; SET idle_in_transaction_session_timeout = 0";

/// What the name of a move begins with that fills the database from a backup.
pub(crate) const RESTORE: &str = "restore-";

/// Who moves into a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) move_id: String,
    pub(crate) is_complete: bool,
}

impl Record {
    /// Whether a restore has begun it, not a move.
    pub(crate) fn is_restore(&self) -> bool {
        self.move_id.starts_with(RESTORE)
    }
}

/// A database that one move at a time may fill.
pub(crate) struct Target {
    session: Session,
    /// Host and database, without user and password.
    pub(crate) place: String,
}

/// Keeps moves, and restores, out of a database until it is dropped.
pub struct NoMoves {
    _session: Session,
}

impl fmt::Debug for NoMoves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoMoves").finish_non_exhaustive()
    }
}

/// `Unavailable` also: one is under way.
pub(super) async fn keep_out(dial: &Dial) -> Result<NoMoves, StoreError> {
    let session = pooled::refuse_shared(dial).await?;
    let held = dial.in_time(async { session.client().query_one(LOCK_AGAINST, &[]).await.map_err(fault) }).await?;
    if held.try_get(0).map_err(fault)? {
        return Ok(NoMoves { _session: session });
    }
    Err(StoreError::Unavailable("a move or restore into this database is under way".to_owned()))
}

/// Refuses a database that a move has begun to fill and not finished.
pub(super) async fn refuse_unfinished(dial: &Dial, session: &Session) -> Result<(), StoreError> {
    match dial.in_time(Box::pin(record(session))).await? {
        Some(record) if !record.is_complete => {
            let what = if record.is_restore() { "restore" } else { "move" };
            // What a restore goes on with is in its folder.
            let from = if record.is_restore() { " from the same data folder" } else { "" };
            Err(StoreError::Unfit(format!(
                "a {what} into this database was begun and is not finished: run the same `countersign {what}` again{from}, or use another database"
            )))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses a database in which no new copy can begin: one that holds a deployment, or what another move has begun. Nothing is made in it.
pub(super) async fn refuse_filled(dial: &Dial) -> Result<(), StoreError> {
    let mut session = pooled::refuse_shared(dial).await?;
    if schema::state_on(dial, &mut session).await?.applied == 0 {
        return Ok(());
    }
    let target = Target { session, place: dial.place() };
    dial.in_time(Box::pin(async {
        match target.record().await? {
            Some(other) => Err(StoreError::Unfit(filled(&target.place, &other))),
            None => target.must_be_empty().await,
        }
    }))
    .await
}

async fn record(session: &Session) -> Result<Option<Record>, StoreError> {
    let select = "SELECT move_id, completed_at IS NOT NULL FROM move_record";
    let rows = session.client().query(select, &[]).await.map_err(fault)?;
    let read = |row: &tokio_postgres::Row| Ok(Record { move_id: row.try_get(0)?, is_complete: row.try_get(1)? });
    rows.first().map(read).transpose().map_err(fault)
}

impl Target {
    /// Connects, makes the schema where there is none, and keeps every other move out.
    ///
    /// `Unfit` also: the database holds a deployment and no move of ours filled it.
    pub(crate) async fn reach(options: &PostgresOptions) -> Result<Self, StoreError> {
        let dial = Arc::new(Dial::of(options)?);
        let refused = |error| match error {
            // The same command would only be told the same again.
            StoreError::Unavailable(why) if why.starts_with(REFUSES) => StoreError::Unfit(why),
            error => error,
        };
        pooled::refuse_shared(&dial).await.map_err(refused)?;
        let state = schema::state(&dial).await.map_err(refused)?;
        if state.applied == 0 {
            schema::migrate(&dial).await?;
        }
        let session = dial.session().await?;
        session.client().batch_execute(SETTINGS).await.map_err(fault)?;
        session.client().batch_execute(LOCK).await.map_err(|error| match error.code() {
            Some(&SqlState::LOCK_NOT_AVAILABLE) => StoreError::Unavailable(
                "another move or restore into this database, or an `init`, is under way".to_owned(),
            ),
            _ => fault(error),
        })?;
        let target = Self { session, place: dial.place() };
        if target.record().await?.is_none() {
            target.must_be_empty().await?;
        }
        schema::migrate(&dial).await?;
        Ok(target)
    }

    pub(crate) async fn record(&self) -> Result<Option<Record>, StoreError> {
        record(&self.session).await
    }

    async fn must_be_empty(&self) -> Result<(), StoreError> {
        for table in TABLES {
            let any = format!("SELECT EXISTS (SELECT FROM {})", table.name);
            let any = self.session.client().query_one(&any, &[]).await.map_err(fault)?;
            if any.get(0) {
                return Err(StoreError::Unfit(format!(
                    "the database {} holds another deployment (there are rows in {}): name an empty database",
                    self.place, table.name
                )));
            }
        }
        Ok(())
    }

    /// Notes that a move of this name begins. From here on nobody serves the database until it is complete.
    pub(crate) async fn begin(&self, id: &str, now: UnixMillis) -> Result<(), StoreError> {
        let insert = "INSERT INTO move_record (one, move_id, began_at) VALUES (1, $1, $2)";
        self.session.client().execute(insert, &[&id, &now.0]).await.map(|_| ()).map_err(fault)
    }

    /// Rows of a table that are here.
    pub(crate) async fn progress(&self, table: &Table) -> Result<u64, StoreError> {
        let select = "SELECT row_count FROM move_progress WHERE table_name = $1";
        let row = self.session.client().query_opt(select, &[&table.name]).await.map_err(fault)?;
        let rows: i64 = row.map_or(Ok(0), |row| row.try_get(0)).map_err(fault)?;
        Ok(u64::try_from(rows).unwrap_or_default())
    }

    /// Appends rows to a table of which `before` are here, with the note of it, in one transaction.
    pub(crate) async fn append(&mut self, table: &Table, before: u64, rows: &[Vec<Cell>]) -> Result<(), StoreError> {
        let transaction = self.session.transaction().await.map_err(fault)?;
        copy(&transaction, table, rows).await.map_err(|error| why_not(table, rows, &error))?;
        let (before, added) = (count(before), count(rows.len() as u64));
        let note = "INSERT INTO move_progress AS p (table_name, row_count) VALUES ($1, $3) ON CONFLICT (table_name)
                    DO UPDATE SET row_count = p.row_count + $3 WHERE p.row_count = $2";
        let noted = transaction.execute(note, &[&table.name, &before, &added]).await.map_err(fault)?;
        if noted != 1 {
            return Err(StoreError::Unfit(format!("another move copies rows of {} at the same time", table.name)));
        }
        transaction.commit().await.map_err(fault)
    }

    /// Lets the planner know what came.
    pub(crate) async fn analyze(&self) -> Result<(), StoreError> {
        self.session.client().batch_execute("ANALYZE").await.map_err(fault)
    }

    /// The rows of a table in its order.
    pub(crate) async fn rows(&mut self, table: &'static Table) -> Result<Fetched<'_>, StoreError> {
        let transaction = self.session.transaction().await.map_err(fault)?;
        let columns: Vec<String> = table.columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
        let select = format!("SELECT {} FROM {} ORDER BY {}", columns.join(", "), table.name, table.order);
        let portal = transaction.bind(&select, &[]).await.map_err(fault)?;
        Ok(Fetched { transaction, portal, table })
    }

    /// One row of integers and texts.
    pub(crate) async fn ask(&self, query: &str) -> Result<tokio_postgres::Row, StoreError> {
        self.session.client().query_one(query, &[]).await.map_err(fault)
    }

    /// What is stamped by then is refused, where the database is complete.
    pub(crate) async fn horizon(&self) -> Result<Option<UnixMillis>, StoreError> {
        let row = self.session.client().query_opt("SELECT horizon FROM replay", &[]).await.map_err(fault)?;
        row.map(|row| row.try_get(0).map(UnixMillis)).transpose().map_err(fault)
    }

    /// From here on the database is a deployment like any other, where nothing stamped by the horizon that this gives is accepted: the one
    /// that is asked for, and so many ms after the database's present, if that is asked for too.
    pub(crate) async fn complete(
        &mut self,
        window_key: [u8; 16],
        (horizon, ahead_ms): (UnixMillis, Option<i64>),
        now: UnixMillis,
    ) -> Result<UnixMillis, StoreError> {
        let transaction = self.session.transaction().await.map_err(fault)?;
        let raise = "INSERT INTO replay AS r (one, hash_key, horizon)
                     SELECT 1, $1, greatest($2, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + $3)
                     ON CONFLICT (one) DO UPDATE SET horizon = greatest(r.horizon, excluded.horizon) RETURNING horizon";
        let row =
            transaction.query_one(raise, &[&window_key.as_slice(), &horizon.0, &ahead_ms]).await.map_err(fault)?;
        let horizon = row.try_get(0).map(UnixMillis).map_err(fault)?;
        let complete = "UPDATE move_record SET completed_at = $1 WHERE completed_at IS NULL";
        transaction.execute(complete, &[&now.0]).await.map_err(fault)?;
        transaction.commit().await.map_err(fault)?;
        Ok(horizon)
    }
}

/// Why rows of a table cannot be copied.
fn why_not(table: &Table, rows: &[Vec<Cell>], error: &tokio_postgres::Error) -> StoreError {
    if let Some((row, column)) = rows.iter().find_map(|row| Some((row, row.iter().position(Cell::holds_nul)?))) {
        let (row, column) = (table.row_in_words(row), table.columns[column].name);
        return StoreError::Unfit(format!(
            "the {column} of row {row} of {} holds U+0000, which PostgreSQL cannot: take it out of the source first",
            table.name
        ));
    }
    let why = format!("rows of {} cannot be copied: {}", table.name, words(error));
    match trouble(error) {
        Trouble::Lost | Trouble::Silent | Trouble::Away => StoreError::Unavailable(why),
        Trouble::Again | Trouble::Unfit => StoreError::Unfit(why),
    }
}

fn count(rows: u64) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

async fn copy(transaction: &Transaction<'_>, table: &Table, rows: &[Vec<Cell>]) -> Result<(), tokio_postgres::Error> {
    let columns: Vec<String> = table.columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
    let types: Vec<Type> = table.columns.iter().map(|column| column.kind.postgres()).collect();
    let into = format!("COPY {} ({}) FROM STDIN BINARY", table.name, columns.join(", "));
    let mut writer = pin!(BinaryCopyInWriter::new(transaction.copy_in(&into).await?, &types));
    for row in rows {
        writer.as_mut().write_raw(row.iter().map(Cell::as_sql)).await?;
    }
    writer.as_mut().finish().await.map(|_| ())
}

/// Rows that are fetched as they are wanted.
pub(crate) struct Fetched<'t> {
    transaction: Transaction<'t>,
    portal: Portal,
    table: &'static Table,
}

impl Fetched<'_> {
    /// The next rows; none is the end.
    pub(crate) async fn next(&mut self) -> Result<Vec<Vec<Cell>>, StoreError> {
        let rows_max = i32::from(self.table.rows_per_fetch());
        let rows = self.transaction.query_portal(&self.portal, rows_max).await.map_err(fault)?;
        let cells = rows.iter().map(|row| read(row, self.table.columns));
        cells.collect::<Result<_, _>>().map_err(|at| {
            StoreError::Unfit(format!("{}.{} is of another type", self.table.name, self.table.columns[at].name))
        })
    }
}
