//! The whole database as it is at one moment, read row by row while nodes run on it.

use tokio_postgres::Statement;

use super::dial::Dial;
use super::fault::fault;
use super::moving::refuse_unfinished;
use super::options::PostgresOptions;
use super::session::Session;
use super::{pooled, schema};
use crate::contract::StoreError;
use crate::moving::{Cell, Table, read};
use crate::sqlite::copying::KnownNonces;

/// Large reads in order, unlike those of a server.
const SETTINGS: &str =
    "SET enable_seqscan = on; SET enable_hashjoin = on; SET enable_mergejoin = on; SET enable_bitmapscan = on; SET plan_cache_mode = auto;
    SET work_mem = '64MB'; SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0";

/// A moment of a database.
#[derive(Debug)]
pub(crate) struct Snapshot {
    session: Session,
}

impl Snapshot {
    /// Takes it. It takes no lock that anybody waits for.
    pub(crate) async fn take(options: &PostgresOptions) -> Result<Self, StoreError> {
        let dial = Dial::of(options)?;
        // Else another client's statements may come in between.
        let mut session = pooled::refuse_shared(&dial).await?;
        let at = schema::state_on(&dial, &mut session).await?;
        if !at.is_current() {
            return Err(at.not_to_be_copied());
        }
        refuse_unfinished(&dial, &session).await?;
        session.client().batch_execute(SETTINGS).await.map_err(fault)?;
        session.client().batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map_err(fault)?;
        Ok(Self { session })
    }

    /// Begins to read a table, by the key where that is what its file shall be ordered by.
    pub(crate) async fn open(&self, table: &'static Table) -> Result<Rows<'_>, StoreError> {
        // Lines of a tenant by their number: that is the order of their chain, whatever their times are.
        let order = if table.name == "audit" { "tenant_no, audit_no" } else { table.order };
        let columns: Vec<String> = table.columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
        let declare = format!(
            "CLOSE ALL; DECLARE copied NO SCROLL CURSOR FOR SELECT {} FROM {} ORDER BY {order}",
            columns.join(", "),
            table.name
        );
        self.session.client().batch_execute(&declare).await.map_err(fault)?;
        let fetch = format!("FETCH {} FROM copied", table.rows_per_fetch());
        let fetch = self.session.client().prepare(&fetch).await.map_err(fault)?;
        Ok(Rows { snapshot: self, table, fetch })
    }

    /// Key and horizon of nonces, and the newest that was given out.
    pub(crate) async fn known_nonces(&self) -> Result<KnownNonces, StoreError> {
        // One that is null does not count.
        let select = "SELECT hash_key, horizon, greatest(horizon, (SELECT max(stamped_at) FROM nonce)) FROM replay";
        let row = self.session.client().query_opt(select, &[]).await.map_err(fault)?;
        // Whoever opens the database first writes it.
        let row = row.ok_or_else(|| StoreError::Unfit("the database holds no deployment of Countersign".to_owned()))?;
        let key: &[u8] = row.try_get(0).map_err(fault)?;
        let hash_key = key.try_into().map_err(|_| StoreError::Corrupt { table: "replay", row: "1".to_owned() })?;
        let (horizon, newest) = (row.try_get(1).map_err(fault)?, row.try_get(2).map_err(fault)?);
        Ok(KnownNonces { hash_key, horizon, newest })
    }
}

/// Rows of a table on their way.
#[derive(Debug)]
pub(crate) struct Rows<'s> {
    snapshot: &'s Snapshot,
    table: &'static Table,
    fetch: Statement,
}

impl Rows<'_> {
    /// The next ones; none is the end.
    pub(crate) async fn next(&self) -> Result<Vec<Vec<Cell>>, StoreError> {
        let rows = self.snapshot.session.client().query(&self.fetch, &[]).await.map_err(fault)?;
        let cells = rows.iter().map(|row| read(row, self.table.columns));
        cells.collect::<Result<_, _>>().map_err(|at| {
            StoreError::Unfit(format!("{}.{} is of another type", self.table.name, self.table.columns[at].name))
        })
    }
}
