//! The use cases: read, decide with `domain`, commit one batch.
//!
//! Invariant: nothing here sees a type of HTTP. The edges (`merchant`, `operator`, `cli`) translate and call.
//! Invariant: who serves writes to the store here and in `dispatch` alone; beside them a deployment's beginning and end do, with nobody served
//! (`run/initialise.rs`, `run/recover.rs`, `run/backup`).

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use countersign_domain::lanes::LaneSet;
use countersign_domain::time::RuleZone;
use countersign_store::AnyStore;

pub use self::actor::{Actor, Deed};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::vault::Vault;

pub mod actor;
pub mod audit_chain;
pub mod audit_log;
pub mod bell;
pub mod byte_quotas;
pub mod callers;
pub mod causes;
#[cfg(test)]
mod clock_ahead_tests;
pub mod concurrency_limit;
pub mod conversion;
pub mod convert_orders;
pub mod delivery;
pub mod endpoint;
pub mod error;
pub mod events;
pub mod evidence;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod forgotten_nonces;
pub mod fresh;
pub mod hints;
pub mod idempotency;
pub mod identity;
mod late_changes;
mod long_pages;
pub mod master_key;
pub mod nodes;
pub mod noted_tolerance;
pub mod number_slots;
pub mod operators;
pub mod payment_orders;
pub mod plain_secret;
pub mod pull;
pub mod rates;
pub mod redelivery;
pub mod restored;
pub mod retention;
pub mod rules;
pub mod sealed;
pub mod settings;
pub mod settled_time;
pub mod statements;
pub mod token_ends;
pub mod trouble;
pub mod turns;
pub mod uses;
pub mod what_if;

/// What the use cases need of the configuration; fixed at start.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The zone of `effective_date` and `due_date`.
    pub rule_zone: RuleZone,
    /// How a percentage markup is applied.
    pub markup_unit: countersign_domain::fees::MarkupUnit,
    /// Where payers pay: the number of an order is put behind it, after a slash.
    pub checkout_url: String,
    /// Requests stamped farther from now than this are refused, in ms.
    pub timestamp_tolerance_ms: i64,
    /// Requests per second of an application that sets no own limit; 0 is off.
    pub rate_limit_per_s: u32,
    /// Whether private callback addresses and plain http are allowed (development only).
    pub allow_private_callbacks: bool,
    /// How long an idempotency key is remembered.
    pub idempotency_life: Duration,
    /// How long things are kept.
    pub retention: retention::Lives,
    /// How prices are promised.
    pub prices: rates::PricePolicy,
}

/// The running deployment: everything a use case needs, passed explicitly.
#[derive(Debug)]
pub struct App {
    /// Where rows live.
    pub store: AnyStore,
    /// Where the time comes from.
    pub clock: Clock,
    /// By what time things are forgotten for good.
    pub settled: settled_time::SettledTime,
    /// Where chance comes from.
    pub chance: Chance,
    /// What opens secrets.
    pub vault: Vault,
    /// The configuration of the use cases.
    pub policy: Policy,
    /// Callers that were seen: applications with their keys, ready to verify.
    pub callers: callers::Callers,
    /// What this node remembers of fee rules.
    pub hints: hints::Hints,
    /// How often secrets and tokens were used.
    pub uses: uses::Uses,
    /// Changes of one key take turns.
    pub turns: turns::Turns,
    /// Rung after each commit that made a delivery due. It says "look", and what is due only of events that were just written.
    pub bell: bell::Bell,
    /// Whether the store takes changes, as far as is known.
    pub trouble: trouble::Trouble,
    /// Which node this is to others.
    pub node: nodes::ThisNode,
    /// The node was told to stop, and serves for some time more so that a load balancer notices first.
    pub leaving: AtomicBool,
    /// Walks over the audit log that are under way.
    pub walks: audit_chain::Walks,
    /// What applications may keep with their orders beyond an ordinary body.
    pub long_bodies: byte_quotas::ByteQuotas,
    /// Long pages of events that merchants have not read yet.
    pub long_pages: concurrency_limit::ConcurrencyLimit,
    /// Evidence that is being exported.
    pub exports: concurrency_limit::ConcurrencyLimit,
}

/// What one deployment's application differs in from another's. All else begins empty.
#[derive(Debug)]
pub struct Parts {
    /// Where rows live.
    pub store: AnyStore,
    /// Where the time comes from.
    pub clock: Clock,
    /// What opens secrets.
    pub vault: Vault,
    /// The configuration of the use cases.
    pub policy: Policy,
}

/// Whether others may change the store and deliver from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// This process alone: all lanes are its own, and what it keeps of callers is what is so.
    One,
    /// No lane is its own until it has taken it.
    Many,
}

impl App {
    /// Of these parts; nothing is read or noted yet.
    pub fn new(parts: Parts, nodes: Nodes) -> Self {
        let Parts { store, clock, vault, policy } = parts;
        let chance = Chance::default();
        let (is_shared, lanes) = match nodes {
            Nodes::One => (false, LaneSet::ALL),
            Nodes::Many => (true, LaneSet::NONE),
        };
        Self {
            callers: callers::Callers::new(&chance, &vault, is_shared),
            store,
            settled: settled_time::SettledTime::new(Instant::now(), clock.now()),
            clock,
            chance,
            vault,
            policy,
            hints: hints::Hints::default(),
            uses: uses::Uses::default(),
            turns: turns::Turns::default(),
            bell: bell::Bell::new(lanes),
            trouble: trouble::Trouble::default(),
            node: nodes::ThisNode::default(),
            leaving: AtomicBool::new(false),
            walks: audit_chain::Walks::default(),
            long_bodies: byte_quotas::ByteQuotas::default(),
            long_pages: long_pages::places(),
            exports: evidence::exports(),
        }
    }

    /// What a process looks at and notes before it serves.
    pub async fn begin(&self) -> Result<(), error::AppError> {
        delivery::look(self).await?;
        noted_tolerance::begin(self).await;
        number_slots::begin(self).await;
        evidence::begin(self).await;
        restored::note(self).await;
        Ok(())
    }
}
