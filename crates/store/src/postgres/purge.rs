//! What is done to the table of nonces as a whole: its key is made, its horizon raised, its old rows deleted.

use std::sync::atomic::Ordering;

use countersign_domain::time::UnixMillis;
use tokio::time::timeout;
use tokio_postgres::{Client, Row};

use super::fault::{Failure, fault};
use super::limits::Limits;
use super::nonces::Nonces;
use super::pipeline::in_order;
use super::queries::one;
use super::rows::Fields;
use super::session::{Session, Step};
use super::statements::Sql;
use super::writer_connections::WriterConnections;
use crate::contract::StoreError;

/// Nonces deleted in one transaction.
const NONCES_PER_DELETE: i64 = 2000;
/// Lanes that committed nothing for so long are gone, and with them whoever could ask for their marks.
const MARK_LIFE_S: i64 = 86_400;
/// While the horizon is waited for, nobody claims, on any node: not for long, then. It is tried again soon.
const HORIZON_PATIENCE: &str = "SET LOCAL lock_timeout = '250ms'";
/// So often in a row it is tried like that. Where no commit is that quick, as with a standby far away, the horizon would never be raised else.
const SHORT_TRIES: u32 = 10;
const HORIZON_PATIENCE_MAX: &str = "SET LOCAL lock_timeout = '1s'";

/// Prepared with the connection.
pub(super) const HOUSE: &[Sql] = &[Sql::HorizonLock, Sql::HorizonRaise, Sql::MarksForget, Sql::NoncesForget];

/// The key of nonce hashes and the horizon; the first opening makes them, later ones change nothing.
pub(super) async fn begin(client: &Client, new_key: [u8; 16]) -> Result<([u8; 16], i64), StoreError> {
    let look = "SELECT one, hash_key, horizon FROM replay";
    let mut found = client.query(look, &[]).await.map_err(fault)?;
    if found.is_empty() {
        let make = "INSERT INTO replay (one, hash_key, horizon) VALUES (1, $1, $2) ON CONFLICT DO NOTHING";
        client.execute(make, &[&new_key.as_slice(), &i64::MIN]).await.map_err(fault)?;
        found = client.query(look, &[]).await.map_err(fault)?;
    }
    let mut f = Fields::new(found.first().ok_or_else(missing)?, "replay", 1, 0);
    Ok((f.bytes()?, f.int()?))
}

impl super::PostgresStore {
    /// What is stamped at or before this is too old, whatever the clock says: as far as this node has heard.
    pub fn horizon(&self) -> UnixMillis {
        UnixMillis(self.nonces.horizon())
    }

    /// The largest timestamp of a nonce that a purge up to `horizon` would forget; none: it would forget nothing.
    pub async fn newest_nonce_through(&self, horizon: UnixMillis) -> Result<Option<UnixMillis>, StoreError> {
        let read = |row: &Row| Fields::new(row, "nonce", 0, 0).int().map(UnixMillis);
        one(&self.readers, Sql::NonceNewest, &[&horizon.0], read).await
    }
}

fn missing() -> StoreError {
    StoreError::Corrupt { table: "replay", row: "1".to_owned() }
}

/// Raises the horizon, durably and for all nodes, then deletes what lies at or before it.
pub(super) async fn purge(
    connections: &mut WriterConnections,
    nonces: &Nonces,
    horizon: UnixMillis,
) -> Result<(), StoreError> {
    let session = connections.open().await.map_err(|failure| failure.refusal())?;
    match purge_on(&session, connections.limits(), nonces, horizon.0).await {
        Ok(raised) => {
            if raised {
                connections.proved(session);
            } else {
                connections.keep(session);
            }
            Ok(())
        }
        Err(failure) => {
            nonces.misses.fetch_add(1, Ordering::Relaxed);
            connections.after(session, &failure);
            Err(failure.refusal())
        }
    }
}

/// How long the horizon is waited for after so many tries in a row without it.
const fn patience(misses: u32) -> &'static str {
    if misses < SHORT_TRIES { HORIZON_PATIENCE } else { HORIZON_PATIENCE_MAX }
}

/// Whether the horizon was raised.
async fn purge_on(session: &Session, limits: Limits, nonces: &Nonces, horizon: i64) -> Result<bool, Failure> {
    let raises = horizon > nonces.horizon();
    if raises {
        let rows = answered(limits, raise(session, patience(nonces.misses.load(Ordering::Relaxed)), &horizon)).await?;
        nonces.misses.store(0, Ordering::Relaxed);
        let raised = rows.get(3).and_then(|rows| rows.first()).ok_or_else(missing)?;
        nonces.raise_horizon(Fields::new(raised, "replay", 0, 0).int()?);
    }
    nonces.forget();
    loop {
        let rows = answered(limits, vec![session.step(Sql::NoncesForget, vec![&NONCES_PER_DELETE])]).await?;
        let deleted = rows.first().map_or(0, Vec::len);
        if i64::try_from(deleted).is_ok_and(|deleted| deleted < NONCES_PER_DELETE) {
            break;
        }
    }
    answered(limits, vec![session.step(Sql::MarksForget, vec![&MARK_LIFE_S])]).await?;
    Ok(raises)
}

/// Sent at once, so that a node that stands still in the middle does not keep the others from claiming.
fn raise<'a>(session: &'a Session, patience: &'static str, horizon: &'a i64) -> Vec<Step<'a>> {
    vec![
        session.word("BEGIN"),
        session.word(patience),
        // Waits for the transactions that claim; from here until the commit none begins.
        session.step(Sql::HorizonLock, Vec::new()),
        session.step(Sql::HorizonRaise, vec![horizon]),
        session.word("COMMIT"),
    ]
}

async fn answered(limits: Limits, steps: Vec<Step<'_>>) -> Result<Vec<Vec<Row>>, Failure> {
    match timeout(limits.commit(), in_order(steps)).await {
        Ok(rows) => rows.map_err(|(_, error)| Failure::new(&error)),
        Err(_) => Err(Failure::silent()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_horizon_is_waited_for_shortly_until_that_has_not_sufficed_for_a_minute() {
        assert!([0, 1, SHORT_TRIES - 1].iter().all(|misses| patience(*misses) == HORIZON_PATIENCE));
        assert!([SHORT_TRIES, u32::MAX].iter().all(|misses| patience(*misses) == HORIZON_PATIENCE_MAX));
    }
}
