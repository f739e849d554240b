//! Random histories of conversions, through the use cases on each store, against an oracle: quotes, requests, orders and their moves.
//!
//! Each history is one merchant's. The oracle is naive on purpose: it keeps what was promised and made in lists, and goes through them for
//! each question. What a price comes to is not its business; that it is kept is.

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use countersign::app::conversion::{self, Conversion, PriceAsk};
use countersign::app::error::AppError;
use countersign::app::rates::{self, Wanted};
use countersign::app::{Actor, App, convert_orders};
use countersign_domain::conversion::{Given, Limits, Pair, QuoteRefused, Terms};
use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::ids::{ApplicationNo, MerchantNo, OrderId, TenantNo};
use countersign_domain::money::{Amount, Currency};
use countersign_domain::time::UnixMillis;
use countersign_store::Store as _;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{ClaimKey, Claimed, MerchantKind, MerchantRow};
use countersign_store::testing::rows;
use rust_decimal::Decimal;
use tokio::task::JoinSet;

use crate::backing::StoreKind;
use crate::dice::Dice;
use crate::in_process::{Ending, InProcess};

const STEPS: usize = 10;
const QUESTIONS_MAX: usize = 4;
/// Names of requests that a merchant uses.
const NAMES: usize = 5;
/// How long a quote is good, and how old a rate may be, where nothing else is set.
const QUOTE_LIFE_MS: i64 = 30_000;
const RATE_AGE_MS: i64 = 60_000;
const BEGIN: i64 = 1_767_312_000_417;

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Merchants.
    pub histories: usize,
    /// Quotes.
    pub quotes: usize,
    /// Prices that were refused for want of a young rate.
    pub no_rate: usize,
    /// Orders made.
    pub orders: usize,
    /// Requests that were answered with the order they had made.
    pub repeats: usize,
    /// DUPLICATE_TRADE_NO.
    pub other_content: usize,
    /// QUOTE_EXPIRED.
    pub expired: usize,
    /// Quotes asked for on other terms.
    pub other_terms: usize,
    /// Moves.
    pub moves: usize,
    /// INVALID_ORDER_STATUS.
    pub illegal_moves: usize,
    /// Orders that were not found.
    pub strangers: usize,
    /// Orders whose every state was compared.
    pub compared: usize,
    /// Times that a store went down and came back.
    pub restarts: usize,
}

impl Counts {
    fn add(&mut self, o: &Self) {
        let pairs: [(&mut usize, usize); 13] = [
            (&mut self.histories, o.histories),
            (&mut self.quotes, o.quotes),
            (&mut self.no_rate, o.no_rate),
            (&mut self.orders, o.orders),
            (&mut self.repeats, o.repeats),
            (&mut self.other_content, o.other_content),
            (&mut self.expired, o.expired),
            (&mut self.other_terms, o.other_terms),
            (&mut self.moves, o.moves),
            (&mut self.illegal_moves, o.illegal_moves),
            (&mut self.strangers, o.strangers),
            (&mut self.compared, o.compared),
            (&mut self.restarts, o.restarts),
        ];
        for (ours, theirs) in pairs {
            *ours += theirs;
        }
    }
}

/// A quote as it was promised.
#[derive(Clone, Debug)]
struct Promised {
    terms: Terms,
    until: i64,
    is_used: bool,
}

/// An order as it must be: what it was asked to be, its name, and every state with its instant.
#[derive(Clone, Debug)]
struct Made {
    id: OrderId,
    name: String,
    terms: Terms,
    states: Vec<(i64, i64)>,
}

#[derive(Debug)]
struct History {
    owner: MerchantRow,
    quotes: Vec<Promised>,
    orders: Vec<Made>,
    counts: Counts,
    story: String,
    claims: u64,
    dice: Dice,
}

fn actor() -> Actor {
    Actor::named("application:history")
}

fn pair() -> Pair {
    Pair::parse("GT_USDT").expect("a pair")
}

impl History {
    async fn step(&mut self, app: &App, rate_at: Option<i64>) -> Result<()> {
        for _ in 0..=self.dice.below(QUESTIONS_MAX) {
            let clock = app.clock.now().0;
            let held = match self.dice.below(100) {
                0..30 => self.preview(app, clock, rate_at).await,
                30..65 => self.convert(app, clock).await,
                65..90 => self.move_one(app, clock).await,
                _ => self.compare_all(app).await,
            };
            held.with_context(|| format!("merchant {} was asked:\n{}", self.owner.merchant_id, self.story))?;
        }
        Ok(())
    }

