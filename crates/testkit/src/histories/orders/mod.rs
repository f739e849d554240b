//! Random histories of payment orders, through the use cases on each store, against an oracle.
//!
//! A history is one trade number: it is asked for, asked for again with the same and with other content, closed, moved, looked at and swept, at
//! instants of chance, most of them around its expire time, while the store goes down and comes back. At the end its moves and what its
//! merchant was told are compared.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use countersign::app::App;
use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_domain::time::UnixMillis;
use countersign_store::contract::{ApplicationRow, MerchantKind, MerchantRow};
use countersign_store::testing::rows;
use countersign_store::{Batch, Store as _, Write};
use tokio::task::JoinSet;

use crate::backing::StoreKind;
use crate::dice::Dice;
use crate::in_process::{Ending, InProcess};

mod history;
pub mod oracle;

use history::History;

/// Worlds at once: one for each processor of a small machine.
const WORLDS_AT_ONCE: usize = 2;
const STEPS: usize = 8;
/// 2026-01-02, somewhere between two seconds.
const BEGIN: i64 = 1_767_312_000_417;
/// States, in the order of [`Counts::ends`].
pub const STATES: [&str; 5] = ["PENDING", "PROCESS", "PAID", "EXPIRED", "CLOSED"];

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Trade numbers.
    pub histories: usize,
    /// Orders made.
    pub made: usize,
    /// Orders found by a repeated request.
    pub found: usize,
    /// DUPLICATE_TRADE_NO.
    pub duplicates: usize,
    /// Expire times that are none.
    pub refused_expiry: usize,
    /// Moves of every kind.
    pub moved: usize,
    /// INVALID_ORDER_STATUS.
    pub refused_moves: usize,
    /// ORDER_NOT_FOUND.
    pub nowhere: usize,
    /// Closed orders that were closed again.
    pub closed_again: usize,
    /// Orders told of as expired.
    pub swept: usize,
    /// Where the orders stood in the end.
    pub ends: [usize; 5],
    /// Times that a store went down and came back.
    pub restarts: usize,
}

impl Counts {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.made += other.made;
        self.found += other.found;
        self.duplicates += other.duplicates;
        self.refused_expiry += other.refused_expiry;
        self.moved += other.moved;
        self.refused_moves += other.refused_moves;
        self.nowhere += other.nowhere;
        self.closed_again += other.closed_again;
        self.swept += other.swept;
        self.restarts += other.restarts;
        for (ours, theirs) in self.ends.iter_mut().zip(other.ends) {
            *ours += theirs;
        }
    }

    /// As a person reads it.
    pub fn print(&self) {
        println!("  orders made, found again          {}, {}", self.made, self.found);
        println!("  refused: duplicate, expire time   {}, {}", self.duplicates, self.refused_expiry);
        println!("  moved, closed again               {}, {}", self.moved, self.closed_again);
        println!("  refused: illegal move, not found  {}, {}", self.refused_moves, self.nowhere);
        println!("  told of as expired                {}", self.swept);
        println!("  store taken down and brought back {}", self.restarts);
        let ends: Vec<String> = STATES.iter().zip(self.ends).map(|(name, n)| format!("{name} {n}")).collect();
        println!("  states in the end                 {}\n", ends.join(", "));
    }
}

const fn histories_of(kind: StoreKind) -> usize {
    match kind {
        // Each of its commits copies all there is.
        StoreKind::Model => 16,
        StoreKind::Sqlite | StoreKind::Postgres => 256,
    }
}

/// Plays at least `histories` histories on a store of one kind. An error names the seed, the trade number and all that was asked.
pub async fn run(kind: StoreKind, histories: usize, seed: u64) -> Result<Counts> {
    let mut dice = Dice::new(seed);
    let mut waiting: Vec<u64> = (0..histories.div_ceil(histories_of(kind))).map(|_| dice.bits()).collect();
    let (mut worlds, mut counts) = (JoinSet::new(), Counts::default());
    loop {
        while worlds.len() < WORLDS_AT_ONCE
            && let Some(seed) = waiting.pop()
        {
            worlds.spawn(
                async move { Box::pin(play(kind, seed)).await.with_context(|| format!("world of seed {seed}")) },
            );
        }
        let Some(ended) = worlds.join_next().await else { return Ok(counts) };
        counts.add(&ended?.with_context(|| format!("orders on {}, seed {seed}", kind.name()))?);
    }
}

async fn play(kind: StoreKind, seed: u64) -> Result<Counts> {
    let mut dice = Dice::new(seed);
    let mut process = InProcess::start(kind, UnixMillis(BEGIN)).await?;
    let (owner, by) = people();
    let people = vec![Write::InsertMerchant(Box::new(owner.clone())), Write::InsertApplication(Box::new(by.clone()))];
    process.app().store.commit(Batch(people)).await?;
    let mut counts = Counts::default();
    let mut histories: Vec<History> =
        (0..histories_of(kind)).map(|n| History::new(format!("T-{n}"), (&owner, &by), dice.fork())).collect();
    for _ in 0..STEPS {
        let moved = ahead(&mut dice, &histories, process.clock().now().0);
        if process.lasts() && dice.once_in(7) {
            let ending = if dice.once_in(2) { Ending::Closed } else { Ending::Dropped };
            process = process.restart(ending, moved).await?;
            counts.restarts += 1;
        } else {
            process.clock().advance_ms(moved);
        }
        histories = step(process.app(), histories).await?;
    }
    for history in &mut histories {
        history.end(process.app()).await?;
        counts.add(&history.counts);
    }
    Ok(counts)
}

/// How far the clock moves: often exactly to the end of an order's time, or to the millisecond before.
fn ahead(dice: &mut Dice, histories: &[History], clock: i64) -> i64 {
    let ends: Vec<i64> = histories.iter().filter_map(History::expires).filter(|end| *end > clock).collect();
    match dice.below(8) {
        0 => 0,
        1 => 1,
        2..4 => dice.between(1, 60_000),
        _ => dice.one_of(&ends).map_or(1_000, |end| end - clock - dice.between(0, 1)),
    }
}

/// A plain merchant and its application, whose callbacks are held.
fn people() -> (MerchantRow, ApplicationRow) {
    let owner = rows::merchant(MerchantNo(1), "shop", TenantNo(1), MerchantKind::Merchant);
    let by = rows::application(ApplicationNo(1), "app_1", owner.no, owner.tenant);
    let created_at = UnixMillis(BEGIN);
    (MerchantRow { created_at, ..owner }, ApplicationRow { created_at, ..by })
}

/// Every trade number is asked something at the same instant.
async fn step(app: &Arc<App>, histories: Vec<History>) -> Result<Vec<History>> {
    let mut tasks = JoinSet::new();
    for mut history in histories {
        let app = app.clone();
        tasks.spawn(async move { history.step(&app).await.map(|()| history) });
    }
    let mut back = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(history) => back.push(history?),
            Err(error) => bail!("a history broke: {error}"),
        }
    }
    ensure!(!back.is_empty(), "there are histories");
    // In an order that does not depend on who was first, so that a seed tells the same story again.
    back.sort_by(|a, b| a.trade_no.cmp(&b.trade_no));
    Ok(back)
}
