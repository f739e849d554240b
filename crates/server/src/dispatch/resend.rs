//! Makes the events of redeliveries pending, portion by portion, as fast as was asked for, and no faster than their endpoint takes them.
//!
//! What is pending goes out as fast as the endpoint stands, so what is too much for it is not made pending: a portion waits while the breaker is
//! not closed, and until most of the one before has gone. Otherwise all of it would go out at once when the endpoint is mended. Each event has one
//! attempt in it, so while those come to nothing what has tried the endpoint tries it again, and another one follows each minute only.
//!
//! The node that holds the application's lane does it. A portion and the place that it leads to are one batch, guarded by the place where
//! it began: whoever dies in between leaves both undone, and the next holder of the lane goes on from there. So no event is taken twice.

use std::collections::HashMap;
use std::time::Duration;

use countersign_domain::ids::SortedId;
use countersign_domain::lanes::{Fence, Lane};
use countersign_store::batch::{Conflict, Guard};
use countersign_store::contract::ApplicationView;
use countersign_store::redelivery::{Redeliveries, RedeliveryRow, RedeliveryState, RedeliveryWrite, Sought, Span};
use countersign_store::{Batch, CommitError, Store, StoreError, Write};
use tokio::time::{Instant, timeout, timeout_at};

use super::endpoint_settings::VIEW_FOR;
use super::lineup::Takes;
use super::{Dispatcher, SAID_EVERY, STORE_PAUSE};
use crate::app::endpoint::Flow;
use crate::app::events::as_read;
use crate::repeated_warning::RepeatedWarning;

/// Redeliveries that are read at once.
const PAGE: u32 = 64;
/// What runs is looked for this often even if nobody says that something does.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two portions of one redelivery there is at least this, so that others who write have their turn.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Portions in a second, about.
const PORTIONS_PER_S: i64 = 4;
/// Events that one portion looks through at the most.
const STRETCH: i64 = 5_000;

/// When each redelivery goes on.
type Paces = HashMap<SortedId, Instant>;

/// So many that are due may still wait when a portion follows: one at the least, which may be a callback of this moment.
fn few(rate_per_s: i64) -> usize {
    (portion(rate_per_s) as usize / 2).max(1)
}

/// How many events one portion takes.
fn portion(rate_per_s: i64) -> u32 {
    u32::try_from(rate_per_s.div_euclid(PORTIONS_PER_S).clamp(1, 500)).unwrap_or(1)
}

/// How long after so many events the next ones may follow.
fn pause(found: usize, rate_per_s: i64) -> Duration {
    let found = u64::try_from(found).unwrap_or(u64::MAX);
    let rate = u64::try_from(rate_per_s).unwrap_or(1).max(1);
    Duration::from_millis(found.saturating_mul(1_000).div_ceil(rate)).max(PAUSE_MIN)
}

/// What came of a round.
#[derive(Debug)]
struct Round {
    /// When the time of the next portion has come; none: nothing waits for one.
    next: Option<Instant>,
    /// Why the first redelivery could not go on.
    first_error: Option<StoreError>,
}

impl Dispatcher {
    /// Looks for redeliveries at once: one has been begun.
    pub fn redeliver_soon(&self) {
        self.resends.notify_one();
    }

    /// Goes on with every redelivery of its lanes until it is cut off.
    pub(super) async fn resend_always(&self) {
        let (mut paces, mut told) = (Paces::new(), RepeatedWarning::default());
        loop {
            let (wake, first_error) = match self.resend_round(&mut paces).await {
                Ok(round) => (round.next.unwrap_or_else(|| Instant::now() + LOOK_EVERY), round.first_error),
                Err(error) => (Instant::now() + STORE_PAUSE, Some(error)),
            };
            if let Some(error) = first_error
                && let Some(failed) = told.due(SAID_EVERY, Instant::now().into_std())
            {
                tracing::warn!(%error, failed, "What is to be sent again could not be; it is tried again shortly");
            }
            let _told = timeout_at(wake.min(Instant::now() + LOOK_EVERY), self.resends.notified()).await;
        }
    }

