//! What keeps a backup and a restore from being taken for another one.

use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::{ClaimKey, Claimed};
use countersign_store::moving::{self, Move, ROWS_PER_PORTION};
use countersign_store::testing::{Database as Fresh, Tampering};
use countersign_store::{Batch, Store as _, Write};
use serde_json::{Value, json};

use super::restoring::{Work, give_name};
use super::*;
use crate::app::audit_log::{self, Which};
use crate::app::delivery::DELIVERY_HELD;
use crate::app::error::AppError;
use crate::app::fixtures::{application, happens, ordered};
use crate::app::pull::pull;
use crate::app::{App, forgotten_nonces};
use crate::chance::Chance;
use crate::config::Optional;
use crate::run::{close_store, demand_database, initialise, open_app, open_store, recover, sqlite_options};
use cut_off::opened;

mod cut_off;

/// A deployment in a folder, and a place for what is made of it.
struct Place {
    folder: tempfile::TempDir,
    config: Config,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let config = Config { data: folder.path().join("data"), ..Config::default() };
        initialise(&config).await.expect("an empty folder can be initialised");
        Self { folder, config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A backup, after one more change.
    async fn backup(&self, name: &str) -> (PathBuf, Trailer) {
        recover(&self.config, 1).await.expect("a token can be made");
        let file = self.path(name);
        let trailer = take(&self.config, &file).await.expect("a backup can be taken");
        (file, trailer)
    }

    /// A backup that is whole, and of another schema.
    async fn backup_of_another_program(&self, name: &str, made: Tampering) -> PathBuf {
        let (file, of_it) = self.backup(name).await;
        let image = OpenOptions::new().write(true).open(&file).expect("it is there");
        image.set_len(of_it.bytes).expect("it can be cut");
        made.of_file(&file);
        end(&file, of_it).expect("it can be written");
        file
    }

    /// The settings of a restore into another folder, with the master key.
    fn elsewhere(&self, name: &str, database_url: Option<String>) -> Config {
        Config {
            data: self.path(name),
            master_key_file: Optional(Some(self.config.data.join("master.key"))),
            database_url: Optional(database_url),
            ..Config::default()
        }
    }

    fn order(&self, from: PathBuf, url: &str) -> Move {
        Move {
            from,
            sqlite: sqlite_options(&Chance::default()),
            to: postgres_options(&self.config, url).expect("it is an address"),
            id: [7; 16],
            now: Clock::System.now(),
            rows_per_portion: ROWS_PER_PORTION,
            refuse_ahead_ms: Some(0),
        }
    }
}

async fn refused<T: std::fmt::Debug>(outcome: impl Future<Output = anyhow::Result<T>>) -> String {
    format!("{:#}", outcome.await.expect_err("it is refused"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_was_cut_off_goes_on_with_its_own_backup_only() {
    let (place, database) = (Place::new().await, Fresh::new().await);
    let (monday, of_monday) = place.backup("monday").await;
    let (tuesday, of_tuesday) = place.backup("tuesday").await;
    let config = place.elsewhere("restored", Some(database.url()));
    let data = DataDir::create(&config.data).expect("it can be made");
    let work = Work::in_folder(&data);
    work.unpack(&opened(&monday), &of_monday).expect("it is whole");
    let order = place.order(work.copy.clone(), &database.url());
    // The copy has begun, and whoever made it is gone.
    let here = tokio::task::LocalSet::new();
    let moving = here.spawn_local(moving::run(order, |_| panic!("it dies here")));
    let died = here.run_until(moving).await;
    assert!(died.expect_err("it died").is_panic());

    let said = refused(restore(&config, &tuesday)).await;
    assert!(said.contains("is not finished") && said.contains(&of_monday.taken_at), "{said}");
    assert!(said.contains("restoring"), "what to remove: {said}");
    let opened = refused(Box::pin(open_app(&config, Clock::System, None))).await;
    // Its settings were not copied yet, and still it is no place for `init`.
    for said in [opened, refused(demand_deployment(&config, &data)).await] {
        assert!(said.contains("a restore into this database") && said.contains("same `countersign restore`"), "{said}");
    }
    let elsewhere = place.elsewhere("elsewhere", Some(database.url()));
    let said = refused(restore(&elsewhere, &monday)).await;
    assert!(said.contains("name an empty database") && !said.contains("whole"), "{said}");
    let restored = restore(&config, &monday).await.expect("it goes on");
    assert_eq!(restored.trailer, of_monday);
    assert_ne!(of_monday.sha256, of_tuesday.sha256);
    assert!(!work.folder.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_finished_restore_left_is_in_no_other_ones_way() {
    let (place, one, two) = (Place::new().await, Fresh::new().await, Fresh::new().await);
    let (monday, of_monday) = place.backup("monday").await;
    let (tuesday, of_tuesday) = place.backup("tuesday").await;
    let first = place.elsewhere("restored", Some(one.url()));
    let data = DataDir::create(&first.data).expect("it can be made");
    let work = Work::in_folder(&data);
    // It came to its end, and was killed before it could tidy up.
    work.unpack(&opened(&monday), &of_monday).expect("it is whole");
    moving::run(place.order(work.copy.clone(), &one.url()), |_| {}).await.expect("it is moved");

    let second = place.elsewhere("restored", Some(two.url()));
    let said = refused(restore(&second, &monday)).await;
    assert!(said.contains("earlier restore") && said.contains("remove"), "{said}");
    assert_eq!(restore(&second, &tuesday).await.expect("it begins anew").trailer, of_tuesday);
}

#[tokio::test]
async fn a_slow_disk_at_the_end_of_a_restore_lets_nothing_in_that_was_accepted_meanwhile() {
    const TOLERANCE_MS: i64 = 30_000;
    let place = Place::new().await;
    let (copy, database) = (place.path("copy.db"), place.path("data/countersign.db"));
    std::fs::rename(&database, &copy).expect("it can be moved");
    let (mut time, mut named) = (Clock::System.now(), Vec::new());
    // Each step takes three seconds.
    let mut slow = || {
        named.push(database.exists());
        time = time.plus_ms(3_000);
        time
    };
    let horizon = give_name(&copy, &database, TOLERANCE_MS, &mut slow).expect("it gets its name");
    assert!(horizon >= time.plus_ms(TOLERANCE_MS), "{horizon:?} is before the end, {time:?}, and the tolerance");
    assert!(database.exists() && !copy.exists());
    // The clock is looked at before the name is given and after it. A margin of 1 s and of 2 s is used up before, one of 4 s by the name
    // itself, which is taken away again; one of 8 s is enough.
    assert_eq!(named, [false, false, false, false, false, false, true, false, false, true]);

    let data = DataDir::open(&place.config.data).expect("it is there");
    let store = open_store(&place.config, &data).await.expect("it opens");
    let claim = ClaimKey {
        tenant: TenantNo(1),
        application: ApplicationNo(1),
        nonce: "stamped-at-the-end".to_owned(),
        stamped_at: horizon,
    };
    let found = store.reserve(&claim).await.expect("it answers");
    assert!(matches!(found, Claimed::TooOld), "{found:?}");
    close_store(&store).expect("it closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_damaged_deployment_is_taken_and_says_why_a_restore_refuses_it() {
    let (place, shared) = (Place::new().await, Fresh::new().await);
    let nodes = place.elsewhere("nodes", Some(shared.url()));
    initialise(&nodes).await.expect("an empty database can be initialised");
    for (name, deployment) in [("of a file", place.config.clone()), ("of nodes", nodes)] {
        let app = open_app(&deployment, Clock::System, None).await.expect("it opens");
        let client_id = application(&app, "shop", None).await;
        let shop = app.store.application(&client_id).await.expect("it answers").expect("it is there");
        ordered(&app, &shop, "T-1").await;
        close_store(&app.store).expect("it closes");
        let whole = take(&deployment, &place.path(&format!("{name}, whole"))).await.expect("it is taken");
        assert_eq!(whole.broken, None);
        match Database::of(&deployment).expect("it is an address") {
            Database::Sqlite => Tampering::ReviseOrders.of_file(&deployment.data.join("countersign.db")),
            Database::Postgres(_) => shared.tamper(Tampering::ReviseOrders).await,
        }
        let file = place.path(name);
        let trailer = take(&deployment, &file).await.expect("a broken one is better than none");
        let why = trailer.broken.clone().expect("it says so");
        assert_eq!(why, "1 payment orders do not stand where their moves put them");
        assert_eq!(read_trailer(&file).expect("it is a backup"), trailer);
        let said = refused(restore(&place.elsewhere("refused", None), &file)).await;
        assert!(said.contains("was broken when it was taken") && said.contains(&why), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_from_midst_a_rewrap_names_every_key_that_it_needs() {
    let place = Place::new().await;
    let old = place.config.data.join("master.key");
    let (other, new) = (place.elsewhere("other", None), place.path("other/master.key"));
    let other = Config { master_key_file: Optional(None), ..other };
    initialise(&other).await.expect("another deployment can be made, for its key");
    let both = Config {
        master_key_file: Optional(Some(new.clone())),
        master_key_previous_file: Optional(Some(old.clone())),
        ..place.config.clone()
    };
    let app = open_app(&both, Clock::System, None).await.expect("it opens");
    let (of_new, of_old) = (app.vault.key_id().to_owned(), app.vault.previous_id().expect("both").to_owned());
    // A re-wrap begins so, and is killed.
    let next = Write::MoveSetting {
        name: deployment_settings::MASTER_KEY_ID.to_owned(),
        from: Some(of_old.clone()),
        to: of_new.clone(),
    };
    app.store.commit(Batch(vec![next])).await.expect("it is written");
    close_store(&app.store).expect("it closes");

    let file = place.path("midst");
    let trailer = take(&both, &file).await.expect("it is taken");
    assert_eq!((&trailer.master_key_id, &trailer.other_master_key_ids), (&of_new, &vec![of_old.clone()]));
    // An older program would not have said it.
    let untold = place.path("untold");
    std::fs::copy(&file, &untold).expect("it can be copied");
    OpenOptions::new().write(true).open(&untold).and_then(|image| image.set_len(trailer.bytes)).expect("it can be cut");
    end(&untold, Trailer { other_master_key_ids: Vec::new(), ..trailer }).expect("it can be written");
    for file in [file, untold] {
        let one = Config { master_key_file: Optional(Some(new.clone())), ..place.elsewhere("one", None) };
        let said = refused(restore(&one, &file)).await;
        assert!(said.contains(&of_old) && said.contains("master_key_previous"), "{said}");
        assert!(!one.data.exists(), "nothing is left of it");
        let none = Config { master_key_file: Optional(None), ..place.elsewhere("none", None) };
        let two = Config { master_key_previous_file: both.master_key_previous_file.clone(), ..one };
        for (config, has_key) in [(none, false), (two, true)] {
            let restored = restore(&config, &file).await.expect("it is whole");
            assert_eq!((restored.has_key, restored.other_keys), (has_key, vec![of_old.clone()]));
            std::fs::remove_dir_all(&config.data).expect("it can be removed");
        }
    }
}

/// Uses a nonce for a query, and another one for a change.
async fn use_two(app: &App, stamped_at: UnixMillis) -> [ClaimKey; 2] {
    let claim = |nonce: &str| ClaimKey {
        tenant: TenantNo(1),
        application: ApplicationNo(1),
        nonce: format!("{nonce}{}", stamped_at.0),
        stamped_at,
    };
    let claims = [claim("query"), claim("change")];
    for claim in &claims {
        assert_eq!(app.store.reserve(claim).await.expect("it answers"), Claimed::Fresh);
    }
    assert_eq!(app.store.settle(claims[0].clone()).await.expect("it answers"), Claimed::Fresh);
    app.store.commit(Batch(vec![Write::ClaimNonce(claims[1].clone())])).await.expect("it is written");
    claims
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_accepted_before_or_after_a_backup_is_accepted_after_its_restore() {
    const TOLERANCE_MS: i64 = 300_000;
    // Farther ahead than any tolerance: the clock was wrong, and is right again.
    const AHEAD_MS: i64 = 7_200_000;
    let (place, shared) = (Place::new().await, Fresh::new().await);
    let file = Config { timestamp_tolerance_ms: TOLERANCE_MS, ..place.config.clone() };
    let nodes = Config { data: place.path("nodes"), database_url: Optional(Some(shared.url())), ..file.clone() };
    let nodes = Config { master_key_file: Optional(Some(file.data.join("master.key"))), ..nodes };
    initialise(&nodes).await.expect("an empty database can be initialised");
    for (of, deployment) in [("file", file), ("nodes", nodes)] {
        for (kind, ahead_ms) in [("tolerance", TOLERANCE_MS / 3), ("clock", AHEAD_MS)] {
            let (name, backup) = (format!("{of}-{kind}"), place.path(&format!("{of}-{kind}.backup")));
            let app = open_app(&deployment, Clock::System, None).await.expect("it opens");
            let mut claims = Vec::new();
            let before = app.clock.now().plus_ms(ahead_ms);
            claims.extend(use_two(&app, before).await);
            take(&deployment, &backup).await.expect("a backup can be taken");
            // What a wrong clock accepts afterwards is beyond what can be known.
            let after = app.clock.now().plus_ms(TOLERANCE_MS);
            claims.extend(use_two(&app, after).await);
            close_store(&app.store).expect("it closes");
            let target = Fresh::new().await;
            for url in [None, Some(target.url())] {
                // As the command line without a file of settings has it.
                let config = place.elsewhere(&format!("{name}-{}", url.is_some()), url);
                assert_eq!(config.timestamp_tolerance_ms, 30_000);
                let restored = restore(&config, &backup).await.expect("it is whole");
                let app = open_app(&config, Clock::System, None).await.expect("it opens");
                for claim in &claims {
                    let found = app.store.reserve(claim).await.expect("it answers");
                    assert_eq!(found, Claimed::TooOld, "{name}, {:?}: {claim:?}", restored.place);
                    assert!(restored.refused_through >= claim.stamped_at, "{name}: {restored:?}");
                }
                let horizon = forgotten_nonces::horizon(&app.store).expect("it has one");
                assert_eq!(restored.refused_through, horizon, "{name}: what is told is what is done");
                close_store(&app.store).expect("it closes");
            }
        }
    }
}

#[tokio::test]
async fn a_second_backup_to_one_name_is_refused_before_it_touches_the_first() {
    let place = Place::new().await;
    let file = place.path("backup");
    let held = NameLock::take(&file).expect("nobody has it");
    let unfinished = beside(&file, "unfinished").expect("it has a name");
    std::fs::write(&unfinished, "half of it").expect("it can be written");
    let said = refused(take(&place.config, &file)).await;
    assert!(said.contains("under way"), "{said}");
    assert_eq!(std::fs::read(&unfinished).expect("it is there"), b"half of it");
    // Whoever held the name has died, and the next one begins anew.
    drop(held);
    let trailer = take(&place.config, &file).await.expect("it is free");
    restore(&place.elsewhere("restored", None), &file).await.expect("it is whole");
    assert_eq!(read_trailer(&file).expect("it is a backup"), trailer);
    assert!(!unfinished.exists() && !beside(&file, "lock").expect("it has a name").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_restore_was_cut_off_nothing_else_begins_and_it_is_run_again() {
    let place = Place::new().await;
    let file = place.path("backup");
    let trailer = take(&place.config, &file).await.expect("it is taken");
    let config = place.elsewhere("restored", None);
    let data = DataDir::create(&config.data).expect("it is made");
    let half = Work::in_folder(&data).folder;
    std::fs::create_dir(&half).expect("it dies here");
    let served = demand_database(&config, &data).expect_err("there is no whole database").to_string();
    for said in [served, refused(initialise(&config)).await] {
        assert!(said.contains("was cut off, or is under way yet") && said.contains("restoring"), "{said}");
    }
    assert!(!data.database().exists() && !data.master_key().exists());
    assert_eq!(restore(&config, &file).await.expect("it is whole").trailer, trailer);
    assert!(!half.exists());
    demand_database(&config, &data).expect("it is served");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_copy_that_a_move_left_is_not_backed_up_unless_it_is_served() {
    let (mut place, database) = (Place::new().await, Fresh::new().await);
    let order = place.order(place.config.data.join("countersign.db"), &database.url());
    let report = moving::run(order, |_| {}).await.expect("it is moved");
    let file = place.path("backup");
    let said = refused(take(&place.config, &file)).await;
    assert!(said.contains(&report.place) && said.contains("--database-url"), "{said}");
    assert!(!file.exists());
    place.config.serve_moved = true;
    take(&place.config, &file).await.expect("it is served on purpose");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_an_older_program_is_restored_in_either_store_and_one_of_a_newer_one_leaves_nothing() {
    let (place, database) = (Place::new().await, Fresh::new().await);
    let older = place.backup_of_another_program("older", Tampering::StepBack).await;
    for (name, url) in [("file", None), ("nodes", Some(database.url()))] {
        let config = place.elsewhere(name, url);
        restore(&config, &older).await.expect("it is whole");
        let app = open_app(&config, Clock::System, None).await.expect("it opens");
        happens(&app, &application(&app, "till", None).await).await;
        close_store(&app.store).expect("it closes");
    }

    let newer = place.backup_of_another_program("newer", Tampering::StepAhead).await;
    let config = place.elsewhere("restored", None);
    let said = refused(restore(&config, &newer)).await;
    assert!(said.contains("newer program") && said.contains(&newer.display().to_string()), "{said}");
    assert!(!config.data.exists(), "nor its folder");
}

async fn happen(app: &App, client_id: &str, times: usize) {
    for _ in 0..times {
        happens(app, client_id).await;
    }
}

/// The numbers of a page, or the oldest that is kept.
async fn pulled(app: &Arc<App>, client_id: &str, after: i64) -> Result<Vec<i64>, i64> {
    let of = app.store.application(client_id).await.expect("it answers").expect("it is there").application;
    match pull(app, &of, after, 500).await {
        Ok(page) => {
            assert_eq!(page.next, page.events.last().map_or(after, |last| last.seq));
            Ok(page.events.iter().map(|event| event.seq).collect())
        }
        Err(AppError::EventsGone { oldest }) => Err(oldest),
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_merchant_takes_an_event_after_a_restore_for_one_that_he_has_seen() {
    let (place, database) = (Place::new().await, Fresh::new().await);
    let file = place.path("backup");
    let app = Arc::new(open_app(&place.config, Clock::System, None).await.expect("it opens"));
    let (till, idle) = (application(&app, "till", None).await, application(&app, "idle", None).await);
    happen(&app, &till, 2).await;
    take(&place.config, &file).await.expect("a backup can be taken");
    // What is lost with the original, and merchants have pulled.
    happen(&app, &till, 3).await;
    happen(&app, &idle, 1).await;
    assert_eq!((pulled(&app, &till, 2).await, pulled(&app, &idle, 0).await), (Ok(vec![3, 4, 5]), Ok(vec![1])));
    close_store(&app.store).expect("it closes");

    let restored = place.elsewhere("restored", None);
    restore(&restored, &file).await.expect("it is whole");
    let app = Arc::new(open_app(&restored, Clock::System, None).await.expect("it opens"));
    let mut first = 0;
    for id in [&till, &idle] {
        assert_eq!(pulled(&app, id, 5).await, Ok(vec![]), "nothing has happened since");
        happen(&app, id, 2).await;
        first = pulled(&app, id, 5).await.expect_err("what came in between is not there");
        assert!(first > 20_000_000 && first % 10_000_000 == 1, "{first}");
        assert_eq!(pulled(&app, id, first - 1).await, Ok(vec![first, first + 1]));
    }
    assert_eq!(pulled(&app, &till, 0).await, Ok(vec![1, 2]), "a page ends where numbers are left out");
    assert_eq!(pulled(&app, &till, 2).await, Err(first));
    happen(&app, &application(&app, "new", None).await, 1).await;
    let again = place.path("again");
    take(&restored, &again).await.expect("a backup can be taken");
    close_store(&app.store).expect("it closes");

    // The numbers that are left out are none that a move misses.
    let moved = place.elsewhere("moved", Some(database.url()));
    restore(&moved, &again).await.expect("it is whole");
    let app = Arc::new(open_app(&moved, Clock::System, None).await.expect("it opens"));
    happen(&app, &till, 1).await;
    assert_eq!(pulled(&app, &till, first - 1).await, Ok(vec![first, first + 1]));
    let next = pulled(&app, &till, first + 1).await.expect_err("numbers are left out again");
    assert!(next >= first + 20_000_000 && next % 10_000_000 == 1, "{next}");
    close_store(&app.store).expect("it closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_audit_log_tells_of_each_restore_once_whoever_serves_it() {
    let (place, database) = (Place::new().await, Fresh::new().await);
    let told = async |app: &App| {
        let which = Which { action: Some("deployment.restore".to_owned()), ..Which::default() };
        let lines = audit_log::list(app, &which, None, 9).await.expect("it answers").rows;
        lines.iter().map(|line| serde_json::from_str(&line.after).expect("an object")).collect::<Vec<Value>>()
    };
    let (mut from, mut times) = (place.config.clone(), Vec::new());
    for (name, url) in [("one", None), ("two", Some(database.url()))] {
        let file = place.path(&format!("{name}.backup"));
        let taken = take(&from, &file).await.expect("a backup can be taken");
        let config = place.elsewhere(name, url);
        restore(&config, &file).await.expect("it is whole");
        times.insert(0, json!(taken.taken_at));
        for _ in 0..2 {
            let app = open_app(&config, Clock::System, None).await.expect("it opens");
            let lines = told(&app).await;
            let of = lines.iter().map(|line| line["backup_taken_at"].clone()).collect::<Vec<_>>();
            assert_eq!(of, times, "newest first: {lines:?}");
            let held = app.store.setting(DELIVERY_HELD).await.expect("reads");
            assert_eq!(lines[0]["restored_at"].as_str(), held.as_deref());
            close_store(&app.store).expect("it closes");
        }
        from = config;
    }
}

#[tokio::test]
async fn no_byte_of_the_last_line_may_change_and_one_without_a_sum_is_read_in_its_own_form() {
    let place = Place::new().await;
    let (file, trailer) = place.backup("backup").await;
    let whole = std::fs::read(&file).expect("it is there");
    let from = usize::try_from(trailer.bytes).expect("it is small");
    let image = OpenOptions::new().write(true).open(&file).expect("it is there");
    for (at, written) in (trailer.bytes..).zip(&whole[from..]) {
        let put = |byte: u8| image.write_all_at(&[byte], at).expect("is written");
        put(written ^ 1);
        read_trailer(&file).expect_err("it is not what was written");
        put(*written);
    }
    assert_eq!(read_trailer(&file).expect("it is whole"), trailer);

    let line = std::str::from_utf8(&whole[from..]).expect("text");
    let (said, _) = line.rsplit_once(' ').expect("a sum");
    let without_sum = |said: &str| {
        image.set_len(trailer.bytes).expect("it can be cut");
        image.write_all_at(format!("{said}\n").as_bytes(), trailer.bytes).expect("is written");
    };
    without_sum(said);
    let refused = read_trailer(&file).expect_err("this form has a sum").to_string();
    assert!(refused.contains("its end is missing"), "{refused}");
    without_sum(&said.replace(r#""format":2"#, r#""format":3"#));
    let refused = read_trailer(&file).expect_err("it is of another program").to_string();
    assert!(refused.contains("of form 3, this program reads form 2 and older"), "{refused}");
    without_sum(&said.replace(r#""format":2"#, r#""format":1"#));
    let config = Config { data: place.path("of the form before"), ..place.config.clone() };
    let restored = restore(&config, &file).await.expect("it is read, too");
    assert_eq!(restored.trailer, Trailer { format: 1, ..trailer });
}
