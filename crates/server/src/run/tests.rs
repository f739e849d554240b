//! From an empty folder to a running server, and what keeps a wrong one from running.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use countersign_store::testing::Database;
use countersign_store::{Batch, PostgresStore, Write};

use super::*;
use crate::app::audit_chain;
use crate::chance::Chance;
use crate::config::{Flag, Optional};
use crate::datadir;

fn config(data: &Path) -> Config {
    let flags = [
        ("data", data.to_str().expect("a temporary path is UTF-8")),
        ("listen", "127.0.0.1:0"),
        ("operator_listen", "127.0.0.1:0"),
        ("allow_private_callbacks", "true"),
    ];
    let flags = flags.map(|(setting, text)| Flag { flag: "test", setting, text: text.to_owned() });
    Config::load(None, &std::collections::BTreeMap::new(), &flags).expect("these settings are good")
}

fn folder() -> (tempfile::TempDir, Config) {
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let config = config(&temporary.path().join("data"));
    (temporary, config)
}

fn surroundings() -> (Surroundings, LogGuard) {
    let (log, guard) = LogSink::start(std::io::sink()).expect("a thread starts");
    (Surroundings { clock: Clock::System, log }, guard)
}

async fn started(config: &Config) -> anyhow::Result<Running> {
    start_in(config.clone(), surroundings().0).await
}

async fn refusal(config: &Config) -> String {
    format!("{:#}", started(config).await.expect_err("it is refused"))
}

#[tokio::test]
async fn a_folder_is_initialised_once_and_then_served() {
    let (_keep, config) = folder();
    let made = initialise(&config).await.expect("an empty folder can be initialised");
    assert!(made.operator_token.expose().starts_with("cso_"));
    assert!(!format!("{made:?}").contains(made.operator_token.expose()));
    let again = initialise(&config).await.expect_err("it is refused").to_string();
    assert!(again.contains("is initialised already"), "{again}");
    let running = started(&config).await.expect("it starts");
    assert_ne!((running.listen.port(), running.operator_listen.port()), (0, 0));
    let app = Arc::clone(&running.app);
    running.stop().await.expect("it stops");
    assert!(app.leaving.load(Ordering::Relaxed), "whoever asks in the last moment is told that it is not ready");
}

#[tokio::test]
async fn an_init_that_was_cut_off_after_the_key_can_be_repeated() {
    let (_keep, config) = folder();
    let data = DataDir::create(&config.data).expect("it can be made");
    let key = datadir::make_key(&data.master_key(), &Chance::default()).expect("it can be made");
    initialise(&config).await.expect("it is taken up where it was left");
    assert_eq!(*datadir::read_key(&data.master_key(), None).expect("it is there"), *key);
    started(&config).await.expect("it starts").stop().await.expect("it stops");
}

#[tokio::test]
async fn what_was_not_initialised_is_not_served() {
    let (_keep, config) = folder();
    assert!(refusal(&config).await.contains("countersign init"));
    let data = DataDir::create(&config.data).expect("it can be made");
    datadir::make_key(&data.master_key(), &Chance::default()).expect("it can be made");
    assert!(refusal(&config).await.contains("has a master key but no database"));
    std::fs::write(data.database(), "").expect("written");
    assert!(refusal(&config).await.contains("is not initialised"));
}

#[tokio::test]
async fn another_master_key_is_refused_and_the_right_one_taken() {
    let (_keep, mut config) = folder();
    initialise(&config).await.expect("it is initialised");
    config.master_key = Optional(Some("00".repeat(32).into()));
    assert!(refusal(&config).await.contains("not the master key"));
    config.master_key = Optional(None);
    started(&config).await.expect("it starts").stop().await.expect("it stops");
}

#[tokio::test]
async fn rule_settings_other_than_those_of_init_are_refused() {
    let (_keep, config) = folder();
    initialise(&config).await.expect("it is initialised");
    let zone = Config { rule_timezone: "Asia/Singapore".to_owned(), ..config.clone() };
    let said = refusal(&zone).await;
    assert!(
        said.contains("rule_timezone is \"Asia/Singapore\" here") && said.ends_with("set rule_timezone = \"UTC\""),
        "{said}"
    );
    let unit = Config { markup_unit: countersign_domain::fees::MarkupUnit::Fraction, ..config.clone() };
    let said = refusal(&unit).await;
    assert!(
        said.contains("markup_unit is \"fraction\" here") && said.ends_with("set markup_unit = \"percent\""),
        "{said}"
    );
}

