//! Many sub-accounts on one store under one clock.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use countersign::app::App;
use countersign::app::rules::page;
use countersign_domain::ids::{MerchantNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::Store;
use countersign_store::batch::{Batch, Write};
use countersign_store::contract::{MerchantKind, MerchantRow, RuleFilter, RuleRecord, RuleStanding};
use countersign_store::testing::rows;
use tokio::task::JoinSet;

use super::Counts;
use super::asking::move_clock;
use super::history::History;
use super::oracle::Version;
use crate::backing::StoreKind;
use crate::dice::Dice;
use crate::in_process::{Ending, InProcess};

const SUB_ACCOUNTS: usize = 8;
const STEPS: usize = 14;
/// 2026-01-02, somewhere between two seconds.
const BEGIN: i64 = 1_767_312_000_417;

const fn institutions_of(kind: StoreKind) -> usize {
    match kind {
        StoreKind::Model => 1,
        StoreKind::Sqlite | StoreKind::Postgres => 32,
    }
}

/// How many histories a world of this kind has.
pub const fn histories_of(kind: StoreKind) -> usize {
    institutions_of(kind) * SUB_ACCOUNTS
}

/// Plays one world to its end.
pub async fn play(kind: StoreKind, seed: u64) -> Result<Counts> {
    let mut dice = Dice::new(seed);
    let mut process = InProcess::start(kind, UnixMillis(BEGIN)).await?;
    let mut lists = dice.fork();
    let mut counts = Counts::default();
    let mut histories = provision(process.app(), institutions_of(kind), &mut dice).await?;
    for _ in 0..STEPS {
        let clock = process.clock().now().0;
        let moved = move_clock(&mut dice, histories.iter().map(|history| &history.oracle), clock);
        if process.lasts() && dice.once_in(7) {
            let ending = if dice.once_in(2) { Ending::Closed } else { Ending::Dropped };
            process = process.restart(ending, moved).await?;
            counts.restarts += 1;
        } else {
            process.clock().advance_ms(moved);
        }
        histories = step(process.app(), histories).await?;
        for subs in histories.chunks(SUB_ACCOUNTS).filter(|_| lists.once_in(2)) {
            let compared = compare_list(process.app(), subs, &mut dice).await;
            counts.pages += compared.with_context(|| stories(subs, process.clock().now().0))?;
        }
    }
    for history in &mut histories {
        history.end(process.app()).await?;
        counts.add(&history.counts);
    }
    Ok(counts)
}

/// Institutions with their sub-accounts; their names are in no order.
async fn provision(app: &Arc<App>, institutions: usize, dice: &mut Dice) -> Result<Vec<History>> {
    let mut histories = Vec::new();
    let mut no = 0;
    let mut next_no = || {
        no += 1;
        no
    };
    let mut stranger = "nobody".to_owned();
    for _ in 0..institutions {
        let tenant = next_no();
        let institution = merchant(tenant, tenant, MerchantKind::Institution, &format!("bank-{tenant}"));
        app.store.commit(Batch(vec![Write::InsertMerchant(Box::new(institution.clone()))])).await?;
        let mut writes = Vec::new();
        for _ in 0..SUB_ACCOUNTS {
            let no = next_no();
            let sub = merchant(no, tenant, MerchantKind::SubAccount, &format!("{:x}-{no}", dice.bits()));
            writes.push(Write::InsertMerchant(Box::new(sub.clone())));
            // One of another institution, or the institution itself.
            let unknown = if dice.once_in(3) { institution.merchant_id.clone() } else { stranger.clone() };
            histories.push(History::new(sub.merchant_id, institution.clone(), unknown, dice.fork()));
        }
        app.store.commit(Batch(writes)).await?;
        stranger.clone_from(&histories.last().context("there are some")?.id);
    }
    Ok(histories)
}

fn merchant(no: i64, tenant: i64, kind: MerchantKind, merchant_id: &str) -> MerchantRow {
    let row = rows::merchant(MerchantNo(no), merchant_id, TenantNo(tenant), kind);
    MerchantRow { created_at: UnixMillis(BEGIN), ..row }
}

/// All that was asked of some sub-accounts.
fn stories(subs: &[History], clock: i64) -> String {
    let told: Vec<String> = subs.iter().map(|history| format!("{}:\n{}", history.id, history.story)).collect();
    format!("at {clock} a list was wrong after\n{}", told.join("\n"))
}

/// Every sub-account is asked something at the same instant; they come back in the order they went.
async fn step(app: &Arc<App>, histories: Vec<History>) -> Result<Vec<History>> {
    let mut tasks = JoinSet::new();
    for (index, mut history) in histories.into_iter().enumerate() {
        let app = app.clone();
        tasks.spawn(async move { history.step(&app).await.map(|()| (index, history)) });
    }
    let mut back = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        back.push(ended??);
    }
    back.sort_by_key(|(index, _)| *index);
    Ok(back.into_iter().map(|(_, history)| history).collect())
}

