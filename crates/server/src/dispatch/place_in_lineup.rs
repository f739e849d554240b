//! What the line-up knows of one application.

use std::collections::VecDeque;
use std::collections::vec_deque::Drain;
use std::iter::Chain;

use countersign_domain::delivery::Outcome;
use countersign_domain::ids::{EventNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::EventRow;
use foldhash::HashSet;

use super::FAULT_MS;
use super::health::{BreakerState, Class, Health, May, Pace};
use super::lineup::Unread;
use super::permits::SLOW_MS;

mod beside;

/// Rows that are read of an application at first, beyond those in memory, and where much is waiting.
pub(super) const PORTION_MIN: usize = 32;
const PORTION_MAX: usize = 128;
/// So many times what an endpoint may have at once may be answered and wait to be recorded. They come again after a crash.
const UNRECORDED_TIMES: usize = 3;
/// Rows of at most so many bytes, on average, are read in larger portions.
const ROW_BYTES_SMALL: usize = 4 * 1024;

/// First attempts that go for each repeated one, where there are both; and where half of what an endpoint may have at once hangs, which what
/// has failed before is likelier to do.
const FIRSTS: usize = 1;
const FIRSTS_HANGING: usize = 8;

/// Where an application stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// Nowhere: it has nothing to do, or rests.
    Out,
    /// In the queue of this class; an entry in another one is void.
    Queued(Class),
    /// Its rows are being read.
    Reads,
    /// It has as many attempts in flight as it may.
    AtLimit,
}

/// What can be done for an application whose turn it is.
#[derive(Debug)]
pub(super) enum Considered {
    Begin(Box<EventRow>),
    Read,
    Rests(UnixMillis),
    AtLimit,
    Idle,
}

/// What an endpoint may have at the most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allows {
    /// Attempts at once.
    pub(super) at_once: usize,
    /// Attempts in a second; none: as many as there are.
    pub(super) per_s: Option<u32>,
    /// How long the whole schedule of an event takes, in ms.
    pub(super) whole_ms: i64,
}

/// How an endpoint stands at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointView {
    /// Its breaker.
    pub breaker: BreakerState,
    /// Attempts at once that may be under way now.
    pub at_once: usize,
    /// The same where it does not fail.
    pub at_once_max: usize,
    /// Attempts that are under way.
    pub in_flight: usize,
    /// The last attempt that this node remembers: when it was recorded, and what came of it.
    pub last: Option<(UnixMillis, Outcome)>,
}

/// First attempts, and repeated ones.
#[derive(Debug, Default)]
struct Kind {
    ready: VecDeque<EventRow>,
    /// The store may have more that are due.
    has_more: bool,
}

/// An attempt that is under way.
#[derive(Debug)]
struct UnderWay {
    event: EventNo,
    began: UnixMillis,
    /// Whether it was sent again by hand.
    by_hand: bool,
    /// Whether it is no first attempt.
    is_repeat: bool,
    /// Whether it goes for having been overdue, beside what tries an endpoint that is left alone.
    is_overdue: bool,
    /// Where it went, as a number. What went to another URL than the present one counts for nothing here.
    url: Option<u64>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) tenant: TenantNo,
    pub(super) stands: Stands,
    pub(super) health: Health,
    pace: Pace,
    /// How long the whole schedule of an event takes, in ms, as soon as it is known.
    whole_ms: Option<i64>,
    /// When the next one that is overdue may go.
    overdue_next: Option<UnixMillis>,
    kinds: [Kind; 2],
    /// First attempts since the last repeated one.
    firsts: usize,
    /// Whether what is in memory was added to since the last attempt began, to try the endpoint with.
    has_looked: bool,
    /// Whether the endpoint was tried with the newest last, and not with the oldest.
    tried_newest: bool,
    in_flight: Vec<UnderWay>,
    /// Events whose attempts the endpoint has answered, and that are not recorded.
    unrecorded: Vec<UnderWay>,
    /// Events that are left alone though they are due, and until when.
    parked: Vec<(EventNo, UnixMillis)>,
    rests_until: Option<UnixMillis>,
    /// Events that others wait for: when they are over, there is something to read.
    awaited: HashSet<EventNo>,
    /// Rows that are read of it next, beyond those in memory.
    portion: usize,
    /// Set while reads of it fail: it is read by itself, so that those of others do not fail with it.
    pub(super) unread: Option<Unread>,
    /// Where its callbacks go, as a number.
    url: Option<u64>,
    /// Its ClientId, as soon as it is known.
    pub(super) client_id: Box<str>,
    /// The last attempt that was recorded, and when that was.
    pub(super) last: Option<(UnixMillis, Outcome)>,
    /// Its lane is another node's.
    pub(super) is_lost: bool,
}

