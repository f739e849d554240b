//! What an error of SQLite means to a caller.

use rusqlite::{Error, ErrorCode, ffi};

use crate::contract::StoreError;

/// The store's word for an error of SQLite.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(super) fn fault(error: Error) -> StoreError {
    if let Some(why) = hint(&error) {
        return StoreError::Unavailable(format!("{error}: {why}"));
    }
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
        // SQLite says the same of a file whose disk refuses to be read.
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Unfit(format!(
            "the file is damaged, or its disk fails ({error}): look at the disk first; where that is well, restore a backup"
        )),
        // Guards are checked before the first write, so a constraint that speaks up is a caller's mistake or a damaged file.
        Some(_) | None => StoreError::Unfit(error.to_string()),
    }
}

/// Whether a commit that failed like this may nevertheless be found done after a crash.
///
/// Where a write failed it is not: the last frame of a transaction makes it one, and a frame that is not whole is none. SQLite reports a file
/// at its size limit and a quota that is used up like this, and a full disk by a code of its own. After the last frame come only its sync and the
/// index in shared memory.
pub(super) fn may_be_done(error: &Error) -> bool {
    code(error) == Some(ErrorCode::SystemIoFailure) && extended(error) != Some(ffi::SQLITE_IOERR_WRITE)
}

/// What the general words of SQLite leave out: which file may not grow, or may not be opened or written.
fn hint(error: &Error) -> Option<&'static str> {
    match code(error) {
        Some(ErrorCode::ReadOnly) => {
            return Some(
                "whoever runs this must be able to write the file, those beside it that end in -wal and -shm, and the folder",
            );
        }
        Some(ErrorCode::CannotOpen) => {
            return Some(
                "whoever runs this must be able to read and write the file, those beside it that end in -wal and -shm, and the folder, and may not have too many files open",
            );
        }
        _ => {}
    }
    match extended(error)? {
        ffi::SQLITE_IOERR_WRITE => {
            Some("a file cannot be written or may not grow; look for a quota, a size limit, a failing disk")
        }
        ffi::SQLITE_IOERR_SHMSIZE => {
            Some("the file beside the database that ends in -shm may not grow; is the disk full?")
        }
        _ => None,
    }
}

fn extended(error: &Error) -> Option<i32> {
    match error {
        Error::SqliteFailure(failure, _) => Some(failure.extended_code),
        _ => None,
    }
}

fn code(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::SqliteFailure(failure, _) => Some(failure.code),
        // Every other kind is about how rusqlite was called.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_whose_write_failed_is_not_done_and_one_whose_sync_failed_may_be() {
        for (failed, open) in [
            (ffi::SQLITE_FULL, false),
            (ffi::SQLITE_IOERR_WRITE, false),
            (ffi::SQLITE_IOERR_FSYNC, true),
            (ffi::SQLITE_IOERR_SHMSIZE, true),
            (ffi::SQLITE_IOERR, true),
        ] {
            let error = Error::SqliteFailure(ffi::Error::new(failed), None);
            assert_eq!(may_be_done(&error), open, "{failed}");
            assert!(matches!(fault(error), StoreError::Unavailable(_)), "{failed}");
        }
    }

    #[test]
    fn a_file_that_may_not_be_opened_or_written_is_said_to_have_others_beside_it() {
        for code in
            [ffi::SQLITE_READONLY, ffi::SQLITE_READONLY_DIRECTORY, ffi::SQLITE_CANTOPEN, ffi::SQLITE_CANTOPEN_FULLPATH]
        {
            let said = fault(Error::SqliteFailure(ffi::Error::new(code), None));
            assert!(matches!(&said, StoreError::Unavailable(why) if why.contains("-wal and -shm")), "{said}");
        }
    }
}