#[tokio::test]
async fn a_zone_is_kept_under_its_own_name_and_another_spelling_of_it_is_the_same() {
    let (_keep, config) = folder();
    let spelt = |zone: &str| Config { rule_timezone: zone.to_owned(), ..config.clone() };
    initialise(&spelt("asia/SINGAPORE")).await.expect("it is initialised");
    for zone in ["Asia/Singapore", "ASIA/singapore"] {
        started(&spelt(zone)).await.expect("it starts").stop().await.expect("it stops");
    }
    let said = refusal(&config).await;
    assert!(
        said.contains("rule_timezone is \"UTC\" here") && said.ends_with("set rule_timezone = \"Asia/Singapore\""),
        "{said}"
    );
    // What was written down before names were.
    for (stored, same, other) in [("asia/singapore", "Asia/Singapore", "UTC"), ("Etc/Unknown", "utc", "Asia/Singapore")]
    {
        let data = DataDir::open(&config.data).expect("it is there");
        let store = open_store(&config, &data).await.expect("it opens");
        let put = Write::PutSetting { name: deployment_settings::RULE_TIMEZONE.to_owned(), value: stored.to_owned() };
        store.commit(Batch(vec![put])).await.expect("it is written");
        close_store(&store).expect("it closes");
        started(&spelt(same)).await.expect("it starts").stop().await.expect("it stops");
        assert!(!refusal(&spelt(other)).await.is_empty());
    }
}

#[tokio::test]
async fn a_folder_is_served_once_at_a_time_and_free_after_the_stop() {
    let (_keep, config) = folder();
    initialise(&config).await.expect("it is initialised");
    let first = started(&config).await.expect("it starts");
    assert!(refusal(&config).await.contains("another countersign process"));
    first.stop().await.expect("it stops");
    started(&config).await.expect("it starts again").stop().await.expect("it stops");
}

#[tokio::test]
async fn a_database_of_an_unknown_kind_is_refused_by_init_and_serve() {
    let (_keep, mut config) = folder();
    config.database_url = Optional(Some("mysql://localhost/x".to_owned()));
    let said = initialise(&config).await.expect_err("it is refused").to_string();
    assert!(said.contains("not known"), "{said}");
    assert!(refusal(&config).await.contains("not known"));
    assert!(!config.data.exists(), "nothing was made");
}

