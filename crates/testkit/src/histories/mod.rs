//! Random histories of fee rules (and in `convert` of conversions), through the use cases on each store, against an oracle.
//!
//! A world is one store with many sub-accounts and one clock. In each step the clock moves, perhaps while the store is down, every
//! sub-account is asked something at once, and then the lists of all institutions are compared. At the end every version and its
//! state is compared.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use crate::backing::StoreKind;
use crate::dice::Dice;

mod asking;
pub mod convert;
mod history;
pub mod oracle;
pub mod orders;
mod world;

/// Worlds at once: one for each processor of a small machine.
const WORLDS_AT_ONCE: usize = 2;

/// What was compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sub-accounts.
    pub histories: usize,
    /// Versions made.
    pub versions: usize,
    /// INVALID_RULE_PERIOD.
    pub refused_period: usize,
    /// FEE_RULE_EXISTS.
    pub refused_exists: usize,
    /// Requests sent again with a used nonce, and refused.
    pub replays: usize,
    /// SUB_MERCHANT_NOT_FOUND.
    pub strangers: usize,
    /// Questions for the rule in force that showed one.
    pub in_force: usize,
    /// Questions for the rule in force that showed none.
    pub none_in_force: usize,
    /// Pages of lists.
    pub pages: usize,
    /// States of versions, as operators see them, by the oracle's order of states.
    pub states: [usize; 5],
    /// Times that a store went down and came back.
    pub restarts: usize,
}

impl Counts {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.versions += other.versions;
        self.refused_period += other.refused_period;
        self.refused_exists += other.refused_exists;
        self.replays += other.replays;
        self.strangers += other.strangers;
        self.in_force += other.in_force;
        self.none_in_force += other.none_in_force;
        self.pages += other.pages;
        self.restarts += other.restarts;
        for (ours, theirs) in self.states.iter_mut().zip(other.states) {
            *ours += theirs;
        }
    }
}

/// Plays at least `histories` histories on a store of one kind. An error names the seed, the sub-account and all that it was asked.
pub async fn run(kind: StoreKind, histories: usize, seed: u64) -> Result<Counts> {
    let mut dice = Dice::new(seed);
    let mut waiting: Vec<u64> = (0..histories.div_ceil(world::histories_of(kind))).map(|_| dice.bits()).collect();
    let mut worlds = JoinSet::new();
    let mut counts = Counts::default();
    loop {
        while worlds.len() < WORLDS_AT_ONCE
            && let Some(seed) = waiting.pop()
        {
            worlds.spawn(async move {
                Box::pin(world::play(kind, seed)).await.with_context(|| format!("world of seed {seed}"))
            });
        }
        let Some(ended) = worlds.join_next().await else { return Ok(counts) };
        counts.add(&ended?.with_context(|| format!("histories on {}, seed {seed}", kind.name()))?);
    }
}

/// Plays on these kinds of store and prints what was compared.
pub async fn report(kinds: &[StoreKind], histories: usize, seed: u64) -> Result<()> {
    println!(
        "{histories} random histories of fee rules, of conversions and of payment orders on each store, seed {seed}\n"
    );
    for &kind in kinds {
        let started = Instant::now();
        let counts = run(kind, histories, seed).await?;
        print(kind, &counts, started.elapsed());
        convert::print(kind, &convert::run(kind, histories, seed).await?);
        let started = Instant::now();
        let counts = orders::run(kind, histories, seed).await?;
        let took = started.elapsed().as_secs_f64();
        println!("{}: {} histories of payment orders in {took:.1} s", kind.name(), counts.histories);
        counts.print();
    }
    println!("every answer and every state was as the oracle says");
    Ok(())
}

fn print(kind: StoreKind, counts: &Counts, took: Duration) {
    println!("{}: {} histories of fee rules in {:.1} s", kind.name(), counts.histories, took.as_secs_f64());
    println!("  versions made                     {}", counts.versions);
    println!("  refused: period, exists           {}, {}", counts.refused_period, counts.refused_exists);
    println!("  refused: replay, not found        {}, {}", counts.replays, counts.strangers);
    println!("  rule in force: one, none          {}, {}", counts.in_force, counts.none_in_force);
    println!("  pages of lists                    {}", counts.pages);
    println!("  store taken down and brought back {}", counts.restarts);
    let names = oracle::State::ALL.map(oracle::State::name);
    let states: Vec<String> = names.iter().zip(counts.states).map(|(name, n)| format!("{name} {n}")).collect();
    println!("  states                            {}\n", states.join(", "));
}
