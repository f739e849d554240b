//! What tests of the program's parts begin with: a merchant with an application, and what happens to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use countersign_domain::conversion::{Quote, Terms};
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::lanes::Fence;
use countersign_domain::money::Amount;
use countersign_domain::payment_order::{Content, PaymentKind};
use countersign_domain::time::UnixMillis;
use countersign_store::attempt_log::{AttemptBytes, Phases};
use countersign_store::contract::{
    ApplicationRow, ApplicationView, AttemptRow, ClaimKey, EndpointSettings, EventRow, MerchantRow,
};
use countersign_store::payment_order::{PaymentOrderRow, Received};
use countersign_store::testing::Database;
use countersign_store::{Batch, Store as _, Write};
use rust_decimal::Decimal;
use tempfile::TempDir;

use super::error::AppError;
use super::events::{self, Happening};
use super::identity::{
    NewApplication, NewMerchant, Standing, create_application, create_merchant, find_application, find_merchant,
};
use super::payment_orders::{Wanted, amount, create, currency};
use super::{Actor, App};
use crate::clock::Clock;
use crate::config::{Config, Optional};
use crate::run::{Opening, backup, close_store, initialise, open_app_with};

/// No test waits for a limit of PostgreSQL to pass: what is held there is held for longer than those of a server where the machine stands still.
const SECOND: Duration = Duration::from_secs(15);

/// A deployment in a file, or on a PostgreSQL of its own, whose time stands still until it is told to go on.
pub struct Deployment {
    pub clock: Clock,
    pub config: Config,
    database: Option<Database>,
    _folder: TempDir,
}

impl Deployment {
    pub async fn on_sqlite() -> Self {
        Self::on(None).await
    }

    pub async fn on_postgres() -> Self {
        Self::on(Some(Database::with_schema().await)).await
    }

    /// Two deployments.
    pub async fn on_each_store() -> [Self; 2] {
        [Self::on_sqlite().await, Self::on_postgres().await]
    }

    async fn on(database: Option<Database>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let database_url = Optional(database.as_ref().map(Database::url));
        let config = Config { data: folder.path().join("data"), database_url, ..Config::default() };
        Box::pin(initialise(&config)).await.expect("a deployment");
        Self { clock: Clock::manual(Clock::System.now()), config, database, _folder: folder }
    }

    /// Its time stands still at another instant.
    pub fn at(self, instant: UnixMillis) -> Self {
        Self { clock: Clock::manual(instant), ..self }
    }

    /// Its time goes on, as that of a server.
    pub fn in_real_time(self) -> Self {
        Self { clock: Clock::System, ..self }
    }

    /// Whether several nodes may serve it.
    pub fn is_shared(&self) -> bool {
        self.database.is_some()
    }

    /// What it is on, unless that is a file.
    pub fn database(&self) -> &Database {
        self.database.as_ref().expect("it is on PostgreSQL")
    }

    /// What it is on, unless that is PostgreSQL.
    pub fn file(&self) -> PathBuf {
        self.config.data.join("countersign.db")
    }

    /// A process of it.
    pub async fn open(&self) -> Arc<App> {
        let opening = Opening { second: Some(SECOND), ..Opening::default() };
        Arc::new(Box::pin(open_app_with(&self.config, self.clock.clone(), opening)).await.expect("it opens"))
    }

    /// The end of a process.
    pub fn close(app: &App) {
        close_store(&app.store).expect("it closes");
    }

    /// A backup of it, restored in a file elsewhere.
    pub async fn restored(&self) -> Self {
        let (folder, clock) = (tempfile::tempdir().expect("a folder"), self.clock.clone());
        let [file, data] = ["backup", "data"].map(|name| folder.path().join(name));
        backup::take(&self.config, &file).await.expect("a backup");
        let master_key_file = Optional(Some(self.config.data.join("master.key")));
        let config = Config { data, master_key_file, ..Config::default() };
        backup::restore(&config, &file).await.expect("a restore");
        Self { clock, config, database: None, _folder: folder }
    }
}

/// Nobody who calls.
pub fn nobody() -> Actor {
    Actor::system()
}

/// An application of a merchant of its own: its ClientId.
pub async fn application(app: &App, name: &str, callback_url: Option<&str>) -> String {
    let merchant = NewMerchant {
        merchant_id: Some(name.to_owned()),
        name: name.to_owned(),
        standing: Standing::Merchant,
        user_id: None,
    };
    create_merchant(app, &merchant, &|_| None, &nobody()).await.expect("is made");
    let application = NewApplication {
        merchant_id: name.to_owned(),
        name: name.to_owned(),
        callback_url: callback_url.map(str::to_owned),
        endpoint: EndpointSettings::default(),
    };
    create_application(app, &application, &|_| None, &nobody()).await.expect("is made").application.client_id
}

