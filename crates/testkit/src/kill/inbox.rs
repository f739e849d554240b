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
use tokio::sync::Notify;

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
}

#[derive(Debug, Default)]
struct Seen {
    /// How long each answer takes.
    delay: Duration,
    came: Mutex<Came>,
    changed: Notify,
}

impl Seen {
    fn came(&self) -> MutexGuard<'_, Came> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiver; it ends with the test's runtime.
#[derive(Debug)]
pub struct Inbox {
    address: SocketAddr,
    seen: Arc<Seen>,
}

/// Callbacks that came more than once, by what they show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repeats {
    /// By the process that sent the first of two: how many its successors sent again.
    pub of_each_life: Vec<usize>,
    /// Kinds of business whose callbacks came in order.
    pub chains: usize,
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

    /// Waits until at least so many callbacks are in its hand at once; how many they are.
    pub async fn until_busy(&self, at_least: usize, within: Duration) -> Result<usize> {
        let busy = async {
            loop {
                let changed = self.seen.changed.notified();
                let in_hand = self.seen.came().in_hand;
                if in_hand >= at_least {
                    return in_hand;
                }
                changed.await;
            }
        };
        tokio::time::timeout(within, busy).await.with_context(|| format!("never {at_least} callbacks at once"))
    }

    /// Waits until every event of `owed` has come; answers how many callbacks were more than one was owed.
    pub async fn wait_for_all(&self, owed: &HashSet<String>, within: Duration) -> Result<usize> {
        let all = async {
            loop {
                let changed = self.seen.changed.notified();
                if self.missing(owed).is_empty() {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(within, all).await.is_err() {
            let missing = self.missing(owed);
            bail!(
                "{} of {} acknowledged events were never delivered, such as {:?}",
                missing.len(),
                owed.len(),
                missing.first()
            );
        }
        Ok(self.seen.came().counts.values().map(|n| n - 1).sum())
    }

    fn missing(&self, owed: &HashSet<String>) -> Vec<String> {
        let came = self.seen.came();
        owed.iter().filter(|id| !came.counts.contains_key(*id)).cloned().collect()
    }

    /// What came more than once, where processes were killed at these instants one after the other. Refused: an event that came twice
    /// without a kill between, and one that came before an earlier one of its bizId.
    pub fn repeats(&self, kills: &[i64]) -> Result<Repeats> {
        repeats(&self.seen.came().arrivals, kills)
    }
}

fn repeats(arrivals: &[Arrival], kills: &[i64]) -> Result<Repeats> {
    // A process that was killed has signed nothing after that, and the next one nothing before.
    let life = |arrival: &Arrival| kills.partition_point(|kill| *kill < arrival.stamped_at);
    let mut of_each_life = vec![0; kills.len()];
    let mut last_lives: HashMap<&str, usize> = HashMap::new();
    let mut chains: BTreeMap<&(String, String), u64> = BTreeMap::new();
    for arrival in arrivals {
        let now = life(arrival);
        if let Some(before) = last_lives.insert(&arrival.event, now) {
            ensure!(before < now, "{} was sent twice without a kill between", arrival.event);
            of_each_life[before] += 1;
        }
        let newest = chains.entry(&arrival.of).or_default();
        let (sequence, of) = (arrival.sequence, &arrival.of);
        ensure!(
            sequence == *newest || sequence == *newest + 1,
            "number {sequence} of {of:?} came after number {newest}"
        );
        *newest = sequence;
    }
    Ok(Repeats { of_each_life, chains: chains.len() })
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
    (StatusCode::OK, r#"{"returnCode":"SUCCESS","returnMessage":""}"#)
}

/// Also where its sender goes away.
struct InHand<'a>(&'a Seen);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.0.came().in_hand -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(event: &str, sequence: u64, stamped_at: i64) -> Arrival {
        Arrival { event: event.to_owned(), of: ("app_1".to_owned(), "b".to_owned()), sequence, stamped_at }
    }

    #[test]
    fn what_came_twice_is_counted_for_the_process_that_sent_it_first() {
        let arrivals = [arrival("a", 1, 100), arrival("a", 1, 120), arrival("b", 2, 121), arrival("b", 2, 310)];
        let found = repeats(&arrivals, &[110, 200, 300]).expect("fine");
        assert_eq!(found, Repeats { of_each_life: vec![1, 1, 0], chains: 1 });
    }

    #[test]
    fn one_process_that_sends_twice_and_a_callback_out_of_order_are_refused() {
        assert!(repeats(&[arrival("a", 1, 100), arrival("a", 1, 105)], &[110]).is_err(), "twice in one life");
        assert!(repeats(&[arrival("b", 2, 100)], &[110]).is_err(), "the first is missing");
        let late = [arrival("a", 1, 100), arrival("b", 2, 101), arrival("a", 1, 120)];
        assert!(repeats(&late, &[110]).is_err(), "an earlier one after a later one");
    }
}
