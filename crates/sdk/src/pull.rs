//! An application's events page after page, and what is missing of them.
//!
//! `seq` grows by one with each event of an application, delivered or not. So a receiver that remembers the last `seq` that it has dealt with hears
//! of every event that it misses: [`EventWalk`] hands out events in order and without a gap, and where events are missing, says which numbers will
//! not come. The walk never steps over a gap by itself.

use std::fmt;

use countersign_protocol::code::Code;
use countersign_protocol::endpoint::events::{Event, LIMIT_DEFAULT, Request, oldest_kept};
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

    /// The last `seq` that was handed out. Remember it when those events are dealt with, and begin there the next time.
    pub const fn after(&self) -> i64 {
        self.after
    }

    /// The next events, without a gap; none where nothing has happened since.
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
        self.after = events.last().map_or(self.after, |last| last.seq);
        Ok(events)
    }

    /// Goes on behind a gap. Whether it could: a gap without an end cannot be stepped over, and one that lies elsewhere is not.
    pub fn step_over(&mut self, gap: &Gap) -> bool {
        match gap.last {
            Some(last) if gap.first == self.after.saturating_add(1) && last >= gap.first => {
                self.after = last;
                true
            }
            Some(_) | None => false,
        }
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
