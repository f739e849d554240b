//! A store that takes no changes: told once and not with every request, and whoever asks for readiness hears of it.
//!
//! A read finds nothing wrong with a full disk. So a refusal of the store rings here, and somebody tries a real write.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use countersign_domain::time::rfc3339;
use countersign_store::batch::{Batch, Write};
use countersign_store::{CommitError, Store as _, StoreError};
use tokio::sync::Notify;

use super::App;
use crate::repeated_warning::{RepeatedWarning, SharedWarning};

/// How often the log says that the store does not answer.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// The same where it does so for another reason than the last time.
const SAID_EVERY_NEW: Duration = Duration::from_secs(1);
/// The reason, in its line of the log, of a request that the store did not answer.
pub const STORE_AWAY: &str = "store_away";
/// The same where the store holds what cannot be read, or may not do what it should: repeating does not help.
pub const STORE_FAULT: &str = "store_fault";
/// Where a trial is written to.
const TRIAL: &str = "last_trial_at";

/// Why nothing can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoChanges {
    /// The store refuses changes, so none is made.
    Refused,
    /// The store does not answer changes. One that waits may still be made.
    Unanswered,
    /// The store takes changes, and its nonce journal no records: no signed query is answered.
    NoJournal,
}

impl NoChanges {
    /// The same in words.
    const fn sentence(self) -> &'static str {
        match self {
            Self::Refused => "the store takes no changes",
            Self::Unanswered => "the store does not answer changes",
            Self::NoJournal => {
                "the nonce journal cannot be written, so no signed query is answered: look whether files can be made in the data folder"
            }
        }
    }

    /// Whether changes are made all the same, and callbacks go.
    const fn takes_changes(self) -> bool {
        matches!(self, Self::NoJournal)
    }
}

/// What the last trial found.
#[derive(Debug)]
struct NotReady {
    why: NoChanges,
    /// What the store said; empty: nothing.
    cause: String,
}

/// What is known of the store's trouble.
#[derive(Debug, Default)]
pub struct Trouble {
    warning: SharedWarning,
    faults: Mutex<Faults>,
    not_ready: Mutex<Option<NotReady>>,
    /// Whether no change is made for that reason: asked for by each pass of the dispatcher.
    takes_none: AtomicBool,
    bell: Notify,
}

/// What repeating does not help against: the last one that was said, and when.
#[derive(Debug, Default)]
struct Faults {
    warning: RepeatedWarning,
    said: String,
}

impl Faults {
    /// As [`RepeatedWarning::due`]; what was not said last is due sooner, so that one fault does not hide another.
    fn due(&mut self, fault: &str, now: Instant) -> Option<u64> {
        let is_new = self.said != fault;
        let refused = self.warning.due(if is_new { SAID_EVERY_NEW } else { SAID_EVERY }, now)?;
        if is_new {
            fault.clone_into(&mut self.said);
        }
        Some(refused)
    }
}

impl Trouble {
    /// The store refused a request. Whoever asked for it is told by their answer.
    pub fn met(&self, cause: &dyn Display) {
        say(self.warning.due(SAID_EVERY), cause);
        self.bell.notify_one();
    }

    /// The store could not answer a request. The log says so now and then; the request's own line has this reason, and the cause as its message.
    pub fn failed(&self, error: &StoreError) -> &'static str {
        match error {
            StoreError::Unavailable(cause) => {
                self.met(cause);
                STORE_AWAY
            }
            StoreError::Corrupt { .. } | StoreError::Unfit(_) => {
                let said = error.to_string();
                let due = self.faults.lock().unwrap_or_else(PoisonError::into_inner).due(&said, Instant::now());
                say(due, &said);
                STORE_FAULT
            }
        }
    }

    /// Waits until the store refuses a request.
    pub async fn rung(&self) {
        self.bell.notified().await;
    }

    /// Notes how the last trial went. Answers whether the node became ready by it, or ceased to be.
    pub fn found(&self, outcome: Option<NoChanges>) -> bool {
        self.note(outcome.map(|why| NotReady { why, cause: String::new() }))
    }

    /// The same for one that failed, with what the store said.
    pub fn found_failing(&self, why: NoChanges, cause: &dyn Display) -> bool {
        self.note(Some(NotReady { why, cause: cause.to_string() }))
    }

    fn note(&self, outcome: Option<NotReady>) -> bool {
        let mut not_ready = self.not_ready.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = not_ready.is_some() != outcome.is_some();
        let takes_none = outcome.as_ref().is_some_and(|found| !found.why.takes_changes());
        self.takes_none.store(takes_none, Ordering::Relaxed);
        *not_ready = outcome;
        is_news
    }

    /// Whether changes can be made, as far as anybody knows.
    pub fn takes_changes(&self) -> bool {
        !self.takes_none.load(Ordering::Relaxed)
    }

    /// Why nothing can be changed now; none where nobody found so.
    pub fn why_not_ready(&self) -> Option<NoChanges> {
        self.not_ready.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|found| found.why)
    }

    /// The same in words, with what a store in the data folder said.
    pub fn sentence(&self, is_shared: bool) -> Option<String> {
        let not_ready = self.not_ready.lock().unwrap_or_else(PoisonError::into_inner);
        let NotReady { why, cause } = not_ready.as_ref()?;
        let said = why.sentence();
        Some(match why {
            NoChanges::Unanswered => format!("{said}: {}", where_to_look(is_shared)),
            // What PostgreSQL says names its host and its users, and whoever asks for readiness has shown no token.
            NoChanges::Refused if is_shared => format!("{said}: the log of this node says why"),
            NoChanges::Refused if !cause.is_empty() => format!("{said}: {cause}"),
            NoChanges::Refused | NoChanges::NoJournal => said.to_owned(),
        })
    }
}

