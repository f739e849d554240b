//! A deployment as many clients meet it. On PostgreSQL there are two nodes: within a node equal requests take turns, so only between nodes it is the
//! guards of the batch that are tried.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use countersign::app::App;
use countersign::clock::Clock;
use countersign::config::{Config, Optional, Period};
use countersign::log::LogSink;
use countersign::run::{self, Running, Surroundings};
use tempfile::TempDir;

use crate::backing::{Backing, StoreKind};
use crate::operator::OperatorAccess;

/// Longer than any run.
const A_DAY: Duration = Duration::from_secs(86_400);

/// The servers of a deployment, and their operator.
pub(crate) struct Nodes {
    running: Vec<Running>,
    pub(crate) access: OperatorAccess,
    _folder: TempDir,
    // Behind the servers: fields are dropped in this order.
    _backing: Backing,
}

impl Nodes {
    /// `clock`: of each node.
    pub(crate) async fn open(kind: StoreKind, clock: impl Fn(usize) -> Clock) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let backing = Backing::fresh(kind).await;
        let count = if backing.database().is_some() { 2 } else { 1 };
        let mut running = Vec::new();
        let mut token = String::new();
        for node in 0..count {
            let mut config = Config {
                data: folder.path().join(node.to_string()),
                listen: "127.0.0.1:0".parse()?,
                operator_listen: "127.0.0.1:0".parse()?,
                // The load is one application's, and rates are put once.
                rate_limit_per_s: 0,
                rate_max_age: Period(A_DAY),
                quote_life: Period(A_DAY),
                ..Config::default()
            };
            backing.lay(&mut config);
            if node == 0 {
                run::initialise(&config).await?.operator_token.expose().clone_into(&mut token);
            } else {
                config.master_key_file = Optional(Some(folder.path().join("0/master.key")));
                run::prepare(&config).await?;
            }
            let (log, _) = LogSink::start(std::io::sink())?;
            running.push(run::start_in(config, Surroundings { clock: clock(node), log }).await?);
        }
        let first = running.first().context("there is a node")?;
        let access = OperatorAccess::new(first.operator_listen, token);
        Ok(Self { running, access, _folder: folder, _backing: backing })
    }

    /// Where a client asks: every second one another node.
    pub(super) fn listen(&self, client: usize) -> SocketAddr {
        self.running[client % self.running.len()].listen
    }

    pub(super) fn app(&self) -> &App {
        &self.running[0].app
    }

    /// Of each node.
    pub(crate) fn apps(&self) -> Vec<Arc<App>> {
        self.running.iter().map(|node| node.app.clone()).collect()
    }

    pub(crate) async fn stop(self) -> Result<()> {
        for node in self.running {
            node.stop().await?;
        }
        Ok(())
    }
}
