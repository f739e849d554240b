//! A move: all rows of a SQLite file into an empty PostgreSQL database, and a proof that both hold the same.
//!
//! Invariant: rows and the note of how many are there are one transaction, so a move that was killed goes on where it was.
//! Invariant: the target is complete before the source is marked as moved, and until it is complete nobody serves it. The source is
//! marked before the first row is copied, so from then on nobody serves that either, unless told to.

mod cell;
mod chains;
mod proof;
mod tables;

use std::path::PathBuf;

use countersign_domain::time::UnixMillis;
use thiserror::Error;

use crate::contract::StoreError;
use crate::postgres::PostgresOptions;
use crate::postgres::moving::{RESTORE, Record, Target};
use crate::read::hex;
use crate::sqlite::moving::Source;
use crate::sqlite::{MoveMark, SqliteOptions, SqliteStore};

pub(crate) use cell::{Cell, read};
pub(crate) use tables::{TABLES, Table};

/// Rows of one transaction, at most, unless told otherwise.
pub const ROWS_PER_PORTION: usize = 5000;
/// Bytes of one transaction, about; a row that is larger goes alone.
const BYTES_PER_PORTION: usize = 4 * 1024 * 1024;

/// What is moved, and to where.
#[derive(Debug)]
pub struct Move {
    /// The SQLite file. The caller sees to it that nobody serves it.
    pub from: PathBuf,
    /// How the file is opened.
    pub sqlite: SqliteOptions,
    /// The database. Its schema is made where there is none.
    pub to: PostgresOptions,
    /// 16 random bytes: the name of this move, if it is not one that was begun before.
    pub id: [u8; 16],
    /// The time, for the record.
    pub now: UnixMillis,
    /// Rows of one transaction, at most: [`ROWS_PER_PORTION`].
    pub rows_per_portion: usize,
    /// Whether it is a copy that becomes a deployment beside the one it was taken from, which may have gone on: then what is stamped up to so
    /// many ms after the end, by the database's clock, is refused.
    pub refuse_ahead_ms: Option<i64>,
}

/// How far a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many rows are to be copied, and so many of them were copied before.
    Begun {
        /// In all tables.
        rows: u64,
        /// By a run before this one.
        already: u64,
    },
    /// Rows that were copied, durably.
    Copied {
        /// To which table.
        table: &'static str,
        /// How many more.
        rows: u64,
    },
    /// Rows that were read on both sides and are the same.
    Compared {
        /// Of which table.
        table: &'static str,
        /// How many more.
        rows: u64,
    },
}

/// What was proved of one table: both sides have these rows, and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableReport {
    /// Which table.
    pub table: &'static str,
    /// How many rows.
    pub rows: u64,
    /// The sum of each column of integers.
    pub sums: Vec<(&'static str, i128)>,
    /// SHA-256 over all values of all rows in the order of the key, in hexadecimal.
    pub digest: String,
}

/// What was proved of one kind of chain: every head is its newest link, and no link is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainReport {
    /// What hangs together.
    pub about: &'static str,
    /// How many links were followed.
    pub links: u64,
}

/// What a finished move came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Every table. Empty if an earlier run had proved the copy and only the source was left to be marked.
    pub tables: Vec<TableReport>,
    /// Every kind of chain.
    pub chains: Vec<ChainReport>,
    /// Requests stamped at or before this are refused by the target.
    pub horizon: Option<UnixMillis>,
    /// Where the deployment lives now: host and database.
    pub place: String,
}

/// Why a move did not come to its end.
#[derive(Debug, Error)]
pub enum MoveError {
    /// One of the databases could not, or is not what it should be. Run again, it goes on.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nothing was changed: one sentence that says why.
    #[error("{0}")]
    Refused(String),
    /// The same: the source was moved there, and its copy is not needed any more.
    #[error("this deployment was moved to {0} already")]
    MovedAlready(String),
    /// The copy is not what the source is. Nobody will serve it.
    #[error("the copy differs in table {table}: {what}; nobody can serve it: move into another, empty database")]
    Differs {
        /// The first table that differs.
        table: &'static str,
        /// The first row that differs, and how.
        what: String,
    },
}

/// What is left to do.
enum Left {
    /// Everything, or what an earlier run left.
    Copy,
    /// The target is complete.
    MarkSource,
    Nothing,
}

