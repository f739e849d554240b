//! What an attempt leaves behind: its row and its verdict, in one batch.
//!
//! Invariant: an attempt that cannot be recorded is not counted; the event is due again and keeps its attempt number.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::delivery::{
    Attempted, DeliveryState, Outcome, Over, Schedule, Verdict, after_attempt, is_overdue,
};
use countersign_domain::ids::{EventNo, SortedId, prefix};
use countersign_domain::lanes::Fence;
use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::AttemptBytes;
use countersign_store::batch::{Committed, Conflict, Guard, Key};
use countersign_store::contract::{ApplicationRow, Asker, AttemptRow, EventRow};
use countersign_store::{Batch, CommitError, Store, StoreError, Write};
use metrics::counter;
use tokio::time::{Instant, sleep};

use super::attempt::Report;
use super::dead_and_disabled::{self, Death};
use super::flight::Flight;
use super::health::{PAUSE_MS_MAX, Sign};
use super::records::Record;
use super::{Dispatcher, Ended, FAULT_MS, RECHECK_MS};
use crate::app::callers::KnownApplication;
use crate::app::events::as_read;
use crate::app::turns::TurnKey;
use crate::app::{Actor, Deed};
use crate::clock::ms_of;

/// First and longest pause before a commit is tried again.
const COMMIT_PAUSE_MIN: Duration = Duration::from_millis(50);
const COMMIT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long a commit is tried again while the store is away. Beyond, the attempt is not counted and is made again.
pub(super) const COMMIT_FOR: Duration = Duration::from_secs(30);
/// As long where changes of the application wait for it.
const COMMIT_IN_TURN_FOR: Duration = Duration::from_secs(4);

/// An event that has had so many attempts is over after the next one that fails, also where that was to try an endpoint, or went to another URL than the
/// present one.
const SPARED_ATTEMPTS_MAX: i64 = 100;

/// What became of a batch.
pub(super) enum Fate {
    Committed,
    Conflict(Conflict),
    /// Another node has taken over: this one has no say any more.
    Fenced,
    /// The store was away for too long.
    Away,
    /// The store cannot, and repeating would not help.
    Broken,
}

/// Tries of a commit while the store is away, farther and farther apart: an attempt that was made should be counted. Repeating is safe, since
/// the guard of `RecordAttempt` holds once.
pub(super) struct Tries {
    end: Instant,
    pause: Duration,
}

impl Tries {
    pub(super) fn within(patience: Duration) -> Self {
        Self { end: Instant::now() + patience, pause: COMMIT_PAUSE_MIN }
    }

    /// Waits until the next one; false: there is none any more.
    pub(super) async fn again(&mut self) -> bool {
        let is_left = Instant::now() + self.pause < self.end;
        if is_left {
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(COMMIT_PAUSE_MAX);
        }
        is_left
    }
}

