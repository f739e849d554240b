//! What only a store in a file promises.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_store::batch::{Batch, Conflict, Write};
use countersign_store::contract::{Claimed, CommitError, Cursor, StoreError};
use countersign_store::{SqliteOptions, SqliteStore, Store};
use rusqlite::Connection;

use crate::fixtures::*;
use crate::until::until_so;

pub fn path(dir: &Path) -> std::path::PathBuf {
    dir.join("countersign.db")
}

fn open_with(dir: &Path, options: SqliteOptions) -> SqliteStore {
    SqliteStore::open(&path(dir), options).expect("opens")
}

fn after_reboot() -> SqliteOptions {
    SqliteOptions { boot_id: "the next boot".to_owned(), ..options() }
}

async fn reserve(store: &SqliteStore, text: &str, ms: i64) -> Claimed {
    store.reserve(&nonce(text, ms)).await.expect("answers")
}

async fn settle(store: &SqliteStore, text: &str, ms: i64) -> Claimed {
    store.settle(nonce(text, ms)).await.expect("answers")
}

fn is_unavailable<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(_)))
}

/// The files as a kill at this moment would leave them: what was given to the kernel, and nothing else.
fn crash_image(dir: &Path) -> tempfile::TempDir {
    let image = tempfile::tempdir().expect("a folder");
    for entry in fs::read_dir(dir).expect("reads") {
        let entry = entry.expect("reads");
        if !entry.file_name().to_string_lossy().ends_with("-shm") {
            fs::copy(entry.path(), image.path().join(entry.file_name())).expect("copies");
        }
    }
    image
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    furnish(&store).await;
    for no in 1..=20 {
        commit(&store, vec![claim(&format!("w{no}"), 0), append(SUB, version(no)), audit("upgrade")]).await;
        assert_eq!(settle(&store, &format!("r{no}"), 0).await, Claimed::Fresh);
    }
    assert_eq!(reserve(&store, "only reserved", 0).await, Claimed::Fresh);
    let image = crash_image(dir.path());
    let again = open(image.path());
    assert_eq!(again.rule_versions(TENANT, SUB, all()).await.expect("reads").len(), 20);
    assert_eq!(again.audit(all()).await.expect("reads").len(), 20);
    for no in 1..=20 {
        assert_eq!(reserve(&again, &format!("w{no}"), 0).await, Claimed::Used);
        assert_eq!(reserve(&again, &format!("r{no}"), 0).await, Claimed::Used);
        assert_eq!(conflict(&again, vec![claim(&format!("r{no}"), 0)]).await, Conflict::NonceUsed);
    }
    assert_eq!(reserve(&again, "only reserved", 0).await, Claimed::Fresh, "an honest nonce is good after a kill");
}

#[tokio::test]
async fn a_dropped_store_opens_again() {
    let dir = tempfile::tempdir().expect("a folder");
    for n in 0..3 {
        let store = open(dir.path());
        if n == 0 {
            furnish(&store).await;
        }
        commit(&store, vec![append(SUB, version(n + 1)), claim(&format!("w{n}"), 0)]).await;
        assert_eq!(settle(&store, &format!("r{n}"), 0).await, Claimed::Fresh);
    }
    let store = open(dir.path());
    for n in 0..3 {
        assert_eq!(reserve(&store, &format!("w{n}"), 0).await, Claimed::Used);
        assert_eq!(reserve(&store, &format!("r{n}"), 0).await, Claimed::Used);
    }
    assert_eq!(store.rule_versions(TENANT, SUB, all()).await.expect("reads").len(), 3);
}

#[tokio::test]
async fn the_key_of_the_nonces_is_the_first_ones() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    commit(&store, vec![claim("w", 0)]).await;
    assert_eq!(settle(&store, "r", 0).await, Claimed::Fresh);
    drop(store);
    let store = open_with(dir.path(), SqliteOptions { window_key: [8; 16], ..options() });
    assert_eq!(reserve(&store, "w", 0).await, Claimed::Used);
    assert_eq!(reserve(&store, "r", 0).await, Claimed::Used);
}

