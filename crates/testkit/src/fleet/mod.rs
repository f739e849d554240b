//! Several nodes of one deployment as a platform runs them: the real binary, a data folder each, one PostgreSQL database, haproxy before them.
//!
//! Everything a test does with a fleet goes over sockets. Nodes can be killed, started again, stopped where they stand, and called directly.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::operator::OperatorAccess;
use crate::process::{Deployment, Server};

pub mod crowd;
pub mod failover;
pub mod kills;
pub mod pauses;
mod proxy;
pub mod replay;
pub mod restarts;
pub mod rolling;
pub mod sockets;
pub mod span;

pub use proxy::{Behind, Proxy, UnderWay};

/// Below the ports that the system gives to outgoing connections.
const PORT_FIRST: u16 = 20_000;
/// Ports of one fleet: two for the proxy, two for each node.
const PORTS: u16 = 8;
/// Most nodes of a fleet.
pub const NODES_MAX: usize = 3;

/// One node.
#[derive(Debug)]
pub struct Node {
    deployment: Deployment,
    server: Option<Server>,
    access: OperatorAccess,
}

impl Node {
    /// Where merchants reach this node alone.
    pub fn listen(&self) -> SocketAddr {
        self.deployment.listen
    }

    /// The operator API of this node alone.
    pub fn access(&self) -> &OperatorAccess {
        &self.access
    }

    /// Its process. An error while it is down.
    pub fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("this node is down")
    }

    /// Whether it was started and not ended since.
    pub fn is_up(&self) -> bool {
        self.server.is_some()
    }

    /// Its log so far.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.deployment.data.join("serve.log"))?)
    }

    /// `kill -9`. Returns when the process is gone.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// SIGTERM, and waits until it has ended, while others go on; whether that was with code 0.
    pub async fn leave(&mut self) -> Result<bool> {
        let server = self.server.take().context("this node is down")?;
        spawn_blocking(move || server.terminate()).await?
    }

    /// SIGTERM; whether it ended with code 0.
    pub fn terminate(&mut self) -> Result<bool> {
        self.server.take().context("this node is down")?.terminate()
    }

    /// Starts it in its folder and at its addresses. Returns when it listens.
    pub fn start(&mut self) -> Result<()> {
        ensure!(self.server.is_none(), "this node is up");
        self.server = Some(self.deployment.serve()?);
        Ok(())
    }
}

/// Nodes and their proxy. All end when it is dropped.
#[derive(Debug)]
pub struct Fleet {
    // Before the nodes: fields are dropped in this order.
    proxy: Proxy,
    nodes: Vec<Node>,
    access: OperatorAccess,
    folder: TempDir,
}

impl Fleet {
    /// Makes a deployment in an empty database, starts so many nodes of it and the proxy, and waits until the proxy sends requests to all.
    /// `config`: lines for the settings of every node.
    pub async fn start(nodes: usize, database_url: &str, config: &str) -> Result<Self> {
        Self::start_with(nodes, database_url, config, UnderWay::Cut).await
    }

    /// The same with a proxy that does so with requests under way.
    pub async fn start_with(nodes: usize, database_url: &str, config: &str, under_way: UnderWay) -> Result<Self> {
        ensure!((1..=NODES_MAX).contains(&nodes), "a fleet has 1 to {NODES_MAX} nodes");
        let folder = tempfile::tempdir()?;
        let addresses = Addresses::fresh();
        let mut first = Deployment::init_at(&folder.path().join("node-0"), Some(database_url.to_owned()))?;
        first.config.push_str(config);
        let mut deployments = vec![first];
        for number in 1..nodes {
            let joined = deployments[0].join(&folder.path().join(format!("node-{number}")))?;
            deployments.push(joined);
        }
        let mut made = Vec::new();
        for (number, mut deployment) in deployments.into_iter().enumerate() {
            (deployment.listen, deployment.operator_listen) = addresses.pair(number + 1);
            let access = deployment.access_at(deployment.operator_listen);
            let server = Some(deployment.serve().with_context(|| format!("node {number}"))?);
            made.push(Node { deployment, server, access });
        }
        let behind: Vec<Behind> = made
            .iter()
            .map(|node| Behind { listen: node.listen(), operator_listen: node.deployment.operator_listen })
            .collect();
        let (listen, operator_listen) = addresses.pair(0);
        let proxy = Proxy::start(folder.path(), listen, operator_listen, &behind, under_way).await?;
        let access = made[0].deployment.access_at(operator_listen);
        let fleet = Self { proxy, nodes: made, access, folder };
        fleet.until_seen().await?;
        Ok(fleet)
    }

    /// Where merchants call: the proxy.
    pub fn listen(&self) -> SocketAddr {
        self.proxy.listen
    }

    /// The operator API through the proxy.
    pub fn access(&self) -> &OperatorAccess {
        &self.access
    }

    /// The proxy.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// The nodes, in the order of their start.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The same, to be killed and started.
    pub fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// A folder for files of a run; it goes with the fleet.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Waits until the proxy sends requests to the nodes that are up, and to no other.
    pub async fn until_seen(&self) -> Result<()> {
        let up: Vec<bool> = self.nodes.iter().map(Node::is_up).collect();
        self.proxy.until_it_sees(&up).await?;
        Ok(())
    }

    /// The same with the exception of one that is up and has been told to stop.
    async fn until_without(&self, leaves: usize) -> Result<()> {
        let up: Vec<bool> =
            self.nodes.iter().enumerate().map(|(number, node)| node.is_up() && number != leaves).collect();
        self.proxy.until_it_sees(&up).await?;
        Ok(())
    }
}

/// Addresses that no other process uses: loopback has sixteen million, and each process takes one that is made of its id. A node
/// that starts again finds its port free, since the system gives ports of 127.0.0.1 only to outgoing connections.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    host: Ipv4Addr,
    first: u16,
}

impl Addresses {
    fn fresh() -> Self {
        static MADE: AtomicU16 = AtomicU16::new(0);
        let [_, high, middle, low] = std::process::id().to_be_bytes();
        let first = PORT_FIRST + PORTS * (MADE.fetch_add(1, Ordering::Relaxed) % 1_000);
        Self { host: Ipv4Addr::new(127, 64 | (high & 63), middle, low), first }
    }

    /// Merchants' and operators' address of the proxy (0) or of a node.
    fn pair(self, number: usize) -> (SocketAddr, SocketAddr) {
        let port = self.first + 2 * u16::try_from(number).expect("a fleet has few nodes");
        ((self.host, port).into(), (self.host, port + 1).into())
    }
}
