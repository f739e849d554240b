//! What a start needs of this machine: files, addresses of its own, ports.
//!
//! Invariant: all of it is there before the schema is brought up to date, so that a start that lacks some of it leaves the database to the program
//! that it had.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use countersign_store::nodes::{NodeId, Who};
use tokio::net::{TcpListener, TcpSocket};

use super::certificate::Renewal;
use super::database::Database;
use super::dispatching::dispatch_settings;
use crate::chance::Chance;
use crate::config::Config;
use crate::datadir::DataDir;
use crate::dispatch::DispatchSettings;
use crate::listen::cannot_listen;
use crate::listen::tls::Certificate;

/// Connections that may wait at a listener's door, as far as the system allows: many come at once where a balancer turns to this node.
const BACKLOG: u32 = 1024;

/// All of it.
pub(super) struct Needs {
    pub certificate: Option<Renewal>,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    pub dispatch: DispatchSettings,
    pub node: NodeId,
    pub doors: Doors,
}

/// Each listener's port; that for health only where it is wanted.
pub(super) struct Doors {
    merchants: Door,
    operators: Door,
    health: Option<Door>,
}

/// The same when connections may wait at them.
pub(super) struct Listeners {
    pub merchants: TcpListener,
    pub operators: TcpListener,
    pub health: Option<TcpListener>,
}

impl Doors {
    fn bind(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            merchants: Door::bind(config.listen, "listen")?,
            operators: Door::bind(config.operator_listen, "operator_listen")?,
            health: config.health_listen.map(|address| Door::bind(address, "health_listen")).transpose()?,
        })
    }

    pub fn open(self) -> anyhow::Result<Listeners> {
        let (merchants, operators) = (self.merchants.open()?, self.operators.open()?);
        Ok(Listeners { merchants, operators, health: self.health.map(Door::open).transpose()? })
    }
}

impl Listeners {
    /// Where they really are, merchants' first and that for health last.
    pub fn addresses(&self) -> std::io::Result<(SocketAddr, SocketAddr, Option<SocketAddr>)> {
        let health = self.health.as_ref().map(TcpListener::local_addr).transpose()?;
        Ok((self.merchants.local_addr()?, self.operators.local_addr()?, health))
    }
}

impl Needs {
    /// Refused where something is not there.
    pub fn of(config: &Config, data: &DataDir) -> anyhow::Result<Self> {
        let certificate = certificate(config)?;
        Ok(Self {
            tls: certificate.as_ref().map(|renewal| renewal.certificate.server_config()).transpose()?,
            certificate,
            dispatch: dispatch_settings(config)?,
            // A node has an id of its own only where the store is shared.
            node: match Database::of(config)? {
                Database::Sqlite => Who::NOBODY.node,
                Database::Postgres(_) => NodeId(data.node_id(&Chance::default())?),
            },
            doors: Doors::bind(config)?,
        })
    }
}

/// A port that is this process's. Until it is opened connections are refused, as where nobody is: whoever came would wait for as long as the schema
/// takes.
struct Door {
    socket: TcpSocket,
    wanted: SocketAddr,
    setting: &'static str,
}

impl Door {
    fn bind(wanted: SocketAddr, setting: &'static str) -> anyhow::Result<Self> {
        let bound = || {
            let socket = if wanted.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            // Where none of two sockets allows it, only one is bound, whichever listens first.
            socket.set_reuseaddr(false)?;
            match socket.bind(wanted) {
                // Last connections of the port may not be forgotten yet; one that listens is refused all the same.
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    socket.set_reuseaddr(true)?;
                    socket.bind(wanted)?;
                    socket.set_reuseaddr(false)?;
                }
                done => done?,
            }
            Ok(socket)
        };
        let socket = bound().map_err(|error| refused(setting, wanted, &error))?;
        Ok(Self { socket, wanted, setting })
    }

    /// From here on connections may wait at it.
    fn open(self) -> anyhow::Result<TcpListener> {
        let opened = self.socket.set_reuseaddr(true).and_then(|()| self.socket.listen(BACKLOG));
        opened.map_err(|error| refused(self.setting, self.wanted, &error))
    }
}

fn refused(setting: &str, wanted: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    anyhow!("{setting} {}", cannot_listen(wanted, error))
}

fn certificate(config: &Config) -> anyhow::Result<Option<Renewal>> {
    match (config.tls.cert.get(), config.tls.key.get()) {
        (Some(cert), Some(key)) => {
            Ok(Some(Renewal { certificate: Arc::new(Certificate::read(cert, key)?), asked: Arc::default() }))
        }
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => bail!("TLS needs both a certificate and its key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_is_taken_from_its_binding_on() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let door = Door::bind(any, "listen").expect("a free port");
        let port = door.socket.local_addr().expect("has one");
        let Err(refused) = Door::bind(port, "operator_listen") else { panic!("two have it") };
        assert!(refused.to_string().contains("operator_listen"), "{refused}");
        let everywhere = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), port.port());
        assert!(Door::bind(everywhere, "operator_listen").is_err());
        assert_eq!(door.open().expect("opens").local_addr().expect("has one"), port);
    }
}
