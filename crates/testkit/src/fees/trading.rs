//! Two sub-accounts that are paid the same orders at the same instants: one under rules that change, one under the rule that is tried.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use countersign::app::identity::find_merchant;
use countersign::app::rules::{Making, RuleChange, change};
use countersign::app::{Actor, App, payment_orders};
use countersign_domain::ids::ApplicationNo;
use countersign_domain::money::{Amount, Currency};
use countersign_domain::payment_order::{
    Content, LIFE_MS_DEFAULT, PaymentKind, PaymentOrder, PaymentStatus, PrepayId, Step,
};
use countersign_domain::rules::{Markup, RuleAsk};
use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_store::contract::{ApplicationRow, ClaimKey, MerchantRow};
use countersign_store::payment_order::{PaymentOrderRow, PaymentOrderWrite};
use countersign_store::{Batch, Store as _, Write};
use rust_decimal::Decimal;
use tokio::task::JoinSet;

use super::reading::Listed;
use super::timeline::{Version, in_force};
use super::{Plan, Proved};
use crate::backing::StoreKind;
use crate::dice::Dice;
use crate::on_paper::{Figure, canonical};
use crate::world::World;

/// The sub-account whose rules change, and the one that has the other rule from the start.
pub(super) const SUBS: [&str; 2] = ["bank-1", "bank-2"];
/// The rule that is tried: percent, USDT.
pub(super) const CANDIDATE: (&str, &str) = ("0.12345679", "0.654321");
/// How often the rule changes.
const RULES: usize = 20;
/// From the first payment to the last.
const SPAN_MS: i64 = 40 * 86_400_000;
/// Orders of a sub-account that are paid at one instant.
const AT_ONCE: usize = 50;
const COINS: [&str; 5] = ["USDT", "GT", "BTC", "ETH", "DOGE"];
/// Amounts at the limits of transactions and of rounding, in millionths.
const EDGES: [i64; 12] =
    [100, 101, 149, 150, 151, 500, 333_333, 999_999, 1_000_000, 1_000_001, 4_999_999_999_999, 5_000_000_000_000];
/// Markups at the limits of rules and of rounding.
const MARKUPS: [(&str, &str); 8] = [
    ("0.5", "0"),
    ("0.3", "1"),
    ("0", "0"),
    ("100", "0.000001"),
    ("0.00000001", "5000000"),
    ("99.99999999", "0"),
    ("33.33333333", "0.5"),
    ("12.5", "0.25"),
];

/// An order that was paid: what of it is known beforehand.
#[derive(Clone, Copy, Debug)]
struct Deal {
    coin: usize,
    amount: i64,
    actual: i64,
    paid_at: i64,
}

/// Everything that was paid, and under which rules.
#[derive(Debug)]
pub(super) struct Trading {
    pub(super) world: World,
    deals: Vec<Deal>,
    versions: Vec<Version>,
}

pub(super) fn actor() -> Actor {
    Actor { name: "token:tok_proof".to_owned(), source: String::new(), request_id: "proof".to_owned(), right: None }
}

/// Whose orders are paid, and who makes them.
#[derive(Debug)]
pub(super) struct Till {
    pub(super) owner: MerchantRow,
    pub(super) by: ApplicationRow,
}

impl Trading {
    /// Makes the deployment, the rules and the orders.
    pub(super) async fn done(kind: StoreKind, plan: Plan) -> Result<Self> {
        let world = World::start_on(kind, |_| {}).await?;
        let app = world.running.app.clone();
        world.access.institution("bank", 2, None).await?;
        let bank = find_merchant(&app, "bank").await?;
        let mut tills = Vec::new();
        for sub in SUBS {
            let signer = world.access.application(sub, None).await?;
            let by = app.store.application(&signer.client_id).await?.context("an application")?.application;
            tills.push(Till { owner: find_merchant(&app, sub).await?, by });
        }
        let now = world.clock.now().0;
        let (r, f) = CANDIDATE;
        let always = Version { r: r.to_owned(), f: f.to_owned(), made_at: now, effective_at: now, due_at: None };
        make(&app, &bank, SUBS[1], &always).await?;
        let mut trading = Self { world, deals: Vec::new(), versions: Vec::new() };
        let mut dice = Dice::new(plan.seed);
        let ticks = plan.orders.div_ceil(AT_ONCE).max(RULES);
        let tick_ms = SPAN_MS / i64::try_from(ticks)?;
        for tick in 0..ticks {
            if tick * RULES / ticks != (tick.wrapping_sub(1)).wrapping_mul(RULES) / ticks || tick == 0 {
                let version = trading.next_version(&mut dice, tick_ms * i64::try_from(ticks / RULES / 2)?);
                make(&app, &bank, SUBS[0], &version).await?;
                trading.versions.push(version);
            }
            let count = AT_ONCE.min(plan.orders - trading.deals.len());
            trading.pay(&app, &tills, &mut dice, count).await?;
            trading.world.clock.advance_ms(tick_ms);
        }
        ensure!(
            trading.versions.len() == RULES && trading.deals.len() == plan.orders,
            "all rules and orders were made"
        );
        // Whatever was paid is over for a minute, so that a statement of its month is complete where the month is.
        trading.world.clock.advance_ms(60_000);
        Ok(trading)
    }

