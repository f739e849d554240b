//! A deployment whose sub-accounts take payment orders: through the merchant listener's own answers, and in bulk.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use countersign::app::identity::{
    NewApplication, NewMerchant, Standing, create_application, create_merchant, find_merchant,
};
use countersign::app::rules::{Making, RuleChange, change};
use countersign::app::{Actor, App, payment_orders};
use countersign::clock::Clock;
use countersign::config::Config;
use countersign::log::LogSink;
use countersign::merchant::Edge;
use countersign::run;
use countersign_domain::fees::{MarkupUnit, fix};
use countersign_domain::money::{Amount, Currency};
use countersign_domain::payment_order::{
    Content, LIFE_MS_DEFAULT, PaymentKind, PaymentOrder, PaymentStatus, PrepayId, Step,
};
use countersign_domain::rules::{Markup, RuleAsk};
use countersign_domain::time::UnixMillis;
use countersign_protocol::endpoint::order_create;
use countersign_protocol::signing::SigningKey;
use countersign_store::contract::{ApplicationRow, ClaimKey, EndpointSettings, MerchantRow};
use countersign_store::payment_order::{PaymentMoveRow, PaymentOrderRow, PaymentOrderWrite, Received};
use countersign_store::{AnyStore, Batch, Store as _, Write};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use rust_decimal::Decimal;
use tokio::task::JoinSet;

use crate::measure::pace::{Pace, closed_loop};
use crate::wire::{Draft, Signer, fresh_nonce, wall_ms};

/// Orders in a batch of [`Shop::fill`].
const AT_ONCE: usize = 500;
/// Longer than any run.
const LONG_MS: i64 = 30 * 24 * 3_600_000;
/// Of so many orders that are filled in, all but one are paid.
const ONE_UNPAID_OF: usize = 4;

fn actor() -> Actor {
    Actor { name: "token:tok_measure".to_owned(), source: String::new(), request_id: "measure".to_owned(), right: None }
}

#[derive(Debug)]
struct Till {
    owner: MerchantRow,
    application: ApplicationRow,
    signer: Signer,
}

/// A deployment without sockets.
#[derive(Clone, Debug)]
pub(super) struct Shop {
    pub(super) app: Arc<App>,
    edge: Arc<Edge>,
    tills: Arc<Vec<Till>>,
    made: Arc<AtomicUsize>,
}

impl Shop {
    /// A new one. `tills`: its sub-accounts, each with an application and a rule; `group_max`: how many batches the writer takes at once.
    pub(super) async fn open(folder: &Path, tills: usize, group_max: Option<usize>) -> Result<Self> {
        run::initialise(&Config { data: folder.to_owned(), ..Config::default() }).await?;
        Self::over(folder, tills, group_max).await
    }

    /// One in a data folder that is there, without merchants.
    pub(super) async fn over(folder: &Path, tills: usize, group_max: Option<usize>) -> Result<Self> {
        let config = Config { data: folder.to_owned(), rate_limit_per_s: 0, ..Config::default() };
        let app = Arc::new(run::open_app(&config, Clock::System, group_max).await?);
        let (log, _) = LogSink::start(std::io::sink())?;
        let edge = Arc::new(run::open_edge(&config, app.clone(), log)?);
        let base = Standing::Institution { base_r: Decimal::ZERO, base_f: Amount::ZERO };
        let bank = merchant(&app, "bank", base).await?;
        let mut of_bank = Vec::new();
        for n in 0..tills {
            of_bank.push(till(&app, &bank, &format!("bank-{n}")).await?);
        }
        Ok(Self { app, edge, tills: Arc::new(of_bank), made: Arc::default() })
    }

    fn next(&self) -> (usize, &Till) {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        (n, &self.tills[n % self.tills.len()])
    }

    /// Its merchants: order `n` is of merchant `n` modulo their number.
    pub(super) fn signers(&self) -> Vec<Signer> {
        self.tills.iter().map(|till| till.signer.clone()).collect()
    }

    /// Ends it, so that a server may have the folder.
    pub(super) fn close(self) -> Result<()> {
        let AnyStore::Sqlite(store) = &self.app.store else { bail!("the shop is on SQLite") };
        Ok(store.close()?)
    }

