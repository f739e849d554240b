//! Why a call did not give its data.

use std::time::Duration;

use countersign_protocol::code::Code;
use thiserror::Error as ThisError;

/// Why a call did not give its data. [`Error::may_have_been_done`] tells whether the server may have acted all the same.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// The client was built or used wrongly; nothing was sent.
    #[error("{0}")]
    Usage(String),
    /// No answer came, or it broke off. The deepest cause is in the text, the way there in the sources.
    #[error("no answer from the server: {}", deepest(.0))]
    Transport(#[source] reqwest::Error),
    /// The server refused, with a code that this SDK knows.
    #[error("{label} ({}): {message}{}", .code.code(), request(.request_id.as_deref()))]
    Refused {
        /// What to match on.
        code: Code,
        /// The code's name as sent.
        label: String,
        /// What to change, in a sentence for people.
        message: String,
        /// The HTTP status.
        http_status: u16,
        /// Finds the request in the server's logs: quote it when you ask for help.
        request_id: Option<String>,
        /// When to come again, in seconds, where the server says so: an hour at most.
        retry_after_s: Option<u32>,
    },
    /// The server refused, with a code that is newer than this SDK.
    #[error("{label} ({code}): {message}{}", request(.request_id.as_deref()))]
    RefusedNewly {
        /// The six digits as sent.
        code: String,
        /// The code's name as sent.
        label: String,
        /// What to change, in a sentence for people.
        message: String,
        /// The HTTP status.
        http_status: u16,
        /// Finds the request in the server's logs.
        request_id: Option<String>,
        /// When to come again, in seconds, where the server says so: an hour at most.
        retry_after_s: Option<u32>,
    },
    /// An answer came that is not of this service: a proxy's page, or something broken.
    #[error("the answer (HTTP {http_status}) cannot be read: {why}{}{}", begins(.body_begins), request(.request_id.as_deref()))]
    Unreadable {
        /// The HTTP status.
        http_status: u16,
        /// What is wrong with it.
        why: String,
        /// The first 200 bytes of its body, as text in which what does not print is escaped.
        body_begins: String,
        /// The server's name for the request, where one came.
        request_id: Option<String>,
        /// The `Date` header in Unix milliseconds, cut to the second.
        date_ms: Option<i64>,
        /// When to come again, in seconds, where whoever answered says so: see [`Answer::retry_after_s`](crate::Answer::retry_after_s).
        retry_after_s: Option<u32>,
    },
}

/// What went wrong at the bottom: of "error sending request", "client error" and "tcp connect error" it is the last that says why.
fn deepest(error: &reqwest::Error) -> String {
    let mut deepest: &dyn std::error::Error = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// What to quote to the operator.
fn request(id: Option<&str>) -> String {
    id.map_or_else(String::new, |id| format!(" (request {})", id.escape_debug()))
}

fn begins(body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("; it begins with {body}") }
}