    /// One portion of each redelivery whose time has come. One that fails keeps none of the others waiting.
    async fn resend_round(&self, paces: &mut Paces) -> Result<Round, StoreError> {
        let (mut after, mut next, mut first_error) = (None, Paces::new(), None);
        loop {
            let lanes = self.leases.open(Instant::now());
            // While nothing goes out they would pile up, and go out all at once.
            if lanes.is_empty() || self.app.bell.is_paused() {
                return Ok(Round { next: None, first_error });
            }
            let page = self.app.store.redeliveries(Redeliveries::Running { lanes, after }, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some((last.sought.tenant, last.sought.application));
            for row in &page {
                let now = Instant::now();
                let waits = paces.get(&row.id).copied().filter(|until| *until > now);
                let until = match waits {
                    Some(_) => waits,
                    None => self.resend(row, now).await.unwrap_or_else(|error| {
                        first_error.get_or_insert(error);
                        Some(now + STORE_PAUSE)
                    }),
                };
                next.extend(until.map(|until| (row.id, until)));
            }
        }
        *paces = next;
        Ok(Round { next: paces.values().min().copied(), first_error })
    }

    /// One portion of a redelivery: when the next one may follow; none: it has ended.
    async fn resend(&self, row: &RedeliveryRow, now: Instant) -> Result<Option<Instant>, StoreError> {
        let application = row.sought.application;
        let (lane, later) = (Lane::of(application), Some(now + LOOK_EVERY));
        let portion = portion(row.rate_per_s);
        let takes = self.pass_state.lock().await.lineup.takes(application, few(row.rate_per_s), self.app.clock.now());
        let (most, least) = match takes {
            Takes::Portion => (portion, PAUSE_MIN),
            // What becomes of the one is seen before another one follows.
            Takes::One => (1, LOOK_EVERY),
            Takes::Nothing => return Ok(Some(now + pause(portion as usize, row.rate_per_s))),
        };
        let Some((fence, _held)) = self.leases.hold(lane, now) else { return Ok(later) };
        let Some(view) = self.app.store.application(&row.client_id).await? else { return Ok(later) };
        // What would be made pending now would go out all at once as soon as it may.
        if Flow::of(&self.app, &view) != Flow::Enabled {
            return Ok(later);
        }
        self.advance(row, &view, fence, (most, least), now).await
    }

    /// Makes at most so many pending: when more may follow, and where there were any no sooner than after `least`; none: it has ended.
    async fn advance(
        &self,
        row: &RedeliveryRow,
        view: &ApplicationView,
        fence: Fence,
        (most, least): (u32, Duration),
        now: Instant,
    ) -> Result<Option<Instant>, StoreError> {
        let Sought { tenant, application, state: was, .. } = row.sought;
        let through = row.through_seq.min(row.cursor_seq.saturating_add(STRETCH));
        let span = Span { of: row.sought.clone(), after: row.cursor_seq, through, most };
        let found = self.app.store.sought(span).await?;
        let to = match found.last().filter(|_| found.len() >= most as usize) {
            Some((_, seq)) => *seq,
            None => self.end_of(row, through).await?.max(row.cursor_seq),
        };
        let due_at = self.app.clock.now();
        let advance = RedeliveryWrite::Advance {
            tenant,
            application,
            id: row.id,
            was,
            from: row.cursor_seq,
            to,
            events: found.iter().map(|(event, _)| *event).collect(),
            due_at,
            ended_at: (to >= row.through_seq).then_some(due_at),
        };
        let writes = vec![
            Write::Guard(Guard::Lane { application, fence }),
            Write::Guard(as_read(&view.application)),
            Write::Redelivery(Box::new(advance)),
        ];
        let least = if found.is_empty() { PAUSE_MIN } else { least };
        let paced = now + pause(found.len(), row.rate_per_s);
        let committed = self.app.store.commit(Batch(writes)).await;
        // From when it is pending on.
        let next = paced.max(Instant::now() + least);
        match committed {
            Ok(_) => {
                if !found.is_empty() {
                    self.pass_state.lock().await.lineup.has_another(application, due_at);
                    self.app.bell.ring(tenant, application);
                }
                Ok((to < row.through_seq).then_some(next))
            }
            Err(CommitError::Conflict(Conflict::Fenced(lane))) => {
                self.leases.lose(lane, fence);
                Ok(Some(now + LOOK_EVERY))
            }
            // It was stopped, something has changed meanwhile, or nobody knows: the row says what is left to do. Where the portion was
            // made pending after all, its pace is kept.
            Err(CommitError::Conflict(_) | CommitError::Unknown) => Ok(Some(next)),
            Err(CommitError::Store(error)) => Err(error),
        }
    }
}

impl Dispatcher {
    /// For what a redelivery waits that is running, as far as this node knows; none: for nothing but its rate.
    pub async fn waits_for(&self, row: &RedeliveryRow) -> Result<Option<&'static str>, StoreError> {
        let application = row.sought.application;
        if row.state != RedeliveryState::Running {
            return Ok(None);
        }
        let flow = self.app.store.application(&row.client_id).await?.map(|view| Flow::of(&self.app, &view));
        if let Some(flow) = flow.filter(|flow| *flow != Flow::Enabled) {
            return Ok(Some(flow.name()));
        }
        if !self.leases.open(Instant::now()).contains(Lane::of(application)) {
            return Ok(None);
        }
        let Ok(pass_state) = timeout(VIEW_FOR, self.pass_state.lock()).await else { return Ok(None) };
        Ok(match pass_state.lineup.takes(application, few(row.rate_per_s), self.app.clock.now()) {
            Takes::Portion => None,
            Takes::One | Takes::Nothing if pass_state.lineup.is_open(application) => Some("breaker"),
            Takes::One | Takes::Nothing => Some("endpoint"),
        })
    }

