//! Whether each session of ours has a connection to the server to itself. A pooler that hands one to many in turn (PgBouncer in transaction mode) loses
//! what a session is set to, and durable commits are a setting.

use tokio_postgres::Client;

use super::dial::Dial;
use super::fault::fault;
use super::session::Session;
use super::{PostgresOptions, PostgresStore};
use crate::contract::StoreError;

/// Marks a session with something that no other one has.
const MARK: &str = "SELECT set_config('countersign.session', gen_random_uuid()::text, false)";
/// Which mark a session has.
const MARKED: &str = "SELECT current_setting('countersign.session', true)";

const SHARED: &str = "a pooler between this node and PostgreSQL hands one connection to many sessions in turn, as PgBouncer does with pool_mode = transaction: what a \
    session is set to gets lost there, and with it that commits are durable. Name PostgreSQL itself in the address, or set pool_mode = session";

/// How often both marks are read. Each time with three questions, an odd number: a pooler whose two connections take turns gives each session another one
/// the next time.
const LOOKS: usize = 3;

/// Refuses a way to the server on which sessions share connections. One of two may see the other's mark, or lose its own; which, is for the pooler to say.
/// It gives one of the two, for what comes next.
pub(super) async fn refuse_shared(dial: &Dial) -> Result<Session, StoreError> {
    let (one, other) = (dial.session().await?, dial.reading().await?);
    let look = async {
        let mark = first(one.client(), MARK).await?;
        for _ in 0..LOOKS {
            let (of_other, own) = (first(other.client(), MARKED).await?, first(one.client(), MARKED).await?);
            if of_other == mark || own != mark || first(one.client(), MARKED).await? != mark {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if dial.in_time(look).await? { Err(StoreError::Unfit(SHARED.to_owned())) } else { Ok(one) }
}

/// The first value of an answer. Nothing is prepared for it, which poolers do not all let through.
async fn first(client: &Client, query: &str) -> Result<Option<String>, StoreError> {
    use tokio_postgres::SimpleQueryMessage::Row;
    let said = client.simple_query(query).await.map_err(fault)?;
    Ok(said.into_iter().find_map(|message| if let Row(row) = message { row.get(0).map(str::to_owned) } else { None }))
}

impl PostgresStore {
    /// `Unfit` where sessions at this address share connections, and as [`PostgresStore::open`].
    pub async fn refuse_shared(options: &PostgresOptions) -> Result<(), StoreError> {
        refuse_shared(&Dial::of(options)?).await.map(drop)
    }
}