impl Dispatcher {
    /// Decides what becomes of the event, says so, and hands that over to be recorded.
    pub(super) async fn record(
        &self,
        event: &EventRow,
        fence: Fence,
        known: &KnownApplication,
        url: &str,
        (began, mut report): (UnixMillis, Report),
    ) -> Ended {
        let now = self.app.clock.now();
        let number = event.attempts + 1;
        let count = u32::try_from(number).unwrap_or(u32::MAX);
        // While the attempt was under way the endpoint's own schedule may have changed. What is delivered needs neither that nor chance.
        let (fresh, spread) = if report.outcome == Outcome::Delivered {
            (None, 0)
        } else {
            let fresh = self.app.known_application(&event.client_id).await.ok().flatten();
            (fresh, u16::try_from(self.app.chance.bits64() & 0xffff).unwrap_or(0))
        };
        let row = fresh.as_deref().map_or(&known.application, |fresh| &fresh.application);
        let schedule = self.schedule_of(row);
        let attempted = Attempted {
            count,
            outcome: report.outcome,
            http_status: report.http_status,
            retry_after_ms: report.retry_after_ms,
        };
        let mut verdict = after_attempt(attempted, schedule, now, spread);
        let sign = Sign::of(report.outcome, report.http_status, report.phases.reused == Some(true));
        if event.by_hand && report.outcome != Outcome::Delivered {
            match Box::pin(self.of_sent_again(event, verdict, sign, now)).await {
                Some(of_sent_again) => verdict = of_sent_again,
                None => return Ended::Waits { until: self.app.clock.now().plus_ms(RECHECK_MS) },
            }
        }
        if matches!(verdict, Verdict::Retry { .. }) && self.is_given_up(event, schedule, sign, now).await {
            verdict = Verdict::Dead;
        }
        // It was the last attempt at another endpoint: this one has not had it.
        let is_elsewhere = row.callback_url.as_deref() != Some(url) && event.attempts < SPARED_ATTEMPTS_MAX;
        if is_elsewhere && matches!(verdict, Verdict::Dead | Verdict::StaysDelivered) {
            verdict = Verdict::Retry { due_at: now };
        }
        self.meters.ended(&report);
        tell(event, known, number, &report, verdict, now);
        let bytes = report.bytes.take().map(|bytes| self.answer_quotas.of(event.application, bytes));
        let made = Made::of(event, fence, began, report, bytes);
        match verdict {
            Verdict::DisableEndpoint => Box::pin(self.disable(event, &made, known.application.revision)).await,
            Verdict::Delivered | Verdict::StaysDelivered | Verdict::Retry { .. } | Verdict::Dead => {
                let (state, due_at) = verdict.state();
                let death = (verdict == Verdict::Dead).then(|| Box::new(Death::of(event, &made.row, now)));
                Ended::Made(Box::new(Record { flight: Flight::of(event), made, state, due_at, death, sign }))
            }
        }
    }

    /// Whether an event to which nobody answered once more is over though its schedule has more attempts: its endpoint is away, and it has been due for as
    /// long as the whole schedule takes.
    async fn is_given_up(&self, event: &EventRow, schedule: &Schedule, sign: Sign, now: UnixMillis) -> bool {
        let is_late = event.due_at.is_some_and(|due_at| is_overdue(due_at, schedule.whole_ms(), now));
        let is_unanswered = sign == Sign::Bad && !event.by_hand;
        is_unanswered && is_late && self.pass_state.lock().await.lineup.is_away(event.application, now)
    }

    /// What becomes of an event that is sent again by hand, in vain. Where its attempt was to try an endpoint whose breaker is open, or at which what was
    /// sent again has come to nothing, and has found it as it was, that says nothing of the event: it does not use up the last attempt that the event
    /// has. Nor does a kept connection that broke under it.
    async fn of_sent_again(&self, event: &EventRow, verdict: Verdict, sign: Sign, now: UnixMillis) -> Option<Verdict> {
        let verdict = verdict.of_sent_again(self.how_it_was_over(event).await?);
        let is_over = matches!(verdict, Verdict::Dead | Verdict::StaysDelivered);
        if !is_over || event.attempts >= SPARED_ATTEMPTS_MAX {
            return Some(verdict);
        }
        let is_spared = match sign {
            Sign::Ill | Sign::Bad => self.pass_state.lock().await.lineup.is_tried(event.application),
            Sign::None => true,
            Sign::Good | Sign::Failed | Sign::Neutral => false,
        };
        Some(if is_spared { Verdict::Retry { due_at: now.plus_ms(PAUSE_MS_MAX) } } else { verdict })
    }

    /// How an event had ended that is sent again by hand: what an attempt has delivered never dies. None: the store was away for as long as a record
    /// waits for it. Where its attempts cannot be read back nobody can tell, and it is not said that it was delivered.
    async fn how_it_was_over(&self, event: &EventRow) -> Option<Over> {
        let mut tries = Tries::within(COMMIT_FOR);
        loop {
            let error = match self.app.store.event(Asker::Server, event.event_id).await {
                Ok(found) => {
                    let mut attempts = found.into_iter().flat_map(|(_, attempts)| attempts);
                    let was_delivered = attempts.any(|attempt| attempt.outcome == Outcome::Delivered);
                    return Some(if was_delivered { Over::Delivered } else { Over::Dead });
                }
                Err(error) => error,
            };
            let is_away = matches!(error, StoreError::Unavailable(_));
            if !is_away || !tries.again().await {
                tracing::warn!(%error, "Whether a callback was delivered before could not be read");
                return (!is_away).then_some(Over::Dead);
            }
        }
    }