    async fn preview(&mut self, app: &App, clock: i64, rate_at: Option<i64>) -> Result<()> {
        let (sell, buy) = if self.dice.once_in(2) { ("GT", "USDT") } else { ("USDT", "GT") };
        let amount = Amount::from_micros(self.dice.between(1_000_000, 9_000_000));
        let given = if self.dice.once_in(2) { Given::Sell(amount) } else { Given::Buy(amount) };
        let _ = writeln!(self.story, "at {clock}: a price, {sell} for {buy}, {given:?}");
        let code = |text| Currency::parse(text).context("a code");
        let ask = PriceAsk { sell: code(sell)?, buy: code(buy)?, given };
        let claim = self.fresh_claim(app).await?;
        let answer = conversion::preview(app, &self.owner, &ask, &claim).await;
        match (answer, rate_at.is_some_and(|at| clock - at < RATE_AGE_MS)) {
            (Ok(quote), true) => {
                ensure!(quote.expires_at.0 == clock + QUOTE_LIFE_MS, "good until {}", quote.expires_at.0);
                let (sold, bought) = (quote.sell_amount, quote.buy_amount);
                ensure!(if matches!(given, Given::Sell(_)) { sold } else { bought } == amount, "{quote:?}");
                let (sell_currency, buy_currency, quote_id) = (ask.sell, ask.buy, quote.quote_id);
                let terms = Terms { quote_id, sell_currency, buy_currency, sell_amount: sold, buy_amount: bought };
                self.quotes.push(Promised { terms, until: quote.expires_at.0, is_used: false });
                self.counts.quotes += 1;
            }
            (Err(AppError::NoRate), false) => {
                app.store.release(&claim);
                self.counts.no_rate += 1;
            }
            (answer, fresh) => bail!("answered {answer:?}, and the rate is fresh: {fresh}"),
        }
        Ok(())
    }

    /// A request with one of few names, for a quote that was promised, perhaps spoiled, or for none.
    async fn convert(&mut self, app: &App, clock: i64) -> Result<()> {
        let known: Vec<Terms> = self.quotes.iter().rev().take(4).map(|quote| quote.terms.clone()).collect();
        let earlier: Vec<(String, Terms)> = self.orders.iter().map(|o| (o.name.clone(), o.terms.clone())).collect();
        let name = format!("{}-{}", self.owner.no.0, self.dice.below(NAMES));
        let (name, mut terms) = match (self.dice.one_of(&earlier).cloned(), self.dice.one_of(&known).cloned()) {
            (Some(before), _) if self.dice.once_in(3) => before,
            (_, Some(terms)) => (name, terms),
            (_, None) => (name, nothing_promised()?),
        };
        match self.dice.below(12) {
            0 => "PAY-none".clone_into(&mut terms.quote_id),
            1 => terms.sell_amount = Amount::from_micros(terms.sell_amount.micros() + 1),
            2 => std::mem::swap(&mut terms.sell_currency, &mut terms.buy_currency),
            _ => {}
        }
        let _ = writeln!(self.story, "at {clock}: {name} for {terms:?}");
        let claim = self.fresh_claim(app).await?;
        let client_req_id = name.clone();
        let asked = Conversion { client_req_id, terms: terms.clone() };
        let answer = conversion::convert(app, &self.owner, &asked, &claim, &actor()).await;
        self.judge(name, terms, clock, &answer)?;
        if answer.is_err() {
            let settled = app.store.settle(claim).await?;
            ensure!(settled == Claimed::Fresh, "the nonce of a refusal is {settled:?} when it is settled");
        }
        Ok(())
    }

    /// What the contract says of the answer.
    fn judge(&mut self, name: String, terms: Terms, clock: i64, answer: &Result<ConvertOrder, AppError>) -> Result<()> {
        if let Some(before) = self.orders.iter().find(|order| order.name == name) {
            match answer {
                Ok(order) if before.terms == terms => {
                    same(order, before)?;
                    self.counts.repeats += 1;
                }
                Err(AppError::DuplicateTradeNo { .. }) if before.terms != terms => self.counts.other_content += 1,
                other => bail!("the name stands for {before:?}, and the answer is {other:?}"),
            }
            return Ok(());
        }
        let quote = self.quotes.iter_mut().find(|quote| quote.terms.quote_id == terms.quote_id);
        let good = quote.filter(|quote| !quote.is_used && clock < quote.until);
        match (good, answer) {
            (None, Err(AppError::Quote(QuoteRefused::Expired))) => self.counts.expired += 1,
            (Some(quote), Err(AppError::Quote(QuoteRefused::Currencies | QuoteRefused::Amounts)))
                if quote.terms != terms =>
            {
                self.counts.other_terms += 1;
            }
            (Some(quote), Ok(order)) if quote.terms == terms => {
                quote.is_used = true;
                let made = Made { id: order.order_id, name, terms, states: vec![(1, clock)] };
                same(order, &made)?;
                self.orders.push(made);
                self.counts.orders += 1;
            }
            (good, answer) => bail!("the quote is {good:?}, and the answer is {answer:?}"),
        }
        Ok(())
    }