    /// Sends a signed request of one of the merchants: the body of its answer, which must be a success.
    pub(super) async fn ask(&self, till: usize, path: &str, body: &str) -> Result<Bytes> {
        let signer = &self.tills[till % self.tills.len()].signer;
        let Draft { method, target, headers, body } =
            signer.draft_at("POST", path, body.as_bytes(), wall_ms(), &fresh_nonce());
        let mut request = hyper::Request::builder().method(method.as_str()).uri(target).header("host", "localhost");
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let answer = self.edge.serve(request, IpAddr::V4(Ipv4Addr::LOCALHOST)).await;
        let status = answer.status();
        let bytes = answer.into_body().collect().await?.to_bytes();
        ensure!(status == 200, "{path}: {status} {}", String::from_utf8_lossy(&bytes));
        Ok(bytes)
    }

    /// Callers that make orders.
    pub(super) async fn make(&self, callers: usize, slice: Duration) -> Result<Pace> {
        let shop = self.clone();
        closed_loop(callers, slice, move |_, _| {
            let shop = shop.clone();
            async move {
                let (n, _) = shop.next();
                let body = format!(r#"{{"merchantTradeNo":"T-{n:012}","currency":"USDT","orderAmount":"12.5"}}"#);
                shop.ask(n, order_create::PATH, &body).await.map(drop)
            }
        })
        .await
    }

    /// Callers that move orders to PAID, of which `orders` are made before.
    pub(super) async fn pay(&self, callers: usize, orders: usize, slice: Duration) -> Result<Pace> {
        let pending = Arc::new(self.fill(orders, UnixMillis(wall_ms()), false).await?);
        // Else the system writes what the fill left while the moves wait for the same disk.
        let synced = Command::new("sync").status()?;
        ensure!(synced.success(), "sync ended with {synced}");
        let next = Arc::new(AtomicUsize::new(0));
        let app = self.app.clone();
        closed_loop(callers, slice, move |_, _| {
            let (app, pending, next) = (app.clone(), pending.clone(), next.clone());
            async move {
                let id = *pending.get(next.fetch_add(1, Ordering::Relaxed)).context("there are orders to move")?;
                let step = Step { to: PaymentStatus::Paid, actual_amount: None, transact_at: None };
                payment_orders::advance(&app, id, step, &|_| None, &actor()).await?;
                Ok(())
            }
        })
        .await
    }

    /// Adds orders straight to the store, the last of them made at `until`, a second apart where they have been moved and else at once: their numbers.
    pub(super) async fn fill(&self, orders: usize, until: UnixMillis, paid: bool) -> Result<Vec<PrepayId>> {
        let (mut under_way, mut ids) = (JoinSet::new(), Vec::with_capacity(orders));
        let mut at = 0;
        while at < orders || !under_way.is_empty() {
            while at < orders && under_way.len() < 4 {
                // A batch is of one tenant, as all of these are.
                let mut writes = Vec::with_capacity(2 * AT_ONCE);
                for n in at..orders.min(at + AT_ONCE) {
                    let back = if paid { i64::try_from(orders - n)? * 1_000 } else { 0 };
                    let mut row = self.row(UnixMillis(until.0 - back))?;
                    if paid {
                        // Else a server has work of its own with those that were not paid in time.
                        row.order.expires_at = UnixMillis(until.0 + LONG_MS);
                    }
                    ids.push(row.order.prepay_id);
                    if paid && n % ONE_UNPAID_OF != 0 {
                        writes.push(Write::PaymentOrder(Box::new(moved(&row)?)));
                    }
                    writes.push(Write::PaymentOrder(Box::new(PaymentOrderWrite::Insert {
                        row,
                        received: Arc::new(received()),
                    })));
                }
                // The making stands before the move.
                writes.reverse();
                at += AT_ONCE;
                let app = self.app.clone();
                under_way.spawn(async move { app.store.commit(Batch(writes)).await.map(drop) });
            }
            if let Some(done) = under_way.join_next().await {
                done??;
            }
        }
        Ok(ids)
    }

    fn row(&self, at: UnixMillis) -> Result<PaymentOrderRow> {
        let (n, Till { owner, application, .. }) = self.next();
        let content = Content {
            kind: PaymentKind::Order,
            currency: Currency::parse("USDT").context("a currency")?,
            amount: Amount::from_micros(12_500_000),
            merchant_user_id: None,
            channel_id: None,
            goods_name: None,
            goods_detail: None,
        };
        let number = countersign_domain::ids::time_ordered(at, u64::try_from(n)?);
        let order = PaymentOrder {
            prepay_id: PrepayId::new(number, u64::try_from(n)?),
            trade_no: format!("T-{n:012}"),
            content,
            terminal_type: None,
            return_url: None,
            cancel_url: None,
            status: PaymentStatus::Pending,
            created_at: at,
            expires_at: UnixMillis(at.0 + LIFE_MS_DEFAULT),
            actual_amount: None,
            transact_at: None,
            paid_at: None,
            fee: None,
            revision: 1,
        };
        Ok(PaymentOrderRow {
            tenant: owner.tenant,
            merchant: owner.no,
            application: application.no,
            client_id: application.client_id.clone(),
            actor: "application:measure".to_owned(),
            request_id: "measure".to_owned(),
            order,
        })
    }
}

/// As [`Shop::make`] leaves it, about.
fn received() -> Received {
    let header = |n: usize| format!("X-Service-Header-{n}: {}\n", "7".repeat(60));
    Received { head: (0..6).map(header).collect(), body: vec![b' '; 80] }
}

/// The same order, paid a minute later.
fn moved(row: &PaymentOrderRow) -> Result<PaymentOrderWrite> {
    let mut row = row.clone();
    let order = &mut row.order;
    let at = UnixMillis(order.created_at.0 + 60_000);
    order.status = PaymentStatus::Paid;
    order.revision = 2;
    order.paid_at = Some(at);
    order.transact_at = Some(at);
    order.actual_amount = Some(order.content.amount);
    order.fee = Some(fix(order.content.amount, &order.content.currency, None, MarkupUnit::Percent)?);
    let entry = PaymentMoveRow {
        revision: 2,
        was: PaymentStatus::Pending,
        status: PaymentStatus::Paid,
        at,
        actor: "token:tok_measure".to_owned(),
        request_id: "measure".to_owned(),
    };
    Ok(PaymentOrderWrite::Move { row, entry })
}

async fn merchant(app: &App, id: &str, standing: Standing) -> Result<MerchantRow> {
    let ask = NewMerchant { merchant_id: Some(id.to_owned()), name: id.to_owned(), standing, user_id: None };
    Ok(create_merchant(app, &ask, &|_| None, &actor()).await?)
}

async fn till(app: &App, bank: &MerchantRow, id: &str) -> Result<Till> {
    merchant(app, id, Standing::SubAccountOf("bank".to_owned())).await?;
    let owner = find_merchant(app, id).await?;
    let ask = NewApplication {
        merchant_id: id.to_owned(),
        name: id.to_owned(),
        callback_url: Some("https://shop.example/callback".to_owned()),
        endpoint: EndpointSettings::default(),
    };
    let made = create_application(app, &ask, &|_| None, &actor()).await?;
    let signer = Signer {
        client_id: made.application.client_id.clone(),
        key: SigningKey::new(made.plain.expose().as_bytes()),
        merchant_id: Some(id.to_owned()),
    };
    let now = app.clock.now();
    let rule = RuleChange {
        making: Making::Create,
        sub_merchant_id: id.to_owned(),
        ask: RuleAsk {
            markup: Markup::new(Decimal::new(3, 1), Decimal::ONE).context("a markup in range")?,
            effective_at: now,
            due_at: None,
        },
    };
    let claim =
        ClaimKey { tenant: bank.tenant, application: made.application.no, nonce: fresh_nonce(), stamped_at: now };
    app.store.reserve(&claim).await?;
    change(app, bank, &rule, &claim, &actor()).await?;
    Ok(Till { owner, application: made.application, signer })
}