/// Where a store that does not answer may be stuck: one that nodes share, or one in the data folder.
pub const fn where_to_look(is_shared: bool) -> &'static str {
    if is_shared {
        "look whether a synchronous standby is away, the disk of the database's server hangs, or somebody holds a lock"
    } else {
        "look whether its disk hangs, or another program holds the database"
    }
}

fn say(due: Option<u64>, cause: &dyn Display) {
    if let Some(refused) = due {
        tracing::error!(refused, "The store could not answer: {cause}");
    }
}

/// Whether a change can be made at all, by making one that tells nobody anything; and whether what signed queries need can be written.
pub async fn try_a_change(app: &App) -> Result<(), (NoChanges, CommitError)> {
    let refused = |error| (NoChanges::Refused, error);
    let value = rfc3339(app.clock.now());
    app.store.commit(Batch(vec![Write::PutSetting { name: TRIAL.to_owned(), value }])).await.map_err(refused)?;
    app.store.has_room().await.map_err(|error| refused(error.into()))?;
    app.store.has_journal().map_err(|error| (NoChanges::NoJournal, error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fault_does_not_hide_another() {
        let (mut faults, now) = (Faults::default(), Instant::now());
        assert_eq!((faults.due("row 7", now), faults.due("row 7", now + SAID_EVERY_NEW)), (Some(1), None));
        assert_eq!(faults.due("no right", now + SAID_EVERY_NEW / 2), None, "that soon only one is said");
        assert_eq!(faults.due("no right", now + SAID_EVERY_NEW), Some(3));
        assert_eq!(faults.due("no right", now + SAID_EVERY), None);
        assert_eq!(faults.due("no right", now + SAID_EVERY_NEW + SAID_EVERY), Some(2));
    }

    #[test]
    fn whoever_asks_why_hears_what_the_store_said() {
        let trouble = Trouble::default();
        assert_eq!(trouble.sentence(false), None);
        trouble.found_failing(NoChanges::Refused, &"the disk is full");
        assert_eq!(trouble.sentence(false).as_deref(), Some("the store takes no changes: the disk is full"));
        trouble.found_failing(NoChanges::Refused, &"no such file");
        assert_eq!(trouble.sentence(false).as_deref(), Some("the store takes no changes: no such file"), "the newest");
        assert_eq!(
            trouble.sentence(true).as_deref(),
            Some("the store takes no changes: the log of this node says why"),
            "it may name a host or a user"
        );
        trouble.found(Some(NoChanges::Unanswered));
        for (is_shared, place) in [(false, "its disk hangs"), (true, "a synchronous standby is away")] {
            let wanted = format!("the store does not answer changes: look whether {place}");
            assert!(trouble.sentence(is_shared).is_some_and(|said| said.starts_with(&wanted)));
        }
        trouble.found(None);
        assert_eq!(trouble.sentence(false), None);
    }

    #[tokio::test]
    async fn what_is_away_is_tried_and_what_is_broken_is_not() {
        let trouble = Trouble::default();
        let row = StoreError::Corrupt { table: "event", row: "7".to_owned() };
        for fault in [row, StoreError::Unfit("no right".to_owned())] {
            assert_eq!(trouble.failed(&fault), STORE_FAULT);
        }
        let (rung, now) = (trouble.rung(), Duration::ZERO);
        tokio::pin!(rung);
        assert!(tokio::time::timeout(now, &mut rung).await.is_err(), "a trial would find nothing");
        assert_eq!(trouble.failed(&StoreError::Unavailable("full".to_owned())), STORE_AWAY);
        assert!(tokio::time::timeout(now, &mut rung).await.is_ok());
    }

    #[test]
    fn only_a_change_is_news() {
        let trouble = Trouble::default();
        let (full, hangs) = (Some(NoChanges::Refused), Some(NoChanges::Unanswered));
        assert!(!trouble.found(None) && trouble.found(full) && !trouble.found(full));
        assert_eq!((trouble.why_not_ready(), trouble.takes_changes()), (full, false));
        assert!(!trouble.found(hangs), "it is as little ready as before");
        assert_eq!((trouble.why_not_ready(), trouble.takes_changes()), (hangs, false));
        assert!(trouble.found(None));
        assert_eq!((trouble.why_not_ready(), trouble.takes_changes()), (None, true));
        let none = Some(NoChanges::NoJournal);
        assert!(trouble.found(none) && trouble.takes_changes() && trouble.why_not_ready() == none, "callbacks go");
    }
}