    async fn move_one(&mut self, app: &App, clock: i64) -> Result<()> {
        let next = [ConvertStatus::Created, ConvertStatus::Success, ConvertStatus::Failed][self.dice.below(3)];
        let at = self.dice.below(self.orders.len() + 1);
        let _ = writeln!(self.story, "at {clock}: order {at} to {next:?}");
        let Some(order) = self.orders.get_mut(at) else {
            let nobodys = OrderId::new(999_999_999_999_999_999).context("in range")?;
            let answer = convert_orders::advance(app, nobodys, next, |_, _| None, &actor()).await;
            ensure!(matches!(answer, Err(AppError::OrderNotFound)), "nobody's order was moved: {answer:?}");
            self.counts.strangers += 1;
            return Ok(());
        };
        let answer = convert_orders::advance(app, order.id, next, |_, _| None, &actor()).await;
        let stands = order.states.last().map_or(0, |(status, _)| *status);
        match answer {
            Ok((owner, moved)) if stands == 1 && next != ConvertStatus::Created => {
                order.states.push((next.code(), clock));
                ensure!(owner.no == self.owner.no, "it is {}'s", owner.merchant_id);
                same(&moved, order)?;
                self.counts.moves += 1;
            }
            Err(AppError::InvalidOrderStatus(_)) if stands != 1 || next == ConvertStatus::Created => {
                self.counts.illegal_moves += 1;
            }
            other => bail!("from {stands} to {next:?}: {other:?}"),
        }
        Ok(())
    }

    /// Every order as its merchant sees it, and its whole history; and that another merchant does not see it.
    async fn compare_all(&mut self, app: &App) -> Result<()> {
        for made in &self.orders {
            same(&convert_orders::query(app, &self.owner, made.id).await?, made)?;
            let (_, _, moves) = convert_orders::history(app, made.id).await?;
            let states: Vec<(i64, i64)> = moves.iter().map(|came_to| (came_to.status.code(), came_to.at.0)).collect();
            ensure!(states == made.states, "{made:?} has the history {states:?}");
            let other = MerchantRow { no: MerchantNo(1), tenant: TenantNo(1), ..self.owner.clone() };
            let shown = convert_orders::query(app, &other, made.id).await;
            ensure!(matches!(shown, Err(AppError::OrderNotFound)), "a stranger was shown {shown:?}");
            self.counts.compared += 1;
        }
        Ok(())
    }

    async fn fresh_claim(&mut self, app: &App) -> Result<ClaimKey> {
        self.claims += 1;
        let (tenant, application) = (self.owner.tenant, ApplicationNo(1));
        let nonce = format!("c{}.{}", self.owner.no.0, self.claims);
        let claim = ClaimKey { tenant, application, nonce, stamped_at: app.clock.now() };
        let known = app.store.reserve(&claim).await?;
        ensure!(known == Claimed::Fresh, "a nonce that was never used is {known:?}");
        Ok(claim)
    }
}

fn nothing_promised() -> Result<Terms> {
    let code = |text| Currency::parse(text).context("a code");
    let amount = Amount::from_micros(1_000_000);
    let (sell_currency, buy_currency) = (code("GT")?, code("USDT")?);
    Ok(Terms { quote_id: "PAY-none".to_owned(), sell_currency, buy_currency, sell_amount: amount, buy_amount: amount })
}

fn same(order: &ConvertOrder, made: &Made) -> Result<()> {
    let (first, last) = (made.states.first().context("it began")?, made.states.last().context("it stands")?);
    let terms = Terms {
        quote_id: order.quote_id.clone(),
        sell_currency: order.sell_currency.clone(),
        buy_currency: order.buy_currency.clone(),
        sell_amount: order.sell_amount,
        buy_amount: order.buy_amount,
    };
    ensure!(order.order_id == made.id && terms == made.terms, "{order:?} is not {made:?}");
    ensure!((order.status.code(), order.created_at.0) == (last.0, first.1), "{order:?} does not stand as {made:?}");
    Ok(())
}

