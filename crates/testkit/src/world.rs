//! A whole server in this process, over real sockets, with a clock that a test may move.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use countersign::app::App;
use countersign::clock::Clock;
use countersign::config::Config;
use countersign::log::LogSink;
use countersign::run::{self, Running, Surroundings};
use countersign_domain::time::UnixMillis;
use tempfile::TempDir;

use crate::backing::Backing;
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
    config: Config,
    token: String,
    folder: TempDir,
    // Behind the server: fields are dropped in this order.
    backing: Backing,
}

impl World {
    /// A fresh deployment whose clock stands at the present.
    pub async fn start() -> Result<Self> {
        Self::start_with(|_| {}).await
    }

    /// The same with other settings.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let backing = Backing::of_this_run().await;
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
        let running = start(&config, &clock).await?;
        let access = OperatorAccess::new(running.operator_listen, token.clone());
        Ok(Self { running, access, clock, config, token, folder, backing })
    }

    /// Stops the server and starts it again on the same folder; the clock goes on where it stands.
    pub async fn restart(self) -> Result<Self> {
        let Self { running, clock, config, token, folder, backing, .. } = self;
        running.stop().await?;
        if let Some(database) = backing.database() {
            database.bring_back().await;
        }
        let running = start(&config, &clock).await?;
        let access = OperatorAccess::new(running.operator_listen, token.clone());
        Ok(Self { running, access, clock, config, token, folder, backing })
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

async fn start(config: &Config, clock: &Clock) -> Result<Running> {
    let (log, guard) = LogSink::start(std::io::sink())?;
    drop(guard);
    run::start_in(config.clone(), Surroundings { clock: clock.clone(), log }).await
}

/// An application over a new store in `folder` or where `backing` says, without sockets. `group_max`: how many batches the writer takes at once.
pub async fn open_app(folder: &Path, backing: &Backing, group_max: Option<usize>) -> Result<Arc<App>> {
    let mut config = Config { data: folder.to_owned(), ..Config::default() };
    backing.lay(&mut config);
    run::initialise(&config).await?;
    Ok(Arc::new(run::open_app(&config, Clock::System, group_max).await?))
}
