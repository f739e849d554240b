//! What an error of PostgreSQL means to a caller.

use std::error::Error as _;

use tokio_postgres::Error;

use crate::contract::StoreError;

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection is gone, or good for nothing. What was under way may have been done.
    Lost,
    /// Another transaction was in the way: the same again may well succeed.
    Again,
    /// The database cannot do it now: it is full, or takes no more connections.
    Away,
    /// The schema or the program is not what it should be, or a row refers to one that is not there.
    Unfit,
}

/// What can be done about an error.
pub(super) fn trouble(error: &Error) -> Trouble {
    let Some(code) = error.code() else {
        let is_io = error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
        return if error.is_closed() || is_io { Trouble::Lost } else { Trouble::Unfit };
    };
    let code = code.code();
    match code {
        // Two transactions met; a lock or a statement took too long.
        "55P03" | "57014" | "23505" => Trouble::Again,
        // The server ends, the session was ended, this server may only read, a plan of ours is out of date.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25006" | "0A000" | "26000" => Trouble::Lost,
        _ if code.starts_with("40") => Trouble::Again,
        _ if code.starts_with("08") => Trouble::Lost,
        _ if code.starts_with("53") || code.starts_with("58") => Trouble::Away,
        _ => Trouble::Unfit,
    }
}

/// The store's word for an error that nothing can be done about here.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(super) fn fault(error: Error) -> StoreError {
    match trouble(&error) {
        Trouble::Lost | Trouble::Again | Trouble::Away => StoreError::Unavailable(words(&error)),
        Trouble::Unfit => StoreError::Unfit(words(&error)),
    }
}

/// The error with its cause. What PostgreSQL adds as detail is left out: it may quote a row.
pub(super) fn words(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(db), _) => format!("{} ({})", db.message(), db.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