impl Place {
    pub(super) fn new(tenant: TenantNo, most: usize) -> Self {
        Self {
            tenant,
            stands: Stands::Out,
            health: Health::new(most),
            pace: Pace::default(),
            whole_ms: None,
            overdue_next: None,
            kinds: Default::default(),
            firsts: 0,
            has_looked: false,
            tried_newest: false,
            in_flight: Vec::new(),
            unrecorded: Vec::new(),
            parked: Vec::new(),
            rests_until: None,
            awaited: HashSet::default(),
            portion: PORTION_MIN,
            unread: None,
            url: None,
            client_id: Box::default(),
            last: None,
            is_lost: false,
        }
    }

    /// Its turn: what can be done.
    pub(super) fn consider(&mut self, now: UnixMillis) -> Considered {
        if let Some(until) = self.rests_until.filter(|until| rests(*until, now)) {
            return Considered::Rests(until);
        }
        self.rests_until = None;
        let (under_way, slow) = (self.tries(), self.slow(now));
        let is_full = self.in_flight() >= self.health.most();
        let may = if is_full { May::WhenLanded } else { self.health.may(under_way, slow, now) };
        let is_beside = !is_full && may == May::WhenLanded && self.may_begin_beside(under_way);
        match may {
            May::Begin => {}
            May::WhenLanded if is_beside => {}
            May::WhenLanded if self.health.waits_for_slow(under_way, now) => {
                return self.next_slow(now).map_or(Considered::AtLimit, Considered::Rests);
            }
            May::WhenLanded => return self.overdue(None, now),
            May::At(until) => return self.overdue(Some(until), now),
        }
        if self.unrecorded.len() >= UNRECORDED_TIMES * self.health.most() {
            return Considered::AtLimit;
        }
        if let Some(until) = self.pace.wait(now) {
            return Considered::Rests(until);
        }
        let is_failing = self.health.is_failing();
        let since = self.oldest().filter(|_| self.is_for_new(under_way, slow));
        let has_looked = self.has_looked;
        let repeat = self.next_repeat();
        let [first, again] = &mut self.kinds;
        // Where some hang the last one is for what was written since, which may not: neither for what waits beside them, nor for what has failed
        // before. Behind more than a portion there is no telling what was.
        let since = since.filter(|_| !first.has_more || first.ready.len() < PORTION_MIN);
        // What is new does not wait behind what has failed: it is read even where there are repeats to go. Nor behind what fails: then it is looked
        // for once before each attempt even where there is some to go. There may be no room for what is found.
        let looks = (since.is_some() || is_failing) && !has_looked && first.ready.len() < PORTION_MIN;
        if ((first.ready.is_empty() || looks) && first.has_more)
            || (first.ready.is_empty() && again.ready.is_empty() && again.has_more)
        {
            self.has_looked = true;
            return Considered::Read;
        }
        let turn = if slow * 2 >= self.health.most() { FIRSTS_HANGING } else { FIRSTS };
        let has_turn = self.firsts >= turn && repeat.is_some();
        let repeats = !is_beside && since.is_none() && (first.ready.is_empty() || has_turn);
        // An endpoint that fails is tried with the newest and the oldest in turns: either may be what it takes.
        let tries_newest = since.is_some() || (is_failing && !self.tried_newest);
        let event = match (repeats, tries_newest) {
            (true, _) => repeat.and_then(|at| again.ready.remove(at)),
            (false, false) => first.ready.pop_front(),
            (false, true) => newest(&mut first.ready, since),
        };
        let Some(event) = event else {
            return if self.has_work() { Considered::AtLimit } else { Considered::Idle };
        };
        self.firsts = if repeats { 0 } else { self.firsts.saturating_add(1) };
        self.has_looked = false;
        self.tried_newest = is_failing && if repeats { self.tried_newest } else { tries_newest };
        self.in_flight.push(UnderWay {
            event: event.no,
            began: now,
            by_hand: event.by_hand,
            is_repeat: repeats,
            is_overdue: false,
            url: self.url,
        });
        self.health.begins();
        self.pace.begins(now);
        Considered::Begin(Box::new(event))
    }

