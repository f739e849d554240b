//! A whole server in this process, over real sockets, with a clock that a test may move.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use countersign::app::App;
use countersign::clock::Clock;
use countersign::config::Config;
use countersign::log::{LogGuard, LogSink};
use countersign::run::{self, Running, Surroundings};
use countersign_domain::time::UnixMillis;
use tempfile::TempDir;

use crate::backing::{Backing, StoreKind};
use crate::operator::OperatorAccess;
use crate::wire::{Answer, Draft, Signer, once, wall_ms};

/// A server with its folder and its store, of the kind that this run is about. Ends with the test.
#[derive(Debug)]
pub struct World {
    /// The server.
    pub running: Running,
    /// Its operator API.
    pub access: OperatorAccess,
    /// Its clock.
    pub clock: Clock,
    /// Its request lines so far, also of before a restart.
    pub heard: Heard,
    config: Config,
    token: String,
    log: LogGuard,
    folder: TempDir,
    // Behind the server: fields are dropped in this order.
    backing: Backing,
}

/// Lines of a log, as they came.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Vec<u8>>>);

/// More is not kept.
const HEARD_BYTES_MAX: usize = 4 * 1024 * 1024;

impl Heard {
    /// The whole lines so far that are JSON, oldest first.
    pub fn lines(&self) -> Vec<serde_json::Value> {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() + bytes.len() <= HEARD_BYTES_MAX {
            kept.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl World {
    /// A fresh deployment whose clock stands at the present.
    pub async fn start() -> Result<Self> {
        Self::start_with(|_| {}).await
    }

    /// The same with other settings.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Result<Self> {
        Self::start_on(StoreKind::of_this_run(), change).await
    }

    /// The same on a store that is named.
    pub async fn start_on(store: StoreKind, change: impl FnOnce(&mut Config)) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let backing = Backing::fresh(store).await;
        let mut config = Config {
            data: folder.path().join("data"),
            listen: "127.0.0.1:0".parse()?,
            operator_listen: "127.0.0.1:0".parse()?,
            allow_private_callbacks: true,
            ..Config::default()
        };
        backing.lay(&mut config);
        change(&mut config);
        let token = run::initialise(&config).await?.operator_token.expose().to_owned();
        let clock = Clock::manual(UnixMillis(wall_ms()));
        let heard = Heard::default();
        let (running, log) = start(&config, &clock, &heard).await?;
        let access = OperatorAccess::new(running.operator_listen, token.clone());
        Ok(Self { running, access, clock, heard, config, token, log, folder, backing })
    }

    /// Stops the server and starts it again on the same folder; the clock goes on where it stands.
    pub async fn restart(self) -> Result<Self> {
        self.restart_after(|_| ()).await
    }

    /// The same, and `between` is done to the data folder while nobody serves it.
    pub async fn restart_after(self, between: impl FnOnce(&Path)) -> Result<Self> {
        let Self { running, clock, heard, config, token, log, folder, backing, .. } = self;
        running.stop().await?;
        drop(log);
        between(&config.data);
        if let Some(database) = backing.database() {
            database.bring_back().await;
        }
        let (running, log) = start(&config, &clock, &heard).await?;
        let access = OperatorAccess::new(running.operator_listen, token.clone());
        Ok(Self { running, access, clock, heard, config, token, log, folder, backing })
    }

    /// What its rows are in.
    pub fn backing(&self) -> &Backing {
        &self.backing
    }

    /// Takes the store away from the running server, until the restart: every call of it fails from here on.
    pub async fn take_store_away(&self) -> Result<()> {
        match self.backing.database() {
            None => run::close_store(&self.running.app.store),
            Some(database) => {
                database.take_away().await;
                Ok(())
            }
        }
    }

    /// Where merchants call.
    pub fn listen(&self) -> SocketAddr {
        self.running.listen
    }

    /// The data folder.
    pub fn data(&self) -> &Path {
        &self.config.data
    }

    /// The folder that the data folder is in; it goes when the world does.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends a draft to the merchant listener.
    pub async fn send(&self, draft: &Draft) -> Result<Answer> {
        once(self.listen(), &draft.bytes()).await.context("the server answers")
    }

    /// A request signed at the server's own time with a fresh nonce.
    pub fn draft(&self, signer: &Signer, method: &str, target: &str, body: &str) -> Draft {
        signer.draft_at(method, target, body.as_bytes(), self.clock.now().0, &crate::wire::fresh_nonce())
    }
}

async fn start(config: &Config, clock: &Clock, heard: &Heard) -> Result<(Running, LogGuard)> {
    let (log, guard) = LogSink::start(heard.clone())?;
    Ok((run::start_in(config.clone(), Surroundings { clock: clock.clone(), log }).await?, guard))
}

/// An application over a new store in `folder` or where `backing` says, without sockets. `group_max`: how many batches the writer takes at once.
pub async fn open_app(folder: &Path, backing: &Backing, group_max: Option<usize>) -> Result<Arc<App>> {
    let mut config = Config { data: folder.to_owned(), ..Config::default() };
    backing.lay(&mut config);
    run::initialise(&config).await?;
    Ok(Arc::new(run::open_app(&config, Clock::System, group_max).await?))
}
