//! Fees from end to end: orders paid under rules that change meanwhile, each fee beside one that was worked out on paper; a what-if beside the same
//! orders under a rule that is really in force; statements whose sums are those of the orders; and upgrades and payments at the same moment (`crowd`).
//!
//! The server is the real one, with its listeners and a clock that is moved by hand. Orders are paid by the real use case. What is expected
//! is worked out digit by digit (`on_paper`), by rules that are read here (`timeline`), from files that are read here (`reading`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::backing::StoreKind;

mod books;
pub mod crowd;
mod reading;
mod timeline;
mod trading;

use books::{Books, Sums};
use crowd::{Crowd, Seen};
use reading::{Listed, csv, jsonl};
use trading::{CANDIDATE, SUBS, Trading};

/// A report plays a round of upgrades and payments at once for so many orders.
const ORDERS_TO_A_ROUND: usize = 100;

/// How large a proof is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Orders of the sub-account whose rules change. As many are paid under the rule that is tried.
    pub orders: usize,
    /// The seed of amounts and markups.
    pub seed: u64,
}

/// What was compared, and how long the parts took.
#[derive(Clone, Debug, Default)]
pub struct Proved {
    /// Fees that equal what paper says.
    pub fees: usize,
    /// Of them, those that were rounded.
    pub rounded: usize,
    /// Versions of the rule under which orders were paid; without any counts as one.
    pub rules: usize,
    /// Sums of the what-if that equal those of really running the rule.
    pub sums: usize,
    /// Statements that were read to their last record.
    pub statements: usize,
    /// To pay all orders.
    pub paying: Duration,
    /// The what-if over its route.
    pub what_if: Duration,
    /// All statements, by the command.
    pub stating: Duration,
}

/// Proves it on a fresh deployment.
pub async fn run(kind: StoreKind, plan: Plan) -> Result<Proved> {
    let mut proved = Proved::default();
    let began = Instant::now();
    let trading = Box::pin(Trading::done(kind, plan)).await?;
    proved.paying = began.elapsed();
    let began = Instant::now();
    let mut books = [Books::default(), Books::default()];
    for (sub, book) in SUBS.iter().zip(&mut books) {
        let listed = stated(&trading, sub, &mut proved).await?;
        for order in &listed {
            book.add(order)?;
        }
        trading.compare(sub, &listed, &mut proved)?;
    }
    whole_institution(&trading, &books, &mut proved).await?;
    proved.stating = began.elapsed();
    tried(&trading, &books, &mut proved).await?;
    Ok(proved)
}

/// The statements of every month of a sub-account, in both forms, which say the same: their orders.
async fn stated(trading: &Trading, sub: &str, proved: &mut Proved) -> Result<Vec<Listed>> {
    let mut all = Vec::new();
    for month in trading.months() {
        let (lines, records) =
            (trading.statement(sub, &month, "jsonl").await?, trading.statement(sub, &month, "csv").await?);
        let (of_lines, of_csv) = (jsonl(&lines)?, csv(&records)?);
        ensure!(of_lines == of_csv, "{sub} {month}: the two forms differ");
        let mut book = Books::default();
        for order in &of_lines.orders {
            book.add(order)?;
        }
        ensure!(of_lines.sums == *book.by_account(), "{sub} {month}: sums are not those of the orders");
        ensure!(of_lines.totals == book.by_coin(), "{sub} {month}: totals are not those of the orders");
        all.extend(of_lines.orders);
        proved.statements += 2;
    }
    Ok(all)
}

/// The institution's statements have the orders of both sub-accounts, and their sums.
async fn whole_institution(trading: &Trading, books: &[Books; 2], proved: &mut Proved) -> Result<()> {
    let mut book = Books::default();
    for month in trading.months() {
        for order in &csv(&trading.statement("bank", &month, "csv").await?)?.orders {
            book.add(order)?;
        }
        proved.statements += 1;
    }
    let mut expected = books[0].by_account().clone();
    expected.extend(books[1].by_account().clone());
    ensure!(*book.by_account() == expected, "the institution's sums are not those of its sub-accounts");
    Ok(())
}

