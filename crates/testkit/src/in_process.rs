//! The use cases over a store of their own, without sockets, with a clock that stands until it is moved.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use countersign::app::audit_chain::Walks;
use countersign::app::bell::Bell;
use countersign::app::byte_quotas::ByteQuotas;
use countersign::app::callers::Callers;
use countersign::app::evidence;
use countersign::app::hints::Hints;
use countersign::app::nodes::ThisNode;
use countersign::app::pull;
use countersign::app::settled_time::SettledTime;
use countersign::app::trouble::Trouble;
use countersign::app::turns::Turns;
use countersign::app::uses::Uses;
use countersign::app::{App, Policy};
use countersign::chance::Chance;
use countersign::clock::Clock;
use countersign::config::Config;
use countersign::run;
use countersign::run::deployment_settings::MASTER_KEY_ID;
use countersign::vault::Vault;
use countersign_domain::lanes::LaneSet;
use countersign_domain::time::UnixMillis;
use countersign_store::{AnyStore, Batch, ModelStore, Store as _, Write};
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::backing::{Backing, StoreKind};

/// How a store goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Closed as the server closes it.
    Closed,
    /// Dropped, as by a panic.
    Dropped,
}

/// An application and its clock.
#[derive(Debug)]
pub struct InProcess {
    app: Arc<App>,
    clock: Clock,
    /// Settings, folder and database of a store that lasts.
    lasting: Option<(Config, TempDir, Backing)>,
}

impl InProcess {
    /// An empty deployment whose clock stands at `at`.
    pub async fn start(kind: StoreKind, at: UnixMillis) -> Result<Self> {
        let clock = Clock::manual(at);
        match kind {
            StoreKind::Model => {
                let app = Arc::new(in_memory(clock.clone())?);
                // As `init` writes it: secrets are sealed under the key that the settings name.
                let key = Write::PutSetting { name: MASTER_KEY_ID.to_owned(), value: app.vault.key_id().to_owned() };
                app.store.commit(Batch(vec![key])).await?;
                Ok(Self { app, clock, lasting: None })
            }
            StoreKind::Sqlite | StoreKind::Postgres => {
                let folder = tempfile::tempdir()?;
                let backing = Backing::fresh(kind).await;
                let mut config = Config { data: folder.path().join("data"), ..Config::default() };
                backing.lay(&mut config);
                run::initialise(&config).await?;
                let app = Arc::new(run::open_app(&config, clock.clone(), None).await?);
                Ok(Self { app, clock, lasting: Some((config, folder, backing)) })
            }
        }
    }

    /// The use cases. Nobody may hold on to it when the store goes down.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Whether the store can go down and come back.
    pub fn lasts(&self) -> bool {
        self.lasting.is_some()
    }

    /// Takes a store that lasts down, lets `down_ms` pass, and opens it again.
    pub async fn restart(self, ending: Ending, down_ms: i64) -> Result<Self> {
        let Self { app, clock, lasting } = self;
        let (config, folder, backing) = lasting.context("what is in memory only does not come back")?;
        ensure!(Arc::strong_count(&app) == 1, "somebody still uses the application");
        match ending {
            Ending::Closed => run::close_store(&app.store)?,
            Ending::Dropped => {}
        }
        drop(app);
        clock.advance_ms(down_ms);
        let app = Arc::new(run::open_app(&config, clock.clone(), None).await?);
        Ok(Self { app, clock, lasting: Some((config, folder, backing)) })
    }
}

/// As the server makes it, but in memory and with a key that protects nothing.
fn in_memory(clock: Clock) -> Result<App> {
    let config = Config::default();
    let (chance, vault) = (Chance::default(), Vault::new(&Zeroizing::new([7; 32])));
    Ok(App {
        store: AnyStore::Model(ModelStore::new()),
        settled: SettledTime::new(Instant::now(), clock.now()),
        clock,
        callers: Callers::new(&chance, &vault, false),
        chance,
        vault,
        policy: Policy {
            rule_zone: config.rule_zone().context("the default zone is known")?,
            markup_unit: config.markup_unit,
            checkout_url: config.checkout_url.clone(),
            timestamp_tolerance_ms: config.timestamp_tolerance_ms,
            rate_limit_per_s: config.rate_limit_per_s,
            allow_private_callbacks: config.allow_private_callbacks,
            idempotency_life: config.idempotency_life.0,
            retention: config.lives(),
            prices: config.prices(),
        },
        hints: Hints::default(),
        uses: Uses::default(),
        turns: Turns::default(),
        bell: Bell::new(LaneSet::ALL),
        trouble: Trouble::default(),
        node: ThisNode::default(),
        leaving: AtomicBool::new(false),
        walks: Walks::default(),
        long_bodies: ByteQuotas::default(),
        long_pages: pull::long_pages(),
        exports: evidence::exports(),
    })
}
