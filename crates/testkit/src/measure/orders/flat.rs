//! Whether a question about orders takes longer where many are stored: two servers up at once, asked over the wire and in turns. Each question is
//! asked about some orders, drawn from all of them: once about each before the rounds, which tells what a look at the disk costs, and then again
//! and again.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use countersign_domain::payment_order::PrepayId;
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_protocol::endpoint::order_query;

use super::shop::Shop;
use crate::dice::Dice;
use crate::measure::{cpu_ns, spread, table};
use crate::process::{Deployment, Server};
use crate::wire::{Connection, Draft, Signer, wall_ms};

const ROUNDS: usize = 7;
const SLICE: Duration = Duration::from_millis(600);
/// Orders that are asked for: few enough that each is asked about again before a system that keeps pages of files for half a minute gives them back.
const SOME: usize = 2_048;
/// Sub-accounts.
const TILLS: usize = 64;
/// Orders of a page, as it is by default.
const PAGE: usize = 50;
const SEED: u64 = 20_261_122;

/// A server with so many orders, a second apart, of which some are looked at.
struct Filled {
    server: Server,
    /// Made anew now and then: one that nobody uses for half a minute is closed.
    connection: Connection,
    signers: Vec<Signer>,
    orders: usize,
    /// Drawn from all of them, each with its place among them.
    some: Vec<(usize, PrepayId)>,
    until: UnixMillis,
    turn: usize,
}

/// What a slice has shown, in microseconds.
struct Shown {
    p50: f64,
    cpu: f64,
}

impl Filled {
    async fn open(folder: &Path, orders: usize) -> Result<Self> {
        let deployment = Deployment::init(folder)?;
        let shop = Shop::over(folder, TILLS, None).await?;
        let until = UnixMillis(wall_ms() - 3_600_000);
        let began = Instant::now();
        let ids = shop.fill(orders, until, true).await?;
        println!("{orders} orders stored in {:.0} s", began.elapsed().as_secs_f64());
        let signers = shop.signers();
        shop.close()?;
        let mut dice = Dice::new(SEED);
        let some = (0..SOME).map(|_| dice.below(orders)).map(|at| (at, ids[at])).collect();
        let server = deployment.serve()?;
        let connection = Connection::open(server.listen).await?;
        Ok(Self { server, connection, signers, orders, some, until, turn: 0 })
    }

    fn made_at(&self, place: usize) -> UnixMillis {
        let back = i64::try_from(self.orders - place).unwrap_or(i64::MAX / 2_000);
        UnixMillis(self.until.0 - back * 1_000)
    }

