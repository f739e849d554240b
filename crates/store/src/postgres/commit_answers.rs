//! What the callers of one transaction are told once it has ended.

use tokio_postgres::Row;

use super::commit_lane::{Answer, Job};
use super::plan::{Grouped, Numbers, Statement, grouped, read_numbers};
use super::statements::Sql;
use crate::batch::{Batch, Committed};
use crate::contract::{CommitError, StoreError};

pub(super) fn numbers_among(writes: &[Statement<'_>], rows: &[Vec<Row>]) -> Option<Numbers> {
    let at = writes.iter().position(|(sql, _)| matches!(sql, Sql::EventsInsert));
    let rows = at.and_then(|at| rows.get(at)).map_or(&[][..], Vec::as_slice);
    read_numbers(rows).ok()
}

/// What each caller is told once the transaction is durable.
pub(super) fn answers(jobs: &[Job], verdicts: Vec<Result<(), CommitError>>, numbers: Option<&Numbers>) -> Vec<Answer> {
    let of_batch = |batch: &Batch| {
        let mut committed = Committed::default();
        for write in batch.0.iter().filter_map(grouped) {
            if let Grouped::Event(event) = write {
                // Done, but the numbers cannot be told: the caller may look for the event.
                let given = numbers
                    .and_then(|numbers| numbers.get(&(event.tenant.0, event.no.0)))
                    .ok_or(CommitError::Unknown)?;
                committed.events.push(*given);
            }
        }
        Ok(committed)
    };
    jobs.iter().zip(verdicts).map(|(job, verdict)| verdict.and_then(|()| of_batch(&job.batch))).collect()
}

/// What a caller is told when nobody knows how the commit ended. Of a batch that was refused nothing was done in any case.
pub(super) fn unknown(verdict: &Result<(), CommitError>) -> Answer {
    match verdict {
        Ok(()) => Err(CommitError::Unknown),
        Err(_) => Err(StoreError::Unavailable("the connection to the database broke".to_owned()).into()),
    }
}
