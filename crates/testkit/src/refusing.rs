//! A loopback port where every connection is refused.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::net::TcpSocket;

/// A port that is bound and not listened on: nobody else is given it for as long as this is held, as a port that was free a moment ago may be.
#[derive(Debug)]
pub struct Refusing(TcpSocket);

impl Refusing {
    /// Takes a free one.
    pub fn take() -> Result<Self> {
        Self::bound(TcpSocket::new_v4()?, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Takes the one that a listener has just given up.
    pub fn after(address: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // Connections of the listener may linger there.
        socket.set_reuseaddr(true)?;
        Self::bound(socket, address)
    }

    fn bound(socket: TcpSocket, address: SocketAddr) -> Result<Self> {
        socket.bind(address).with_context(|| format!("a loopback port: {address}"))?;
        Ok(Self(socket))
    }

    /// Where it is.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.0.local_addr()?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn it_refuses_and_is_nobody_elses() {
        let refusing = Refusing::take().expect("a port");
        let address = refusing.address().expect("has one");
        assert_eq!(TcpStream::connect(address).await.expect_err("is refused").kind(), ErrorKind::ConnectionRefused);
        let other = std::net::TcpListener::bind(address).expect_err("is taken");
        assert_eq!(other.kind(), ErrorKind::AddrInUse);
    }
}