    /// Where the next repeat stands. What is sent again by hand leaves one place to all else: it may be what the endpoint hangs at, and does not lower what the
    /// endpoint may have.
    fn next_repeat(&self) -> Option<usize> {
        let ready = &self.kinds[1].ready;
        let sent_again = || self.in_flight.iter().filter(|one| one.by_hand).count();
        let most = self.health.most().saturating_sub(1).max(1);
        match ready.front() {
            Some(event) if event.by_hand && sent_again() >= most => ready.iter().position(|event| !event.by_hand),
            front => front.map(|_| 0),
        }
    }

    /// Events of it in memory, which are owed as long as they are not recorded.
    pub(super) fn known(&self) -> impl Iterator<Item = EventNo> {
        let ready = self.kinds.iter().flat_map(|kind| kind.ready.iter().map(|event| event.no));
        let parked = self.parked.iter().map(|(event, _)| *event);
        ready
            .chain(self.in_flight.iter().map(|one| one.event))
            .chain(self.unrecorded.iter().map(|one| one.event))
            .chain(parked)
    }

    /// Rows that a read of it asks for beyond those in memory.
    pub(super) const fn portion(&self) -> usize {
        self.portion
    }

    /// A read has found so many bytes in so many rows. Whoever had nothing left and has more than was read is read in larger portions, so
    /// that a row costs less; but not where its rows are large.
    pub(super) fn has_read(&mut self, rows: usize, bytes: usize, wants_more: bool) {
        let may_grow = wants_more && bytes <= rows.saturating_mul(ROW_BYTES_SMALL);
        self.portion = if may_grow { (self.portion * 2).min(PORTION_MAX) } else { PORTION_MIN };
    }

    pub(super) fn park(&mut self, event: EventNo, until: UnixMillis) {
        self.parked.push((event, until));
    }

    /// How many are left alone.
    pub(super) const fn parked(&self) -> usize {
        self.parked.len()
    }

    /// When the first one of those that are left alone may go.
    pub(super) fn parked_until(&self) -> Option<UnixMillis> {
        self.parked.iter().map(|(_, until)| *until).min()
    }

    /// What was to be left alone until now may go.
    pub(super) fn unpark(&mut self, now: UnixMillis) {
        self.parked.retain(|(_, until)| rests(*until, now));
    }

    /// Nothing is left alone any more.
    pub(super) fn unpark_all(&mut self) {
        self.parked.clear();
    }

    /// Others wait for these, as far as there is room to remember it: how many are new.
    pub(super) fn awaits_too(&mut self, events: impl IntoIterator<Item = EventNo>, room: usize) -> usize {
        let before = self.awaited.len();
        for event in events {
            if self.awaited.len() - before < room {
                self.awaited.insert(event);
            }
        }
        self.awaited.len() - before
    }

