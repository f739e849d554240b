//! A receiver that says SUCCESS to everything and remembers what came, in order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use super::ATTEMPTS_EACH;

/// A callback as it came.
#[derive(Clone, Debug)]
struct Arrival {
    event: String,
    /// ClientId and bizId: callbacks of one keep their order.
    of: (String, String),
    sequence: u64,
    /// When the sender signed it, in ms since 1970.
    stamped_at: i64,
}

#[derive(Debug, Default)]
struct Came {
    arrivals: Vec<Arrival>,
    /// By event.
    counts: HashMap<String, usize>,
    /// Not answered yet.
    in_hand: usize,
    /// Answered, or left by their sender.
    answered: usize,
}

#[derive(Debug, Default)]
struct Seen {
    /// How long each answer takes.
    delay: Duration,
    came: Mutex<Came>,
    changed: Notify,
    /// While this is true, nothing is answered.
    held: watch::Sender<bool>,
}

impl Came {
    fn missing<'a>(&self, owed: &'a HashSet<String>) -> Vec<&'a String> {
        owed.iter().filter(|id| !self.counts.contains_key(*id)).collect()
    }
}

impl Seen {
    fn came(&self) -> MutexGuard<'_, Came> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, is_so: impl Fn(&Came) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(&self.came()) {
                return;
            }
            changed.await;
        }
    }
}

/// The receiver; it ends with the test's runtime.
#[derive(Debug)]
pub struct Inbox {
    address: SocketAddr,
    seen: Arc<Seen>,
}

/// While this lives, the receiver answers nothing.
#[derive(Debug)]
pub struct Held<'a>(&'a Seen);

impl Held<'_> {
    /// Callbacks without an answer.
    pub fn count(&self) -> usize {
        self.0.came().in_hand
    }

    /// Lets all of them be answered, and waits until the first one is.
    pub async fn release(self, within: Duration) -> Result<()> {
        let (seen, answered) = (self.0, self.0.came().answered);
        drop(self);
        let first = seen.until(|came| came.answered > answered);
        tokio::time::timeout(within, first).await.context("none of the callbacks in hand was answered")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.send_replace(false);
    }
}

/// Callbacks that came more than once, by what they show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// By the process that sent the first of two: how many its successors sent again.
    pub of_each_life: Vec<usize>,
    /// Those for which the sender of the first had lost the application's lane without a kill: its lease ran out on a busy machine.
    pub of_leases: usize,
    /// Kinds of business whose callbacks came in order.
    pub chains: usize,
}

/// What makes a callback come again.
#[derive(Clone, Debug, Default)]
pub struct Causes {
    /// When processes were killed, one after the other, in ms since 1970.
    pub kills: Vec<i64>,
    /// When an application's lane was taken from a node that had not given it back, in ms since 1970.
    pub taken: Lanes,
    /// When each term of an application's lane began, also that of a node that starts again. None: nobody shares, and there are no terms.
    pub began: Option<Lanes>,
    /// How far apart the clocks are by which callbacks are signed and lanes taken, in ms. Without terms also those by which callbacks are signed and
    /// processes were killed.
    pub apart_ms: i64,
}

/// Instants of the lane of each application, by `client_id`.
pub type Lanes = HashMap<String, Vec<i64>>;

impl Causes {
    /// The life of a process, counted in kills, in which this was signed: a process that was killed has signed nothing after that, and
    /// the next one nothing before.
    fn life(&self, stamped_at: i64) -> usize {
        self.kills.partition_point(|kill| *kill < stamped_at)
    }

    /// The first of these instants of the application's lane that lies between.
    fn between(&self, lanes: &Lanes, client_id: &str, (from, to): (i64, i64)) -> Option<i64> {
        let (from, to) = (from.min(to) - self.apart_ms, from.max(to) + self.apart_ms);
        lanes.get(client_id)?.iter().copied().find(|at| (from..=to).contains(at))
    }

    /// Which kill lies between two, if any.
    fn kill_between(&self, both: (i64, i64)) -> Option<usize> {
        let (life, next) = (self.life(both.0), self.life(both.1));
        if life < next || self.began.is_some() {
            return (life < next).then_some(life);
        }
        let near = both.0.min(both.1) - self.apart_ms..=both.0.max(both.1) + self.apart_ms;
        self.kills.iter().position(|kill| near.contains(kill))
    }

