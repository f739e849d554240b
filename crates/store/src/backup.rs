//! A copy of a deployment in one file, whatever database it lives in, and back from it.
//!
//! The copy is a SQLite file of the current schema. It shows one moment: a prefix of what was acknowledged, and nothing of what was not.
//! Neither way stops whoever writes meanwhile.

use std::path::Path;

use crate::contract::StoreError;
use crate::moving::TABLES;
use crate::postgres::PostgresOptions;
use crate::postgres::snapshot::Snapshot;
use crate::sqlite::copying::Image;

/// Portions of rows that wait to be written into the copy.
const PORTIONS_AHEAD: usize = 4;

/// Copies a PostgreSQL database into an empty file. Servers may run on it.
pub async fn of_postgres(options: &PostgresOptions, to: &Path) -> Result<(), StoreError> {
    let snapshot = Snapshot::take(options).await?;
    let mut image = Image::create(to)?;
    let known = snapshot.known_nonces().await?;
    // Rows are written on a thread of their own: the file's disk and the database's answer need not wait for each other.
    let (sender, mut portions) = tokio::sync::mpsc::channel(PORTIONS_AHEAD);
    let writer = tokio::task::spawn_blocking(move || {
        while let Some((table, rows)) = portions.blocking_recv() {
            let rows: Vec<Vec<crate::moving::Cell>> = rows;
            image.add(table, &rows)?;
        }
        Ok::<_, StoreError>(image)
    });
    for table in TABLES.iter().filter(|table| Image::has(table)) {
        let rows = snapshot.open(table).await?;
        loop {
            let portion = rows.next().await?;
            if portion.is_empty() {
                break;
            }
            if sender.send((table, portion)).await.is_err() {
                // The writer has ended early; it says why.
                break;
            }
        }
    }
    drop(sender);
    let image =
        writer.await.map_err(|error| StoreError::Unavailable(format!("the copy was broken off: {error}")))??;
    image.finish(&known)
}