#[tokio::test]
async fn after_a_reboot_what_may_have_been_forgotten_is_unknowable() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    commit(&store, vec![claim("written", 0)]).await;
    assert_eq!(settle(&store, "read", 0).await, Claimed::Fresh);
    assert_eq!(settle(&store, "lost", 0).await, Claimed::Fresh);
    drop(store);
    // The kernel had not yet put the last record on the disk.
    let journal = fs::read_dir(dir.path())
        .expect("reads")
        .map(|e| e.expect("reads").path())
        .find(|p| p.extension().is_some_and(|e| e == "journal"))
        .expect("a journal");
    let len = fs::metadata(&journal).expect("there").len();
    fs::OpenOptions::new().write(true).open(&journal).expect("opens").set_len(len - 32).expect("cuts");

    // The doubt outlasts further starts within the same boot.
    for _ in 0..2 {
        let store = open_with(dir.path(), after_reboot());
        assert_eq!(store.unknowable_through(), at(2000));
        assert_eq!(reserve(&store, "written", 0).await, Claimed::Used);
        assert_eq!(reserve(&store, "read", 0).await, Claimed::Used);
        for (text, ms) in [("lost", 0), ("honest", 0), ("honest", -50_000), ("ahead", 2000)] {
            assert_eq!(reserve(&store, text, ms).await, Claimed::Unknowable, "{text} {ms}");
            assert_eq!(settle(&store, text, ms).await, Claimed::Unknowable, "{text} {ms}");
            let refused = store.commit(Batch(vec![claim(text, ms)])).await;
            assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
        }
        assert_eq!(reserve(&store, "lost", 2001).await, Claimed::Fresh, "beyond the mark nothing was ever given out");
    }
}

#[tokio::test]
async fn after_a_clean_end_a_reboot_leaves_no_doubt() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    assert_eq!(settle(&store, "read", 0).await, Claimed::Fresh);
    store.close().expect("closes");
    drop(store);
    let store = open_with(dir.path(), after_reboot());
    assert_eq!(reserve(&store, "read", 0).await, Claimed::Used);
    assert_eq!(reserve(&store, "honest", 0).await, Claimed::Fresh);
    drop(store);
    // That start was not ended cleanly, so the next boot doubts again.
    let store = open_with(dir.path(), SqliteOptions { boot_id: "a third".to_owned(), ..options() });
    assert_eq!(reserve(&store, "other", 0).await, Claimed::Unknowable);
}

#[tokio::test]
async fn a_boot_without_a_name_is_another_boot() {
    let dir = tempfile::tempdir().expect("a folder");
    let nameless = || SqliteOptions { boot_id: String::new(), ..options() };
    let store = open_with(dir.path(), nameless());
    assert_eq!(settle(&store, "read", 0).await, Claimed::Fresh);
    drop(store);
    let store = open_with(dir.path(), nameless());
    assert_eq!(reserve(&store, "honest", 0).await, Claimed::Unknowable);
}

fn mark(dir: &Path) -> i64 {
    let conn = Connection::open(path(dir)).expect("opens");
    conn.query_row("SELECT mark FROM replay", [], |row| row.get(0)).expect("reads")
}

#[tokio::test]
async fn the_durable_mark_is_never_below_what_was_given_out() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    for ms in (0..20_000).step_by(137) {
        let text = format!("n{ms}");
        let claimed = if ms % 2 == 0 { reserve(&store, &text, ms).await } else { settle(&store, &text, ms).await };
        assert_eq!(claimed, Claimed::Fresh);
        assert!(mark(dir.path()) >= at(ms).0, "at {ms}");
    }
}

