//! An application's events page after page, and what is missing of them.
//!
//! `seq` grows by one with each event of an application, delivered or not. So a receiver that remembers the last `seq` that it has dealt with hears
//! of every event that it misses: [`EventWalk`] hands out events in order and without a gap, and where events are missing, says which numbers will
//! not come. The walk never steps over a gap by itself, and moves on only behind what it was told is [done](EventWalk::done): an event whose handler
//! failed comes again with the next [pull](EventWalk::pull).
//!
//! ```no_run
//! use countersign_sdk::{Client, EventCursor, EventWalk, PullError};
//! # async fn handle(_: &countersign_sdk::protocol::endpoint::events::Event) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
//! # fn keep(_: &EventCursor) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
//!
//! /// Once round; come again after a while, also where it failed.
//! async fn catch_up(client: &Client, cursor: EventCursor) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut walk = EventWalk::resume(client.clone(), &cursor)?;
//!     loop {
//!         let events = match walk.pull().await {
//!             Ok(events) if events.is_empty() => return Ok(()),
//!             Ok(events) => events,
//!             Err(PullError::Missing(gap)) => {
//!                 // Look up the orders that they may have told of, and then:
//!                 walk.step_over(&gap)?;
//!                 keep(&walk.cursor())?;
//!                 continue;
//!             }
//!             Err(other) => return Err(other.into()),
//!         };
//!         for event in &events {
//!             handle(event).await?;
//!             walk.done(event)?;
//!             keep(&walk.cursor())?; // In a database: in the transaction that has the event's effect.
//!         }
//!     }
//! }
//! ```

use std::fmt;

use countersign_protocol::code::Code;
use countersign_protocol::endpoint::events::{Event, LIMIT_DEFAULT, Request, oldest_kept};
use serde::{Deserialize, Serialize};
use thiserror::Error as ThisError;

use crate::client::Client;
use crate::error::Error;

/// Walks over the events of a client's application, in the order of their `seq`.
#[derive(Clone, Debug)]
pub struct EventWalk {
    client: Client,
    after: i64,
    limit: u32,
}

/// How far the events of an application are dealt with: what a receiver keeps. With its ClientId, since the numbers of another application or
/// deployment mean other events, and the server cannot tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventCursor {
    /// Whose events.
    pub client_id: String,
    /// The last `seq` that was dealt with; 0 before the first event.
    pub after: i64,
}

/// Why a walk did not move on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum NotMoved {
    /// What lies before it is not done.
    #[error("seq {came} is not the next one, which is {next}")]
    OutOfOrder {
        /// The `seq` that is next.
        next: i64,
        /// The one that was named.
        came: i64,
    },
    /// Where the gap ends is not known, so there is nothing to go on behind.
    #[error(
        "the server does not say where the gap that begins with seq {first} ends: ask its operator, and begin a new walk behind it"
    )]
    EndlessGap {
        /// The first `seq` that is missing.
        first: i64,
    },
}

/// Events that are missing, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first `seq` that is missing.
    pub first: i64,
    /// The last one; none where the server does not say so.
    pub last: Option<i64>,
    /// Whether the server says so: it no longer keeps them, or left their numbers out when it was restored. Else they were left out of its answer,
    /// which should not happen: ask the
    /// operator, and quote the numbers.
    pub is_forgotten: bool,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, is_forgotten } = self;
        let why = if *is_forgotten {
            "are not there: the server no longer keeps them, or a restore left their numbers out"
        } else {
            "are missing in the server's answer"
        };
        match last {
            Some(last) => write!(f, "events of seq {first} to {last} {why}"),
            None => write!(f, "events from seq {first} on {why}"),
        }
    }
}

/// Why no events came.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum PullError {
    /// Events are missing. Fetch what they told of in another way (the orders themselves), then [`EventWalk::step_over`] them.
    #[error("{0}")]
    Missing(Gap),
    /// The call gave nothing; the walk stands where it stood.
    #[error(transparent)]
    Call(#[from] Error),
}

impl EventWalk {
    /// A walk that begins behind this `seq`: the last one that was dealt with; 0 begins with the first event of all.
    pub const fn new(client: Client, after: i64) -> Self {
        Self { client, after, limit: LIMIT_DEFAULT }
    }

    /// Events in one page, 1 to 500; 100 unless set.
    #[must_use]
    pub const fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// A walk that goes on where one ended. Refused where the cursor is another application's ([`Error::Usage`]).
    pub fn resume(client: Client, cursor: &EventCursor) -> Result<Self, Error> {
        if cursor.client_id != client.client_id() {
            return Err(Error::Usage("the cursor is of the events of another ClientId".to_owned()));
        }
        Ok(Self::new(client, cursor.after))
    }

    /// The last `seq` that is [done](Self::done).
    pub const fn after(&self) -> i64 {
        self.after
    }

    /// What to keep, to [resume](Self::resume) there.
    pub fn cursor(&self) -> EventCursor {
        EventCursor { client_id: self.client.client_id().to_owned(), after: self.after }
    }

    /// The events behind the last one that is [done](Self::done), without a gap; none where nothing has happened since. It does not move the
    /// walk: until one of them is done, the same come again.
    pub async fn pull(&mut self) -> Result<Vec<Event>, PullError> {
        let next = self.after.saturating_add(1);
        let mut events = match self.client.events(&Request { after: self.after, limit: self.limit }).await {
            Ok(page) => page.events,
            Err(Error::Refused { code: Code::EventsGone, message, .. }) => {
                let last = oldest_kept(&message).map(|oldest| oldest - 1).filter(|last| *last >= next);
                return Err(PullError::Missing(Gap { first: next, last, is_forgotten: true }));
            }
            Err(error) => return Err(error.into()),
        };
        let in_order = (0_i64..).zip(&events).take_while(|(n, event)| event.seq == next.saturating_add(*n)).count();
        if let (0, Some(first)) = (in_order, events.first()) {
            return Err(out_of_order(next, first.seq));
        }
        // What comes behind a gap waits until that was told of.
        events.truncate(in_order);
        Ok(events)
    }

    /// Goes on behind an event that is dealt with. They are done in the order of their `seq`, each once.
    pub fn done(&mut self, event: &Event) -> Result<(), NotMoved> {
        self.move_over(event.seq, event.seq)
    }

    /// Goes on behind a gap. One without an end cannot be stepped over, and one that lies elsewhere is not.
    pub fn step_over(&mut self, gap: &Gap) -> Result<(), NotMoved> {
        let last = gap.last.ok_or(NotMoved::EndlessGap { first: gap.first })?;
        self.move_over(gap.first, last)
    }

    fn move_over(&mut self, first: i64, last: i64) -> Result<(), NotMoved> {
        let next = self.after.saturating_add(1);
        if first != next || last < first {
            return Err(NotMoved::OutOfOrder { next, came: first });
        }
        self.after = last;
        Ok(())
    }
}

/// The first event of a page is not the next one.
fn out_of_order(next: i64, came: i64) -> PullError {
    if came > next {
        return PullError::Missing(Gap { first: next, last: Some(came - 1), is_forgotten: false });
    }
    let why = format!("the event of seq {came} came where that of seq {next} was asked for");
    let (body_begins, request_id, date_ms, retry_after_s) = (String::new(), None, None, None);
    Error::Unreadable { http_status: 200, why, body_begins, request_id, date_ms, retry_after_s }.into()
}
