//! The use cases over a store of their own, without sockets, with a clock that stands until it is moved.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use countersign::app::{App, Nodes, Parts};
use countersign::clock::Clock;
use countersign::config::Config;
use countersign::run;
use countersign::run::deployment_settings::MASTER_KEY_ID;
use countersign::vault::Vault;
use countersign_domain::time::UnixMillis;
use countersign_store::{AnyStore, Batch, ModelStore, Store as _, Write};
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::backing::{Backing, StoreKind};
use crate::patience::until_so;

/// How long somebody may hold on to an application that is to go down.
const PATIENCE: Duration = Duration::from_secs(20);

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

    /// The use cases. Nobody may go on to use it when the store goes down.
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
        // A read that has answered may not have let go of it yet (`read_in_turn`).
        until_so("all others let go of the application", PATIENCE, || Arc::strong_count(&app) == 1).await?;
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
    let policy = Config::default().policy().context("the default zone is known")?;
    let vault = Vault::new(&Zeroizing::new([7; 32]));
    Ok(App::new(Parts { store: AnyStore::Model(ModelStore::new()), clock, vault, policy }, Nodes::One))
}