    /// The next rule: in force at once, since yesterday, from the middle of its time on, or until then.
    fn next_version(&self, dice: &mut Dice, half_ms: i64) -> Version {
        let (n, now) = (self.versions.len(), self.world.clock.now().0);
        let (r, f) = MARKUPS.get(n).map_or_else(
            || {
                (
                    Decimal::new(dice.between(0, 1_000_000_000), 8).to_string(),
                    Decimal::new(dice.between(0, 3_000_000), 6).to_string(),
                )
            },
            |(r, f)| ((*r).to_owned(), (*f).to_owned()),
        );
        let (effective_at, due_at) = match n % 4 {
            0 => (now, None),
            1 => (now - 86_400_000, None),
            2 => (now + half_ms, None),
            _ => (now, Some(now + half_ms)),
        };
        Version { r, f, made_at: now, effective_at, due_at }
    }

    /// Adds so many orders to each sub-account, and pays them, all at this instant.
    async fn pay(&mut self, app: &Arc<App>, tills: &[Till], dice: &mut Dice, count: usize) -> Result<()> {
        let now = self.world.clock.now();
        let (mut writes, mut ids) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let amount = if dice.once_in(3) {
                *dice.one_of(&EDGES).context("there are some")?
            } else {
                dice.between(100, 1_000_000_000_000)
            };
            let actual = if dice.once_in(7) { dice.between(100, amount) } else { amount };
            let deal = Deal { coin: dice.below(COINS.len()), amount, actual, paid_at: now.0 };
            for till in tills {
                let row = pending(app, till, (COINS[deal.coin], deal.amount), self.deals.len(), now)?;
                ids.push((row.order.prepay_id, (actual != amount).then_some(Amount::from_micros(actual))));
                writes.push(Write::PaymentOrder(Box::new(PaymentOrderWrite::Insert { row, received: Arc::default() })));
            }
            self.deals.push(deal);
        }
        if writes.is_empty() {
            return Ok(());
        }
        app.store.commit(Batch(writes)).await?;
        let mut under_way = JoinSet::new();
        for (id, actual_amount) in ids {
            let app = app.clone();
            let step = Step { to: PaymentStatus::Paid, actual_amount, transact_at: None };
            under_way.spawn(async move { payment_orders::advance(&app, id, step, &|_| None, &actor()).await });
        }
        while let Some(paid) = under_way.join_next().await {
            paid??;
        }
        Ok(())
    }

    /// Every fee of a sub-account is what paper says.
    pub(super) fn compare(&self, sub: &str, listed: &[Listed], proved: &mut Proved) -> Result<()> {
        ensure!(listed.len() == self.deals.len(), "{sub}: {} orders of {}", listed.len(), self.deals.len());
        let mut seen = std::collections::BTreeMap::new();
        for order in listed {
            ensure!(seen.insert(order.trade_no.clone(), order).is_none(), "{} twice", order.trade_no);
        }
        let mut rules = std::collections::BTreeSet::new();
        for (n, deal) in self.deals.iter().enumerate() {
            let order = seen.get(&trade_no(n)).with_context(|| format!("{} is missing", trade_no(n)))?;
            let version = if sub == SUBS[0] { in_force(&self.versions, deal.paid_at) } else { None };
            let (number, r, f) = match version {
                Some((number, version)) => (number.to_string(), version.r.as_str(), version.f.as_str()),
                None if sub == SUBS[0] => (String::new(), "0", "0"),
                None => ("1".to_owned(), CANDIDATE.0, CANDIDATE.1),
            };
            let amount = |micros: i64| Figure::read(&format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000));
            let exact = amount(deal.actual).times(&Figure::read(r)).hundredth();
            let r_fee = exact.rounded_half_up(6);
            let expected = [
                sub.to_owned(),
                rfc3339(UnixMillis(deal.paid_at)),
                COINS[deal.coin].to_owned(),
                amount(deal.amount).text(),
                amount(deal.actual).text(),
                r_fee.text(),
                canonical(f),
                number.clone(),
                canonical(r),
                canonical(f),
            ];
            let found = [
                &order.merchant_id,
                &order.paid_at,
                &order.currency,
                &order.amount,
                &order.actual_amount,
                &order.r_fee,
                &order.f_fee,
                &order.version_no,
                &order.r_markup,
                &order.f_markup,
            ];
            ensure!(
                expected.iter().eq(found),
                "{sub} {}: {expected:?} on paper, {order:?} in the statement",
                order.trade_no
            );
            ensure!(order.worked_sum.contains(&exact.text()), "{} is not in {}", exact.text(), order.worked_sum);
            proved.fees += 1;
            proved.rounded += usize::from(exact.text() != r_fee.text());
            rules.insert(number);
        }
        proved.rules = proved.rules.max(rules.len());
        Ok(())
    }

    /// The months that orders were paid in, in UTC.
    pub(super) fn months(&self) -> Vec<String> {
        let month = |deal: &Deal| rfc3339(UnixMillis(deal.paid_at)).chars().take(7).collect::<String>();
        let mut all: Vec<String> = self.deals.iter().map(month).collect();
        all.dedup();
        all
    }

    /// A statement, as the command writes it into a file.
    pub(super) async fn statement(&self, of: &str, month: &str, format: &str) -> Result<String> {
        let file = self.world.folder().join(format!("{of}-{month}.{format}"));
        let name = file.to_str().context("a path of ours")?;
        self.command(&["statement", of, "--month", month, "--format", format, "-o", name]).await?;
        Ok(std::fs::read_to_string(&file)?)
    }

    /// Runs a command of the real binary against the server; what it prints.
    pub(super) async fn command(&self, words: &[&str]) -> Result<String> {
        let mut command = self.world.access.command();
        command.args(words).arg("--json");
        let done = tokio::task::spawn_blocking(move || command.output()).await??;
        ensure!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        Ok(String::from_utf8(done.stdout)?)
    }
}

