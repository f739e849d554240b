//! Commits that nobody answered: what is told to callers, what is done, and what a standby has of it.

use std::fmt::Debug;
use std::pin::pin;
use std::time::{Duration, Instant};

use countersign_domain::ids::ApplicationNo;
use countersign_store::batch::{Batch, Committed, Conflict, EventNumbers, Write};
use countersign_store::contract::{ClaimKey, Claimed, CommitError, StoreError};
use countersign_store::testing::{Database, Server, ServerOptions};
use countersign_store::{PostgresOptions, PostgresStore, Store};
use tokio::time::timeout;
use tokio_postgres::Client;

use crate::fixtures::*;
use crate::nodes::heartbeat;
use crate::postgres::{behind_proxy, both_ways};
use crate::proxy::{Break, Proxy};

/// What the limits are multiples of in tests that wait for one.
pub const SHORT_SECOND: Duration = Duration::from_millis(200);

/// How long a store may need to reach its database again.
const REACHED_WITHIN: Duration = Duration::from_secs(10);

/// Waits until a query counts something, and says how much.
pub async fn counted(client: &Client, query: &str) -> i64 {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let count: i64 = client.query_one(query, &[]).await.expect("reads").get(0);
        if count > 0 {
            return count;
        }
        assert!(Instant::now() < deadline, "nothing yet: {query}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

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
    let options = PostgresOptions { second: Duration::from_millis(500), ..options };
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
    let options = PostgresOptions { second: SHORT_SECOND, ..PostgresOptions::new(url, [1; 16], [1; 16]) };
    let store = PostgresStore::open(options.clone()).await.expect("opens");
    furnish(&store).await;
    primary.set_synchronous("b");
    commit(&store, vec![put("before", "yes")]).await;
    primary.hold_back();
    (primary, standby, options)
}

const WAIT_FOR_STANDBY: &str = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// The processes that wait for the standby with a commit.
fn waiting(primary: &Server) -> String {
    primary.ask(
        "postgres",
        &format!("SELECT coalesce(string_agg(pid::text, ','), '0') {WAIT_FOR_STANDBY} AND query = 'COMMIT'"),
    )
}

/// What is answered to whoever waits for the standby with a commit, and has that wait ended. A loaded machine may not have a connection in time, and
/// refuse before anybody waits: then nothing was done, and it is asked again.
async fn answer_of_ended<T: Debug, F: Future<Output = T>>(
    primary: &Server,
    end: &str,
    was_refused: fn(&T) -> bool,
    ask: impl Fn() -> F,
) -> T {
    let new = format!("{WAIT_FOR_STANDBY} AND query = 'COMMIT' AND pid NOT IN ({})", waiting(primary));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut asked = pin!(ask());
        let early = loop {
            if let Ok(answer) = timeout(Duration::from_millis(20), asked.as_mut()).await {
                break answer;
            }
            if primary.ask("postgres", &format!("SELECT count(*) {new}")) != "0" {
                primary.ask("postgres", &format!("SELECT {end}(pid) {new}"));
                return asked.await;
            }
            assert!(Instant::now() < deadline, "nobody waits for the standby");
        };
        assert!(was_refused(&early) && Instant::now() < deadline, "before it waited: {early:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_standby_lacks_is_not_acknowledged_when_somebody_ends_the_wait_for_it() {
    let (mut primary, standby, options) = waiting_for_a_standby().await;
    for (end, node) in [("pg_terminate_backend", 2), ("pg_cancel_backend", 3)] {
        // Another opening: the one before still has connections that wait.
        let store = PostgresStore::open(PostgresOptions { node: [node; 16], ..options.clone() }).await.expect("opens");
        let was_refused = |answer: &Result<_, _>| matches!(answer, Err(CommitError::Store(StoreError::Unavailable(_))));
        let change = || store.commit(Batch(vec![audit(end)]));
        let answer = answer_of_ended(&primary, end, was_refused, change).await;
        assert!(matches!(answer, Err(CommitError::Unknown)), "{end}: {answer:?}");
        let was_refused = |answer: &Result<_, _>| matches!(answer, Err(StoreError::Unavailable(_)));
        let claim = || store.settle(nonce(end, 0));
        let answer = answer_of_ended(&primary, end, was_refused, claim).await;
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
    let options = PostgresOptions::new(primary.url("postgres"), [1; 16], [1; 16]);
    // In its own time: a busy machine takes longer between two statements of it than seconds that short allow.
    PostgresStore::migrate(&options).await.expect("makes the schema");
    let options = PostgresOptions { second: Duration::from_millis(50), lanes: 1, ..options };
    let store = PostgresStore::open(options).await.expect("opens");
    furnish(&store).await;
    primary.set_synchronous("nobody");
    let until = Instant::now() + Duration::from_secs(3);
    let changes = async {
        while Instant::now() < until {
            let unanswered = store.commit(Batch(vec![audit("waits")])).await;
            assert!(unanswered.is_err(), "{unanswered:?}");
        }
    };
    let claims = async {
        for n in 0.. {
            if Instant::now() > until {
                return;
            }
            let unanswered = store.settle(nonce(&format!("read {n}"), 0)).await;
            assert!(!matches!(unanswered, Ok(Claimed::Fresh)), "{unanswered:?}");
        }
    };
    let heartbeats = async {
        while Instant::now() < until {
            assert!(store.tend_lanes(heartbeat(1, &[])).await.is_err());
        }
    };
    tokio::join!(changes, claims, heartbeats);
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'countersign'";
    let open: i64 = primary.ask("postgres", open).parse().expect("a count");
    // Each of three makes a second one after some time, a third after twice that. Nothing but its own end makes one wait less.
    assert!((2..=9).contains(&open), "{open} connections");
    primary.set_synchronous("");
    let deadline = Instant::now() + Duration::from_secs(30);
    while store.tend_lanes(heartbeat(1, &[])).await.is_err() || store.commit(Batch(vec![audit("again")])).await.is_err()
    {
        assert!(Instant::now() < deadline, "it goes on when the standby is back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_in_doubt_only_where_nobody_can_be_asked_and_the_database_is_asked_when_it_comes_again() {
    let database = Database::new().await;
    let proxy = Proxy::before(database.folder());
    let options = PostgresOptions::new(proxy.url(&database.url()), [1; 16], [1; 16]);
    let options = PostgresOptions { second: SHORT_SECOND, ..options };
    let store = PostgresStore::open(options).await.expect("opens");
    proxy.set(Break::AfterCommitForGood);
    let doubtful = store.settle(nonce("doubtful", 0)).await;
    assert!(matches!(doubtful, Ok(Claimed::InDoubt)), "{doubtful:?}");
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
    let deadline = Instant::now() + REACHED_WITHIN;
    let again = loop {
        let opinion = store.reserve(&nonce("doubtful", 0)).await.expect("answers");
        assert_eq!(opinion, Claimed::Fresh, "this node has none");
        match store.settle(nonce("doubtful", 0)).await {
            Ok(claimed) => break claimed,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        store.release(&nonce("doubtful", 0));
    };
    assert_eq!(again, Claimed::Used, "the database knows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_in_doubt_that_comes_again_is_done_once_by_whichever_node_it_comes_to() {
    let database = Database::new().await;
    let proxy = Proxy::before(database.folder());
    let options = PostgresOptions::new(proxy.url(&database.url()), [1; 16], [1; 16]);
    let store = PostgresStore::open(PostgresOptions { second: SHORT_SECOND, ..options }).await.expect("opens");
    furnish(&store).await;
    let other = open_postgres(&database, 2).await;
    let change = |name: &str| Batch(vec![Write::ClaimNonce(nonce(name, 0)), audit(name)]);
    for (end, was_done) in [(Break::AfterCommitForGood, true), (Break::BeforeCommitForGood, false)] {
        let name = if was_done { "done" } else { "lost" };
        assert_eq!(store.reserve(&nonce(name, 0)).await.expect("answers"), Claimed::Fresh);
        proxy.set(end);
        let answer = store.commit(change(name)).await;
        assert!(matches!(answer, Err(CommitError::Unknown)), "{name}: {answer:?}");
        proxy.set(Break::Never);
        let again = until_reached(&store, &nonce(name, 0), || change(name)).await;
        if was_done {
            assert!(matches!(again, Err(CommitError::Conflict(Conflict::NonceUsed))), "{again:?}");
        } else {
            assert!(again.is_ok(), "{again:?}");
        }
        let elsewhere = other.commit(change(name)).await;
        assert!(matches!(elsewhere, Err(CommitError::Conflict(Conflict::NonceUsed))), "{name}: {elsewhere:?}");
    }
}

/// Sends a change again, as a caller does who is told 503, until the database is reached.
async fn until_reached(
    store: &PostgresStore,
    nonce: &ClaimKey,
    change: impl Fn() -> Batch,
) -> Result<Committed, CommitError> {
    let deadline = Instant::now() + REACHED_WITHIN;
    loop {
        assert_eq!(store.reserve(nonce).await.expect("answers"), Claimed::Fresh, "this node has no opinion");
        match store.commit(change()).await {
            Err(CommitError::Store(error)) => {
                assert!(Instant::now() < deadline, "{error}");
                store.release(nonce);
            }
            answer => return answer,
        }
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
        let nothing = || Batch(vec![Write::HoldPending { tenant: TENANT, application: ApplicationNo(404) }]);
        let begun = Instant::now();
        while store.commit(nothing()).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(2), "is found again soon");
        }
        assert_eq!(store.reserve(&nonce(text, 0)).await.expect("answers"), Claimed::Fresh, "this node has no opinion");
        let begun = Instant::now();
        let known = loop {
            match store.settle(nonce(text, 0)).await {
                Ok(known) => break known,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(2), "{error}"),
            }
        };
        assert_eq!(known, Claimed::Used, "the database says so");
    }
    let other = open_postgres(&database, 2).await;
    assert_eq!(other.audit(all()).await.expect("reads").len(), 2, "they were done");
}
