//! A chain that was taken away, one that was never there, and who may begin one.

use std::pin::Pin;
use std::sync::Arc;

use countersign::app::Actor;
use countersign::app::audit_chain::{Begun, CHAIN_KEY, Verified, verify_named};
use countersign::app::identity::{self, NewMerchant, Standing};
use countersign::clock::Clock;
use countersign::config::{Config, Optional};
use countersign::run::chain::{self, examine};
use countersign::run::deployment_settings::Settings;
use countersign::run::{
    Machine, close_store, deployment_settings, initialise, open_app, postgres_options, prepare, recover,
};
use countersign_domain::money::Amount;
use countersign_store::nodes::{NodeId, Stage, Tend, Who};
use countersign_store::testing::{Database, Tampering};
use countersign_store::{PostgresStore, Store as _};
use rust_decimal::Decimal;
use tempfile::TempDir;

/// A deployment in a database, and the folder of its first node.
struct Place {
    folder: TempDir,
    database: Database,
    config: Config,
}

impl Place {
    async fn new() -> Self {
        let (folder, database) = (tempfile::tempdir().expect("a temporary folder can be made"), Database::new().await);
        let data = folder.path().join("data");
        let config = Config { data, database_url: Optional(Some(database.url())), ..Config::default() };
        initialise(&config).await.expect("an empty database can be initialised");
        Self { folder, database, config }
    }

    /// A node that knows the master key and has not served yet.
    fn other(&self) -> Config {
        Config {
            data: self.folder.path().join("other"),
            master_key_file: Optional(Some(self.config.data.join("master.key"))),
            ..self.config.clone()
        }
    }
}

/// A start and what it finds, up to where listeners would be opened.
fn start(config: &Config) -> Pin<Box<dyn Future<Output = anyhow::Result<Verified>> + '_>> {
    Box::pin(async {
        let app = open_app(config, Clock::System, None).await?;
        let verified = verify_named(&app.vault, &app.store, Vec::new(), |_| {}).await?;
        close_store(&app.store)?;
        Ok(verified)
    })
}

/// Begins a chain, to the end.
async fn begin(config: &Config, accept: bool) -> anyhow::Result<Begun> {
    let here = chain::begin(config, accept).await?;
    here.unfinished.map_or(Ok(here.begun), Err)
}

/// What the log says to a command that opens no server; where a start is refused, too.
async fn verified(config: &Config) -> Verified {
    let machine = Machine::open(config).await.expect("it opens");
    let verified = verify_named(&machine.vault, &machine.store, Vec::new(), |_| {}).await;
    machine.close(Ok(())).expect("it closes");
    verified.expect("it answers")
}

fn places(verified: &Verified) -> Vec<(Option<&str>, i64)> {
    verified.faults.iter().map(|fault| (fault.merchant_id.as_deref(), fault.no)).collect()
}

/// A deployment in a file, with merchants of two kinds and a sub-account.
async fn in_a_file() -> (TempDir, Config) {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let config = Config { data: folder.path().join("data"), ..Config::default() };
    initialise(&config).await.expect("an empty folder can be initialised");
    make_merchants(&config).await;
    (folder, config)
}

async fn make_merchants(config: &Config) {
    let app = open_app(config, Clock::System, None).await.expect("it opens");
    let actor = Actor::named("token:tok_1");
    let bank = Standing::Institution { base_r: Decimal::ZERO, base_f: Amount::ZERO };
    for (id, standing) in
        [("bank", bank), ("shop", Standing::Merchant), ("sub", Standing::SubAccountOf("bank".to_owned()))]
    {
        let ask = NewMerchant { merchant_id: Some(id.to_owned()), name: id.to_owned(), standing, user_id: None };
        identity::create_merchant(&app, &ask, &|_| None, &actor).await.expect("a merchant");
    }
    close_store(&app.store).expect("it closes");
}

