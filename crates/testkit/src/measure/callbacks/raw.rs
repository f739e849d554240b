//! The yardstick: a client on bare sockets that posts the bytes of a callback, signed afresh each time, and reads the answers.

use std::cell::Cell;
use std::io::{BufRead as _, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context as _, Result, bail, ensure};
use countersign_protocol::signing::{Encoding, SigningKey, encode_signature};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{AT_ONCE, library};
use crate::measure::cpu_ns;
use crate::measure::load::read;
use crate::wire::{fresh_nonce, wall_ms};

/// A request as a merchant got it, and where in it stands what is made anew for each attempt.
#[derive(Debug)]
struct Template {
    request: Vec<u8>,
    body: usize,
    timestamp: usize,
    nonce: usize,
    signature: usize,
}

impl Template {
    fn of(request: Vec<u8>) -> Result<Self> {
        let text = String::from_utf8(request)?;
        let body = text.find("\r\n\r\n").context("a head")? + 4;
        let head = text[..body].to_ascii_lowercase();
        let value = |name: &str| -> Result<usize> {
            let at = head.find(&format!("\r\n{name}: ")).with_context(|| format!("{name} in {head}"))?;
            Ok(at + 4 + name.len())
        };
        let (timestamp, nonce, signature) =
            (value("x-service-timestamp")?, value("x-service-nonce")?, value("x-service-signature")?);
        Ok(Self { request: text.into_bytes(), body, timestamp, nonce, signature })
    }

    fn sign(&mut self, key: &SigningKey, nonce: &str) {
        let timestamp = format!("{:013}", wall_ms());
        let signature = encode_signature(&key.sign(&timestamp, nonce, &self.request[self.body..]), Encoding::Hex);
        for (at, value) in [(self.timestamp, timestamp.as_str()), (self.nonce, nonce), (self.signature, &signature)] {
            self.request[at..at + value.len()].copy_from_slice(value.as_bytes());
        }
    }
}

/// Reads a sample request from stdin, its length first, then lines: `sockets N`, `library N`, or `anew N` for the library with a connection for each.
/// Posts so many to `address`, over TLS where a certificate is given, and prints the CPU time that took, in ns.
pub fn serve(address: SocketAddr, certificate: Option<&Path>) -> Result<()> {
    let tls = certificate.map(|file| library::trusting(&std::fs::read(file)?)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stdin = std::io::stdin().lock();
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    let mut sample = vec![0; line.trim().parse()?];
    stdin.read_exact(&mut sample)?;
    let pid = std::process::id();
    loop {
        line.clear();
        if stdin.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let (by, wanted) = line.trim().split_once(' ').context("by what, and how many")?;
        let wanted: usize = wanted.parse()?;
        let began = cpu_ns(pid);
        let tasks = tokio::task::LocalSet::new();
        match by {
            "sockets" => tasks.block_on(&runtime, post(address, &sample, wanted))?,
            "library" | "anew" => {
                let to = library::To { address, tls: tls.clone(), anew: by == "anew" };
                tasks.block_on(&runtime, library::post(&to, &sample, wanted))?;
            }
            other => bail!("{other}: sockets, library or anew"),
        }
        println!("{}", cpu_ns(pid) - began);
    }
}

async fn post(address: SocketAddr, sample: &[u8], wanted: usize) -> Result<()> {
    let left = Rc::new(Cell::new(wanted));
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (left, mut template) = (left.clone(), Template::of(sample.to_vec())?);
        tasks.spawn_local(async move {
            let key = SigningKey::new(b"a key that nobody checks, as long as a real one is: 64 bytes....");
            let own = fresh_nonce();
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let mut answer = vec![0; 16 * 1024];
            while left.get() > 0 {
                left.set(left.get() - 1);
                let nonce = format!("{:08x}{}", left.get(), &own[8..]);
                template.sign(&key, &nonce);
                stream.write_all(&template.request).await?;
                ensure!(read(&mut stream, &mut answer).await?, "a callback was not answered 200");
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