#[tokio::test]
async fn a_nonce_stamped_ahead_keeps_no_other_from_deletion() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    commit(&store, vec![claim("ahead", 604_800_000)]).await;
    for n in 0..30 {
        commit(&store, vec![claim(&format!("w{n}"), n)]).await;
    }
    store.purge_nonces(at(19)).await.expect("purges");
    let conn = Connection::open(path(dir.path())).expect("opens");
    let left: i64 = conn.query_row("SELECT count(*) FROM nonce", [], |row| row.get(0)).expect("reads");
    assert_eq!(left, 11);
    assert_eq!(reserve(&store, "ahead", 604_800_000).await, Claimed::Used);
}

#[tokio::test]
async fn the_purge_horizon_is_durable_and_frees_rows_and_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    for n in 0..50 {
        commit(&store, vec![claim(&format!("w{n}"), n)]).await;
        assert_eq!(settle(&store, &format!("r{n}"), n).await, Claimed::Fresh);
    }
    let count = |what: &str| {
        let conn = Connection::open(path(dir.path())).expect("opens");
        conn.query_row(what, [], |row| row.get::<_, i64>(0)).expect("reads")
    };
    let journals = || {
        let names = fs::read_dir(dir.path()).expect("reads").map(|e| e.expect("reads").file_name());
        names.filter(|n| n.to_string_lossy().ends_with(".journal")).count()
    };
    store.purge_nonces(at(29)).await.expect("purges");
    assert_eq!((count("SELECT count(*) FROM nonce"), journals()), (20, 1));
    store.purge_nonces(at(49)).await.expect("purges");
    assert_eq!((count("SELECT count(*) FROM nonce"), journals()), (0, 0));
    drop(store);
    let store = open(dir.path());
    assert_eq!(reserve(&store, "w10", 10).await, Claimed::TooOld);
    assert_eq!(reserve(&store, "w10", 49).await, Claimed::TooOld);
    assert_eq!(reserve(&store, "w10", 50).await, Claimed::Fresh);
}

#[tokio::test]
async fn a_journal_that_cannot_be_written_makes_settling_unavailable() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    let place = dir.path().join("nonces-000000000001.journal");
    fs::create_dir(&place).expect("made");
    assert_eq!(reserve(&store, "n", 0).await, Claimed::Fresh);
    assert!(is_unavailable(&store.settle(nonce("n", 0)).await));
    store.release(&nonce("n", 0));
    fs::remove_dir(&place).expect("removed");
    assert_eq!(reserve(&store, "n", 0).await, Claimed::Fresh, "503 left it open");
    assert_eq!(settle(&store, "n", 0).await, Claimed::Fresh);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_unavailable_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Arc::new(open_with(dir.path(), SqliteOptions { queue_max: 4, group_max: 2, ..options() }));
    let other = Connection::open(path(dir.path())).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..20 {
        let (store, tell) = (Arc::clone(&store), tell.clone());
        tokio::spawn(async move {
            let answer = store.commit(Batch(vec![put(&format!("s{n}"), "v")])).await;
            tell.send((n, answer.map(|_| ()))).expect("is awaited");
        });
    }
    // At most two are with the writer and four in the queue: the other fourteen are answered while the file is locked.
    let mut refused = Vec::new();
    for _ in 0..14 {
        let (n, answer) = told.recv().await.expect("answers");
        assert!(matches!(answer, Err(CommitError::Store(StoreError::Unavailable(_)))), "{answer:?}");
        refused.push(n);
    }
    other.execute_batch("ROLLBACK").expect("unlocks");
    let mut done = 0;
    for _ in 14..20 {
        match told.recv().await.expect("answers") {
            (_, Ok(())) => done += 1,
            (n, Err(_)) => refused.push(n),
        }
    }
    assert!(done >= 4, "{done} were taken");
    for n in refused {
        let setting = store.setting(&format!("s{n}")).await.expect("reads");
        assert_eq!(setting, None, "refused means nothing was done");
    }
    commit(&*store, vec![put("after", "v")]).await;
}

