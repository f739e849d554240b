//! Decimals from end to end: what goes in as JSON text comes out digit for digit, and fees are what paper says.
//!
//! A whole server over real sockets. Answers are read as text: no parser of numbers stands between the wire and the comparison.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use countersign::app::rules::in_force;
use countersign_domain::fees::{MarkupUnit, fee};
use countersign_domain::money::Amount;
use countersign_protocol::endpoint::{convert_order, rule_query, rule_upgrade};
use countersign_store::Store;
use countersign_store::contract::MerchantRow;
use serde_json::json;
use tokio::task::JoinSet;

use crate::dice::Dice;
use crate::on_paper::{Figure, canonical};
use crate::wire::{Answer, Connection, Draft, Signer, once};
use crate::world::World;

mod figures;

use figures::Figures;

/// Sub-accounts, each with connections of its own, so that commits share a sync.
const WORKERS: usize = 48;
/// The institution's base rate, which markups are added to.
const BASE_R: &str = "0.12345678";
const BASE_F: &str = "0.000009";

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Markups and amounts.
    pub cases: usize,
    /// Figures read out of answers.
    pub figures: usize,
    /// Fees.
    pub fees: usize,
    /// Of these, how many had to be rounded.
    pub rounded: usize,
    /// Of these, how many were exact halves of a millionth.
    pub halves: usize,
}

/// Sends `cases` random markups and amounts. An error names the seed, the case and the figure.
pub async fn run(cases: usize, seed: u64) -> Result<Counts> {
    let world = World::start_with(|config| config.rate_limit_per_s = 0).await?;
    let signer = provision(&world).await?;
    let app = &world.running.app;
    let bank = app.store.merchant("bank").await?.context("it was just made")?;
    let shared = Arc::new(Shared { world, signer, bank });
    let mut dice = Dice::new(seed);
    let mut workers = JoinSet::new();
    for n in 0..WORKERS {
        let share = cases / WORKERS + usize::from(n < cases % WORKERS);
        workers.spawn(work(shared.clone(), n + 1, share, dice.fork()));
    }
    let mut counts = Counts::default();
    while let Some(ended) = workers.join_next().await {
        let done = ended?.with_context(|| format!("decimals, seed {seed}"))?;
        counts.cases += done.cases;
        counts.figures += done.figures;
        counts.fees += done.fees;
        counts.rounded += done.rounded;
        counts.halves += done.halves;
    }
    Ok(counts)
}

/// Runs and prints what was compared.
pub async fn report(cases: usize, seed: u64) -> Result<()> {
    println!("{cases} random markups and amounts over real sockets, seed {seed}\n");
    let started = Instant::now();
    let counts = run(cases, seed).await?;
    println!("cases                          {} in {:.1} s", counts.cases, started.elapsed().as_secs_f64());
    println!("figures read out of answers    {}, digit for digit what went in", counts.figures);
    println!("fees, all equal to a paper sum {}", counts.fees);
    println!("  of these rounded             {}, exact halves {}", counts.rounded, counts.halves);
    Ok(())
}

