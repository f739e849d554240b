//! An event on its way from its commit to the dispatcher of this process, which so need not read what was in memory a moment ago.
//!
//! Invariant: an event is handed over or found by a read, never both. It is noted before its commit begins; a read that finds it strikes it
//! off, and what is struck off is not handed over.
//! Invariant: nothing rests on it. What is not handed over, for whatever reason, is rung for and read, by whichever node has its lane then.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::EventNo;
use countersign_domain::lanes::Lane;
use countersign_store::Store as _;
use countersign_store::batch::{Batch, EventNumbers};
use countersign_store::contract::{CommitError, EventRow};

use super::App;

/// Events that wait for the dispatcher, and commits that are under way; more are read.
const EVENTS_MAX: usize = 1_024;
/// Bytes of what was written of events that wait.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// What was noted longer ago is read, unless it is said otherwise: another node may have had its lane since, and delivered it.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// Events that were written a moment ago, or are about to be.
#[derive(Debug)]
pub(super) struct Fresh {
    /// Events whose commits are under way, and that no read has found.
    writing: HashSet<EventNo>,
    written: Vec<EventRow>,
    bytes: usize,
    /// When the first of those that wait was noted.
    since: Option<Instant>,
    /// How long what was noted is handed over, and not read.
    pub(super) within: Duration,
}

impl Default for Fresh {
    fn default() -> Self {
        Self { writing: HashSet::new(), written: Vec::new(), bytes: 0, since: None, within: FRESH_FOR }
    }
}

/// Events that were handed over.
#[derive(Debug, Default)]
pub struct Written {
    /// In the order in which they were handed over.
    pub events: Vec<EventRow>,
    /// Whether they are to be read all the same.
    pub is_old: bool,
}

impl Fresh {
    /// An event is about to be committed. False: it will have to be read.
    pub(super) fn expect(&mut self, event: EventNo) -> bool {
        self.writing.len() < EVENTS_MAX && self.writing.insert(event)
    }

    /// An event that was expected is not handed over: its commit failed.
    pub(super) fn forget(&mut self, event: EventNo) {
        self.writing.remove(&event);
    }

    /// An event is committed; its commit was noted at `noted`. False: a read has found it meanwhile, it was noted too long ago, or there is no room.
    pub(super) fn hand_over(&mut self, event: EventRow, noted: Instant, now: Instant) -> bool {
        let bytes = bytes_of(&event);
        let has_room = self.written.len() < EVENTS_MAX && self.bytes + bytes <= BYTES_MAX;
        if !self.writing.remove(&event.no) || now > noted + self.within || !has_room {
            return false;
        }
        self.bytes += bytes;
        self.since = Some(self.since.map_or(noted, |since| since.min(noted)));
        self.written.push(event);
        true
    }

    /// A read has found these.
    pub(super) fn found(&mut self, events: impl Iterator<Item = EventNo>) {
        if self.writing.is_empty() && self.written.is_empty() {
            return;
        }
        let events: HashSet<EventNo> = events.collect();
        self.writing.retain(|event| !events.contains(event));
        self.written.retain(|event| !events.contains(&event.no));
        self.bytes = self.written.iter().map(bytes_of).sum();
    }

    /// What was handed over since this was asked last.
    pub(super) fn take(&mut self, now: Instant) -> Written {
        self.bytes = 0;
        let is_old = self.since.take().is_some_and(|since| now > since + self.within);
        Written { events: std::mem::take(&mut self.written), is_old }
    }
}

/// What was written of an event. Its other words are short.
const fn bytes_of(event: &EventRow) -> usize {
    event.body.len() + event.data.len()
}

/// An event whose commit is under way. Dropped before that has ended, its caller has gone away or does not know: the event may be there.
struct Expected<'a> {
    app: &'a App,
    event: Option<Arc<EventRow>>,
    noted: Instant,
}

impl<'a> Expected<'a> {
    fn new(app: &'a App, event: Arc<EventRow>) -> Self {
        if event.state == DeliveryState::Pending && app.bell.lanes().contains(Lane::of(event.application)) {
            app.bell.fresh().expect(event.no);
        }
        Self { app, event: Some(event), noted: Instant::now() }
    }