#[tokio::test]
async fn a_locked_file_is_unavailable_and_nothing_was_done() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_with(dir.path(), SqliteOptions { busy_ms: 50, ..options() });
    let other = Connection::open(path(dir.path())).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    let refused = store.commit(Batch(vec![claim("n", 0), put("a", "1")])).await;
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    assert!(is_unavailable(&store.reserve(&nonce("m", 0)).await), "the mark cannot be raised");
    other.execute_batch("ROLLBACK").expect("unlocks");
    assert_eq!(reserve(&store, "n", 0).await, Claimed::Fresh);
    assert_eq!(reserve(&store, "m", 0).await, Claimed::Fresh);
    assert_eq!(store.setting("a").await.expect("reads"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_one_do_the_same_as_groups_of_many() {
    for group_max in [1, 2, 512] {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Arc::new(open_with(dir.path(), SqliteOptions { group_max, ..options() }));
        furnish(&*store).await;
        let tasks: Vec<_> = (1..=64)
            .map(|no| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    commit(&*store, vec![enqueue(event(no, "a")), audit("emit")]).await.events[0].seq
                })
            })
            .collect();
        let mut seqs = Vec::new();
        for task in tasks {
            seqs.push(task.await.expect("is applied"));
        }
        seqs.sort_unstable();
        assert!(seqs.into_iter().eq(1..=64));
    }
}

#[test]
fn the_log_is_emptied_although_an_idle_thread_keeps_a_snapshot() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Arc::new(open_with(dir.path(), SqliteOptions { checkpoint_pages: 64, ..options() }));
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (read, has_read) = std::sync::mpsc::channel();
    let (end, may_end) = std::sync::mpsc::channel::<()>();
    let reader = {
        let store = Arc::clone(&store);
        std::thread::spawn(move || {
            runtime().block_on(store.setting("a")).expect("reads");
            read.send(()).expect("is awaited");
            may_end.recv().ok();
            runtime().block_on(store.setting("last")).expect("reads")
        })
    };
    has_read.recv().expect("has read");
    let log = path(dir.path()).with_extension("db-wal");
    // 500 commits of seven pages are 14 MiB; checkpoints at 64 pages keep the log far below. One that finds a reader at work is made up for by the next ones.
    let is_small = || fs::metadata(&log).expect("there").len() < 4 * 1024 * 1024;
    let mut last = 0;
    let mut write = async || {
        // Another value each time: pages that do not change are not written.
        last += 1;
        commit(&*store, vec![put("a", &format!("{last:020000}")), put("last", &last.to_string())]).await;
        is_small()
    };
    runtime().block_on(async {
        for _ in 0..500 {
            write().await;
        }
        until_so("the log is emptied", write).await;
    });
    drop(end);
    assert_eq!(reader.join().expect("ends"), Some(last.to_string()));
}

#[tokio::test]
async fn what_the_log_grew_by_while_another_program_read_is_given_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open_with(dir.path(), SqliteOptions { checkpoint_pages: 64, ..options() });
    let log = path(dir.path()).with_extension("db-wal");
    let length = || fs::metadata(&log).expect("there").len();
    let write = async |n: u32| commit(&store, vec![put("a", &n.to_string().repeat(7_000))]).await;
    let other = Connection::open(path(dir.path())).expect("opens");
    other.execute_batch("BEGIN; SELECT * FROM setting").expect("reads");
    for n in 0..300 {
        write(n).await;
    }
    assert!(length() > 4 * 1024 * 1024, "the log waits for who reads");
    other.execute_batch("COMMIT").expect("ends");
    let mut n = 300;
    let given_back = async || {
        n += 1;
        write(n).await;
        length() <= 1024 * 1024
    };
    until_so("what the log grew by is given back", given_back).await;
}

