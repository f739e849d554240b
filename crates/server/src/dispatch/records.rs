//! What attempts leave behind waits a moment for each other, so that many share a commit, whose sync costs the same for one as for many.
//!
//! An attempt whose verdict is known is handed over, and its task ends. An endpoint that has taken a callback may have the next one meanwhile.
//! Invariant: nothing has landed before its record is durable. What is cut off here is not recorded: its event is due again, and keeps the number
//! of its attempt.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::lanes::Fence;
use countersign_domain::time::UnixMillis;
use countersign_store::{Batch, Store as _};
use tokio::time::Instant;

use super::dead_and_disabled::Death;
use super::flight::Flight;
use super::health::Sign;
use super::record::{COMMIT_FOR, Fate, Made, Tries};
use super::{Dispatcher, Ended, FAULT_MS, RECHECK_MS};

/// How long a record waits for others, where attempts are under way whose records may come.
const LINGER: Duration = Duration::from_millis(4);
/// So many wait for no more.
const FULL: usize = 256;

/// An attempt that was made, and what becomes of its event.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) flight: Flight,
    pub(super) made: Made,
    pub(super) state: DeliveryState,
    pub(super) due_at: Option<UnixMillis>,
    /// What tells the operators, where it was the last one.
    pub(super) death: Option<Box<Death>>,
    pub(super) sign: Sign,
}

impl Record {
    fn batch(&self) -> Batch {
        let recorded = self.made.write(&self.flight, self.state, self.due_at);
        Batch([recorded].into_iter().chain(self.death.as_ref().map(|death| death.line.clone())).collect())
    }

    /// Whether the endpoint has taken the callback.
    pub(super) fn is_delivered(&self) -> bool {
        self.made.row.outcome == Outcome::Delivered
    }

    fn fence(&self) -> Fence {
        self.made.row.fence
    }
}

/// Records that wait for each other.
#[derive(Debug, Default)]
pub(super) struct Records {
    waiting: Vec<Record>,
    /// When the first of them came.
    since: Option<Instant>,
}

impl Records {
    pub(super) fn push(&mut self, record: Record, now: Instant) {
        self.since.get_or_insert(now);
        self.waiting.push(record);
    }

    /// Those that are to be handed over now, if any: all, where nothing is under way that could bring another, where the first has waited long
    /// enough, and where there are enough.
    pub(super) fn due(&mut self, under_way: usize, now: Instant) -> Option<Vec<Record>> {
        let has_waited = self.since.is_some_and(|since| now >= since + LINGER);
        let is_due = under_way == 0 || has_waited || self.waiting.len() >= FULL;
        (is_due && !self.waiting.is_empty()).then(|| {
            self.since = None;
            take(&mut self.waiting)
        })
    }

    /// When the first of them has waited long enough; none: there is none.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.since.map(|since| since + LINGER)
    }
}

/// A group on its way into the store. What is left of it when it is dropped was not recorded.
struct Group<'a> {
    dispatcher: &'a Dispatcher,
    records: Vec<Record>,
}

impl Group<'_> {
    fn give_up(&mut self, rest_ms: i64) {
        let until = self.dispatcher.app.clock.now().plus_ms(rest_ms);
        self.dispatcher.tell(take(&mut self.records).into_iter().map(|record| (record.flight, Ended::Waits { until })));
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if !self.records.is_empty() {
            self.give_up(FAULT_MS);
        }
    }
}

impl Dispatcher {
    /// Commits records, each by itself, also where the store is away for a while.
    pub(super) async fn note(self: Arc<Self>, records: Vec<Record>) {
        let mut group = Group { dispatcher: &self, records };
        let mut tries = Tries::within(COMMIT_FOR);
        loop {
            let batches = group.records.iter().map(Record::batch).collect();
            let answers = self.app.store.commit_each(batches).await;
            let mut noted = Vec::with_capacity(answers.len());
            let mut away = None;
            for (record, answer) in take(&mut group.records).into_iter().zip(answers) {
                match self.fate(answer, record.fence()) {
                    Ok(fate) => noted.push(self.noted(record, &fate)),
                    Err(error) => {
                        away = Some(error);
                        group.records.push(record);
                    }
                }
            }
            self.tell(noted);
            let Some(error) = away else { return };
            let attempts = group.records.len();
            self.app.trouble.met(&format_args!("{attempts} attempts at callbacks are not recorded yet: {error}"));
            if !tries.again().await {
                tracing::warn!(
                    attempts,
                    "The store was away for too long: attempts at callbacks are not recorded, and are made again"
                );
                return group.give_up(RECHECK_MS);
            }
        }
    }