    fn committed(mut self, numbers: Option<EventNumbers>) {
        let Some(event) = self.event.take() else { return };
        let (no, tenant, application) = (event.no, event.tenant, event.application);
        let row = numbers.filter(|_| self.app.bell.lanes().contains(Lane::of(application))).map(|numbers| {
            let EventNumbers { seq, sequence } = numbers;
            EventRow { seq, sequence, ..Arc::unwrap_or_clone(event) }
        });
        let mut fresh = self.app.bell.fresh();
        let is_handed = row.is_some_and(|row| fresh.hand_over(row, self.noted, Instant::now()));
        fresh.forget(no);
        drop(fresh);
        if is_handed {
            self.app.bell.wake();
        } else {
            self.app.ring(tenant, application);
        }
    }

    fn refused(mut self) {
        if let Some(event) = self.event.take() {
            self.app.bell.fresh().forget(event.no);
        }
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.app.bell.fresh().forget(event.no);
            // Where it comes later than this, the next look finds it.
            self.app.ring(event.tenant, event.application);
        }
    }
}

/// Commits a batch that writes this event and no other, and tells whoever delivers for its application. The numbers that the store gave it.
pub(super) async fn commit(app: &App, event: Arc<EventRow>, batch: Batch) -> Result<Option<EventNumbers>, CommitError> {
    let expected = Expected::new(app, event);
    match app.store.commit(batch).await {
        Ok(committed) => {
            let numbers = committed.events.first().copied();
            expected.committed(numbers);
            Ok(numbers)
        }
        Err(error @ (CommitError::Conflict(_) | CommitError::Store(_))) => {
            expected.refused();
            Err(error)
        }
        Err(CommitError::Unknown) => Err(CommitError::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use countersign_domain::ids::{ApplicationNo, SortedId, TenantNo};
    use countersign_domain::lanes::LaneSet;
    use countersign_domain::time::UnixMillis;
    use countersign_store::Write;

    use super::*;
    use crate::app::fixtures::{Deployment, application};
    use crate::app::identity::find_application;

    fn event(no: i64, body: usize) -> EventRow {
        EventRow {
            no: EventNo(no),
            tenant: TenantNo(1),
            application: ApplicationNo(1),
            client_id: "app_1".to_owned(),
            event_id: SortedId(1),
            seq: 0,
            sequence: 0,
            biz_type: "T".to_owned(),
            biz_id: "b".to_owned(),
            biz_status: "S".to_owned(),
            data: "{}".to_owned(),
            body: vec![b'x'; body],
            created_at: UnixMillis(1),
            state: DeliveryState::Pending,
            attempts: 0,
            due_at: Some(UnixMillis(1)),
            behind: None,
            by_hand: false,
        }
    }

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(3_600);

    /// Expected and then committed: whether it is handed over.
    fn write(fresh: &mut Fresh, no: i64, body: usize, now: Instant) -> bool {
        assert!(fresh.expect(EventNo(no)), "{no}");
        fresh.hand_over(event(no, body), now, now)
    }

    fn numbers(written: &Written) -> Vec<i64> {
        written.events.iter().map(|event| event.no.0).collect()
    }

    #[test]
    fn what_is_committed_is_handed_over_once_and_in_order() {
        let (mut fresh, now) = (Fresh::default(), Instant::now());
        assert!(write(&mut fresh, 2, 2, now) && write(&mut fresh, 1, 2, now));
        let written = fresh.take(now);
        assert_eq!((numbers(&written), written.is_old), (vec![2, 1], false));
        assert!(fresh.take(now).events.is_empty());
    }

    #[test]
    fn what_a_read_has_found_before_or_after_its_commit_was_told_is_not_handed_over() {
        let (mut fresh, now) = (Fresh::default(), Instant::now());
        assert!(fresh.expect(EventNo(1)) && write(&mut fresh, 2, 2, now) && write(&mut fresh, 3, 2, now));
        fresh.found([EventNo(1), EventNo(2)].into_iter());
        assert!(!fresh.hand_over(event(1, 2), now, now), "read before it was told");
        assert_eq!(numbers(&fresh.take(now)), [3], "read after it was told");
    }

    #[test]
    fn what_was_not_expected_or_is_forgotten_is_not_handed_over() {
        let (mut fresh, now) = (Fresh::default(), Instant::now());
        assert!(!fresh.hand_over(event(1, 2), now, now));
        assert!(fresh.expect(EventNo(2)) && !fresh.expect(EventNo(2)));
        fresh.forget(EventNo(2));
        assert!(!fresh.hand_over(event(2, 2), now, now));
        assert!(fresh.take(now).events.is_empty());
    }

    #[test]
    fn what_waits_is_bounded_in_number_and_bytes_and_there_is_room_again_when_it_was_taken() {
        let (mut fresh, now) = (Fresh::default(), Instant::now());
        let most = i64::try_from(EVENTS_MAX).expect("small");
        assert!((0..most).all(|no| write(&mut fresh, no, 2, now)) && !write(&mut fresh, most, 2, now));
        assert_eq!(fresh.take(now).events.len(), EVENTS_MAX);
        assert!(write(&mut fresh, 1, BYTES_MAX - 2, now) && !write(&mut fresh, 2, 1, now));
        fresh.found([EventNo(1)].into_iter());
        assert!(write(&mut fresh, 3, BYTES_MAX - 2, now), "what was found takes no room");
        assert_eq!(numbers(&fresh.take(now)), [3]);
        assert!((0..most).all(|no| fresh.expect(EventNo(no))) && !fresh.expect(EventNo(most)), "commits");
    }

    #[test]
    fn what_was_noted_too_long_ago_is_read_whether_its_commit_took_so_long_or_it_has_waited() {
        let (mut fresh, noted) = (Fresh::default(), Instant::now());
        let (still, late) = (noted + FRESH_FOR, noted + FRESH_FOR + Duration::from_millis(1));
        for (now, is_old) in [(still, false), (late, true)] {
            assert!(fresh.expect(EventNo(1)));
            assert_eq!(fresh.hand_over(event(1, 2), noted, now), !is_old, "the commit");
            assert_eq!(fresh.take(now).events.len(), usize::from(!is_old));
            assert!(write(&mut fresh, 3, 2, still) && fresh.expect(EventNo(2)));
            assert!(fresh.hand_over(event(2, 2), noted, still));
            let written = fresh.take(now);
            assert_eq!((written.events.len(), written.is_old), (2, is_old), "by the one that was noted first");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_a_caller_that_goes_away_in_the_commit_the_application_is_rung_for_and_of_one_that_is_refused_not() {
        let deployment = Deployment::on_sqlite().await.in_real_time();
        let app = deployment.open().await;
        app.bell.hand_over_for(LONG);
        let client_id = application(&app, "till", Some("https://till.example/callback")).await;
        let of = find_application(&app, &client_id).await.expect("is there").application;
        let row = |no, id| {
            let event_id = SortedId(id);
            Arc::new(EventRow { tenant: of.tenant, application: of.no, event_id, ..event(no, 2) })
        };
        let writes = |row: &Arc<EventRow>| Batch(vec![Write::EnqueueEvent(row.clone())]);
        app.bell.take();

        let first = row(1, 1);
        drop(Expected::new(&app, first.clone()));
        assert!(app.bell.take().applications.contains_key(&of.no), "gone away");
        assert!(!app.bell.fresh().hand_over((*first).clone(), Instant::now(), Instant::now()), "nor expected any more");

        commit(&app, first.clone(), writes(&first)).await.expect("is committed");
        assert_eq!(numbers(&app.bell.written()), [1]);
        let refused = commit(&app, first.clone(), writes(&first)).await;
        assert!(matches!(refused, Err(CommitError::Conflict(_))), "{refused:?}");
        assert!(app.bell.take().applications.is_empty() && app.bell.written().events.is_empty(), "refused");

        let third = row(3, 3);
        commit(&app, third.clone(), writes(&third)).await.expect("is committed");
        let written = app.bell.written();
        assert_eq!(numbers(&written), [3]);
        assert_eq!((written.events[0].seq, written.events[0].sequence), (2, 2), "the store's numbers");
        assert!(app.bell.take().applications.is_empty(), "handed over, so not rung for");

        let expected = Expected::new(&app, row(4, 4));
        app.bell.serve_lanes(LaneSet::NONE);
        expected.committed(Some(EventNumbers { seq: 3, sequence: 3 }));
        assert!(app.bell.written().events.is_empty(), "its lane has gone meanwhile");
        Deployment::close(&app);
    }
}