/// How many histories a world of this kind has.
const fn histories_of(kind: StoreKind) -> usize {
    match kind {
        StoreKind::Model => 8,
        StoreKind::Sqlite | StoreKind::Postgres => 256,
    }
}

/// Plays at least so many histories on a store of one kind. An error names the merchant and all that it was asked.
pub async fn run(kind: StoreKind, histories: usize, seed: u64) -> Result<Counts> {
    let mut dice = Dice::new(seed);
    let mut counts = Counts::default();
    for _ in 0..histories.div_ceil(histories_of(kind)) {
        let seed = dice.bits();
        let played = Box::pin(play(kind, seed)).await;
        counts.add(&played.with_context(|| format!("conversions on {}, world of seed {seed}", kind.name()))?);
    }
    Ok(counts)
}

async fn play(kind: StoreKind, seed: u64) -> Result<Counts> {
    let mut dice = Dice::new(seed);
    let mut process = InProcess::start(kind, UnixMillis(BEGIN)).await?;
    let mut counts = Counts::default();
    let mut histories = provision(process.app(), histories_of(kind), &mut dice).await?;
    let mut rate_at = None;
    for _ in 0..STEPS {
        let moved = [0, 1, 999, 5_000, QUOTE_LIFE_MS - 1, QUOTE_LIFE_MS, 40_000, RATE_AGE_MS][dice.below(8)];
        if process.lasts() && dice.once_in(6) {
            let ending = if dice.once_in(2) { Ending::Closed } else { Ending::Dropped };
            process = process.restart(ending, moved).await?;
            counts.restarts += 1;
        } else {
            process.clock().advance_ms(moved);
        }
        if dice.once_in(2) {
            rate_at = Some(put_rate(process.app(), &mut dice).await?);
        }
        histories = step(process.app(), histories, rate_at).await?;
    }
    for history in &mut histories {
        let held = history.compare_all(process.app()).await;
        held.with_context(|| format!("merchant {} was asked:\n{}", history.owner.merchant_id, history.story))?;
        counts.add(&history.counts);
    }
    Ok(counts)
}

async fn put_rate(app: &App, dice: &mut Dice) -> Result<i64> {
    let rate = Decimal::new(dice.between(1_000_000, 90_000_000), 6);
    let wanted = Wanted { pair: pair(), rate, limits: Limits::default() };
    Ok(rates::put(app, &wanted, &|_| None, &Actor::system()).await?.updated_at.0)
}

async fn provision(app: &Arc<App>, merchants: usize, dice: &mut Dice) -> Result<Vec<History>> {
    let mut histories = Vec::new();
    for no in 2..2 + i64::try_from(merchants)? {
        let owner = rows::merchant(MerchantNo(no), &format!("shop-{no}"), TenantNo(no), MerchantKind::Merchant);
        let owner = MerchantRow { created_at: UnixMillis(BEGIN), ..owner };
        app.store.commit(Batch(vec![Write::InsertMerchant(Box::new(owner.clone()))])).await?;
        let counts = Counts { histories: 1, ..Counts::default() };
        let (quotes, orders, story, claims) = (Vec::new(), Vec::new(), String::new(), 0);
        histories.push(History { owner, quotes, orders, counts, story, claims, dice: dice.fork() });
    }
    Ok(histories)
}

/// Every merchant asks something at the same instant.
async fn step(app: &Arc<App>, histories: Vec<History>, rate_at: Option<i64>) -> Result<Vec<History>> {
    let mut tasks = JoinSet::new();
    for mut history in histories {
        let app = app.clone();
        tasks.spawn(async move { history.step(&app, rate_at).await.map(|()| history) });
    }
    let mut back = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        back.push(ended??);
    }
    back.sort_by_key(|history| history.owner.no);
    Ok(back)
}

/// What was compared, for people.
pub fn print(kind: StoreKind, counts: &Counts) {
    println!("{}: {} histories of conversions", kind.name(), counts.histories);
    println!("  quotes; refused: no young rate    {}; {}", counts.quotes, counts.no_rate);
    println!("  orders; requests made again       {}; {}", counts.orders, counts.repeats);
    println!(
        "  refused: other content, other terms, expired {}, {}, {}",
        counts.other_content, counts.other_terms, counts.expired
    );
    println!("  moves; refused as illegal         {}; {}", counts.moves, counts.illegal_moves);
    println!("  orders not found                  {}", counts.strangers);
    println!("  orders compared with their history {}", counts.compared);
    println!("  store taken down and brought back {}\n", counts.restarts);
}
