//! Questions to a database that is not opened as a store: how its schema stands, what its server promises; and the upgrade of its schema.

use super::dial::Dial;
use super::durability::{self, ServerState};
use super::elsewhere::{self, Elsewhere};
use super::fault::fault;
use super::moving::NoMoves;
use super::{PostgresOptions, PostgresStore, moving, pooled, schema};
use crate::contract::StoreError;
use crate::steps::SchemaState;

impl PostgresStore {
    /// Where the schema of a database stands, without changing it. `Unfit` and `Unavailable` as [`PostgresStore::open`].
    pub async fn schema_state(options: &PostgresOptions) -> Result<SchemaState, StoreError> {
        schema::state(&Dial::of(options)?).await
    }

    /// For an empty schema: another schema of the database where our tables are.
    pub async fn elsewhere(options: &PostgresOptions) -> Result<Option<Elsewhere>, StoreError> {
        elsewhere::elsewhere(&Dial::of(options)?).await
    }

    /// A look at a database server, which changes nothing. `Unfit` and `Unavailable` as [`PostgresStore::open`].
    pub async fn server_state(options: &PostgresOptions) -> Result<ServerState, StoreError> {
        durability::state(&Dial::of(options)?).await
    }

    /// Refuses a database that a move, or a restore, has begun to fill and not finished.
    pub async fn refuse_unfinished(options: &PostgresOptions) -> Result<(), StoreError> {
        let dial = Dial::of(options)?;
        moving::refuse_unfinished(&dial, &dial.session().await?).await
    }

    /// Keeps moves and restores out of a database for as long as what this gives is there: one that is empty may become a deployment meanwhile.
    /// `Unavailable` also: one is under way.
    pub async fn keep_moves_out(options: &PostgresOptions) -> Result<NoMoves, StoreError> {
        Box::pin(moving::keep_out(&Dial::of(options)?)).await
    }

    /// Refuses a database in which no move, and no restore, can begin, before anything is made for it.
    pub async fn refuse_filled(options: &PostgresOptions) -> Result<(), StoreError> {
        Box::pin(moving::refuse_filled(&Dial::of(options)?)).await
    }

    /// Deployment settings of a database that has a schema, of whatever step, without changing it; as many as names.
    pub async fn peek(options: &PostgresOptions, names: &[&str]) -> Result<Vec<Option<String>>, StoreError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let dial = Dial::of(options)?;
        let session = dial.session().await?;
        let select = "SELECT s.value FROM unnest($1::text[]) WITH ORDINALITY AS w (name, place) LEFT JOIN setting s ON s.name = w.name ORDER BY w.place";
        let rows = dial.in_time(async { session.client().query(select, &[&names]).await.map_err(fault) }).await?;
        rows.iter().map(|row| row.try_get(0).map_err(fault)).collect()
    }

    /// The ids of the master keys that secrets of a database are sealed under, which has a schema, of whatever step. A revoked one is never opened
    /// again.
    pub async fn secrets_under(options: &PostgresOptions) -> Result<Vec<String>, StoreError> {
        let dial = Dial::of(options)?;
        let session = dial.session().await?;
        let select = "SELECT DISTINCT key_id FROM secret WHERE revoked_at IS NULL ORDER BY key_id";
        let rows = dial.in_time(async { session.client().query(select, &[]).await.map_err(fault) }).await?;
        rows.iter().map(|row| row.try_get(0).map_err(fault)).collect()
    }

    /// Brings the schema of a database up to date, and opens nothing.
    pub async fn migrate(options: &PostgresOptions) -> Result<SchemaState, StoreError> {
        let dial = Dial::of(options)?;
        pooled::refuse_shared(&dial).await?;
        schema::migrate(&dial).await
    }
}