    /// Where a stretch that was looked through ends: numbers behind it that no event has belong to it. A restore leaves out millions.
    async fn end_of(&self, row: &RedeliveryRow, through: i64) -> Result<i64, StoreError> {
        if through >= row.through_seq {
            return Ok(through);
        }
        let Sought { tenant, application, .. } = row.sought;
        let next = self.app.store.events_after(tenant, application, through, 1).await?;
        Ok(next.first().map_or(row.through_seq, |event| event.seq.saturating_sub(1).min(row.through_seq)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use countersign_domain::delivery::{DeliveryState, Schedule};
    use countersign_store::contract::Asker;
    use countersign_store::testing::Damage;

    use super::*;
    use crate::app::events::Happening;
    use crate::app::fixtures::{Deployment, application, dead, dead_many, happening, happens, nobody};
    use crate::app::redelivery::{self, Wish};
    use crate::app::{App, delivery, events, identity};
    use crate::dispatch::DispatchSettings;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn numbers_that_a_restore_left_out_are_passed_over_at_once() {
        let deployment = Deployment::on_sqlite().await.in_real_time();
        let app = deployment.open().await;
        let client_id = application(&app, "till", Some("https://till.example/callback")).await;
        let mut all = vec![dead(&app, &client_id).await];
        let restored = deployment.restored().await;
        Deployment::close(&app);
        let app = restored.open().await;
        delivery::release(&app, &|_| None, &nobody()).await.expect("callbacks go");
        all.push(dead(&app, &client_id).await);
        assert!(all[0].seq == 1 && all[1].seq > 20_000_000, "{all:?}");

        let wish = Wish::every(DeliveryState::Dead, 1_000);
        let begun = redelivery::start(&app, &client_id, &wish, &|_| None, &nobody()).await.expect("it begins");
        let id = begun.begun.expect("there is something to do").id;
        let dispatcher = Dispatcher::new(app.clone(), DispatchSettings::default()).expect("settings that hold");
        for _ in 0..2 {
            dispatcher.resend_round(&mut Paces::new()).await.expect("a portion");
        }
        let row = redelivery::find(&app, id).await.expect("it is there");
        assert!(row.ended_at.is_some() && row.done == 2, "{row:?}");
        for event in &all {
            let (now, _) = app.store.event(Asker::Operator, event.event_id).await.expect("reads").expect("is there");
            assert_eq!(now.state, DeliveryState::Pending);
        }
        Deployment::close(&app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_application_that_cannot_be_read_keeps_no_redelivery_of_another_one_waiting() {
        let deployment = Deployment::on_sqlite().await.in_real_time();
        let app = deployment.open().await;
        let mut begun = Vec::new();
        for name in ["damaged", "other"] {
            let client_id = application(&app, name, Some("https://till.example/callback")).await;
            dead(&app, &client_id).await;
            let wish = Wish::every(DeliveryState::Dead, 9);
            let row = redelivery::start(&app, &client_id, &wish, &|_| None, &nobody()).await.expect("it begins").begun;
            begun.push((client_id, row.expect("there is something to do").id));
        }
        Damage::Application(begun[0].0.clone()).file(&deployment.file());
        happens(&app, &begun[1].0).await;
        let dispatcher = Dispatcher::new(app.clone(), DispatchSettings::default()).expect("settings that hold");
        let mut paces = Paces::new();
        let first_error = dispatcher.resend_round(&mut paces).await.expect("a portion").first_error;
        assert!(matches!(first_error, Some(StoreError::Corrupt { table: "application", .. })), "{first_error:?}");
        let row = redelivery::find(&app, begun[1].1).await.expect("it is there");
        assert!(row.ended_at.is_some() && row.done == 1, "{row:?}");
        assert!(paces.contains_key(&begun[0].1), "it is not tried again at once");
        Deployment::close(&app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_redelivery_waits_while_no_secret_is_live_that_could_sign() {
        let deployment = Deployment::on_sqlite().await.in_real_time();
        let app = deployment.open().await;
        let client_id = application(&app, "till", Some("https://till.example/callback")).await;
        dead(&app, &client_id).await;
        let wish = Wish::every(DeliveryState::Dead, 9);
        let begun = redelivery::start(&app, &client_id, &wish, &|_| None, &nobody()).await.expect("it begins");
        let id = begun.begun.expect("there is something to do").id;
        let dispatcher = Dispatcher::new(app.clone(), DispatchSettings::default()).expect("settings that hold");
        let row = async || {
            dispatcher.resend_round(&mut Paces::new()).await.expect("a look");
            redelivery::find(&app, id).await.expect("it is there")
        };
        let secrets = identity::list_secrets(&app, &client_id).await.expect("are read");
        let [only] = &secrets[..] else { panic!("one is made with an application: {secrets:?}") };
        let secret_id = only.row.secret_id.clone();
        identity::revoke_secret(&app, &client_id, &secret_id, &|_| None, &nobody()).await.expect("is revoked");
        let waits = row().await;
        assert_eq!((waits.state, waits.done, waits.cursor_seq), (RedeliveryState::Running, 0, 0));
        assert_eq!(dispatcher.waits_for(&waits).await.expect("is read"), Some("no_secret"));
        identity::rotate_secret(&app, &client_id, 60, &|_| None, &nobody()).await.expect("another one is made");
        let goes_on = row().await;
        assert_eq!((goes_on.state, goes_on.done), (RedeliveryState::Done, 1));
        Deployment::close(&app);
    }

    /// A redelivery of twenty dead events, two in a portion, to where nobody listens.
    struct Walk {
        deployment: Deployment,
        app: Arc<App>,
        dispatcher: Arc<Dispatcher>,
        client_id: String,
        id: SortedId,
    }

    impl Walk {
        async fn begin(per_application_per_s: Option<u32>) -> Self {
            let deployment = Deployment::on_sqlite().await;
            let app = deployment.open().await;
            let client_id = application(&app, "till", Some("http://127.0.0.1:1/callback")).await;
            dead_many(&app, &client_id, 20).await;
            // None of them waits for another one by now.
            deployment.clock.advance_ms(3_600_000);
            let schedule = Schedule::parse(&["2h"]).expect("a schedule");
            let default = DispatchSettings { allow_private: true, ..DispatchSettings::default() };
            let settings = DispatchSettings { schedule, per_application_per_s, ..default };
            let dispatcher = Arc::new(Dispatcher::new(app.clone(), settings).expect("settings that hold"));
            let wish = Wish::every(DeliveryState::Dead, 8);
            let begun =
                redelivery::start(&app, &client_id, &wish, &|_| None, &nobody()).await.expect("it begins").begun;
            let id = begun.expect("there is something to do").id;
            Self { deployment, app, dispatcher, client_id, id }
        }

        /// How many were made pending when its time has come once more.
        async fn done(&self, paces: &mut Paces) -> i64 {
            self.dispatcher.resend_round(paces).await.expect("a look");
            redelivery::find(&self.app, self.id).await.expect("it is there").done
        }

        async fn waits_for(&self) -> Option<&'static str> {
            let row = redelivery::find(&self.app, self.id).await.expect("it is there");
            self.dispatcher.waits_for(&row).await.expect("is read")
        }

        /// Attempts that are made after so many ms more.
        async fn deliver_after(&self, ms: i64) -> usize {
            self.deployment.clock.advance_ms(ms);
            self.dispatcher.deliver_due(self.app.clock.now()).await
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_portion_follows_when_most_of_the_one_before_has_gone() {
        let walk = Walk::begin(Some(1)).await;
        assert_eq!(walk.done(&mut Paces::new()).await, 2);
        assert_eq!((walk.deliver_after(0).await, walk.done(&mut Paces::new()).await), (1, 4), "one is left");
        assert_eq!((walk.deliver_after(1_000).await, walk.done(&mut Paces::new()).await), (1, 4), "two are left");
        assert_eq!(walk.waits_for().await, Some("endpoint"));
        assert_eq!((walk.deliver_after(1_000).await, walk.waits_for().await), (1, None));
        assert_eq!(walk.done(&mut Paces::new()).await, 6);
        Deployment::close(&walk.app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn while_a_breaker_is_open_one_event_at_a_time_is_made_pending_where_nothing_else_tries_the_endpoint() {
        let walk = Walk::begin(None).await;
        for n in 0..12 {
            let what = Happening { biz_id: format!("new {n}"), ..happening(&walk.client_id) };
            events::emit(&walk.app, &what, &|_| None, &nobody()).await.expect("is written");
        }
        assert_eq!(walk.deliver_after(0).await, 10, "the breaker opens");
        assert_eq!((walk.done(&mut Paces::new()).await, walk.waits_for().await), (0, Some("breaker")));
        for _ in 0..2 {
            assert_eq!(
                (walk.deliver_after(10_000).await, walk.done(&mut Paces::new()).await),
                (1, 0),
                "a new one tries"
            );
        }
        assert_eq!((walk.deliver_after(10_000).await, walk.done(&mut Paces::new()).await), (0, 1), "there is none");
        assert_eq!((walk.deliver_after(0).await, walk.done(&mut Paces::new()).await), (1, 1), "it is left alone again");
        let mut paces = Paces::new();
        walk.deployment.clock.advance_ms(10_000);
        let before = Instant::now();
        assert_eq!(walk.done(&mut paces).await, 2);
        let next = paces.get(&walk.id).copied();
        assert!(next >= Some(before + LOOK_EVERY), "before it is seen what became of that one no other one follows");
        Deployment::close(&walk.app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn after_ten_outages_in_a_row_another_one_follows_each_minute_though_the_breaker_never_opens() {
        let walk = Walk::begin(None).await;
        for done in [2, 4, 6, 8, 10] {
            assert_eq!((walk.done(&mut Paces::new()).await, walk.deliver_after(0).await), (done, 2));
        }
        let (mut paces, before) = (Paces::new(), Instant::now());
        assert_eq!((walk.waits_for().await, walk.done(&mut paces).await), (Some("endpoint"), 11));
        assert!(paces.get(&walk.id).copied() >= Some(before + LOOK_EVERY));
        assert_eq!(walk.deliver_after(0).await, 1);
        // It tries the endpoint again and again, and another one each minute. None is used up.
        for (tries, done) in [(1, 11), (2, 12)] {
            for _ in 0..5 {
                assert_eq!((walk.deliver_after(10_000).await, walk.done(&mut Paces::new()).await), (tries, done));
            }
            assert_eq!((walk.deliver_after(10_000).await, walk.done(&mut Paces::new()).await), (tries, done + 1));
            assert_eq!(walk.deliver_after(0).await, 1);
        }
        let dead = async || redelivery::outcomes(&walk.app, walk.id).await.expect("are counted").dead;
        assert_eq!(dead().await, 10);
        Deployment::close(&walk.app);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn in_vain_or_not_stretches_that_hold_nothing_are_passed_over_at_once() {
        let walk = Walk::begin(None).await;
        for _ in 0..5 {
            walk.done(&mut Paces::new()).await;
            walk.deliver_after(0).await;
        }
        let mut row = redelivery::find(&walk.app, walk.id).await.expect("it is there");
        // As where others were sent again one by one meanwhile: none of the next ones is dead.
        (row.cursor_seq, row.through_seq) = (row.through_seq, row.through_seq + STRETCH);
        let view = walk.app.store.application(&walk.client_id).await.expect("reads").expect("is there");
        let now = Instant::now();
        let hour = Duration::from_secs(3_600);
        let next = walk.dispatcher.advance(&row, &view, Fence(0), (1, hour), now).await.expect("a look");
        assert!(next.is_some_and(|next| next < now + hour), "nothing was found");
        Deployment::close(&walk.app);
    }

    #[test]
    fn the_next_portion_waits_for_most_of_the_one_before_and_never_for_a_single_callback() {
        assert_eq!(
            [1, 7, 8, 40, 1_000].map(|rate| (portion(rate), few(rate))),
            [(1, 1), (1, 1), (2, 1), (10, 5), (250, 125)]
        );
    }

    #[test]
    fn portions_and_their_pauses_never_come_to_more_than_the_rate() {
        for rate in 1..=1_000 {
            let most = portion(rate);
            assert!((1..=500).contains(&most), "{rate}");
            let pause_ms = pause(most as usize, rate).as_millis();
            assert!(
                u128::from(most) * 1_000 <= pause_ms * u128::try_from(rate).expect("positive"),
                "{rate}: {pause_ms}"
            );
            assert!((100..=1_000).contains(&pause_ms), "{rate}: {pause_ms}");
        }
        assert_eq!(pause(0, 50), PAUSE_MIN);
    }
}