    /// Notes that an event waits for an earlier one of its bizId, so that it is not due before that one is over or its patience ends.
    pub(super) async fn defer(&self, event: &EventRow, fence: Fence, behind: EventNo, now: UnixMillis) -> Ended {
        let (tenant, application) = (event.tenant, event.application);
        let until = self.patience(event, now);
        let writes = vec![
            Write::Guard(Guard::Lane { application, fence }),
            Write::Defer { tenant, event: event.no, behind, until },
        ];
        match self.commit(fence, Batch(writes), COMMIT_IN_TURN_FOR).await {
            Fate::Committed => Ended::Behind { event: behind },
            // One of the two is over or held by now.
            Fate::Fenced | Fate::Conflict(_) => Ended::Again,
            Fate::Away => Ended::Waits { until: now.plus_ms(RECHECK_MS) },
            Fate::Broken => Ended::Waits { until: now.plus_ms(FAULT_MS) },
        }
    }

    /// Holds a portion of the events of an application that has no URL, or whose callbacks or merchant are disabled; what is more has a note.
    pub(super) async fn hold(&self, event: &EventRow, fence: Fence) -> Ended {
        // In turn with changes of the application, so that a URL set in this moment is seen and nothing stays held behind it.
        let _turn = self.app.turns.take(TurnKey::Application(event.client_id.clone())).await;
        let now = self.app.clock.now();
        let view = match self.app.store.application(&event.client_id).await {
            Ok(Some(view)) => view,
            Ok(None) => return Ended::ApplicationWaits { until: now.plus_ms(FAULT_MS) },
            Err(error) => {
                tracing::warn!(%error, client_id = %event.client_id, "An application could not be read; its callbacks wait");
                return Ended::ApplicationWaits { until: now.plus_ms(RECHECK_MS) };
            }
        };
        if view.goes_out() {
            self.app.callers.forget(&event.client_id);
            return Ended::Again;
        }
        // Against other nodes there is no turn, but the guards.
        let writes = vec![
            Write::Guard(Guard::Lane { application: event.application, fence }),
            Write::Guard(as_read(&view.application)),
        ];
        let writes = writes.into_iter().chain(holding(event, now)).collect();
        match self.commit(fence, Batch(writes), COMMIT_IN_TURN_FOR).await {
            Fate::Committed => {
                self.hold_notes.notify_one();
                tracing::info!(client_id = %event.client_id, "Callbacks are held: the application has no URL, or they or its merchant are disabled");
                Ended::Held { last: None }
            }
            Fate::Fenced => Ended::Again,
            Fate::Conflict(_) => {
                self.app.callers.forget(&event.client_id);
                Ended::Again
            }
            Fate::Away | Fate::Broken => Ended::ApplicationWaits { until: self.app.clock.now().plus_ms(RECHECK_MS) },
        }
    }