/// Moves, or goes on with a move that was cut off, and proves the copy.
pub async fn run(order: Move, mut tell: impl FnMut(Progress)) -> Result<Report, MoveError> {
    let Move { from, sqlite, to, id, now, rows_per_portion, refuse_ahead_ms } = order;
    // To open the file brings its schema up to date. Whoever cannot move it goes on with the program that it has, so it is only looked at
    // until the target is known to take it.
    SqliteStore::schema_state(&from)?;
    if SqliteStore::peek(&from, "initialised_at")?.is_none() {
        return Err(MoveError::Refused(format!("{} holds no deployment: it was never initialised", from.display())));
    }
    let mut target = Target::reach(&to).await?;
    let mut source = Source::open(&from, sqlite)?;
    let place = target.place.clone();
    let mut report = Report { tables: Vec::new(), chains: Vec::new(), horizon: None, place: place.clone() };
    let kind = if refuse_ahead_ms.is_some() { RESTORE } else { "" };
    match begin(&mut source, &mut target, format!("{kind}{}", hex(&id)), now).await? {
        Left::Copy => {}
        Left::MarkSource => {
            report.horizon = target.horizon().await?;
            source.finish(&place)?;
            return Ok(report);
        }
        Left::Nothing => {
            report.horizon = target.horizon().await?;
            return Ok(report);
        }
    }
    copy(&source, &mut target, rows_per_portion.max(1), &mut tell).await?;
    for table in TABLES {
        report.tables.push(proof::table(&source, &mut target, table, &mut tell).await?);
    }
    report.chains = chains::follow(&target).await?;
    let horizon = source.newest_accepted()?;
    // Whoever dies behind it knows that somebody may serve the copy.
    source.end(&place)?;
    let horizon = target.complete(to.window_key, (horizon, refuse_ahead_ms), now).await?;
    source.finish(&place)?;
    report.horizon = Some(horizon);
    Ok(report)
}

/// Sees whether source and target belong together, and marks both.
async fn begin(source: &mut Source, target: &mut Target, id: String, now: UnixMillis) -> Result<Left, MoveError> {
    let place = target.place.clone();
    let (record, own, mark) = (target.record().await?, source.move_id()?, source.mark()?);
    match (record, mark) {
        (Some(Record { move_id, is_complete }), mark) if Some(&move_id) == own.as_ref() => match (is_complete, mark) {
            (true, Some(MoveMark::Done(_))) => Ok(Left::Nothing),
            (true, Some(MoveMark::Begun(_) | MoveMark::Ending(_)) | None) => Ok(Left::MarkSource),
            // Where the source says that it was done, a failover has lost the end of it. The source was not served since.
            (false, _) => Ok(Left::Copy),
        },
        (Some(other), _) => Err(MoveError::Refused(filled(&place, &other))),
        (None, Some(MoveMark::Done(place))) => Err(MoveError::MovedAlready(place)),
        (None, Some(MoveMark::Ending(other))) if other != place => Err(MoveError::Refused(may_be_complete(&other))),
        (None, Some(MoveMark::Begun(_) | MoveMark::Ending(_)) | None) => {
            // Another name than that of a move to another database, which can never be completed now.
            source.begin(&id, &place)?;
            target.begin(&id, now).await?;
            Ok(Left::Copy)
        }
    }
}

/// Why nothing can be copied into a database that another move or restore has filled, or has begun to.
pub(crate) fn filled(place: &str, other: &Record) -> String {
    let by = match (other.is_restore(), other.is_complete) {
        (true, true) => "was filled by a restore: name an empty database",
        (true, false) => {
            "holds part of a restore that was begun from another data folder, of another backup, or before its folder `restoring` was removed: run \
             that one again from its folder, or name an empty database"
        }
        (false, true) => {
            "was filled by a move of another deployment, or of this one before it was served again: name an empty database"
        }
        (false, false) => {
            "holds part of a move of another deployment, or of this one before it was served again: run that move again, or name an empty database"
        }
    };
    format!("the database {place} {by}")
}

fn may_be_complete(place: &str) -> String {
    format!(
        "a move of this deployment to {place} was cut off at its end, and that database may be complete and served: run the move to it again; where \
         it is gone for good, take the deployment back with `countersign serve --serve-moved` first"
    )
}

async fn copy(
    source: &Source,
    target: &mut Target,
    rows_max: usize,
    tell: &mut impl FnMut(Progress),
) -> Result<(), MoveError> {
    let (mut rows, mut already) = (0, 0);
    for table in TABLES {
        rows += source.count(table)?;
        already += target.progress(table).await?;
    }
    tell(Progress::Begun { rows, already });
    for table in TABLES {
        let mut here = target.progress(table).await?;
        let mut portions = source.rows(table, here, rows_max, BYTES_PER_PORTION);
        while let Some(portion) = portions.next().await? {
            target.append(table, here, &portion).await?;
            let rows = portion.len() as u64;
            here += rows;
            tell(Progress::Copied { table: table.name, rows });
        }
    }
    if already < rows {
        target.analyze().await?;
    }
    Ok(())
}
