//! Whether a question about orders takes longer where many are stored: two deployments up at once, asked in turns. Each question is asked about
//! some orders, drawn from all of them: once about each before the rounds, which tells what a look at the disk costs, and then again and again.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use countersign::app::payment_orders;
use countersign_domain::payment_order::{PaymentStatus, PrepayId};
use countersign_domain::time::UnixMillis;
use countersign_protocol::endpoint::order_query;
use countersign_store::payment_order::PaymentOrderFilter;

use super::shop::Shop;
use crate::dice::Dice;
use crate::measure::{spread, table};
use crate::wire::wall_ms;

const ROUNDS: usize = 7;
const SLICE: Duration = Duration::from_millis(600);
/// Orders that are asked for.
const SOME: usize = 16_384;
/// Orders of a page.
const PAGE: u32 = 50;
const SEED: u64 = 20_261_122;

/// A deployment with so many orders, a second apart, of which some are looked at.
struct Filled {
    shop: Shop,
    orders: usize,
    /// Drawn from all of them, each with its place among them.
    some: Vec<(usize, PrepayId)>,
    until: UnixMillis,
}

impl Filled {
    async fn open(folder: &Path, orders: usize) -> Result<Self> {
        let shop = Shop::open(folder, None).await?;
        let until = UnixMillis(wall_ms() - 3_600_000);
        let began = Instant::now();
        let ids = shop.fill(orders, until, true).await?;
        println!("{orders} orders stored in {:.0} s", began.elapsed().as_secs_f64());
        let mut dice = Dice::new(SEED);
        let some = (0..SOME).map(|_| dice.below(orders)).map(|at| (at, ids[at])).collect();
        Ok(Self { shop, orders, some, until })
    }

    /// One of them: its place and number.
    fn one(&self, turn: usize) -> (usize, PrepayId) {
        self.some[turn % self.some.len()]
    }

    fn made_at(&self, place: usize) -> UnixMillis {
        let back = i64::try_from(self.orders - place).unwrap_or(i64::MAX / 2_000);
        UnixMillis(self.until.0 - back * 1_000)
    }

    async fn ask(&self, question: Question, turn: usize) -> Result<()> {
        let (place, id) = self.one(turn);
        match question {
            Question::Number => self.query(place, &format!(r#"{{"prepayId":"{id}"}}"#)).await,
            Question::TradeNo => self.query(place, &format!(r#"{{"merchantTradeNo":"T-{place:012}"}}"#)).await,
            Question::Newest => self.list(PaymentOrderFilter::default(), None).await,
            Question::Merchants => {
                let owner = self.shop.owner();
                self.list(
                    PaymentOrderFilter { of: Some((owner.tenant, owner.no)), ..PaymentOrderFilter::default() },
                    None,
                )
                .await
            }
            Question::Deep => self.list(PaymentOrderFilter::default(), Some(id)).await,
            Question::Window => {
                let from = self.made_at(place.min(self.orders - 200));
                let filter = PaymentOrderFilter {
                    status: Some(PaymentStatus::Paid),
                    from: Some(from),
                    to: Some(UnixMillis(from.0 + 100_000)),
                    ..PaymentOrderFilter::default()
                };
                self.list(filter, None).await
            }
            Question::Search => {
                let trade_no = Some(format!("T-{place:012}"));
                let filter = PaymentOrderFilter { trade_no, ..PaymentOrderFilter::default() };
                let (page, _) = payment_orders::list(&self.shop.app, filter, None, PAGE).await?;
                ensure!(page.orders.len() == 1, "a trade number is found once");
                Ok(())
            }
        }
    }

    async fn query(&self, place: usize, body: &str) -> Result<()> {
        self.shop.ask(place, order_query::PATH, body).await.map(drop)
    }

    async fn list(&self, filter: PaymentOrderFilter, after: Option<PrepayId>) -> Result<()> {
        // What is asked for from the oldest on may have fewer before it.
        let is_whole = after.is_none();
        let (page, _) = payment_orders::list(&self.shop.app, filter, after, PAGE).await?;
        ensure!(!is_whole || page.orders.len() == PAGE as usize, "{} orders in a page", page.orders.len());
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Question {
    Number,
    TradeNo,
    Newest,
    Merchants,
    Deep,
    Window,
    Search,
}

impl Question {
    const ALL: [Self; 7] =
        [Self::Number, Self::TradeNo, Self::Newest, Self::Merchants, Self::Deep, Self::Window, Self::Search];

    const fn name(self) -> &'static str {
        match self {
            Self::Number => "query, signed, by prepayId",
            Self::TradeNo => "query, signed, by merchantTradeNo",
            Self::Newest => "list, the newest 50",
            Self::Merchants => "list, a merchant's newest 50",
            Self::Deep => "list, 50 from anywhere on",
            Self::Window => "list, 50 paid in 100 s anywhere",
            Self::Search => "search by trade number",
        }
    }
}

/// Fills both and prints the table.
pub async fn run(few: usize, many: usize) -> Result<()> {
    ensure!(200 <= few && few <= many, "usage: measure flat FEW MANY, at least 200 and not more than many");
    let folder = tempfile::tempdir()?;
    let few = Filled::open(&folder.path().join("few"), few).await?;
    let many = Filled::open(&folder.path().join("many"), many).await?;
    let mut rows = Vec::new();
    let mut turns = [0, 0];
    for question in Question::ALL {
        let (mut of_few, mut of_many, mut ratios) = (vec![], vec![], vec![]);
        first_us(async |turn| few.ask(question, turn).await).await?;
        let first = first_us(async |turn| many.ask(question, turn).await).await?;
        for _ in 0..ROUNDS {
            let a = p50_us(&mut turns[0], async |turn| few.ask(question, turn).await).await?;
            let b = p50_us(&mut turns[1], async |turn| many.ask(question, turn).await).await?;
            of_few.push(a);
            of_many.push(b);
            ratios.push(b / a);
        }
        rows.push(vec![
            question.name().to_owned(),
            format!("{:.1}", spread(&of_few).median),
            format!("{:.1}", spread(&of_many).median),
            spread(&ratios).to_string(),
            format!("{first:.1}"),
        ]);
    }
    println!("\nQuestions about payment orders on SQLite, one caller, in process, {ROUNDS} interleaved rounds\n");
    let (few, many) = (format!("{} orders, p50 us", few.orders), format!("{} orders, p50 us", many.orders));
    println!("{}", table(&["", &few, &many, "ratio, median [quartiles]", "many, first time, p50 us"], &rows));
    Ok(())
}

/// The median of asking about each once.
async fn first_us(ask: impl AsyncFn(usize) -> Result<()>) -> Result<f64> {
    let mut latencies = Vec::with_capacity(SOME);
    for turn in 0..SOME {
        let asked = Instant::now();
        ask(turn).await?;
        latencies.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    median(latencies)
}

/// One caller's median over a slice, in microseconds. `turn` goes on from round to round, so that each asks for other orders.
async fn p50_us(turn: &mut usize, ask: impl AsyncFn(usize) -> Result<()>) -> Result<f64> {
    let (began, mut latencies) = (Instant::now(), Vec::new());
    while began.elapsed() < SLICE {
        let asked = Instant::now();
        ask(*turn).await?;
        latencies.push(asked.elapsed().as_secs_f64() * 1e6);
        *turn += 1;
    }
    median(latencies)
}

fn median(mut latencies: Vec<f64>) -> Result<f64> {
    latencies.sort_by(f64::total_cmp);
    latencies.get(latencies.len() / 2).copied().context("something was asked")
}
