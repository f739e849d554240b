//! Which deployment the database holds, as far as this process has seen.
//!
//! A database can be dropped under nodes that run, or renamed, and another one be filled from a backup and take its name; so can a schema, and then
//! connections stay. The nodes connect anew by themselves; but what they know is of the one before: whether callbacks are held, which nonces are
//! used, where audit chains end.
//!
//! Invariant: no connection is made for a store to another deployment than the one that it was opened with, nor to one that a move or a restore is
//! filling. Those that are there are given up with the next look at the directory, within a second or so.

use std::sync::OnceLock;

use tokio::sync::watch;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::PostgresStore;

/// When the deployment was made, which move or restore filled this database (null: none did), and when that move was complete. A copy of a database
/// has its original's time of making, and a move of its own.
const WHICH: &str = "SELECT (SELECT value FROM setting WHERE name = 'initialised_at'), move_id, completed_at
                     FROM (SELECT 1) one LEFT JOIN move_record ON true";
/// SQLSTATE of a table that is not there.
const NO_TABLE: &str = "42P01";
const NO_TABLES: &str = "it has no tables of ours any more, or not yet, or its role may not use their schema any more";
const NONE: &str = "it holds no deployment";
const UNDER_WAY: &str = "a move or a restore into it is not finished";
const ANOTHER: &str = "another deployment, or a restored copy, is in the place of the one that was served";

/// A deployment in a database.
#[derive(Debug, PartialEq, Eq)]
struct Deployment {
    initialised_at: String,
    filled: Option<(String, String)>,
}

/// The deployment that is served.
#[derive(Debug)]
pub(super) struct Served {
    known: OnceLock<Deployment>,
    is_replaced: watch::Sender<bool>,
}

impl Served {
    pub(super) fn new() -> Self {
        Self { known: OnceLock::new(), is_replaced: watch::Sender::new(false) }
    }

    /// Takes the deployment that this connection leads to for the one that is served. Takes none where the database holds none, as while a deployment
    /// is being made.
    pub(super) async fn settle(&self, client: &Client) -> Result<(), Error> {
        if let Ok(found) = which(client).await? {
            // Whoever opens a store does so once.
            let _ = self.known.set(found);
        }
        Ok(())
    }

    /// Whether a connection goes to the deployment that is served, or why it must not be used.
    pub(super) async fn meets(&self, client: &Client) -> Result<Result<(), &'static str>, Error> {
        let Some(known) = self.known.get() else { return Ok(Ok(())) };
        Ok(match which(client).await? {
            Ok(found) if found == *known => Ok(()),
            Ok(_) => {
                if !self.is_replaced.send_replace(true) {
                    tracing::error!(
                        "The database holds another deployment than the one that was served, or a copy of it that was restored: nothing is done in it before a new start"
                    );
                }
                Err(ANOTHER)
            }
            Err(why) => Err(why),
        })
    }

    /// Waits until another deployment was met.
    pub(super) async fn replaced(&self) {
        // The sender lives as long as this does.
        let _ = self.is_replaced.subscribe().wait_for(|is| *is).await;
    }
}

async fn which(client: &Client) -> Result<Result<Deployment, &'static str>, Error> {
    let said = match client.simple_query(WHICH).await {
        Ok(said) => said,
        Err(error) if error.code().is_some_and(|code| code.code() == NO_TABLE) => {
            return Ok(Err(NO_TABLES));
        }
        Err(error) => return Err(error),
    };
    let row = said.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let Some(row) = row else { return Ok(Err(NONE)) };
    let filled = match (row.get(1), row.get(2)) {
        (Some(_), None) => return Ok(Err(UNDER_WAY)),
        (Some(by), Some(at)) => Some((by.to_owned(), at.to_owned())),
        (None, _) => None,
    };
    let initialised_at = row.get(0).map(str::to_owned);
    Ok(initialised_at.map(|initialised_at| Deployment { initialised_at, filled }).ok_or(NONE))
}

impl PostgresStore {
    /// Waits until the database holds another deployment than the one that was opened, or a copy of it that was restored. From then on nothing is read
    /// or written.
    pub async fn replaced(&self) {
        self.dial.served().replaced().await;
    }
}