    /// From when on there was another sender than that of the first of two; none: there was none.
    fn of_two(&self, client_id: &str, both: (i64, i64)) -> Option<i64> {
        match (&self.began, self.kill_between(both)) {
            (_, None) => self.between(&self.taken, client_id, both),
            (Some(began), Some(_)) => self.between(began, client_id, both),
            (None, Some(kill)) => self.kills.get(kill).copied(),
        }
    }
}

impl Repeats {
    /// Of the kill that led to most.
    pub fn most(&self) -> usize {
        self.of_each_life.iter().max().copied().unwrap_or(0)
    }
}

impl Inbox {
    /// Listens on a free loopback port.
    pub async fn start() -> Result<Self> {
        Self::start_slow(Duration::ZERO).await
    }

    /// The same, but each answer takes so long.
    pub async fn start_slow(delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Seen { delay, ..Seen::default() });
        let router = axum::Router::new().route("/callback", post(receive)).with_state(seen.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, seen })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where callbacks go.
    pub fn url(&self) -> String {
        format!("http://{}/callback", self.address)
    }

    /// Answers nothing until what this returns is dropped, and waits until at least so many callbacks are in its hand.
    ///
    /// They would not come together by themselves where each is written by a commit of its own that takes longer than an answer.
    pub async fn hold(&self, at_least: usize, within: Duration) -> Result<Held<'_>> {
        self.seen.held.send_replace(true);
        let held = Held(&self.seen);
        let busy = self.seen.until(|came| came.in_hand >= at_least);
        if tokio::time::timeout(within, busy).await.is_err() {
            let (in_hand, came) = (held.count(), self.seen.came().arrivals.len());
            bail!(
                "{in_hand} callbacks were in hand after {within:?} without an answer, not {at_least}; {came} have come in all"
            );
        }
        Ok(held)
    }

    /// Waits until every event of `owed` has come; answers how many callbacks were more than one was owed.
    pub async fn wait_for_all(&self, owed: &HashSet<String>, within: Duration) -> Result<usize> {
        let all = self.seen.until(|came| came.missing(owed).is_empty());
        if tokio::time::timeout(within, all).await.is_err() {
            let came = self.seen.came();
            let missing = came.missing(owed);
            bail!(
                "{} of {} acknowledged events were never delivered, such as {:?}",
                missing.len(),
                owed.len(),
                missing.first()
            );
        }
        Ok(self.seen.came().counts.values().map(|n| n - 1).sum())
    }

    /// What came more than once. Refused: an event that came twice without a cause between, and one that came before an earlier one of
    /// its bizId, unless whoever sent it had lost the lane by then.
    pub fn repeats(&self, causes: &Causes) -> Result<Repeats> {
        repeats(&self.seen.came().arrivals, causes)
    }
}

fn repeats(arrivals: &[Arrival], causes: &Causes) -> Result<Repeats> {
    let mut found = Repeats { of_each_life: vec![0; causes.kills.len()], ..Repeats::default() };
    let mut last: HashMap<&str, i64> = HashMap::new();
    let mut chains: BTreeMap<&(String, String), (u64, i64)> = BTreeMap::new();
    let mut of_each: HashMap<(&str, i64), usize> = HashMap::new();
    for arrival in arrivals {
        let Arrival { event, of, sequence, stamped_at: now } = arrival;
        if let Some(before) = last.insert(event, *now) {
            let cause = causes.of_two(&of.0, (before, *now)).with_context(|| {
                format!(
                    "{event} was sent at {before} and at {now} without a kill or a lost lane between; kills: {:?}, lane taken: {:?}",
                    causes.kills,
                    causes.taken.get(&of.0)
                )
            })?;
            let of_it = of_each.entry((&of.0, cause)).or_default();
            *of_it += 1;
            ensure!(*of_it <= ATTEMPTS_EACH, "more callbacks of {} came again than were in flight at {cause}", of.0);
            match causes.kill_between((before, *now)) {
                Some(kill) => found.of_each_life[kill] += 1,
                None => found.of_leases += 1,
            }
        }
        let (newest, newest_at) = *chains.entry(of).or_insert((0, *now));
        let is_late = || causes.between(&causes.taken, &of.0, (newest_at, *now)).is_some();
        if *sequence < newest && *now < newest_at && is_late() {
            // Signed before the lane was lost, come after what the next holder sent.
            continue;
        }
        ensure!(
            *sequence == newest || *sequence == newest + 1,
            "number {sequence} of {of:?} came after number {newest}"
        );
        chains.insert(of, (*sequence, *now));
    }
    found.chains = chains.len();
    Ok(found)
}