    /// Others wait for these at the most: how many are forgotten.
    pub(super) fn awaits_only(&mut self, events: &HashSet<EventNo>) -> usize {
        let before = self.awaited.len();
        self.awaited.retain(|event| events.contains(event));
        before - self.awaited.len()
    }

    /// An event is over. Whether others were known to wait for it.
    pub(super) fn awaits_no_more(&mut self, event: EventNo) -> bool {
        self.awaited.remove(&event)
    }

    /// Takes out what is known of events that others wait for.
    pub(super) fn take_awaited(&mut self) -> HashSet<EventNo> {
        std::mem::take(&mut self.awaited)
    }

    /// Events of it that wait for their turn only.
    #[cfg(test)]
    pub(super) fn ready(&self) -> usize {
        self.kinds.iter().map(|kind| kind.ready.len()).sum()
    }

    pub(super) fn has_ready(&self, repeated: usize) -> bool {
        !self.kinds[repeated].ready.is_empty()
    }

    /// How many are ready of each kind.
    pub(super) fn ready_of_each(&self) -> [usize; 2] {
        self.kinds.each_ref().map(|kind| kind.ready.len())
    }

    /// Takes a due event, which is not in memory.
    pub(super) fn take(&mut self, row: EventRow, repeated: usize) {
        self.kinds[repeated].ready.push_back(row);
    }

    /// Whether an event that is not in memory may go without being read: a first attempt, where nothing waits to be read, neither first attempts nor
    /// repeated ones, and what the application allows is known.
    pub(super) fn is_next(&self, event: &EventRow) -> bool {
        let is_first = event.attempts == 0 && event.due_at.is_some() && event.behind.is_none();
        let is_known = self.url.is_some() && self.rests_until.is_none();
        let waits = self.kinds.iter().any(|kind| kind.has_more) || self.kinds[0].ready.len() >= PORTION_MIN;
        is_first && is_known && !waits
    }

    /// The store may have more of both kinds.
    pub(super) fn expect_more(&mut self) {
        self.has_looked = false;
        self.expect([true; 2]);
    }

    pub(super) fn expect_nothing(&mut self) {
        self.expect([false; 2]);
    }

    pub(super) fn expect(&mut self, has_more: [bool; 2]) {
        for (kind, has_more) in self.kinds.iter_mut().zip(has_more) {
            kind.has_more = has_more;
        }
    }

    /// Whether a turn is of use.
    pub(super) fn has_work(&self) -> bool {
        self.kinds.iter().any(|kind| kind.has_more || !kind.ready.is_empty())
    }

    /// Whether so many at the most wait for their turn.
    pub(super) fn has_at_most(&self, few: usize) -> bool {
        let ready: usize = self.ready_of_each().iter().sum();
        ready <= few && self.kinds.iter().all(|kind| !kind.has_more)
    }

    /// Whether nothing of it is in memory, or on its way.
    pub(super) fn is_idle(&self) -> bool {
        let waits = !self.in_flight.is_empty() || !self.unrecorded.is_empty() || !self.awaited.is_empty();
        self.stands == Stands::Out && !waits && !self.has_work()
    }

    /// Whether a new one would be the same.
    pub(super) fn is_forgettable(&self) -> bool {
        self.is_idle()
            && self.health.is_as_new()
            && self.rests_until.is_none()
            && self.parked.is_empty()
            && self.unread.is_none()
            && self.last.is_none()
    }

    /// The endpoint has answered; what came of it is still to be recorded.
    pub(super) fn answered(&mut self, event: EventNo) {
        let answered = self.in_flight.extract_if(.., |one| one.event == event);
        self.unrecorded.extend(answered);
    }

    /// Whether the endpoint has answered an attempt that is not recorded.
    pub(super) fn is_unrecorded(&self, event: EventNo) -> bool {
        self.unrecorded.iter().any(|one| one.event == event)
    }

