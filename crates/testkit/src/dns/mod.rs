//! A name server for tests, over UDP and TCP, whose answers a script chooses anew for each question. It caches nothing and says so (TTL 0).

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::{AbortHandle, JoinSet};

pub mod wire;
pub mod zone;

use wire::{Question, read_question, write_answer};
use zone::{Over, Said, Zone};

/// Largest question that is read.
const QUESTION_BYTES_MAX: usize = 4_096;

/// A running server. It ends when it is dropped.
#[derive(Debug)]
pub struct Dns {
    /// Where it listens, by UDP and TCP.
    pub address: SocketAddr,
    tasks: [AbortHandle; 2],
}

impl Drop for Dns {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Dns {
    /// Answers at this address for this zone.
    pub async fn start(address: SocketAddr, zone: Arc<Zone>) -> Result<Self> {
        let udp = UdpSocket::bind(address).await.with_context(|| format!("the name server has no {address} (UDP)"))?;
        let address = udp.local_addr()?;
        let tcp =
            TcpListener::bind(address).await.with_context(|| format!("the name server has no {address} (TCP)"))?;
        let by_udp = tokio::spawn(serve_udp(udp, zone.clone())).abort_handle();
        let by_tcp = tokio::spawn(serve_tcp(tcp, zone)).abort_handle();
        Ok(Self { address, tasks: [by_udp, by_tcp] })
    }
}

async fn serve_udp(socket: UdpSocket, zone: Arc<Zone>) {
    let mut buffer = [0; QUESTION_BYTES_MAX];
    loop {
        // An error is a peer that has gone away before its answer.
        let Ok((length, peer)) = socket.recv_from(&mut buffer).await else { continue };
        if let Some(answer) = answer(&zone, &buffer[..length], Over::Udp) {
            let _ = socket.send_to(&answer, peer).await;
        }
    }
}

async fn serve_tcp(listener: TcpListener, zone: Arc<Zone>) {
    let mut conversations = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        conversations.spawn(converse(stream, zone.clone()));
        while conversations.try_join_next().is_some() {}
    }
}

/// Each message stands behind its length.
async fn converse(mut stream: TcpStream, zone: Arc<Zone>) -> Result<()> {
    loop {
        let mut question = vec![0; stream.read_u16().await?.into()];
        stream.read_exact(&mut question).await?;
        if let Some(answer) = answer(&zone, &question, Over::Tcp) {
            stream.write_u16(u16::try_from(answer.len())?).await?;
            stream.write_all(&answer).await?;
        }
    }
}

fn answer(zone: &Zone, message: &[u8], over: Over) -> Option<Vec<u8>> {
    let question: Question = read_question(message)?;
    match zone.say(&question, over) {
        Said::Answer(reply) => Some(write_answer(&question, &reply)),
        Said::Nothing => None,
    }
}
