//! Commits that nobody answered: what is told to callers, what is done, and what a standby has of it.

use std::cell::Cell;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use countersign_domain::ids::ApplicationNo;
use countersign_store::batch::{Batch, Conflict, EventNumbers, Write};
use countersign_store::contract::{Claimed, CommitError, StoreError};
use countersign_store::testing::{Database, Server, ServerOptions};
use countersign_store::{PostgresOptions, PostgresStore, Store};
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::fixtures::*;
use crate::nodes::heartbeat;
use crate::postgres::{behind_proxy, both_ways};
use crate::proxy::{Break, Proxy};
use crate::settling::client_of;
use crate::until::{PATIENCE, answered, counted, done, opened, read, until, until_so};

/// What the limits are multiples of in tests that wait for one.
pub const SHORT_SECOND: Duration = Duration::from_millis(200);

/// The same where all that is asked has to be sent before a limit ends it, on a machine that may stand still for a while.
const HALF_SECOND: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_whose_answer_is_lost_does_not_pass_for_the_commit() {
    let (_database, proxy, store) = behind_proxy().await;
    let mut seq = 0;
    for (done, writes) in both_ways(1).into_iter().enumerate() {
        proxy.set(Break::BeforeCommitAndFate);
        let events = commit(&store, writes).await.events;
        assert_eq!(proxy.mode(), Break::Never, "both broke");
        assert_eq!(store.audit(all()).await.expect("reads").len(), done + 1, "what was acknowledged is there");
        for given in events {
            seq += 1;
            assert_eq!(given, EventNumbers { seq, sequence: seq });
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_was_given_up_is_never_done_later() {
    let (_database, proxy, store) = behind_proxy().await;
    proxy.set(Break::Late);
    // Done by the lane's next transaction, which deletes the marks of earlier ones.
    commit(&store, vec![audit("once")]).await;
    commit(&store, vec![audit("twice")]).await;
    assert!(!proxy.let_go().await, "the late transaction must not commit");
    assert_eq!(store.audit(all()).await.expect("reads").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_in_the_commit_itself_does_not_mean_that_nothing_was_done() {
    let (_database, proxy, store) = behind_proxy().await;
    let mut lines = 0;
    for (no, severity) in (1..).zip(["PANIC", "FATAL", "ERROR"]) {
        for writes in both_ways(no) {
            proxy.set(Break::Saying(severity));
            commit(&store, writes).await;
            lines += 1;
            assert_eq!(store.audit(all()).await.expect("reads").len(), lines, "{severity}: done, and once");
        }
        proxy.set(Break::Saying(severity));
        let text = format!("read {no}");
        assert_eq!(store.settle(nonce(&text, 0)).await.expect("answers"), Claimed::Fresh, "{severity}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_commit_never_arrives_ends_before_its_fate_is_given_up() {
    let (database, proxy, _store) = behind_proxy().await;
    let options = PostgresOptions::new(proxy.url(&database.url()), [1; 16], [2; 16]);
    // Long enough that what the store has left when the transaction ends is enough for a loaded machine, too.
    let options = PostgresOptions { second: Duration::from_secs(2), ..options };
    let store = PostgresStore::open(options).await.expect("opens");
    for (no, writes) in (1..).zip(both_ways(1)) {
        proxy.set(Break::HalfOpen);
        commit(&store, writes).await;
        assert_eq!(store.audit(all()).await.expect("reads").len(), no);
    }
}

/// A primary whose commits wait for its standby, and the standby, which gets nothing more.
pub async fn waiting_for_a_standby() -> (Server, Server, PostgresOptions) {
    let mut primary = Server::start(ServerOptions::default());
    let standby = primary.standby("b");
    let url = Server::url_of(&[&primary, &standby], "postgres");
    let options = PostgresOptions { second: LONG_SECOND, ..PostgresOptions::new(url, [1; 16], [1; 16]) };
    let store = PostgresStore::open(PostgresOptions { node: [9; 16], ..options.clone() }).await.expect("opens");
    furnish(&store).await;
    primary.set_synchronous("b");
    commit(&store, vec![put("before", "yes")]).await;
    primary.hold_back();
    (primary, standby, options)
}

const WAIT_FOR_STANDBY: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// What is answered to whoever waits for the standby with a commit, and has that wait ended. On a loaded machine there may be an answer before the wait is
/// seen: the one of a limit. Then another opening asks, for something else: the one before still has connections that wait.
async fn answer_of_ended<T: Debug>(
    (primary, options): (&Client, &PostgresOptions),
    end: &str,
    may_be_a_limits: fn(&T) -> bool,
    ask: impl AsyncFn(&PostgresStore, String) -> T,
) -> T {
    static NODE: AtomicU8 = AtomicU8::new(10);
    let end_all = format!("SELECT {end}(pid) {WAIT_FOR_STANDBY} AND query = 'COMMIT'");
    let ended = async || primary.query(&end_all, &[]).await.expect("is answered").len();
    let deadline = Instant::now() + PATIENCE;
    loop {
        // What waits from before holds locks.
        until_so("nobody waits", async || ended().await == 0).await;
        let node = NODE.fetch_add(1, Ordering::Relaxed);
        let store = opened(&PostgresOptions { second: SHORT_SECOND, node: [node; 16], ..options.clone() }).await;
        let mut asked = pin!(ask(&store, format!("{end} {node}")));
        let early = loop {
            if let Ok(answer) = timeout(Duration::from_millis(5), asked.as_mut()).await {
                break answer;
            }
            if ended().await > 0 {
                return asked.await;
            }
        };
        assert!(may_be_a_limits(&early) && Instant::now() < deadline, "before its wait was ended: {early:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_standby_lacks_is_not_acknowledged_when_somebody_ends_the_wait_for_it() {
    let (mut primary, standby, options) = waiting_for_a_standby().await;
    let client = client_of(&primary).await;
    for end in ["pg_terminate_backend", "pg_cancel_backend"] {
        let limits = |answer: &Result<_, _>| {
            matches!(answer, Err(CommitError::Unknown | CommitError::Store(StoreError::Unavailable(_))))
        };
        let change = async |store: &PostgresStore, name: String| store.commit(Batch(vec![audit(&name)])).await;
        let answer = answer_of_ended((&client, &options), end, limits, change).await;
        assert!(matches!(answer, Err(CommitError::Unknown)), "{end}: {answer:?}");
        let limits = |answer: &Result<_, _>| matches!(answer, Ok(Claimed::InDoubt) | Err(StoreError::Unavailable(_)));
        let claim = async |store: &PostgresStore, name: String| store.settle(nonce(&name, 0)).await;
        let answer = answer_of_ended((&client, &options), end, limits, claim).await;
        assert!(matches!(answer, Ok(Claimed::InDoubt)), "{end}: {answer:?}");
    }
    primary.stop_immediately();
    standby.promote();
    let store = PostgresStore::open(options).await.expect("opens on the standby");
    assert_eq!(store.setting("before").await.expect("reads").as_deref(), Some("yes"));
    assert!(store.audit(all()).await.expect("reads").is_empty(), "the standby has none of it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_that_wait_for_an_absent_standby_leave_few_connections_behind() {
    let primary = Server::start(ServerOptions::default());
    let options = PostgresOptions { lanes: 1, ..PostgresOptions::new(primary.url("postgres"), [1; 16], [9; 16]) };
    // In its own time: a busy machine takes longer between two statements of it than seconds that short allow.
    let options = PostgresOptions { second: LONG_SECOND, ..options };
    furnish(&PostgresStore::open(options.clone()).await.expect("opens")).await;
    let store = opened(&PostgresOptions { second: Duration::from_millis(50), node: [1; 16], ..options }).await;
    primary.set_synchronous("nobody");
    let client = client_of(&primary).await;
    let is_over = Cell::new(false);
    let ends = async {
        counted(&client, &format!("SELECT (count(*) >= 2)::int::bigint {WAIT_FOR_STANDBY}")).await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        is_over.set(true);
    };
    let changes = async {
        while !is_over.get() {
            let unanswered = store.commit(Batch(vec![audit("waits")])).await;
            assert!(unanswered.is_err(), "{unanswered:?}");
        }
    };
    let claims = async {
        for n in 0.. {
            if is_over.get() {
                return;
            }
            let unanswered = store.settle(nonce(&format!("read {n}"), 0)).await;
            assert!(!matches!(unanswered, Ok(Claimed::Fresh)), "{unanswered:?}");
        }
    };
    let heartbeats = async {
        while !is_over.get() {
            assert!(store.tend_lanes(heartbeat(1, &[])).await.is_err());
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(ends, changes, claims, heartbeats);
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'countersign'";
    let open: i64 = primary.ask("postgres", open).parse().expect("a count");
    // Each of three makes a second one after some time, a third after twice that, a fourth after twice that again. Without these pauses whoever settles claims
    // leaves two behind in each second: nothing but its own end makes one wait less.
    assert!(open <= 12, "{open} connections");
    primary.set_synchronous("");
    until("the heart beats when the standby is back", async || store.tend_lanes(heartbeat(1, &[])).await.ok()).await;
    until("it goes on then", async || store.commit(Batch(vec![audit("again")])).await.ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_in_doubt_only_where_nobody_can_be_asked_and_the_database_is_asked_when_it_comes_again() {
    let database = Database::with_schema().await;
    let proxy = Proxy::before(database.folder());
    let options = PostgresOptions::new(proxy.url(&database.url()), [1; 16], [1; 16]);
    let store = opened(&PostgresOptions { second: HALF_SECOND, ..options }).await;
    proxy.set(Break::AfterCommitForGood);
    assert_eq!(read(|| store.settle(nonce("doubtful", 0))).await, Claimed::InDoubt);
    // From here on nothing is sent: of this nobody is in doubt.
    let away = store.settle(nonce("away", 0)).await;
    assert!(away.is_err(), "{away:?}");
    store.release(&nonce("away", 0));
    proxy.set(Break::Never);
    let client = database.client().await;
    assert_eq!(counted(&client, "SELECT count(*) FROM nonce").await, 1);
    let other = open_postgres(&database, 2).await;
    assert_eq!(other.settle(nonce("doubtful", 0)).await.expect("answers"), Claimed::Used);
    assert_eq!(other.settle(nonce("away", 0)).await.expect("answers"), Claimed::Fresh);
    let again = read(async || {
        let opinion = store.reserve(&nonce("doubtful", 0)).await.expect("answers");
        assert_eq!(opinion, Claimed::Fresh, "this node has none");
        store.settle(nonce("doubtful", 0)).await.inspect_err(|_| store.release(&nonce("doubtful", 0)))
    });
    assert_eq!(again.await, Claimed::Used, "the database knows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_in_doubt_that_comes_again_is_done_once_by_whichever_node_it_comes_to() {
    let database = Database::with_schema().await;
    let other = open_postgres(&database, 2).await;
    furnish(&other).await;
    let proxy = Proxy::before(database.folder());
    let options = PostgresOptions::new(proxy.url(&database.url()), [1; 16], [1; 16]);
    let store = opened(&PostgresOptions { second: HALF_SECOND, ..options }).await;
    let change = |name: &str| Batch(vec![Write::ClaimNonce(nonce(name, 0)), audit(name)]);
    for (end, was_done) in [(Break::AfterCommitForGood, true), (Break::BeforeCommitForGood, false)] {
        let name = if was_done { "done" } else { "lost" };
        proxy.set(end);
        let answer = answered(&store, &nonce(name, 0), || change(name)).await;
        assert!(matches!(answer, Err(CommitError::Unknown)), "{name}: {answer:?}");
        proxy.set(Break::Never);
        let again = answered(&store, &nonce(name, 0), || change(name)).await;
        if was_done {
            assert!(matches!(again, Err(CommitError::Conflict(Conflict::NonceUsed))), "{again:?}");
        } else {
            assert!(again.is_ok(), "{again:?}");
        }
        let elsewhere = other.commit(change(name)).await;
        assert!(matches!(elsewhere, Err(CommitError::Conflict(Conflict::NonceUsed))), "{name}: {elsewhere:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_another_node_made_is_used_even_after_a_broken_connection() {
    let (database, proxy, store) = behind_proxy().await;
    let other = open_postgres(&database, 2).await;
    assert_eq!(other.settle(nonce("theirs", 0)).await.expect("answers"), Claimed::Fresh);
    commit(&other, vec![claim("changed", 0)]).await;
    for text in ["theirs", "changed"] {
        for mode in [Break::BeforeCommit, Break::AfterCommit] {
            let again = open_postgres(&database, 3).await;
            drop(again);
            proxy.set(mode);
            assert_eq!(store.settle(nonce(text, 0)).await.expect("answers"), Claimed::Used, "{mode:?}");
            proxy.set(Break::Never);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_fate_cannot_be_found_out_is_unknown_and_the_database_knows_its_nonce() {
    let (database, proxy, store) = behind_proxy().await;
    for (no, writes) in both_ways(1).into_iter().enumerate() {
        proxy.set(Break::AfterCommitForGood);
        let answer = store.commit(Batch(writes)).await;
        assert!(matches!(answer, Err(CommitError::Unknown)), "{answer:?}");
        proxy.set(Break::Never);
        let text = ["g1", "a1"][no];
        // The lane has found its way back before the next one breaks.
        done(&store, || vec![Write::HoldPending { tenant: TENANT, application: ApplicationNo(404) }]).await;
        assert_eq!(store.reserve(&nonce(text, 0)).await.expect("answers"), Claimed::Fresh, "this node has no opinion");
        assert_eq!(read(|| store.settle(nonce(text, 0))).await, Claimed::Used, "the database says so");
    }
    let other = open_postgres(&database, 2).await;
    assert_eq!(other.audit(all()).await.expect("reads").len(), 2, "they were done");
}
