//! What an error of SQLite means to a caller.

use rusqlite::{Error, ErrorCode};

use crate::contract::StoreError;

/// The store's word for an error of SQLite.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(super) fn fault(error: Error) -> StoreError {
    match code(&error) {
        Some(
            ErrorCode::DiskFull
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted,
        ) => StoreError::Unavailable(error.to_string()),
        // Guards are checked before the first write, so a constraint that speaks up is a caller's mistake or a damaged file.
        Some(_) | None => StoreError::Unfit(error.to_string()),
    }
}

/// Whether a commit that failed like this may nevertheless be found done after a crash.
pub(super) fn may_be_done(error: &Error) -> bool {
    code(error) == Some(ErrorCode::SystemIoFailure)
}

fn code(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::SqliteFailure(failure, _) => Some(failure.code),
        // Every other kind is about how rusqlite was called.
        _ => None,
    }
}
