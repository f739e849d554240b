//! Two nodes of one database: what one remembers of a fee rule is never what it goes by.

use countersign::app::error::AppError;
use countersign::app::rules::{Making, RuleChange, change};
use countersign::app::{Actor, App};
use countersign::clock::Clock;
use countersign::config::{Config, Optional};
use countersign::run;
use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_domain::rules::{Markup, RuleAsk, RuleVersion};
use countersign_domain::time::UnixMillis;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{ClaimKey, MerchantKind, MerchantRow, Store};
use countersign_store::testing::{Database, rows};
use rust_decimal::Decimal;

const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

struct Nodes {
    one: App,
    other: App,
    clock: Clock,
    bank: MerchantRow,
    _folder: tempfile::TempDir,
    database: Database,
}

fn merchant(no: i64, id: &str, kind: MerchantKind) -> MerchantRow {
    MerchantRow { created_at: NOW, ..rows::merchant(MerchantNo(no), id, TenantNo(1), kind) }
}

impl Nodes {
    async fn start() -> Self {
        let (database, folder) = (Database::new().await, tempfile::tempdir().expect("a folder"));
        let database_url = Optional(Some(database.url()));
        let config = Config { data: folder.path().join("data"), database_url, ..Config::default() };
        run::initialise(&config).await.expect("a deployment");
        let clock = Clock::manual(NOW);
        let open = || Box::pin(run::open_app(&config, clock.clone(), None));
        let (one, other) = (open().await.expect("a node"), open().await.expect("another"));
        let bank = merchant(1, "bank", MerchantKind::Institution);
        let shop = merchant(2, "shop", MerchantKind::SubAccount);
        let rows = [bank.clone(), shop].map(|row| Write::InsertMerchant(Box::new(row)));
        one.store.commit(Batch(rows.to_vec())).await.expect("merchants");
        Self { one, other, clock, bank, _folder: folder, database }
    }

    async fn make(&self, node: &App, making: Making, due_at: Option<UnixMillis>) -> Result<RuleVersion, AppError> {
        let now = self.clock.now();
        let markup = Markup::new(Decimal::ONE, Decimal::ZERO).expect("in range");
        let ask = RuleAsk { markup, effective_at: now, due_at };
        let nonce = node.chance.hex(16);
        let claim = ClaimKey { tenant: TenantNo(1), application: ApplicationNo(1), nonce, stamped_at: now };
        node.store.reserve(&claim).await.expect("answers");
        let asked = RuleChange { making, sub_merchant_id: "shop".to_owned(), ask };
        let actor = Actor { name: "test".into(), source: String::new(), request_id: "test".into(), right: None };
        change(node, &self.bank, &asked, &claim, &actor).await
    }
}

#[tokio::test]
async fn nodes_that_upgrade_in_turn_make_one_unbroken_chain_of_versions() {
    let nodes = Box::pin(Nodes::start()).await;
    let mut last: Option<RuleVersion> = None;
    for turn in 0..6 {
        let node = if turn % 3 == 0 { &nodes.other } else { &nodes.one };
        let made = nodes.make(node, Making::Upgrade, None).await.expect("is made");
        assert_eq!(made.version_no, turn + 1);
        assert_eq!(made.previous, last.as_ref().map(|last| last.config_id), "version {}", made.version_no);
        assert_eq!(made.base_version_no, last.as_ref().map(|last| last.version_no), "version {}", made.version_no);
        last = Some(made);
    }
    let head = nodes.one.store.rule_head(TenantNo(1), MerchantNo(2), None).await.expect("answers").expect("is there");
    assert_eq!(Some(head.last), last);
}

#[tokio::test]
async fn a_creation_is_not_refused_for_a_rule_that_another_node_has_ended() {
    let nodes = Box::pin(Nodes::start()).await;
    nodes.make(&nodes.one, Making::Create, None).await.expect("the first");
    nodes.make(&nodes.other, Making::Upgrade, Some(NOW.plus_ms(2_000))).await.expect("one that ends");
    nodes.clock.advance_ms(1_000);
    let refused = nodes.make(&nodes.one, Making::Create, None).await;
    assert!(matches!(refused, Err(AppError::FeeRuleExists)), "{refused:?}");
    nodes.clock.advance_ms(1_000);
    let made = nodes.make(&nodes.one, Making::Create, None).await.expect("none is in force any more");
    assert_eq!(made.version_no, 3);
}

#[tokio::test]
async fn a_head_whose_version_was_lost_and_made_anew_is_read_again() {
    let nodes = Box::pin(Nodes::start()).await;
    let lost = nodes.make(&nodes.one, Making::Create, None).await.expect("the first");
    // As after a failover to a standby that did not have it: the other node makes another version 1.
    nodes.database.lose_rules().await;
    let anew = nodes.make(&nodes.other, Making::Create, None).await.expect("the first again");
    assert_ne!(anew.config_id, lost.config_id);
    let next = nodes.make(&nodes.one, Making::Upgrade, None).await.expect("the second");
    assert_eq!((next.version_no, next.previous), (2, Some(anew.config_id)));
    assert!(nodes.one.hints.sub_account("shop").is_some(), "the node remembers, or this test shows nothing");
}