async fn provision(world: &World) -> Result<Signer> {
    let base = format!(r#"{{"r_total":{BASE_R},"f_total":{BASE_F}}}"#);
    let bank = format!(r#"{{"name":"bank","merchant_id":"bank","base_rate":{base}}}"#);
    let made = once(world.access.address, &as_written(world, "/operator/v1/institutions", &bank).bytes()).await?;
    ensure!(token(&good(made)?, "f_total")? == BASE_F, "the base rate comes out as it went in");
    for n in 1..=WORKERS {
        let sub = json!({"name": "sub", "sub_merchant_id": format!("bank-{n}")});
        world.access.provision("POST", "/institutions/bank/sub-accounts", sub).await?;
    }
    world.access.application("bank", None).await
}

#[derive(Debug)]
struct Shared {
    world: World,
    signer: Signer,
    bank: MerchantRow,
}

/// One sub-account and its connections.
struct Worker {
    shared: Arc<Shared>,
    sub: String,
    merchant: Connection,
    operator: Connection,
    counts: Counts,
}

async fn work(shared: Arc<Shared>, n: usize, cases: usize, mut dice: Dice) -> Result<Counts> {
    let merchant = Connection::open(shared.world.listen()).await?;
    let operator = Connection::open(shared.world.access.address).await?;
    let sub = format!("bank-{n}");
    let mut worker = Worker { shared, sub, merchant, operator, counts: Counts::default() };
    for _ in 0..cases {
        let figures = Figures::throw(&mut dice);
        worker.case(&figures, dice.once_in(2)).await.with_context(|| format!("{figures:?}"))?;
    }
    Ok(worker.counts)
}

impl Worker {
    /// One markup through upgrade and query, one order through the back end and the merchant's query, and the fee of the two.
    async fn case(&mut self, figures: &Figures, rate_as_text: bool) -> Result<()> {
        let quote = if rate_as_text { "\"" } else { "" };
        let body = format!(
            r#"{{"sub_merchant_id":"{}","r_markup":{},"f_markup":{},"effective_date":"2020-01-01 00:00:00"}}"#,
            self.sub, figures.r, figures.f
        );
        let made = self.signed("POST", rule_upgrade::PATH, &body).await?;
        let shown = self.signed("GET", &format!("{}?sub_merchant_id={}", rule_query::PATH, self.sub), "").await?;
        for answer in [&made, &shown] {
            self.same(answer, "r_markup", &canonical(&figures.r))?;
            self.same(answer, "f_markup", &canonical(&figures.f))?;
        }
        self.same(&shown, "r_total", &Figure::read(BASE_R).plus(&Figure::read(&figures.r)).text())?;
        self.same(&shown, "f_total", &Figure::read(BASE_F).plus(&Figure::read(&figures.f)).text())?;

        let body = format!(
            r#"{{"sellCurrency":"GT","buyCurrency":"USDT","sellAmount":"{}","buyAmount":"{}","rate":{quote}{}{quote}}}"#,
            figures.sell, figures.buy, figures.rate
        );
        let made = self.operator(&body).await?;
        let order = token(&made, "order_id")?.trim_matches('"').to_owned();
        let shown = self.signed("GET", &format!("{}?orderId={order}", convert_order::PATH), "").await?;
        for answer in [&made, &shown] {
            self.same(answer, "sellAmount", &format!("\"{}\"", canonical(&figures.sell)))?;
            self.same(answer, "buyAmount", &format!("\"{}\"", canonical(&figures.buy)))?;
            self.same(answer, "rate", &canonical(&figures.rate))?;
        }
        self.counts.cases += 1;
        self.fees(figures).await
    }

    /// The fee under the markup as the store has it, beside paper.
    async fn fees(&mut self, figures: &Figures) -> Result<()> {
        let app = &self.shared.world.running.app;
        let rule = in_force(app, &self.shared.bank, &self.sub, None).await?.context("a rule is in force")?;
        let amount = Amount::parse(&figures.sell)?;
        for unit in MarkupUnit::ALL {
            let product = Figure::read(&figures.sell).times(&Figure::read(&figures.r));
            let exact = match unit {
                MarkupUnit::Percent => product.hundredth(),
                MarkupUnit::Fraction => product,
            };
            let (exact, rounded) = (exact.text(), exact.rounded_half_up(6).text());
            let computed = fee(amount, &rule.markup, unit)?;
            ensure!(computed.r_fee.to_string() == rounded, "{unit:?}: r_fee is {}, on paper {rounded}", computed.r_fee);
            let fixed = canonical(&figures.f);
            ensure!(computed.f_fee.to_string() == fixed, "{unit:?}: f_fee is {}, on paper {fixed}", computed.f_fee);
            let past_six = exact.split_once('.').and_then(|(_, fraction)| fraction.get(6..)).unwrap_or_default();
            self.counts.fees += 1;
            self.counts.rounded += usize::from(!past_six.is_empty());
            self.counts.halves += usize::from(past_six == "5");
        }
        Ok(())
    }

    fn same(&mut self, answer: &str, name: &str, wanted: &str) -> Result<()> {
        let seen = token(answer, name)?;
        ensure!(seen == wanted, "{name} came out as {seen}, not {wanted}: {answer}");
        self.counts.figures += 1;
        Ok(())
    }

    async fn signed(&mut self, method: &str, target: &str, body: &str) -> Result<String> {
        let draft = self.shared.world.draft(&self.shared.signer, method, target, body);
        good(self.merchant.send(&draft.bytes()).await?)
    }

    async fn operator(&mut self, body: &str) -> Result<String> {
        let draft = as_written(&self.shared.world, "/operator/v1/merchants/bank/convert-orders", body);
        good(self.operator.send(&draft.bytes()).await?)
    }
}

/// A call of the operator API whose body goes out as it is: building it from a value would change figures.
fn as_written(world: &World, path: &str, body: &str) -> Draft {
    let mut draft = world.access.draft("POST", path, None).with("Content-Type", "application/json");
    draft.body = body.as_bytes().to_vec();
    draft
}

fn good(answer: Answer) -> Result<String> {
    let body = String::from_utf8(answer.body)?;
    ensure!(answer.status == 200, "{} {body}", answer.status);
    Ok(body)
}

/// The value of a field as it is written in a JSON text: from the colon to the comma or brace after it.
fn token<'a>(answer: &'a str, name: &str) -> Result<&'a str> {
    let (_, rest) = answer.split_once(&format!("\"{name}\":")).with_context(|| format!("no {name} in {answer}"))?;
    rest.split([',', '}']).next().context("a value follows")
}