/// The what-if says what really running the rule came to.
async fn tried(trading: &Trading, [old, new]: &[Books; 2], proved: &mut Proved) -> Result<()> {
    let (r, f) = CANDIDATE;
    let path = format!("/operator/v1/fee-rules/what-if?sub_merchant_id={}&r_markup={r}&f_markup={f}", SUBS[0]);
    let began = Instant::now();
    let answer = trading.world.access.call("GET", &path, None).await?;
    proved.what_if = began.elapsed();
    let report = answer.json();
    ensure!(answer.status == 200, "the what-if: {} {report}", answer.status);
    let by_command =
        trading.command(&["fee-rule", "what-if", "--sub-account", SUBS[0], "--r-markup", r, "--f-markup", f]).await?;
    ensure!(same_but_for_its_end(&by_command, &report)?, "the command says something else than the route");
    let equal = |of: &Value, part: &str, (was, is): (&Sums, &Sums)| -> Result<()> {
        let found = (text(&of["old"][part])?, text(&of["new"][part])?);
        let expected =
            if part == "r_fee" { (was.r_fee.text(), is.r_fee.text()) } else { (was.f_fee.text(), is.f_fee.text()) };
        ensure!(found == expected, "{part} of {of}: {expected:?} were expected");
        Ok(())
    };
    let (was, is) = (old.by_coin(), new.by_coin());
    let currencies = report["currencies"].as_array().context("currencies")?;
    ensure!(currencies.len() == was.len(), "as many currencies as were paid in");
    for of in currencies {
        let coin = text(&of["currency"])?;
        let pair = (was.get(&coin).context("a currency")?, is.get(&coin).context("a currency")?);
        for part in ["r_fee", "f_fee"] {
            let change = serde_json::json!({ "old": { part: of[part]["old"] }, "new": { part: of[part]["new"] } });
            equal(&change, part, pair)?;
            proved.sums += 2;
        }
        ensure!(of["orders"].as_u64() == Some(pair.0.orders), "orders of {coin}");
        books::compare_movers(&of["movers"], &old.changes(&coin, new)?)?;
    }
    let days = report["days"].as_array().context("days")?;
    ensure!(days.len() == old.by_day().len(), "as many days and currencies as were paid on");
    for of in days {
        let key = (text(&of["day"])?, text(&of["currency"])?);
        let pair = (old.by_day().get(&key).context("a day")?, new.by_day().get(&key).context("a day")?);
        for part in ["r_fee", "f_fee"] {
            equal(of, part, pair)?;
            proved.sums += 2;
        }
    }
    Ok(())
}

/// The clock moves for nobody but us, so two reports of one moment are the same.
fn same_but_for_its_end(line: &str, report: &Value) -> Result<bool> {
    Ok(serde_json::from_str::<Value>(line.trim()).context("the command prints JSON")? == *report)
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("{value} is no text"))?.to_owned())
}

/// Proves it and prints what was compared.
pub async fn report(kind: StoreKind, plan: Plan) -> Result<()> {
    let Proved { fees, rounded, rules, sums, statements, paying, what_if, stating } = run(kind, plan).await?;
    println!("{} orders on {}, seed {}\n", plan.orders, kind.name(), plan.seed);
    println!("fees as on paper            {fees}, of them {rounded} rounded, under {rules} rules");
    println!("what-if sums as really run  {sums}");
    println!("statements                  {statements}, their sums those of the orders");
    println!("paying {} orders        {:.1} s", 2 * plan.orders, paying.as_secs_f64());
    println!("what-if over {} orders  {:.3} s", plan.orders, what_if.as_secs_f64());
    println!("all statements              {:.1} s", stating.as_secs_f64());
    let crowd = Crowd { rounds: (plan.orders / ORDERS_TO_A_ROUND).max(1), seed: plan.seed };
    let Seen { paid, without, versions, named, close } = crowd::run(kind, crowd).await?;
    println!(
        "upgraded and paid at once   {versions} versions, {paid} orders ({without} under none) under {named} of them"
    );
    println!("  within a millisecond      {close} orders");
    ensure!(what_if < Duration::from_secs(5) || plan.orders > 100_000, "the what-if took longer than 5 s");
    Ok(())
}