#[tokio::test]
async fn a_closed_store_answers_unavailable_to_everything() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    furnish(&store).await;
    store.ping().await.expect("answers");
    store.close().expect("closes");
    store.close().expect("closes twice");
    assert!(is_unavailable(&store.ping().await));
    assert!(is_unavailable(&store.merchant("inst").await));
    assert!(is_unavailable(&store.merchants(None, None, all()).await));
    assert!(is_unavailable(&store.settle(nonce("n", 0)).await));
    assert!(is_unavailable(&store.purge_nonces(at(0)).await));
    let refused = store.commit(Batch(vec![put("a", "1")])).await;
    assert!(matches!(refused, Err(CommitError::Store(StoreError::Unavailable(_)))), "{refused:?}");
    assert!(!path(dir.path()).with_extension("db-wal").exists(), "the log was put away");
}

#[tokio::test]
async fn every_state_of_a_convert_order_is_in_its_history() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    furnish(&store).await;
    commit(&store, vec![insert_order(SUB, 7)]).await;
    let moved = ConvertOrder { status: ConvertStatus::Failed, revision: 2, ..order(7) };
    let write = || Write::MoveConvertOrder { tenant: TENANT, order: Box::new(moved.clone()), at: at(9) };
    commit(&store, vec![write()]).await;
    conflict(&store, vec![write()]).await;
    let conn = Connection::open(path(dir.path())).expect("opens");
    let sql = "SELECT tenant_no, order_id, revision, status, at FROM convert_order_move ORDER BY revision";
    let mut select = conn.prepare(sql).expect("prepares");
    let read = |row: &rusqlite::Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?]);
    let rows = select.query_map([], read).expect("reads");
    let rows: Vec<[i64; 5]> = rows.map(|row| row.expect("reads")).collect();
    assert_eq!(rows, [[1, 7, 1, 1, at(0).0], [1, 7, 2, 6, at(9).0]]);
}

#[tokio::test]
async fn two_stores_in_one_process_do_not_mix() {
    let (a, b) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let (first, second) = (open(a.path()), open(b.path()));
    commit(&first, vec![put("name", "first")]).await;
    commit(&second, vec![put("name", "second")]).await;
    assert_eq!(first.setting("name").await.expect("reads").as_deref(), Some("first"));
    assert_eq!(second.setting("name").await.expect("reads").as_deref(), Some("second"));
    drop(first);
    assert_eq!(second.setting("name").await.expect("reads").as_deref(), Some("second"));
    assert_eq!(second.audit(Cursor { after: None, limit: 1 }).await.expect("reads").len(), 0);
    commit(&second, vec![Write::PutSetting { name: "name".to_owned(), value: "again".to_owned() }]).await;
    assert_eq!(second.setting("name").await.expect("reads").as_deref(), Some("again"));
}

#[tokio::test]
async fn a_journal_that_is_damaged_lets_nothing_be_replayed_and_is_mended() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path());
    for no in 1..=6 {
        assert_eq!(settle(&store, &format!("r{no}"), 0).await, Claimed::Fresh);
    }
    let image = crash_image(dir.path());
    let journal = image.path().join("nonces-000000000001.journal");
    let mut bytes = fs::read(&journal).expect("reads");
    bytes[60..70].fill(0xff);
    fs::write(&journal, bytes).expect("writes");
    // The same boot of the machine; the second start finds a journal that is whole again, and knows of the loss.
    for _ in 0..2 {
        let again = open(image.path());
        for (no, known) in [(1, true), (2, false), (3, false), (4, true), (5, true), (6, true)] {
            let wanted = if known { Claimed::Used } else { Claimed::Unknowable };
            assert_eq!(reserve(&again, &format!("r{no}"), 0).await, wanted, "r{no}");
        }
        assert_eq!(reserve(&again, "later", 2001).await, Claimed::Fresh, "beyond the mark nothing was ever given out");
    }
}
