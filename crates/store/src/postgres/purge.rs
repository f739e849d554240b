//! What is done to the table of nonces as a whole: its key is made, its horizon raised, its old rows deleted.

use countersign_domain::time::UnixMillis;

use super::fault::fault;
use super::nonces::Nonces;
use super::rows::Fields;
use super::session::{Dial, Session};
use super::statements::Sql;
use crate::contract::StoreError;

/// Nonces deleted in one transaction.
const NONCES_PER_DELETE: i64 = 2000;
/// Lanes that committed nothing for so long are gone, and with them whoever could ask for their marks.
const MARK_LIFE_S: i64 = 86_400;

/// The key of nonce hashes and the horizon; the first opening makes them.
pub(super) async fn begin(dial: &Dial, new_key: [u8; 16]) -> Result<([u8; 16], i64), StoreError> {
    let session = dial.session().await?;
    let make = "INSERT INTO replay (one, hash_key, horizon) VALUES (1, $1, $2) ON CONFLICT DO NOTHING";
    session.client().execute(make, &[&new_key.as_slice(), &i64::MIN]).await.map_err(fault)?;
    session.run(Sql::MarksForget, &[&MARK_LIFE_S]).await.map_err(fault)?;
    let found = session.client().query("SELECT one, hash_key, horizon FROM replay", &[]).await.map_err(fault)?;
    let Some(row) = found.first() else {
        return Err(StoreError::Corrupt { table: "replay", row: "1".to_owned() });
    };
    let mut f = Fields::new(row, "replay", 1, 0);
    Ok((f.bytes()?, f.int()?))
}

/// Raises the horizon, durably and for all nodes, then deletes what lies at or before it.
pub(super) async fn purge(dial: &Dial, nonces: &Nonces, horizon: UnixMillis) -> Result<(), StoreError> {
    let session = dial.session().await?;
    if horizon.0 > nonces.horizon() {
        nonces.raise_horizon(raise(&session, horizon.0).await?);
    }
    nonces.forget();
    loop {
        let deleted = session.run(Sql::NoncesForget, &[&NONCES_PER_DELETE]).await.map_err(fault)?.len();
        if i64::try_from(deleted).is_ok_and(|deleted| deleted < NONCES_PER_DELETE) {
            return Ok(());
        }
    }
}

async fn raise(session: &Session, horizon: i64) -> Result<i64, StoreError> {
    session.word("BEGIN").await.map_err(fault)?;
    // Waits for the transactions that claim; from here until the commit none begins.
    session.run(Sql::HorizonLock, &[]).await.map_err(fault)?;
    let raised = session.run(Sql::HorizonRaise, &[&horizon]).await.map_err(fault)?;
    session.word("COMMIT").await.map_err(fault)?;
    let Some(row) = raised.first() else {
        return Err(StoreError::Corrupt { table: "replay", row: "1".to_owned() });
    };
    Fields::new(row, "replay", 0, 0).int()
}