    pub(super) fn landed(&mut self, event: EventNo) {
        self.in_flight.retain(|one| one.event != event);
        self.unrecorded.retain(|one| one.event != event);
    }

    pub(super) const fn rest(&mut self, until: UnixMillis) {
        self.rests_until = Some(until);
    }

    /// It rests no longer: whether it did.
    pub(super) const fn wake(&mut self) -> bool {
        self.rests_until.take().is_some()
    }

    /// Takes out what is ready; the store still has it. Whoever drops it notes when to look again, or gives up.
    pub(super) fn drop_ready(&mut self) -> Chain<Drain<'_, EventRow>, Drain<'_, EventRow>> {
        let [first, again] = &mut self.kinds;
        first.ready.drain(..).chain(again.ready.drain(..))
    }

    /// Attempts at its endpoint that are under way and say how it is, and when each began.
    fn here(&self) -> impl Iterator<Item = UnixMillis> {
        self.in_flight.iter().filter(|one| one.url == self.url && !one.is_overdue).map(|one| one.began)
    }

    /// How many attempts at its endpoint are under way.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.iter().filter(|one| one.url == self.url).count()
    }

    /// Whether an attempt is under way, or not recorded yet, at an endpoint that it had before.
    pub(super) fn is_elsewhere(&self, event: EventNo) -> bool {
        self.in_flight.iter().chain(&self.unrecorded).any(|one| one.url != self.url && one.event == event)
    }

    /// Attempts of it that have taken long by now.
    fn slow(&self, now: UnixMillis) -> usize {
        self.here().filter(|began| is_slow(*began, now)).count()
    }

    /// When the oldest of them began.
    fn oldest(&self) -> Option<UnixMillis> {
        self.here().min()
    }

    /// When the next one of them will have.
    fn next_slow(&self, now: UnixMillis) -> Option<UnixMillis> {
        let fast = self.here().filter(|began| !is_slow(*began, now));
        // One that begins in a time to come was begun by a clock that was ahead.
        fast.map(|began| began.min(now).plus_ms(SLOW_MS)).min()
    }

    /// What is known of another URL is not known of this one, and what is under way there takes no place here. Those that read the new URL before this
    /// is called are taken for such: for as long as they are under way the endpoint has more than it may, by as many as it may at the most.
    pub(super) fn knows(&mut self, client_id: &str, url: u64, allows: Allows) {
        if *self.client_id != *client_id {
            self.client_id = client_id.into();
        }
        match self.url.replace(url) {
            Some(before) if before == url => {}
            Some(_) => (self.health, self.last) = (Health::new(allows.at_once), None),
            None => self.in_flight.iter_mut().chain(&mut self.unrecorded).for_each(|one| one.url = Some(url)),
        }
        self.health.allow(allows.at_once);
        self.pace.set(allows.per_s);
        self.whole_ms = Some(allows.whole_ms);
    }
}

/// Whether what is left alone until then is so still. Nothing is for longer than [`FAULT_MS`], so what has much more left was told by a clock that was
/// ahead.
const fn rests(until: UnixMillis, now: UnixMillis) -> bool {
    let left = until.0.saturating_sub(now.0);
    left > 0 && left <= 2 * FAULT_MS
}

fn is_slow(began: UnixMillis, now: UnixMillis) -> bool {
    now.0.saturating_sub(began.0) >= SLOW_MS
}

/// The newest one, if it was written after that, that has no earlier one of its business before it: that one would have to wait for the earlier one.
fn newest(ready: &mut VecDeque<EventRow>, since: Option<UnixMillis>) -> Option<EventRow> {
    let is_free = |at: &usize| ready.iter().take(*at).all(|earlier| earlier.biz_id != ready[*at].biz_id);
    let is_new = |at: &usize| since.is_none_or(|since| ready[*at].created_at > since);
    let at = (0..ready.len()).rev().find(|at| is_new(at) && is_free(at))?;
    ready.remove(at)
}