/// An institution's application, and its sub-account.
pub async fn bank(app: &App) -> (ApplicationView, MerchantRow) {
    let institution = Standing::Institution { base_r: Decimal::ZERO, base_f: Amount::ZERO };
    for (id, standing) in [("bank", institution), ("shop", Standing::SubAccountOf("bank".to_owned()))] {
        let new = NewMerchant { merchant_id: Some(id.to_owned()), name: id.to_owned(), standing, user_id: None };
        create_merchant(app, &new, &|_| None, &nobody()).await.expect("is made");
    }
    let desk = NewApplication {
        merchant_id: "bank".to_owned(),
        name: "desk".to_owned(),
        callback_url: None,
        endpoint: EndpointSettings::default(),
    };
    let made = create_application(app, &desk, &|_| None, &nobody()).await.expect("is made").application;
    let shop = find_merchant(app, "shop").await.expect("is there");
    (find_application(app, &made.client_id).await.expect("is there"), shop)
}

/// What happens of it.
pub fn happening(client_id: &str) -> Happening {
    Happening {
        client_id: client_id.to_owned(),
        biz_type: "PAYMENT_ORDER".to_owned(),
        biz_id: "1".to_owned(),
        biz_status: "SUCCESS".to_owned(),
        data: "{}".to_owned(),
    }
}

/// An event of it.
pub async fn happens(app: &App, client_id: &str) -> EventRow {
    events::emit(app, &happening(client_id), &|_| None, &nobody()).await.expect("is written")
}

/// The one attempt at an event, which came to nothing long ago.
fn dies(event: &EventRow) -> Write {
    attempted(event, 1, DeliveryState::Dead)
}

/// An attempt at an event, long ago, after which it is delivered or dead.
pub fn attempted(event: &EventRow, attempt: i64, state: DeliveryState) -> Write {
    let is_delivered = state == DeliveryState::Delivered;
    let attempt = AttemptRow {
        event: event.no,
        attempt,
        at: UnixMillis(1),
        outcome: if is_delivered { Outcome::Delivered } else { Outcome::Timeout },
        http_status: None,
        duration_ms: 1,
        address: None,
        detail: String::new(),
        fence: Fence(0),
        phases: Phases::default(),
    };
    let (tenant, application) = (event.tenant, event.application);
    let bytes = Some(Arc::new(AttemptBytes { sent_head: b"POST / HTTP/1.1".to_vec(), ..AttemptBytes::default() }));
    Write::RecordAttempt { tenant, application, attempt: Arc::new(attempt), bytes, state, due_at: None }
}

/// An event whose one attempt came to nothing.
pub async fn dead(app: &App, client_id: &str) -> EventRow {
    let event = happens(app, client_id).await;
    app.store.commit(Batch(vec![dies(&event)])).await.expect("is recorded");
    event
}

/// So many of them, in few commits.
pub async fn dead_many(app: &App, client_id: &str, count: usize) {
    let receiver = events::receiver(app, client_id).await.expect("an application");
    let all: Vec<EventRow> = (0..count).map(|_| events::new_event(app, &receiver, &happening(client_id))).collect();
    for some in all.chunks(100) {
        let writes = some.iter().flat_map(|event| [Write::EnqueueEvent(Arc::new(event.clone())), dies(event)]);
        app.store.commit(Batch(writes.collect())).await.expect("are recorded");
    }
}

/// What is asked for by whoever takes a quote as it is.
pub fn terms_of(quote: Quote) -> Terms {
    let Quote { quote_id, sell_currency, buy_currency, sell_amount, buy_amount, .. } = quote;
    Terms { quote_id, sell_currency, buy_currency, sell_amount, buy_amount }
}

/// Its use of a nonce.
pub fn claim(of: &ApplicationRow, nonce: &str, at: UnixMillis) -> ClaimKey {
    ClaimKey { tenant: of.tenant, application: of.no, nonce: nonce.to_owned(), stamped_at: at }
}

/// A payment order that is asked for.
pub fn wanted(trade_no: &str) -> Wanted {
    Wanted {
        trade_no: trade_no.to_owned(),
        content: Content {
            kind: PaymentKind::Order,
            currency: currency("currency", "USDT").expect("a currency"),
            amount: amount("amount", "1", PaymentKind::Order).expect("an amount"),
            merchant_user_id: None,
            channel_id: None,
            goods_name: None,
            goods_detail: None,
        },
        terminal_type: None,
        return_url: None,
        cancel_url: None,
        expires_at: None,
        received: Arc::new(Received {
            head: "POST /v1/pay/order".to_owned(),
            body: format!(r#"{{"merchantTradeNo":"{trade_no}","currency":"USDT","orderAmount":"1"}}"#).into_bytes(),
        }),
    }
}

/// A payment order of it.
pub async fn ordered(app: &App, of: &ApplicationView, trade_no: &str) -> PaymentOrderRow {
    ordered_by(app, of, trade_no, &nobody()).await.expect("is made")
}

/// The same, asked for by somebody.
pub async fn ordered_by(
    app: &App,
    of: &ApplicationView,
    trade_no: &str,
    actor: &Actor,
) -> Result<PaymentOrderRow, AppError> {
    let claim = claim(&of.application, trade_no, app.clock.now());
    create(app, &of.merchant, &of.application, &wanted(trade_no), &claim, actor).await
}
