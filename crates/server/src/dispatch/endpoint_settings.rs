//! What operators set for an endpoint, and what they see of it.
//!
//! Settings are taken up whenever rows of an application are read, and at once when it has changed, here or on another node: also while its
//! attempts rest or are under way.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use countersign_domain::delivery::Schedule;
use countersign_domain::lanes::Lane;
use countersign_domain::time::UnixMillis;
use countersign_store::StoreError;
use countersign_store::contract::ApplicationRow;
use countersign_store::nodes::Who;
use tokio::time::{Instant, sleep, timeout};

use super::health::BreakerState;
use super::lineup::{Lineup, Turned};
use super::place_in_lineup::{Allows, EndpointView};
use super::{Dispatcher, SAID_EVERY, STORE_PAUSE};
use crate::app::callers::KnownApplication;
use crate::app::error::AppError;
use crate::repeated_warning::RepeatedWarning;

/// How long somebody who asks how an endpoint stands waits for the dispatcher.
pub(super) const VIEW_FOR: Duration = Duration::from_millis(500);

impl Dispatcher {
    /// What an endpoint may have at the most: its own settings before the deployment's.
    fn allows(&self, row: &ApplicationRow) -> Allows {
        let at_once = row.endpoint.concurrency.and_then(|most| usize::try_from(most).ok());
        Allows {
            at_once: at_once.unwrap_or(self.settings.per_application),
            per_s: self.rate_of(row),
            whole_ms: self.schedule_of(row).whole_ms(),
        }
    }

    /// How many attempts an application has in a second; none: as many as there are.
    pub fn rate_of(&self, row: &ApplicationRow) -> Option<u32> {
        row.endpoint.rate_per_s.map_or(self.settings.per_application_per_s, |rate| (rate > 0).then_some(rate))
    }

    /// When failed attempts of an application are repeated.
    pub fn schedule_of<'a>(&'a self, row: &'a ApplicationRow) -> &'a Schedule {
        row.endpoint.schedule.as_ref().unwrap_or(&self.settings.schedule)
    }

    /// Takes up what an application allows, and where its callbacks go. Where they do not go out, nothing is known of an endpoint: it would stand among those
    /// that fail for as long as nobody tries it.
    pub(super) fn take_up(&self, lineup: &mut Lineup, known: &KnownApplication) {
        let (row, mut url) = (&known.application, DefaultHasher::new());
        row.callback_url.as_ref().filter(|_| known.goes_out).hash(&mut url);
        let client_id = row.client_id.as_str();
        if lineup.knows(row.no, client_id, url.finish(), self.allows(row)) {
            if known.goes_out {
                tracing::info!(client_id, "Callbacks of {client_id} go to another URL: its endpoint is tried anew");
            } else {
                tracing::info!(
                    client_id,
                    "Callbacks of {client_id} do not go out any more: its endpoint is tried anew when they do"
                );
            }
        }
    }

    /// Takes up what is changed until it is cut off.
    pub(super) async fn take_up_changes_always(&self) {
        let mut warning = RepeatedWarning::default();
        loop {
            self.app.bell.has_changed().await;
            while let Err(error) = self.take_up_changes().await {
                if let Some(failed) = warning.due(SAID_EVERY, Instant::now().into_std()) {
                    tracing::warn!(%error, failed, "An application that has changed could not be read; it is tried again shortly");
                }
                sleep(STORE_PAUSE).await;
            }
        }
    }

    /// Takes up what has changed of applications that something is remembered of. An error: not all could be read, and those are to be
    /// tried again; one of them keeps none of the others waiting.
    pub(super) async fn take_up_changes(&self) -> Result<(), AppError> {
        let changed = self.app.bell.take_changed();
        if changed.is_empty() {
            return Ok(());
        }
        let mut first_error = None;
        let remembered = self.pass_state.lock().await.lineup.remembered(|client_id| changed.has(client_id));
        for (at, client_id) in remembered.iter().enumerate() {
            match self.app.known_application(client_id).await {
                Ok(Some(known)) => {
                    let lineup = &mut self.pass_state.lock().await.lineup;
                    self.take_up(lineup, &known);
                    // What kept it, such as that no secret was live, may be gone.
                    lineup.rouse(known.application.no, self.app.clock.now());
                }
                Ok(None) => {}
                Err(error) => {
                    let is_away = matches!(error, AppError::Store(StoreError::Unavailable(_)));
                    let again = if is_away { &remembered[at..] } else { &remembered[at..=at] };
                    for client_id in again {
                        self.app.bell.change(client_id);
                    }
                    first_error.get_or_insert(error);
                    if is_away {
                        break;
                    }
                }
            }
        }
        if !remembered.is_empty() {
            self.landed.notify_one();
        }
        first_error.map_or(Ok(()), Err)
    }

    /// How an endpoint stands; none where another node delivers for it, or where this one does not come to say so.
    pub async fn view(&self, row: &ApplicationRow) -> Option<EndpointView> {
        if !self.leases.open(Instant::now()).contains(Lane::of(row.no)) {
            return None;
        }
        let pass_state = timeout(VIEW_FOR, self.pass_state.lock()).await.ok()?;
        let most = self.allows(row).at_once;
        let fresh =
            EndpointView { breaker: BreakerState::Closed, at_once: most, at_once_max: most, in_flight: 0, last: None };
        Some(pass_state.lineup.view(row.no, self.app.clock.now()).unwrap_or(fresh))
    }

    /// Endpoints that this node delivers for and that did not take what they got last, those whose breaker is not closed first, then those tried last; at
    /// most `most`, and how many are left off. None where the dispatcher does not come to say so.
    pub async fn failing(&self, most: usize) -> Option<(Vec<(Box<str>, EndpointView)>, usize)> {
        let pass_state = timeout(VIEW_FOR, self.pass_state.lock()).await.ok()?;
        Some(pass_state.lineup.failing(self.leases.open(Instant::now()), self.app.clock.now(), most))
    }

    /// Which node this is, and for how long lanes stay its own without a heartbeat.
    pub fn node(&self) -> (&Who, Duration) {
        (&self.settings.who, self.settings.lease)
    }
}

/// One line for each turn of a breaker, and none for the attempts between.
pub(super) fn tell_turned(client_id: &str, turned: Turned, now: UnixMillis) {
    match turned {
        Turned::Opened { until } => {
            let pause_ms = until.0 - now.0;
            tracing::warn!(
                client_id,
                pause_ms,
                "The endpoint of {client_id} fails: its callbacks wait, and after each pause one of them tries it"
            );
        }
        Turned::Closed => {
            tracing::info!(
                client_id,
                "The endpoint of {client_id} answers again: its callbacks go out, more and more at once"
            );
        }
    }
}