/// What the oracle lists: a sub-account with a version that is effective or pending, or with none.
struct Listed<'a> {
    history: &'a History,
    version: Option<&'a Version>,
    is_pending: bool,
}

impl Listed<'_> {
    fn standing(&self) -> Option<RuleStanding> {
        self.version.map(|_| if self.is_pending { RuleStanding::Pending } else { RuleStanding::InForce })
    }
}

/// Compares all pages of an institution's list under some filter; how many there were.
async fn compare_list(app: &Arc<App>, subs: &[History], dice: &mut Dice) -> Result<usize> {
    let Some(first) = subs.first() else { return Ok(0) };
    let one_sub = if dice.once_in(8) { dice.one_of(subs).map(|history| history.id.clone()) } else { None };
    let filter = RuleFilter {
        has_markup: [None, None, Some(true), Some(false)][dice.below(4)],
        standing: [None, None, Some(RuleStanding::Pending), Some(RuleStanding::InForce)][dice.below(4)],
        sub_merchant_id: if dice.once_in(16) { Some(first.stranger.clone()) } else { one_sub },
    };
    let wanted = listed(subs, &filter, app.clock.now().0);
    let limit = [2, 3, 7, 100][dice.below(4)];
    let (mut seen, mut pages) = (0, 0);
    loop {
        let page = page(app, &first.institution, filter.clone(), seen as u64, u32::try_from(limit)?).await?;
        pages += 1;
        let all = usize::try_from(page.total)?;
        ensure!(all == wanted.len(), "{filter:?} lists {all} records, but the oracle {}", wanted.len());
        let rest = wanted.get(seen..).unwrap_or_default();
        ensure!(page.records.len() == rest.len().min(limit), "page {pages} of {filter:?} has {}", page.records.len());
        for (record, wanted) in page.records.iter().zip(rest) {
            let held = compare_record(record, wanted);
            held.with_context(|| format!("page {pages} of {filter:?} at {}: {record:?}", app.clock.now().0))?;
        }
        seen += page.records.len();
        if seen >= wanted.len() {
            return Ok(pages);
        }
    }
}

/// The oracle's whole list: by the text of `sub_merchant_id`, then by version.
fn listed<'a>(subs: &'a [History], filter: &RuleFilter, clock: i64) -> Vec<Listed<'a>> {
    let mut sorted: Vec<&History> = subs.iter().collect();
    sorted.sort_by(|a, b| a.id.cmp(&b.id));
    let mut all = Vec::new();
    for history in sorted {
        let now = history.oracle.now(clock);
        let in_force = history.oracle.in_force(now).map(|version| (Some(version), false));
        let pending = history.oracle.pending(now).map(|version| (Some(version), true));
        let both: Vec<_> = in_force.into_iter().chain(pending).collect();
        let records = if both.is_empty() { vec![(None, false)] } else { both };
        all.extend(records.into_iter().map(|(version, is_pending)| Listed { history, version, is_pending }));
    }
    all.retain(|listed| {
        let has = listed.version.is_some();
        filter.has_markup.is_none_or(|wanted| wanted == has)
            && filter.standing.is_none_or(|wanted| listed.standing() == Some(wanted))
            && filter.sub_merchant_id.as_ref().is_none_or(|id| *id == listed.history.id)
    });
    all
}

fn compare_record(record: &RuleRecord, wanted: &Listed<'_>) -> Result<()> {
    let history = wanted.history;
    ensure!(record.sub_merchant_id == history.id, "it should be of {}", history.id);
    ensure!(record.rule.standing() == wanted.standing(), "it should stand {:?}", wanted.standing());
    match (record.rule.version(), wanted.version) {
        (None, None) => Ok(()),
        (Some(version), Some(wanted)) => history.same(version, wanted),
        (_, wanted) => anyhow::bail!("the oracle lists {wanted:?}"),
    }
}
