//! What the database server says of itself that decides what a failover could lose, and whether a node fits.

use tokio::time::timeout;
use tokio_postgres::Row;

use super::PostgresStore;
use super::dial::Dial;
use super::fault::fault;
use crate::contract::StoreError;

/// What would survive the loss of the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting or a fact of its own")]
pub struct Durability {
    /// Standbys that are connected.
    pub standbys: i64,
    /// Of these, how many a commit may wait for: `sync` or `quorum`.
    pub synchronous: i64,
    /// Whether our role may not see what kind they are.
    pub is_hidden: bool,
    /// Whether `synchronous_standby_names` asks for any.
    pub is_demanded: bool,
    /// Whether the server waits for its own disk.
    pub fsync: bool,
    /// Whether its log holds each page whole once after a checkpoint: else one that was half written as the machine went down stays so.
    pub full_page_writes: bool,
    /// `synchronous_commit` as it is for our role and database. Our sessions raise what is weaker than `on`.
    pub synchronous_commit: String,
}

/// Connections of a kind that has a limit of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// How many there may be at once; none: as many as the server takes.
    pub most: Option<i64>,
    /// How many are open now, the one that asks among them.
    pub taken: i64,
}

/// What a look at a database server found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// Host and database, without user and password.
    pub place: String,
    /// `15.8`
    pub version: String,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// Whether it stays on this machine.
    pub is_local: bool,
    /// Connections that roles like ours may have open at once, all together.
    pub connections_max: i64,
    /// Connections that are open now.
    pub connections: i64,
    /// Those of our role.
    pub of_role: Share,
    /// Those to our database.
    pub of_database: Share,
    /// What a failover could lose.
    pub durability: Durability,
}

/// A walsender that copies a base backup is no standby. Without the right to see it, its state is null.
const DURABILITY: &str = "
    SELECT count(*) FILTER (WHERE state IS DISTINCT FROM 'backup'),
        count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')),
        coalesce(bool_or(state IS NULL), false),
        current_setting('synchronous_standby_names') <> '',
        current_setting('fsync') = 'on',
        current_setting('full_page_writes') = 'on',
        (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit')
    FROM pg_stat_replication";

const STATE: &str = "
    SELECT current_setting('server_version'),
        coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false),
        coalesce(inet_client_addr() <<= '127.0.0.0/8' OR inet_client_addr() = '::1', true),
        current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
        (SELECT coalesce(sum(numbackends), 0)::bigint FROM pg_stat_database),
        (SELECT nullif(rolconnlimit, -1)::bigint FROM pg_roles WHERE rolname = current_user AND NOT rolsuper),
        (SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND backend_type = 'client backend'),
        (SELECT nullif(datconnlimit, -1)::bigint FROM pg_database, pg_roles
            WHERE datname = current_database() AND rolname = current_user AND NOT rolsuper),
        (SELECT numbackends::bigint FROM pg_stat_database WHERE datname = current_database())";

/// One row, on a connection of its own.
async fn ask(dial: &Dial, query: &str) -> Result<Row, StoreError> {
    let session = dial.reading().await?;
    match timeout(dial.limits().read(), session.client().query_one(query, &[])).await {
        Ok(row) => row.map_err(fault),
        Err(_) => Err(StoreError::Unavailable("the database does not answer".to_owned())),
    }
}

impl PostgresStore {
    /// What would survive the loss of the primary, as it is now.
    pub async fn durability(&self) -> Result<Durability, StoreError> {
        durability(&self.dial).await
    }
}

/// What would survive the loss of the primary.
async fn durability(dial: &Dial) -> Result<Durability, StoreError> {
    let row = ask(dial, DURABILITY).await?;
    let read = || {
        Ok(Durability {
            standbys: row.try_get(0)?,
            synchronous: row.try_get(1)?,
            is_hidden: row.try_get(2)?,
            is_demanded: row.try_get(3)?,
            fsync: row.try_get(4)?,
            full_page_writes: row.try_get(5)?,
            synchronous_commit: row.try_get(6)?,
        })
    };
    read().map_err(fault)
}

/// A look at the server, which changes nothing.
pub(super) async fn state(dial: &Dial) -> Result<ServerState, StoreError> {
    let row = ask(dial, STATE).await?;
    let durability = durability(dial).await?;
    let version: String = row.try_get(0).map_err(fault)?;
    let read = || {
        Ok(ServerState {
            place: dial.place(),
            // Distributions add a name of their own.
            version: version.split(' ').next().unwrap_or_default().to_owned(),
            is_encrypted: row.try_get(1)?,
            is_local: row.try_get(2)?,
            connections_max: row.try_get(3)?,
            connections: row.try_get(4)?,
            of_role: Share { most: row.try_get(5)?, taken: row.try_get(6)? },
            of_database: Share { most: row.try_get(7)?, taken: row.try_get(8)? },
            durability,
        })
    };
    read().map_err(fault)
}