    /// The endpoint said 410: its callbacks are disabled and a portion of its pending events held, with the attempt, in one batch. `revision`: that of
    /// the application when the attempt began.
    async fn disable(&self, event: &EventRow, made: &Made, revision: i64) -> Ended {
        let _turn = self.app.turns.take(TurnKey::Application(event.client_id.clone())).await;
        let end = Instant::now() + COMMIT_IN_TURN_FOR;
        // What a commit of ours has made of the application, if it was done and its answer was lost.
        let mut ours = None;
        loop {
            let now = self.app.clock.now();
            if Instant::now() >= end {
                tracing::warn!(client_id = %event.client_id, "That an endpoint is gone could not be recorded; it will be asked again");
                return Ended::Waits { until: now.plus_ms(RECHECK_MS) };
            }
            let row = match self.app.store.application(&event.client_id).await {
                Ok(Some(view)) => view.application,
                Ok(None) => return Ended::Waits { until: now.plus_ms(FAULT_MS) },
                Err(StoreError::Unavailable(_)) => {
                    sleep(COMMIT_PAUSE_MIN).await;
                    continue;
                }
                Err(StoreError::Corrupt { .. } | StoreError::Unfit(_)) => {
                    return Ended::Waits { until: now.plus_ms(FAULT_MS) };
                }
            };
            // Where somebody has changed it meanwhile, as who sets another URL or resumes callbacks does, this is the answer to what was asked before,
            // and the event goes at once: what the endpoint says to that counts.
            let is_gone = !row.callback_enabled || row.revision == revision;
            let was_enabled = row.callback_enabled;
            if !was_enabled && ours == Some((row.revision, row.callback_gone_at)) {
                return tell_gone(event, made);
            }
            let batch = if is_gone {
                ours = was_enabled.then_some((row.revision + 1, Some(now)));
                batch_of_disabling(event, made, row, now)
            } else {
                let again = made.write(&Flight::of(event), DeliveryState::Pending, Some(now));
                Batch(vec![Write::Guard(as_read(&row)), again])
            };
            let fate = self.commit(made.row.fence, batch, COMMIT_IN_TURN_FOR).await;
            self.app.callers.forget(&event.client_id);
            self.hold_notes.notify_one();
            match fate {
                Fate::Committed if is_gone => {
                    // Others that were under way find them disabled.
                    return if was_enabled {
                        tell_gone(event, made)
                    } else {
                        Ended::Held { last: Some(made.row.outcome) }
                    };
                }
                Fate::Conflict(Conflict::Moved(Key::Application(_))) => {}
                Fate::Committed | Fate::Fenced | Fate::Conflict(_) => return Ended::Again,
                Fate::Away => return Ended::Waits { until: self.app.clock.now().plus_ms(RECHECK_MS) },
                Fate::Broken => return Ended::Waits { until: now.plus_ms(FAULT_MS) },
            }
        }
    }

    /// Commits, also where the store is away for a while.
    async fn commit(&self, fence: Fence, batch: Batch, patience: Duration) -> Fate {
        let mut tries = Tries::within(patience);
        loop {
            match self.fate(self.app.store.commit(batch.clone()).await, fence) {
                Ok(fate) => return fate,
                Err(error) => {
                    self.app.trouble.met(&format_args!("a callback's attempt is not recorded yet: {error}"));
                }
            }
            if !tries.again().await {
                tracing::warn!(
                    "The store was away for too long: a callback's attempt is not recorded, and is made again"
                );
                return Fate::Away;
            }
        }
    }

    /// What became of a batch. An error: the store is away, and is to be asked again.
    pub(super) fn fate(&self, committed: Result<Committed, CommitError>, fence: Fence) -> Result<Fate, CommitError> {
        match committed {
            Ok(_) => Ok(Fate::Committed),
            Err(CommitError::Conflict(Conflict::Fenced(lane))) => {
                counter!("countersign_callback_results_fenced_total").increment(1);
                self.leases.lose(lane, fence);
                tracing::info!(
                    lane = lane.get(),
                    "Another node delivers for lane {} by now; what was done here under the older term is not recorded",
                    lane.get()
                );
                Ok(Fate::Fenced)
            }
            Err(CommitError::Conflict(conflict)) => Ok(Fate::Conflict(conflict)),
            Err(CommitError::Store(error @ (StoreError::Corrupt { .. } | StoreError::Unfit(_)))) => {
                tracing::error!(%error, "A callback's attempt cannot be recorded; it will be made again");
                Ok(Fate::Broken)
            }
            Err(error @ (CommitError::Store(StoreError::Unavailable(_)) | CommitError::Unknown)) => Err(error),
        }
    }
}

/// Says that callbacks are disabled, which is recorded.
fn tell_gone(event: &EventRow, made: &Made) -> Ended {
    let (id, client_id) = (Id(event.event_id), event.client_id.as_str());
    let AttemptRow { attempt, duration_ms, outcome, .. } = *made.row;
    tracing::warn!(event.id = %id, client_id, attempt, took_ms = duration_ms,
        "Callback {id} was answered 410; callbacks of {client_id} are disabled and held");
    dead_and_disabled::count_disabled();
    Ended::Held { last: Some(outcome) }
}