#[tokio::test]
async fn an_address_in_use_is_refused_by_its_setting() {
    let (_keep, mut config) = folder();
    initialise(&config).await.expect("it is initialised");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    config.operator_listen = taken.local_addr().expect("it is bound");
    assert!(refusal(&config).await.contains("operator_listen 127.0.0.1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_database_is_initialised_by_the_first_node_and_joined_with_its_key() {
    let database = Database::new().await;
    let ((_keep_one, mut one), (_keep_two, mut two)) = (folder(), folder());
    for node in [&mut one, &mut two] {
        node.database_url = Optional(Some(database.url()));
    }
    initialise(&one).await.expect("an empty database can be initialised");
    let again = initialise(&one).await.expect_err("it is refused").to_string();
    assert!(again.contains("is initialised already"), "{again}");

    let keyless = prepare(&two).await.expect_err("it is refused").to_string();
    assert!(keyless.contains("--master-key"), "{keyless}");
    assert!(!two.data.join("master.key").exists(), "no second key was made");
    two.master_key = Optional(Some("00".repeat(32).into()));
    let wrong = prepare(&two).await.expect_err("it is refused").to_string();
    assert!(wrong.contains("not the master key"), "{wrong}");
    two.master_key = Optional(None);
    two.master_key_file = Optional(Some(one.data.join("master.key")));
    assert!(matches!(prepare(&two).await.expect("it joins"), Prepared::Joined(_)));
    // Also where a copy of the key lies in the folder already. A key of something else is named as what it is.
    for (key, refused) in [(None, "and not with the master key in"), (Some(&one.data), "is initialised already")] {
        let own = two.data.join("master.key");
        match key {
            Some(of) => drop(std::fs::copy(of.join("master.key"), &own).expect("copied")),
            None => drop(datadir::make_key(&own, &Chance::default()).expect("it can be made")),
        }
        assert!(matches!(prepare(&two).await.expect("it joins"), Prepared::Joined(_)), "{refused}");
        let unnamed = Config { master_key_file: Optional(None), ..two.clone() };
        let said = prepare(&unnamed).await.expect_err("it is refused").to_string();
        assert!(said.contains(refused) && said.contains("master.key") == key.is_none(), "{said}");
    }

    let nodes = [started(&one).await.expect("it starts"), started(&two).await.expect("it starts beside it")];
    for node in &nodes {
        node.app.store.ping().await.expect("its database answers");
    }
    for node in nodes {
        node.stop().await.expect("it stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_and_a_move_into_one_database_keep_each_other_out() {
    let (database, (_keep, mut config)) = (Database::new().await, folder());
    config.database_url = Optional(Some(database.url()));
    let moves = database.hold_moves().await.expect("nobody is there");
    let said = format!("{:#}", initialise(&config).await.expect_err("it is refused"));
    assert!(said.contains("a move or restore into this database is under way"), "{said}");
    drop(moves);
    let options = postgres_options(&config, &database.url()).expect("settings that can be");
    // A connection that is dropped is noticed by its server a moment later.
    let begun = Instant::now();
    let kept_out = loop {
        match PostgresStore::keep_moves_out(&options).await {
            Ok(kept_out) => break kept_out,
            Err(refused) => assert!(begun.elapsed() < Duration::from_secs(60), "{refused}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(database.hold_moves().await.is_none(), "a move waits");
    // Another `init` does not.
    initialise(&config).await.expect("it is initialised");
    drop(kept_out);
    let begun = Instant::now();
    while database.hold_moves().await.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "moves stay out");
    }
}

#[tokio::test]
async fn a_database_that_is_not_there_is_refused_in_words() {
    let (_keep, mut config) = folder();
    config.database_url = Optional(Some("postgres://nobody:letmein@127.0.0.1:1/x".to_owned()));
    let said = format!("{:#}", initialise(&config).await.expect_err("it is refused"));
    assert!(said.contains("cannot be reached") && !said.contains("letmein"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_initialise_one_database_at_once_one_does_and_the_others_join_it() {
    let (database, keys) = (Database::new().await, tempfile::tempdir().expect("a temporary folder can be made"));
    let key = keys.path().join("master.key");
    datadir::make_key(&key, &Chance::default()).expect("it can be made");
    let nodes: Vec<_> = std::iter::repeat_with(folder).take(4).collect();
    // The last one brings no key: what it makes of its own is worth nothing unless it is the first.
    let configs: Vec<Config> = nodes
        .iter()
        .enumerate()
        .map(|(at, (_, config))| Config {
            database_url: Optional(Some(database.url())),
            master_key_file: Optional((at < 3).then(|| key.clone())),
            ..config.clone()
        })
        .collect();
    let tasks: Vec<_> =
        configs.iter().cloned().map(|config| tokio::spawn(async move { prepare(&config).await })).collect();
    let (mut first, mut refused) = (Vec::new(), 0);
    for (task, config) in tasks.into_iter().zip(&configs) {
        match task.await.expect("it ends") {
            Ok(Prepared::First(_)) => first.push(config),
            Ok(Prepared::Joined(_)) => {}
            Err(error) => {
                assert!(format!("{error:#}").contains("master key"), "{error:#}");
                assert!(!config.data.join("master.key").exists(), "a key that opens nothing stays away");
                refused += 1;
            }
        }
    }
    assert_eq!(first.len(), 1, "of {} one makes the deployment", configs.len());
    assert!(refused <= 3);
    let running = started(first[0]).await.expect("it starts");
    let verified = audit_chain::verify_named(&running.app.vault, &running.app.store, Vec::new(), |_| {}).await;
    let verified = verified.expect("it answers");
    assert_eq!(verified.holds, Some(true), "{verified:?}");
    running.stop().await.expect("it stops");
}