fn read(headers: &HeaderMap, body: &[u8]) -> Option<Arrival> {
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let body: Value = serde_json::from_slice(body).ok()?;
    let word = |name: &str| Some(body[name].as_str()?.to_owned());
    Some(Arrival {
        event: header("x-service-event-id")?.to_owned(),
        of: (word("client_id")?, word("bizId")?),
        sequence: header("x-service-sequence")?.parse().ok()?,
        stamped_at: header("x-service-timestamp")?.parse().ok()?,
    })
}

async fn receive(State(seen): State<Arc<Seen>>, headers: HeaderMap, body: Bytes) -> (StatusCode, &'static str) {
    let Some(arrival) = read(&headers, &body) else { return (StatusCode::BAD_REQUEST, "this is no callback") };
    {
        let mut came = seen.came();
        *came.counts.entry(arrival.event.clone()).or_default() += 1;
        came.arrivals.push(arrival);
        came.in_hand += 1;
    }
    let _in_hand = InHand(&seen);
    seen.changed.notify_waiters();
    if !seen.delay.is_zero() {
        tokio::time::sleep(seen.delay).await;
    }
    // The sender of this lives as long as the state.
    let _ = seen.held.subscribe().wait_for(|held| !held).await;
    (StatusCode::OK, r#"{"returnCode":"SUCCESS","returnMessage":""}"#)
}

/// Also where its sender goes away.
struct InHand<'a>(&'a Seen);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        {
            let mut came = self.0.came();
            came.in_hand -= 1;
            came.answered += 1;
        }
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn arrival(event: &str, sequence: u64, stamped_at: i64) -> Arrival {
        Arrival { event: event.to_owned(), of: ("app_1".to_owned(), "b".to_owned()), sequence, stamped_at }
    }

    fn kills(kills: &[i64]) -> Causes {
        Causes { kills: kills.to_vec(), ..Causes::default() }
    }

    fn taken(client_id: &str, at: i64) -> Causes {
        Causes { taken: HashMap::from([(client_id.to_owned(), vec![at])]), apart_ms: 2, ..kills(&[110]) }
    }

    async fn post_one(address: SocketAddr, n: u64) {
        let mut connection = tokio::net::TcpStream::connect(address).await.expect("connected");
        let body = r#"{"client_id":"app_1","bizId":"b"}"#;
        let request = format!(
            "POST /callback HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Service-Event-Id: e{n}\r\nX-Service-Sequence: {n}\r\n\
             X-Service-Timestamp: {n}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[tokio::test]
    async fn what_comes_one_by_one_is_in_hand_together_while_it_is_held_and_answered_then() {
        let within = Duration::from_secs(60);
        let inbox = Inbox::start().await.expect("listening");
        post_one(inbox.address(), 1).await;
        assert!(inbox.hold(1, Duration::from_millis(20)).await.is_err(), "what was answered is in no hand");
        post_one(inbox.address(), 2).await;
        let posts: Vec<_> = (3..6).map(|n| tokio::spawn(post_one(inbox.address(), n))).collect();
        let held = inbox.hold(3, within).await.expect("all of them");
        assert_eq!(held.count(), 3);
        assert!(posts.iter().all(|post| !post.is_finished()));
        held.release(within).await.expect("one is answered");
        for post in posts {
            post.await.expect("answered");
        }
        assert_eq!(inbox.seen.came().in_hand, 0);
    }

    #[test]
    fn what_came_twice_is_counted_for_the_process_that_sent_it_first() {
        let arrivals = [arrival("a", 1, 100), arrival("a", 1, 120), arrival("b", 2, 121), arrival("b", 2, 310)];
        let found = repeats(&arrivals, &kills(&[110, 200, 300])).expect("fine");
        assert_eq!(found, Repeats { of_each_life: vec![1, 1, 0], of_leases: 0, chains: 1 });
    }

    #[test]
    fn one_process_that_sends_twice_and_a_callback_out_of_order_are_refused() {
        let causes = kills(&[110]);
        assert!(repeats(&[arrival("a", 1, 100), arrival("a", 1, 105)], &causes).is_err(), "twice in one life");
        assert!(repeats(&[arrival("b", 2, 100)], &causes).is_err(), "the first is missing");
        let late = [arrival("a", 1, 100), arrival("b", 2, 101), arrival("a", 1, 120)];
        assert!(repeats(&late, &causes).is_err(), "an earlier one after a later one");
    }

    #[test]
    fn what_is_stamped_right_behind_a_kill_by_a_clock_that_is_ahead_was_signed_before_it() {
        let twice = [arrival("a", 1, 112), arrival("a", 1, 130)];
        let apart = |apart_ms| repeats(&twice, &Causes { apart_ms, ..kills(&[110]) });
        assert!(apart(1).is_err(), "farther than clocks differ");
        assert_eq!(apart(2).expect("fine").of_each_life, [1]);
    }

    #[test]
    fn a_lane_that_was_lost_between_is_a_cause_too_and_no_other_lane_is() {
        let twice = [arrival("a", 1, 100), arrival("a", 1, 105)];
        for (at, fine) in [(97, false), (98, true), (103, true), (107, true), (108, false)] {
            assert_eq!(repeats(&twice, &taken("app_1", at)).is_ok(), fine, "taken at {at}");
        }
        assert_eq!(repeats(&twice, &taken("app_1", 103)).expect("fine").of_leases, 1);
        assert!(repeats(&twice, &taken("app_2", 103)).is_err(), "the lane of another application");
    }

    #[test]
    fn a_holder_that_sends_twice_after_it_took_a_lane_is_refused_and_so_is_a_node_that_nobody_killed() {
        let twice = [arrival("a", 1, 104), arrival("a", 1, 106)];
        assert!(repeats(&twice, &taken("app_1", 101)).is_err(), "both after it");
        let over_a_kill = [arrival("a", 1, 100), arrival("a", 1, 120)];
        let began = |at: i64| Causes { began: Some(HashMap::from([("app_1".to_owned(), vec![at])])), ..kills(&[110]) };
        assert!(repeats(&over_a_kill, &began(121)).is_err(), "its lane was nobody else's by then");
        assert_eq!(repeats(&over_a_kill, &began(112)).expect("fine").of_each_life, [1]);
    }

    #[test]
    fn of_one_take_no_more_come_again_than_could_be_in_flight() {
        let names: Vec<String> = (0..=ATTEMPTS_EACH).map(|n| format!("e{n}")).collect();
        let of = |names: &[String]| {
            let each = |(n, name): (usize, &String)| Arrival {
                of: ("app_1".to_owned(), name.clone()),
                ..arrival(name, 1, 100 + i64::try_from(n / names.len()).expect("few") * 5)
            };
            let arrivals: Vec<Arrival> = names.iter().chain(names).enumerate().map(each).collect();
            repeats(&arrivals, &taken("app_1", 103)).map(|found| found.of_leases).ok()
        };
        assert_eq!((of(&names[1..]), of(&names)), (Some(ATTEMPTS_EACH), None));
    }

    #[test]
    fn what_the_last_holder_had_signed_may_come_after_what_the_next_one_sent() {
        let straggling = [arrival("a", 1, 100), arrival("a", 1, 104), arrival("b", 2, 105), arrival("a", 1, 100)];
        assert_eq!(repeats(&straggling, &taken("app_1", 102)).expect("fine").of_leases, 2);
        let turned = [arrival("a", 1, 100), arrival("b", 2, 105), arrival("a", 1, 106)];
        assert!(repeats(&turned, &taken("app_1", 106)).is_err(), "signed after it");
    }
}
