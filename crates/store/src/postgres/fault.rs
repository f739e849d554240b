//! What an error of PostgreSQL means to a caller.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{Severity, SqlState};

use crate::contract::StoreError;

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The connection is gone, or good for nothing. What was under way may have been done.
    Lost,
    /// Nothing came back in time. What was under way may have been done, or may be yet; another try would only wait as long.
    Silent,
    /// Another transaction was in the way: the same again may well succeed.
    Again,
    /// The database cannot do it now: it is full, takes no more connections, or somebody holds a lock for long.
    Away,
    /// The schema or the program is not what it should be, or a row refers to one that is not there.
    Unfit,
}

/// What can be done about an error.
pub(super) fn trouble(error: &Error) -> Trouble {
    let Some(db) = error.as_db_error() else {
        let is_io = error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
        return if error.is_closed() || is_io { Trouble::Lost } else { Trouble::Unfit };
    };
    // The server ends the session, or itself, whatever the reason; a commit may be in its log all the same.
    if matches!(db.parsed_severity(), Some(Severity::Fatal | Severity::Panic)) {
        return Trouble::Lost;
    }
    let code = db.code().code();
    match code {
        // Two transactions met, or a person stopped the statement.
        "57014" | "23505" => Trouble::Again,
        // A lock was not let go in time. Whoever tries again waits as long again, and all behind with it.
        "55P03" => Trouble::Away,
        // The server ends, the session was ended, this server may only read, a plan of ours is out of date.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" | "25006" | "0A000" | "26000" => Trouble::Lost,
        _ if code.starts_with("40") => Trouble::Again,
        _ if code.starts_with("08") => Trouble::Lost,
        _ if code.starts_with("53") || code.starts_with("58") => Trouble::Away,
        _ => Trouble::Unfit,
    }
}

/// The same for the answer to `COMMIT` itself: only a few errors say that it has rolled back.
fn trouble_in_commit(error: &Error) -> Trouble {
    let rolled_back = |code: &str| code.starts_with("40") || code.starts_with("23") || code == "25P02";
    if error.code().is_some_and(|code| rolled_back(code.code())) { trouble(error) } else { Trouble::Lost }
}

/// Something that was not done, or of which nobody knows.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) trouble: Trouble,
    pub(super) why: String,
    /// Whether the database said that its disk is full.
    pub(super) is_for_want_of_room: bool,
}

impl Failure {
    pub(super) fn new(error: &Error) -> Self {
        let is_for_want_of_room = error.code() == Some(&SqlState::DISK_FULL);
        Self { trouble: trouble(error), why: words(error), is_for_want_of_room }
    }

    /// A failure that is no answer of the database.
    fn of(trouble: Trouble, why: impl Into<String>) -> Self {
        Self { trouble, why: why.into(), is_for_want_of_room: false }
    }

    /// Of the answer to `COMMIT`.
    pub(super) fn in_commit(error: &Error) -> Self {
        Self { trouble: trouble_in_commit(error), ..Self::new(error) }
    }

    pub(super) fn silent() -> Self {
        Self::of(Trouble::Silent, "the database does not answer")
    }

    /// It waited too long for its turn: what is behind it must not wait for it as well.
    pub(super) fn late() -> Self {
        Self::of(Trouble::Away, "the database is too slow: the request waited too long for its turn")
    }

    /// Its tenant has as many changes waiting as may.
    pub(super) fn crowded() -> Self {
        Self::of(Trouble::Away, "too many changes of one merchant are waiting")
    }

    /// The commit was answered, but with a warning: somebody ended its wait for the synchronous standby.
    pub(super) fn warned() -> Self {
        Self::of(Trouble::Lost, "the wait for the synchronous standby was ended")
    }

    /// Whether what was under way may have been done.
    pub(super) fn leaves_doubt(&self) -> bool {
        matches!(self.trouble, Trouble::Lost | Trouble::Silent)
    }

    /// The store's word for it, once it is known that nothing was done.
    pub(super) fn refusal(&self) -> StoreError {
        match self.trouble {
            Trouble::Unfit => StoreError::Unfit(self.why.clone()),
            Trouble::Lost | Trouble::Silent | Trouble::Again | Trouble::Away => {
                StoreError::Unavailable(self.why.clone())
            }
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(why) => Self::of(Trouble::Away, why),
            StoreError::Corrupt { .. } | StoreError::Unfit(_) => Self::of(Trouble::Unfit, error.to_string()),
        }
    }
}

/// The store's word for an error that nothing can be done about here.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err hands over")]
pub(super) fn fault(error: Error) -> StoreError {
    Failure::new(&error).refusal()
}

/// The error with its cause. What PostgreSQL adds as detail is left out: it may quote a row.
pub(super) fn words(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(db), _) if *db.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
            format!(
                "{} (42501): the role has to own the database, or a schema made for it; where somebody else owns the tables, `countersign doctor` says what to grant",
                db.message()
            )
        }
        (Some(db), _) => format!("{} ({})", db.message(), db.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
