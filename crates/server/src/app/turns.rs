//! Changes of one key take turns, in the order they came; so do reads that take long, so that nobody takes all places.
//!
//! So in one process a guard fails only against another node, and 32 upgrades of one sub-account all succeed.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use countersign_domain::conversion::Pair;
use countersign_domain::ids::{ApplicationNo, MerchantNo, OrderId};
use countersign_domain::payment_order::PrepayId;
use countersign_domain::time::UnixMillis;
use countersign_store::StoreError;
use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard, oneshot};
use tokio::time::timeout;

use super::App;
use super::error::AppError;

const SHARDS: usize = 16;

/// As long as a store that cannot do a change keeps its caller waiting.
const PATIENCE: Duration = Duration::from_secs(4);

/// How long a change is decided anew while other nodes are first, in ms.
const DECIDE_MS_MAX: i64 = 2_000;

/// What takes turns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TurnKey {
    /// The fee rules of a sub-account.
    Rules(MerchantNo),
    /// Lists of the fee rules of an institution.
    RuleList(MerchantNo),
    /// Lists of payment orders, or of convert orders, that an application asks for.
    OrderList(ApplicationNo),
    /// Pulls of the events of an application.
    Pull(ApplicationNo),
    /// Walks over the audit log that one token asks for.
    AuditWalk(String),
    /// A convert order.
    ConvertOrder(OrderId),
    /// The rate of a pair.
    Rate(Pair),
    /// Requests for conversions of a merchant with one name.
    ConvertRequest(MerchantNo, String),
    /// A payment order.
    PaymentOrder(PrepayId),
    /// A trade number of a merchant.
    TradeNo(MerchantNo, String),
    /// An application and its secrets.
    Application(String),
    /// A merchant of any kind, by its public id.
    Merchant(String),
    /// Requests with one idempotency key.
    Idempotency {
        /// Token and route.
        scope: String,
        /// The caller's key.
        key: String,
    },
}

type Shard = Mutex<HashMap<TurnKey, Arc<FairMutex<()>>>>;

/// A queue per key; keys that nobody waits for take no memory.
#[derive(Debug)]
pub struct Turns {
    shards: [Shard; SHARDS],
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), hasher: RandomState::new() }
    }
}

/// It is this caller's turn until this is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    key: TurnKey,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the turn of `key`, as long as its caller is better served than by being told to repeat.
    pub async fn take_soon(&self, key: TurnKey) -> Result<Turn<'_>, AppError> {
        self.take_within(PATIENCE, key).await
    }

    async fn take_within(&self, patience: Duration, key: TurnKey) -> Result<Turn<'_>, AppError> {
        timeout(patience, self.take(key)).await.map_err(|_| AppError::Busy)
    }

    /// Waits for the turn of `key`. First come, first served.
    pub async fn take(&self, key: TurnKey) -> Turn<'_> {
        let queue = {
            let mut shard = self.shard(&key).lock().unwrap_or_else(PoisonError::into_inner);
            shard.entry(key.clone()).or_default().clone()
        };
        // Made before the wait, so that a caller who gives up while waiting cleans up too.
        let mut turn = Turn { turns: self, key, guard: None };
        turn.guard = Some(queue.lock_owned().await);
        turn
    }

    fn shard(&self, key: &TurnKey) -> &Shard {
        let hash = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        &self.shards[hash]
    }
}

/// Reads in the turn of `key`, which ends with the read also where whoever asked has gone meanwhile. Else one who asks and goes, again and again, has as
/// many reads under way as they like. `crowded` is what is said where the turn does not come soon.
pub async fn read_in_turn<T, E, F>(
    app: &Arc<App>,
    key: TurnKey,
    crowded: &'static str,
    read: impl FnOnce(Arc<App>) -> F + Send + 'static,
) -> Result<T, AppError>
where
    T: Send + 'static,
    E: Into<AppError> + Send,
    F: Future<Output = Result<T, E>> + Send,
{
    let (mut answer, answered) = oneshot::channel();
    let app = Arc::clone(app);
    tokio::spawn(async move {
        let turn = tokio::select! {
            turn = app.turns.take_soon(key) => turn,
            // Nobody waits for it any more.
            () = answer.closed() => return,
        };
        let found = match turn {
            Ok(_turn) => read(Arc::clone(&app)).await.map_err(Into::into),
            Err(_) => Err(AppError::Crowded(crowded.to_owned())),
        };
        drop(answer.send(found));
    });
    let broken_off = || StoreError::Unavailable("a read was broken off".to_owned());
    answered.await.unwrap_or_else(|_| Err(broken_off().into()))
}

impl App {
    /// Whether a change that arrived then is decided anew, where another node has changed what it rests on.
    pub(super) fn may_decide_anew(&self, arrived: UnixMillis) -> bool {
        self.clock.now().0 - arrived.0 < DECIDE_MS_MAX
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut shard = self.turns.shard(&self.key).lock().unwrap_or_else(PoisonError::into_inner);
        // Only the map holds the queue: nobody has the turn or waits for it, and nobody can join while the shard is locked.
        if shard.get(&self.key).is_some_and(|queue| Arc::strong_count(queue) == 1) {
            shard.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::app::fixtures::Deployment;

    #[tokio::test]
    async fn who_waits_too_long_for_a_turn_is_told_to_repeat_and_leaves_nothing_behind() {
        let turns = Turns::default();
        let within = async |no| turns.take_within(Duration::from_millis(5), TurnKey::Rules(MerchantNo(no))).await;
        let held = within(1).await.expect("nobody has it");
        assert!(matches!(within(1).await, Err(AppError::Busy)));
        drop(within(2).await.expect("another key has a queue of its own"));
        drop(held);
        drop(within(1).await.expect("it is free again"));
        let waiting = turns.shards.iter().map(|shard| shard.lock().expect("nobody panicked").len()).sum::<usize>();
        assert_eq!(waiting, 0);
    }

    #[tokio::test]
    async fn whoever_goes_while_something_is_read_in_their_turn_does_not_end_the_turn() {
        let deployment = Deployment::on_sqlite().await;
        let app = deployment.open().await;
        let (begun, may_end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let ask = || {
            let (app, begun, may_end) = (Arc::clone(&app), Arc::clone(&begun), Arc::clone(&may_end));
            tokio::spawn(async move {
                let read = |_| async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    may_end.acquire().await.expect("is open").forget();
                    Ok::<_, StoreError>(())
                };
                read_in_turn(&app, TurnKey::Pull(ApplicationNo(1)), "crowded", read).await
            })
        };
        let gone = ask();
        let is_begun = until(|| begun.load(Ordering::SeqCst) == 1);
        timeout(Duration::from_secs(20), is_begun).await.expect("it begins");
        gone.abort();
        assert!(gone.await.expect_err("it is gone").is_cancelled());
        // One of these waits, and the other goes while it does.
        let (waits, goes) = (ask(), ask());
        tokio::task::yield_now().await;
        goes.abort();
        drop(goes.await);
        assert_eq!(begun.load(Ordering::SeqCst), 1, "the first read is not over");
        may_end.add_permits(2);
        waits.await.expect("ends").expect("is read");
        assert_eq!(begun.load(Ordering::SeqCst), 2, "for whom nobody waits nothing is read");
        assert_eq!(may_end.available_permits(), 0);
        Deployment::close(&app);
    }

    async fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    }
}