    fn noted(&self, record: Record, fate: &Fate) -> (Flight, Ended) {
        let ended = match fate {
            Fate::Fenced => Ended::Again,
            // Moved: the commit was done before, and its answer was lost.
            Fate::Committed | Fate::Conflict(_) => {
                if let Some(death) = &record.death {
                    death.tell(&record.made.row);
                }
                let (outcome, was_moved) = (record.made.row.outcome, matches!(fate, Fate::Conflict(_)));
                Ended::Attempted { next: record.due_at, sign: record.sign, outcome, was_moved }
            }
            Fate::Away => Ended::Waits { until: self.app.clock.now().plus_ms(RECHECK_MS) },
            Fate::Broken => Ended::Waits { until: self.app.clock.now().plus_ms(FAULT_MS) },
        };
        (record.flight, ended)
    }
}

#[cfg(test)]
mod tests {
    use countersign_domain::ids::{ApplicationNo, EventNo, TenantNo};
    use countersign_store::attempt_log::Phases;
    use countersign_store::contract::AttemptRow;

    use super::*;

    fn record(no: i64) -> Record {
        let attempt = AttemptRow {
            event: EventNo(no),
            attempt: 1,
            at: UnixMillis(1),
            outcome: Outcome::Delivered,
            http_status: Some(200),
            duration_ms: 1,
            address: None,
            detail: String::new(),
            fence: Fence(0),
            phases: Phases::default(),
        };
        let flight = Flight { event: EventNo(no), tenant: TenantNo(1), application: ApplicationNo(1), by_hand: false };
        let (made, state) = (Made { row: Arc::new(attempt), bytes: None }, DeliveryState::Delivered);
        Record { flight, made, state, due_at: None, death: None, sign: Sign::Good }
    }

    fn numbers(due: Option<Vec<Record>>) -> Vec<i64> {
        due.into_iter().flatten().map(|record| record.flight.event.0).collect()
    }

    #[test]
    fn one_alone_waits_for_nobody() {
        let (mut records, now) = (Records::default(), Instant::now());
        assert!(records.due(0, now).is_none(), "there is nothing");
        records.push(record(1), now);
        assert_eq!(numbers(records.due(0, now)), [1]);
        assert!(records.due(0, now).is_none() && records.due_at().is_none());
    }

    #[test]
    fn those_whose_attempts_are_under_way_share_a_commit_and_wait_for_nobody_else() {
        let (mut records, now) = (Records::default(), Instant::now());
        records.push(record(1), now);
        records.push(record(2), now);
        assert!(records.due(1, now).is_none(), "a third may come");
        // It leaves no record.
        assert_eq!(numbers(records.due(0, now)), [1, 2]);
    }

    #[test]
    fn an_attempt_that_hangs_holds_a_record_up_for_a_moment_only() {
        let (mut records, now) = (Records::default(), Instant::now());
        records.push(record(1), now);
        let later = now + LINGER / 2;
        records.push(record(2), later);
        assert!(records.due(1, later).is_none());
        assert_eq!(records.due_at(), Some(now + LINGER), "by the first");
        assert_eq!(numbers(records.due(1, now + LINGER)), [1, 2]);
        records.push(record(3), now + LINGER);
        assert!(records.due(1, now + LINGER).is_none(), "a new group, a new moment");
    }

    #[test]
    fn there_are_enough_at_a_bound() {
        let (mut records, now) = (Records::default(), Instant::now());
        for no in 1..FULL {
            records.push(record(i64::try_from(no).expect("small")), now);
        }
        assert!(records.due(1, now).is_none());
        records.push(record(0), now);
        assert_eq!(numbers(records.due(1, now)).len(), FULL);
    }
}