fn batch_of_disabling(event: &EventRow, made: &Made, mut row: ApplicationRow, now: UnixMillis) -> Batch {
    // The application first and its deliveries after it, as in each change of it: nodes that lock them in one order do not wait in a ring.
    let mut writes = Vec::with_capacity(5);
    if row.callback_enabled {
        row.callback_enabled = false;
        row.callback_gone_at = Some(now);
        row.revision += 1;
        let system = Actor::system();
        let before = r#"{"callback_enabled":true}"#.to_owned();
        let after = r#"{"callback_enabled":false,"why":"the endpoint answered 410"}"#.to_owned();
        let action = "application.disable_callbacks";
        let audit =
            system.records(Deed { tenant: Some(row.tenant), at: now, action, subject: &row.client_id, before, after });
        writes.push(Write::UpdateApplication(Box::new(row)));
        writes.push(audit);
    } else {
        // Who enables them in this moment releases what is held by then.
        writes.push(Write::Guard(as_read(&row)));
    }
    writes.push(made.write(&Flight::of(event), DeliveryState::Held, None));
    writes.extend(holding(event, now));
    Batch(writes)
}

/// A portion of what the application has pending is held; if that is not all, there is a note.
fn holding(event: &EventRow, now: UnixMillis) -> [Write; 2] {
    let (tenant, application) = (event.tenant, event.application);
    [Write::Turn { tenant, application, due_at: now }, Write::HoldPending { tenant, application }]
}

/// An attempt that was made, as it is recorded.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) row: Arc<AttemptRow>,
    pub(super) bytes: Option<Arc<AttemptBytes>>,
}

impl Made {
    fn of(event: &EventRow, fence: Fence, began: UnixMillis, report: Report, bytes: Option<AttemptBytes>) -> Self {
        let row = AttemptRow {
            event: event.no,
            attempt: event.attempts + 1,
            at: began,
            outcome: report.outcome,
            http_status: report.http_status,
            duration_ms: ms_of(report.took),
            address: report.address.as_deref().map(str::to_owned),
            detail: report.detail,
            fence,
            phases: report.phases,
        };
        Self { row: Arc::new(row), bytes: bytes.map(Arc::new) }
    }

    /// Records it, and what becomes of its event.
    pub(super) fn write(&self, flight: &Flight, state: DeliveryState, due_at: Option<UnixMillis>) -> Write {
        let Flight { tenant, application, .. } = *flight;
        let (attempt, bytes) = (self.row.clone(), self.bytes.clone());
        Write::RecordAttempt { tenant, application, attempt, bytes, state, due_at }
    }
}

/// An event's id, as people see it.
struct Id(SortedId);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", prefix::EVENT, self.0)
    }
}

/// One line per attempt. Neither body nor answer nor key is in it.
fn tell(event: &EventRow, known: &KnownApplication, attempt: i64, report: &Report, verdict: Verdict, now: UnixMillis) {
    // Written only where somebody reads it.
    let id = Id(event.event_id);
    let client_id = known.application.client_id.as_str();
    let (outcome, detail, took_ms) = (report.outcome.name(), report.detail.as_str(), ms_of(report.took));
    match verdict {
        Verdict::Delivered => {
            tracing::info!(event.id = %id, client_id, attempt, took_ms, "Callback {id} is delivered");
        }
        Verdict::Retry { due_at } => {
            let delay_ms = due_at.0 - now.0;
            tracing::warn!(event.id = %id, client_id, attempt, took_ms, outcome, detail, delay_ms,
                "Callback {id} failed ({outcome}); attempt {attempt} is repeated in {delay_ms} ms");
        }
        // Said once it is recorded.
        Verdict::Dead => {}
        Verdict::StaysDelivered => {
            tracing::warn!(event.id = %id, client_id, attempt, took_ms, outcome, detail,
                "Callback {id}, sent again by hand, failed ({outcome}) in its last attempt, {attempt}; it was delivered before and stays so");
        }
        Verdict::DisableEndpoint => {
            tracing::info!(event.id = %id, client_id, attempt, took_ms, "Callback {id} was answered 410");
        }
    }
}