async fn refused<T: std::fmt::Debug>(outcome: impl Future<Output = anyhow::Result<T>>) -> String {
    format!("{:#}", outcome.await.expect_err("it is refused"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_chain_was_taken_away_is_signed_by_no_start() {
    let place = Place::new().await;
    assert!(start(&place.config).await.expect("it starts").holds == Some(true));
    recover(&place.config, 1).await.expect("a token can be made");
    place.database.tamper(Tampering::Unchain).await;
    place.database.tamper(Tampering::Blame("token.recover")).await;

    let said = refused(start(&place.config)).await;
    assert!(said.contains("was taken out of the database"), "{said}");
    assert!(refused(recover(&place.config, 1)).await.contains("was taken out of the database"));
    assert!(refused(begin(&place.config, false)).await.contains("was taken out of the database"));
    // A node that never saw it cannot know, and begins nothing by itself either.
    prepare(&place.other()).await.expect("it joins");
    assert!(refused(start(&place.other())).await.contains("countersign audit begin"));

    let begun = begin(&place.config, true).await.expect("it is begun, as told");
    assert_eq!((begun.unlinked, begun.linked), (2, 0));
    let verified = start(&place.config).await.expect("it starts");
    assert!(verified.holds == Some(true) && verified.lines_before_chain == 2, "{verified:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_from_before_the_chain_begins_it_once_by_a_command() {
    let place = Place::new().await;
    place.database.tamper(Tampering::Unchain).await;
    let said = refused(start(&place.config)).await;
    assert!(said.contains("countersign audit begin"), "{said}");
    let begun = begin(&place.config, false).await.expect("it is begun");
    assert_eq!((begun.unlinked, begun.faults.len()), (1, 0));
    let verified = start(&place.config).await.expect("it starts");
    assert!(verified.holds == Some(true) && verified.lines_before_chain == 1 && verified.lines == 2, "{verified:?}");
    assert!(refused(begin(&place.config, true)).await.contains("has a chain already"));

    place.database.tamper(Tampering::Blame("deployment.init")).await;
    let verified = start(&place.config).await.expect("it starts");
    assert!(verified.holds == Some(false) && verified.faults.len() == 1, "{verified:?}");
    assert!(verified.fault.is_some_and(|fault| fault.what.contains("before the chain")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_links_whose_key_is_gone_and_over_gaps_a_chain_is_begun_only_where_that_is_accepted() {
    let place = Place::new().await;
    recover(&place.config, 1).await.expect("a token can be made");
    prepare(&place.other()).await.expect("it joins");
    place.database.tamper(Tampering::TakeChainKey).await;
    let said = refused(begin(&place.other(), false)).await;
    assert!(said.contains("2 lines have links") && said.contains("--accept"), "{said}");
    place.database.tamper(Tampering::UnlinkAndGap).await;
    let said = refused(begin(&place.other(), false)).await;
    assert!(said.contains("broken at line 2 of the system"), "{said}");
    assert!(refused(start(&place.other())).await.contains("countersign audit begin"), "nothing was begun");

    begin(&place.other(), true).await.expect("it is begun, as told");
    let verified = start(&place.other()).await.expect("it starts");
    assert!(verified.holds == Some(false) && verified.faults.iter().any(|fault| fault.no == 2), "{verified:?}");
    // The first node knows the other chain.
    let said = refused(start(&place.config)).await;
    assert!(said.contains("another key") && said.contains("audit.chain"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chain_is_begun_beside_a_node_that_is_alive() {
    let place = Place::new().await;
    let app = open_app(&place.config, Clock::System, None).await.expect("it opens");
    let beat = |stage| Tend {
        who: Who { node: NodeId([3; 16]), ..Who::NOBODY },
        stage,
        seen: None,
        wants: 0,
        held: Vec::new(),
        give_back: Vec::new(),
        lease_ms: 60_000,
        clock_ahead_ms: None,
    };
    app.store.tend_lanes(beat(Stage::Begins)).await.expect("it is alive");
    place.database.tamper(Tampering::Unchain).await;
    let said = refused(begin(&place.config, true)).await;
    assert!(said.contains("1 other nodes") && said.contains("stop all of them"), "{said}");
    app.store.tend_lanes(beat(Stage::Ends)).await.expect("it ends");
    begin(&place.config, true).await.expect("nobody is alive");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_reads_the_log_changes_no_schema_and_needs_no_folder_for_what_is_elsewhere() {
    let place = Place::new().await;
    let key = place.config.data.join("master.key");
    let nowhere = Config { data: place.folder.path().join("nowhere"), ..place.config.clone() };
    let said = refused(Machine::open(&nowhere)).await;
    assert!(said.contains("nowhere"), "{said}");
    let named = Config { master_key_file: Optional(Some(key)), ..nowhere };
    let machine = Machine::open(&named).await.expect("nothing of a folder is needed");
    deployment_settings::compare_key(&named, &machine.vault, &Settings::Of(&machine.store))
        .await
        .expect("it is the key");
    machine.close(Ok(())).expect("it closes");
    assert!(!named.data.exists());

    let steps = async || {
        let options = postgres_options(&named, &place.database.url()).expect("it is an address");
        PostgresStore::schema_state(&options).await.expect("it answers").applied
    };
    let all = steps().await;
    place.database.tamper(Tampering::StepBack).await;
    let older = steps().await;
    let said = refused(Machine::open(&named)).await;
    assert!(said.contains("countersign migrate"), "{said}");
    assert!(older < all);
    assert_eq!(steps().await, older, "nothing was brought up to date");
}

/// The chain's key as the settings have it.
async fn sealed_key(config: &Config) -> Option<String> {
    let machine = Machine::open(config).await.expect("it opens");
    let sealed = machine.store.setting(CHAIN_KEY).await.expect("it reads");
    machine.close(Ok(())).expect("it closes");
    sealed
}

/// A log without chains that must be there is refused and named, in a file and in a database.
async fn what_is_gone_is_named(config: &Config, tamper: &dyn Fn(Tampering) -> Pin<Box<dyn Future<Output = ()>>>) {
    let whole = start(config).await.expect("it starts");
    assert!(whole.holds == Some(true) && whole.chains == 3, "{whole:?}");
    tamper(Tampering::TakeTenantChains).await;
    let found = start(config).await.expect("it starts: a restore is not the only way on");
    assert_eq!(places(&found), [(Some("bank"), 1), (Some("shop"), 1)]);
    assert!(found.faults.iter().all(|fault| fault.what.contains("the whole chain is missing")), "{found:?}");

    tamper(Tampering::TakeSystemChain).await;
    assert_eq!(places(&verified(config).await), [(None, 1), (Some("bank"), 1), (Some("shop"), 1)]);
    let gone = "the system's chain of the audit log was taken out of the database";
    assert!(refused(start(config)).await.contains(gone));
    assert!(refused(recover(config, 1)).await.contains(gone));
    assert!(refused(begin(config, false)).await.contains(gone));
    let machine = Machine::open(config).await.expect("it opens");
    let said = refused(examine(&machine.data, &machine.vault, &Settings::Of(&machine.store))).await;
    machine.close(Ok(())).expect("it closes");
    assert!(said.contains(gone), "doctor says: {said}");

    let before = sealed_key(config).await;
    let begun = begin(config, true).await.expect("it is begun, as told");
    assert_eq!(begun.linked, 0, "what is there has links of the same chain");
    assert_ne!(sealed_key(config).await, before, "who begins it at the same moment rests on what was");
    let found = start(config).await.expect("it starts");
    assert_eq!(places(&found), [(None, 1), (Some("bank"), 1), (Some("shop"), 1)], "what is wrong stays named");
    assert!(refused(begin(config, true)).await.contains("has a chain already"));

    tamper(Tampering::TakeAudit).await;
    assert_eq!(places(&verified(config).await), [(None, 1), (Some("bank"), 1), (Some("shop"), 1)]);
    assert!(refused(start(config)).await.contains(gone));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_without_chains_that_must_be_there_is_refused_and_they_are_named() {
    let (_folder, config) = in_a_file().await;
    let file = config.data.join("countersign.db");
    what_is_gone_is_named(&config, &|with| {
        with.of_file(&file);
        Box::pin(std::future::ready(()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_chains_that_must_be_there_is_refused_and_they_are_named() {
    let place = Place::new().await;
    make_merchants(&place.config).await;
    let database = Arc::new(place.database);
    what_is_gone_is_named(&place.config, &|with| {
        let database = Arc::clone(&database);
        Box::pin(async move { database.tamper(with).await })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_cannot_be_read_hides_no_other_fault() {
    let (_folder, config) = in_a_file().await;
    let file = config.data.join("countersign.db");
    for _ in 0..4 {
        recover(&config, 1).await.expect("a token can be made");
    }
    Tampering::Garble(3).of_file(&file);
    let found = verified(&config).await;
    assert_eq!(places(&found), [(None, 3)], "{found:?}");
    assert_eq!(found.faults[0].what, "it cannot be read back");
    Tampering::Garble(5).of_file(&file);
    assert_eq!(places(&verified(&config).await), [(None, 3), (None, 5)], "the last line is not missing");
    Tampering::Blame("token.recover").of_file(&file);
    assert_eq!(places(&verified(&config).await), [(None, 2), (None, 3), (None, 4), (None, 5)]);
}