impl Error {
    /// The code of a refusal that this SDK knows.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Usage(_) | Self::Transport(_) | Self::RefusedNewly { .. } | Self::Unreadable { .. } => None,
        }
    }

    /// The server's name for the request, where an answer came.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Refused { request_id, .. }
            | Self::RefusedNewly { request_id, .. }
            | Self::Unreadable { request_id, .. } => request_id.as_deref(),
            Self::Usage(_) | Self::Transport(_) => None,
        }
    }

    /// The HTTP status, where an answer came.
    pub const fn http_status(&self) -> Option<u16> {
        match self {
            Self::Refused { http_status, .. }
            | Self::RefusedNewly { http_status, .. }
            | Self::Unreadable { http_status, .. } => Some(*http_status),
            Self::Usage(_) | Self::Transport(_) => None,
        }
    }

    /// What to change, in the words of a server that refused.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Refused { message, .. } | Self::RefusedNewly { message, .. } => Some(message),
            Self::Usage(_) | Self::Transport(_) | Self::Unreadable { .. } => None,
        }
    }

    /// The name of the code of a refusal, as sent.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Refused { label, .. } | Self::RefusedNewly { label, .. } => Some(label),
            Self::Usage(_) | Self::Transport(_) | Self::Unreadable { .. } => None,
        }
    }

    /// When to come again, where whoever answered says so, a balancer too: an hour at most ([`RETRY_AFTER_S_MAX`](crate::answer::RETRY_AFTER_S_MAX)).
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after_s, .. }
            | Self::RefusedNewly { retry_after_s, .. }
            | Self::Unreadable { retry_after_s, .. } => {
                retry_after_s.map(|seconds| Duration::from_secs(seconds.into()))
            }
            Self::Usage(_) | Self::Transport(_) => None,
        }
    }

    /// Whether a call that changes something may have changed it all the same. All but one operation can simply be repeated then, and the answer says
    /// what is so; after `rule_upgrade` find out first, since a repeat adds another version: see [`Error::advice`].
    /// A refusal means that nothing was done, but for an internal error of the server, and for a nonce that was used before:
    /// this client uses none twice, so something on the way has sent the request twice, and the first copy may have been done.
    /// It is true of every answer that cannot be read, whatever its status: nobody knows what a gateway had sent on before it gave up.
    pub fn may_have_been_done(&self) -> bool {
        match self {
            Self::Usage(_) => false,
            Self::Transport(cause) => !(cause.is_connect() || cause.is_builder()),
            Self::Refused { code, .. } => matches!(code, Code::InternalError | Code::NonceReused),
            Self::RefusedNewly { http_status, .. } => *http_status >= 500,
            Self::Unreadable { .. } => true,
        }
    }

    /// What to do now, by the table "What may be repeated" of docs/PROTOCOL.md.
    pub fn advice(&self) -> Advice {
        match self {
            _ if self.may_have_been_done() => Advice::RepeatOrFindOut,
            Self::Transport(_)
            | Self::Refused { code: Code::RateLimited | Code::ServiceUnavailable, .. }
            | Self::RefusedNewly { http_status: 429, .. } => Advice::RepeatLater,
            Self::Refused { code: Code::TimestampOutOfRange, .. } => Advice::SetClock,
            Self::Usage(_) | Self::Refused { .. } | Self::RefusedNewly { .. } | Self::Unreadable { .. } => {
                Advice::Change
            }
        }
    }

    /// Whether the same call may be answered later: nothing was done and the service is busy or not to be reached, or refuses the timestamp
    /// ([`Advice::SetClock`]: after a restore it does so for some half a minute, which passes by itself); or the answer was lost. Wait for
    /// [`retry_after`](Self::retry_after), or for a moment, and repeat; but not `rule_upgrade`, if it [may have been done](Self::may_have_been_done).
    /// Where it is false the same call may still be answered once somebody has changed something, such as the secret: what must not be lost is not
    /// dropped for it.
    pub fn is_temporary(&self) -> bool {
        match self.advice() {
            Advice::RepeatLater | Advice::RepeatOrFindOut | Advice::SetClock => true,
            Advice::Change => false,
        }
    }
}

/// What to do after a call that did not give its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing was done. Repeat it after [`Error::retry_after`], or after a moment.
    RepeatLater,
    /// It may have been done. Repeat it until it is answered: a read changes nothing, and what makes or closes an order, converts, or makes a first rule
    /// is done once, however often it is asked for with the same content. After `rule_upgrade` alone find out first, by `rule_list`.
    RepeatOrFindOut,
    /// Nothing was done. The client has set its clock by the server's and asked once more already; the sentence of the refusal may name an instant to
    /// wait for, as after a restore.
    SetClock,
    /// Nothing was done, and the same again does not help: change what the sentence says. The exception is a 400001 ([`Code::InvalidParameter`]) whose
    /// sentence says that the body did not arrive in time: that is the network, and the same may be sent again.
    Change,
}
