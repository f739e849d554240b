//! A real haproxy before the nodes: round robin over those that say they are ready.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::patience::until;

/// Where Debian and people who build it themselves put it; `cargo xtask test` looks there, too.
const PROGRAMS: [&str; 2] = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"];
const PATIENCE: Duration = Duration::from_secs(60);

/// A node as the proxy sees it.
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    /// Where merchants' requests go.
    pub listen: SocketAddr,
    /// Where operators' requests go, and questions for readiness.
    pub operator_listen: SocketAddr,
}

/// What becomes of requests under way at a node that says it is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay {
    /// They are broken off: a node without a database, or one that was killed, would answer late or never.
    Cut,
    /// They end as the node lets them.
    End,
}

/// The proxy. Ended when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    folder: PathBuf,
    nodes: usize,
    /// Where merchants call.
    pub listen: SocketAddr,
    /// Where operators call.
    pub operator_listen: SocketAddr,
}

impl Proxy {
    /// Starts it at these two addresses with its files in `folder`, and waits until it takes connections.
    pub async fn start(
        folder: &Path,
        listen: SocketAddr,
        operator_listen: SocketAddr,
        nodes: &[Behind],
        under_way: UnderWay,
    ) -> Result<Self> {
        let program = PROGRAMS.iter().find(|path| Path::new(path).exists()).context(
            "a fleet needs haproxy on this machine: `cargo xtask test` installs it on Debian, or install the package haproxy",
        )?;
        let config = folder.join("haproxy.cfg");
        std::fs::write(&config, text(folder, (listen, operator_listen), nodes, under_way))?;
        let log = File::create(folder.join("haproxy.log"))?;
        let child = Command::new(program)
            .arg("-db")
            .arg("-f")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut proxy = Self { child, folder: folder.to_owned(), nodes: nodes.len(), listen, operator_listen };
        for address in [listen, operator_listen] {
            until("haproxy takes connections", PATIENCE, async || {
                if let Some(ended) = proxy.child.try_wait()? {
                    let log = std::fs::read_to_string(proxy.folder.join("haproxy.log"))?;
                    anyhow::bail!("haproxy ended with {ended}: {log}");
                }
                Ok(tokio::net::TcpStream::connect(address).await.ok())
            })
            .await?;
        }
        let socket = proxy.folder.join("haproxy.sock");
        let asked = async || Ok(UnixStream::connect(&socket).ok());
        until("haproxy can be asked", PATIENCE, asked).await?;
        Ok(proxy)
    }

    /// Which nodes it sends requests to.
    pub fn sees(&self) -> Result<Vec<bool>> {
        let mut socket = UnixStream::connect(self.folder.join("haproxy.sock"))?;
        socket.write_all(b"show stat -1 4 -1\n")?;
        let mut table = String::new();
        socket.read_to_string(&mut table)?;
        let mut lines = table.lines();
        let head: Vec<&str> = lines.next().context("a table has a head")?.trim_start_matches("# ").split(',').collect();
        let column = |name: &str| head.iter().position(|n| *n == name).with_context(|| format!("no column {name}"));
        let (server, status) = (column("svname")?, column("status")?);
        let mut sees = vec![true; self.nodes];
        for line in lines.filter(|line| !line.is_empty()) {
            let fields: Vec<&str> = line.split(',').collect();
            let named = fields.get(server).and_then(|name| name.strip_prefix('n'));
            let Some(number) = named.and_then(|number| number.parse::<usize>().ok()) else { continue };
            let is_up = fields.get(status).is_some_and(|status| status.starts_with("UP"));
            let seen = sees.get_mut(number).context("a server that was not told")?;
            *seen &= is_up;
        }
        Ok(sees)
    }

    /// Waits until it sends requests to exactly these nodes.
    pub async fn until_it_sees(&self, wanted: &[bool]) -> Result<Duration> {
        ensure!(wanted.len() == self.nodes, "there are {} nodes", self.nodes);
        let what = format!("haproxy sees the nodes as {wanted:?}");
        let ((), took) = until(&what, PATIENCE, async || Ok((self.sees()? == wanted).then_some(()))).await?;
        Ok(took)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Its settings. A node that does not say it is ready is left out after the first time; where requests end as the node lets them, after the third.
fn text(
    folder: &Path,
    (listen, operator_listen): (SocketAddr, SocketAddr),
    nodes: &[Behind],
    under_way: UnderWay,
) -> String {
    // A node that is gone refuses connections, and one without a database says so, both at once. One that answers late is only on a busy machine, and not
    // one to leave; nor, where nothing hangs, is one where the proxy itself was late.
    let (when_down, [connect, patience], fall) = match under_way {
        UnderWay::Cut => (" on-marked-down shutdown-sessions", ["3s", "3s"], 1),
        UnderWay::End => ("", ["20s", "30s"], 3),
    };
    let mut text = format!(
        "global\n\
         \x20   nbthread 1\n\
         \x20   maxconn 4000\n\
         \x20   stats socket {}/haproxy.sock\n\
         defaults\n\
         \x20   mode http\n\
         \x20   balance roundrobin\n\
         \x20   option redispatch 1\n\
         \x20   retries 2\n\
         \x20   timeout connect {connect}\n\
         \x20   timeout client 60s\n\
         \x20   timeout server 60s\n\
         \x20   timeout check {patience}\n\
         \x20   option httpchk GET /readyz\n\
         \x20   default-server inter 200ms fall {fall} rise 1{when_down}\n",
        folder.display()
    );
    for (name, address) in [("merchants", listen), ("operators", operator_listen)] {
        write!(text, "frontend {name}\n    bind {address}\n    default_backend to_{name}\nbackend to_{name}\n")
            .expect("a string takes everything");
        for (number, node) in nodes.iter().enumerate() {
            let check = node.operator_listen;
            let to = if name == "merchants" { node.listen } else { check };
            writeln!(text, "    server n{number} {to} check addr {} port {}", check.ip(), check.port())
                .expect("a string takes everything");
        }
    }
    text
}