fn trade_no(n: usize) -> String {
    // A spreadsheet would take it for a formula.
    format!("-{n}")
}

/// An order that waits to be paid: its currency, its amount and its place.
pub(super) fn pending(
    app: &App,
    till: &Till,
    (coin, amount): (&str, i64),
    n: usize,
    now: UnixMillis,
) -> Result<PaymentOrderRow> {
    let content = Content {
        kind: PaymentKind::Order,
        currency: Currency::parse(coin).context("a code")?,
        amount: Amount::from_micros(amount),
        merchant_user_id: None,
        channel_id: None,
        goods_name: None,
        goods_detail: None,
    };
    let order = PaymentOrder {
        prepay_id: PrepayId::new(app.chance.number(now), app.chance.bits64()),
        trade_no: trade_no(n),
        content,
        terminal_type: None,
        return_url: None,
        cancel_url: None,
        status: PaymentStatus::Pending,
        created_at: now,
        expires_at: now.plus_ms(LIFE_MS_DEFAULT),
        actual_amount: None,
        transact_at: None,
        paid_at: None,
        fee: None,
        revision: 1,
    };
    Ok(PaymentOrderRow {
        tenant: till.owner.tenant,
        merchant: till.owner.no,
        application: till.by.no,
        client_id: till.by.client_id.clone(),
        actor: format!("application:{}", till.by.client_id),
        request_id: "proof".to_owned(),
        order,
    })
}

/// Makes a rule as an institution would.
async fn make(app: &App, bank: &MerchantRow, sub: &str, version: &Version) -> Result<()> {
    let exact = |text: &str| Decimal::from_str_exact(text).context("a number");
    let (markup, now) = (Markup::new(exact(&version.r)?, exact(&version.f)?)?, app.clock.now());
    let (effective_at, due_at) = (UnixMillis(version.effective_at), version.due_at.map(UnixMillis));
    let wanted = RuleChange {
        making: Making::Upgrade,
        sub_merchant_id: sub.to_owned(),
        ask: RuleAsk { markup, effective_at, due_at },
    };
    let nonce = format!("{sub}.{}", version.made_at);
    let claim = ClaimKey { tenant: bank.tenant, application: ApplicationNo(bank.no.0), nonce, stamped_at: now };
    change(app, bank, &wanted, &claim, &actor()).await?;
    Ok(())
}