    fn draft(&self, question: Question) -> Draft {
        let (place, id) = self.some[self.turn % self.some.len()];
        let signer = &self.signers[place % self.signers.len()];
        let signed = |body: String| signer.draft("POST", order_query::PATH, body.as_bytes());
        let list =
            |filter: &str| self.server.access.draft("GET", &format!("/operator/v1/payment-orders{filter}"), None);
        match question {
            Question::Number => signed(format!(r#"{{"prepayId":"{id}"}}"#)),
            Question::TradeNo => signed(format!(r#"{{"merchantTradeNo":"T-{place:012}"}}"#)),
            Question::Newest => list(""),
            Question::Merchants => list("?merchant_id=bank-0"),
            Question::Deep => list(&format!("?after={id}")),
            Question::Window => {
                let from = self.made_at(place.min(self.orders - 200));
                let [from, to] = [from, from.plus_ms(100_000)].map(rfc3339);
                list(&format!("?state=PAID&from={from}&to={to}"))
            }
            Question::Search => list(&format!("?merchantTradeNo=T-{place:012}")),
        }
    }

    /// Asks about the next order: how long it took, in microseconds.
    async fn ask(&mut self, question: Question) -> Result<f64> {
        let request = self.draft(question).bytes();
        self.turn += 1;
        let began = Instant::now();
        let answer = self.connection.send(&request).await?;
        let took = began.elapsed().as_secs_f64() * 1e6;
        ensure!(answer.status == 200, "{question:?} was answered {}: {}", answer.status, answer.json());
        if let Some(wanted) = question.rows() {
            let items = answer.json()["items"].as_array().map_or(0, Vec::len);
            ensure!(items == wanted, "{question:?} found {items} orders instead of {wanted}");
        }
        Ok(took)
    }

    async fn connect(&mut self, question: Question) -> Result<()> {
        let address = if question.is_merchants() { self.server.listen } else { self.server.access.address };
        self.connection = Connection::open(address).await?;
        Ok(())
    }

    /// The median of asking about each once.
    async fn first(&mut self, question: Question) -> Result<f64> {
        self.connect(question).await?;
        let mut latencies = Vec::with_capacity(SOME);
        for _ in 0..SOME {
            latencies.push(self.ask(question).await?);
        }
        median(latencies)
    }

    /// One caller's slice. It goes on where the one before ended, so that each asks for other orders.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 ns")]
    async fn slice(&mut self, question: Question) -> Result<Shown> {
        let (began, before, mut latencies) = (Instant::now(), cpu_ns(self.server.pid()), Vec::new());
        while began.elapsed() < SLICE {
            latencies.push(self.ask(question).await?);
        }
        let cpu = (cpu_ns(self.server.pid()) - before) as f64 / 1e3 / latencies.len() as f64;
        Ok(Shown { p50: median(latencies)?, cpu })
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

    const fn is_merchants(self) -> bool {
        matches!(self, Self::Number | Self::TradeNo)
    }

    /// Orders that an answer must hold. From the oldest on there may be fewer before it.
    const fn rows(self) -> Option<usize> {
        match self {
            Self::Number | Self::TradeNo | Self::Deep => None,
            Self::Newest | Self::Merchants | Self::Window => Some(PAGE),
            Self::Search => Some(1),
        }
    }
}

/// Fills both and prints the table.
pub async fn run(few: usize, many: usize) -> Result<()> {
    ensure!(4_000 <= few && few <= many, "usage: measure flat FEW MANY, at least 4000 and not more than many");
    let folder = tempfile::tempdir()?;
    let mut few = Filled::open(&folder.path().join("few"), few).await?;
    let mut many = Filled::open(&folder.path().join("many"), many).await?;
    let mut rows = Vec::new();
    for question in Question::ALL {
        few.first(question).await?;
        let first = many.first(question).await?;
        few.connect(question).await?;
        let mut shown = Vec::new();
        for _ in 0..ROUNDS {
            shown.push((few.slice(question).await?, many.slice(question).await?));
        }
        let of = |figure: &dyn Fn(&(Shown, Shown)) -> f64| spread(&shown.iter().map(figure).collect::<Vec<_>>());
        rows.push(vec![
            question.name().to_owned(),
            format!("{:.1}", of(&|(few, _)| few.p50).median),
            format!("{:.1}", of(&|(_, many)| many.p50).median),
            of(&|(few, many)| many.p50 / few.p50).to_string(),
            format!("{first:.1}"),
            format!("{:.1} / {:.1}", of(&|(few, _)| few.cpu).median, of(&|(_, many)| many.cpu).median),
        ]);
    }
    println!("\nQuestions about payment orders on SQLite, one caller over a connection, {ROUNDS} interleaved rounds\n");
    let (few, many) = (format!("{} orders, p50 us", few.orders), format!("{} orders, p50 us", many.orders));
    let head = ["", &few, &many, "ratio, median [quartiles]", "many, first time, p50 us", "CPU us, few / many"];
    println!("{}", table(&head, &rows));
    Ok(())
}

fn median(mut latencies: Vec<f64>) -> Result<f64> {
    latencies.sort_by(f64::total_cmp);
    latencies.get(latencies.len() / 2).copied().context("something was asked")
}
