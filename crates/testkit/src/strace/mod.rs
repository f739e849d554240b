//! Proves from the system calls of a real server that an acknowledged change is on stable storage, and that a read's nonce is noted,
//! before the first byte of the answer leaves.
//!
//! Every sync is made to return late, so an answer that did not wait for it would be far ahead of it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::patience::until;
use crate::process::{Deployment, Server};
use crate::wire::{Connection, Draft, Signer};

pub mod trace;

use trace::{Proof, noted_before_answer, parse, synced_before_answer};

/// Requests of each kind, each on a connection of its own.
const REQUESTS: usize = 20;
/// How late a sync returns.
const SYNC_DELAY_MS: u64 = 30;
/// How long strace may take to write its last line.
const LAST_LINE: Duration = Duration::from_secs(10);

/// Runs the proof and prints its first lines.
pub async fn run() -> Result<()> {
    ensure!(
        Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|status| status.success()),
        "strace is not installed: `apt-get install strace` (or your system's own way) adds it"
    );
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("trace");
    let deployment = Deployment::init(&folder.path().join("data"))?;
    let server = start(&deployment, &file)?;
    let signer = server.access.institution("bank", 1, None).await?;
    let order = server.access.convert_order("bank").await?;
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..REQUESTS {
        writes.push(exchange(&server, &upgrade(&signer)).await?);
        reads.push(
            exchange(&server, &signer.draft("GET", &format!("/v1/pay/convert/order?orderId={order}"), b"")).await?,
        );
    }
    let pid = server.pid();
    ensure!(server.terminate()?, "the server did not end with code 0 after SIGTERM");
    let text = whole(&file, pid).await?;
    let calls = parse(&text);
    let prove = |ports: &[(u16, Duration)], proof: fn(&[trace::Call], u16) -> Result<Proof>| -> Result<Vec<Proof>> {
        ports.iter().map(|(port, _)| proof(&calls, *port)).collect()
    };
    let delay = Duration::from_millis(SYNC_DELAY_MS);
    ensure!(writes.iter().all(|(_, took)| *took >= delay), "an upgrade was answered sooner than its sync returned");
    print("signed upgrade", "sync of the write-ahead log", &prove(&writes, synced_before_answer)?, &writes);
    println!(
        "(each sync was made to return {SYNC_DELAY_MS} ms late, so that no answer could be behind it by chance)\n"
    );
    print("signed query", "nonce in the journal", &prove(&reads, noted_before_answer)?, &reads);
    Ok(())
}

/// The server as a child of ours, watched by strace from beside it.
fn start(deployment: &Deployment, file: &Path) -> Result<Server> {
    let file = file.to_str().context("the folder's name is UTF-8")?;
    let delay = format!("inject=fdatasync,fsync:delay_exit={}", SYNC_DELAY_MS * 1_000);
    let calls = "trace=fdatasync,fsync,pwrite64,write,writev,read,readv,recvfrom,recvmsg,sendto,sendmsg";
    deployment
        .serve_under(&["strace", "-D", "-f", "-tt", "-yy", "-s", "24", "-o", file, "-e", calls, "-e", &delay, "--"])
}

fn upgrade(signer: &Signer) -> Draft {
    let body = json!({"sub_merchant_id": "bank-1", "r_markup": 0.3, "effective_date": "2020-01-01 00:00:00"});
    signer.draft("POST", "/rate/commission_rule/upgrade", body.to_string().as_bytes())
}

/// One request on a connection of its own: our port, and how long the answer took.
async fn exchange(server: &Server, draft: &Draft) -> Result<(u16, Duration)> {
    let mut connection = Connection::open(server.listen).await?;
    let asked = Instant::now();
    let answer = connection.send(&draft.bytes()).await?;
    ensure!(answer.code() == "000000", "{} was answered {}", draft.target, answer.json());
    Ok((connection.local_address()?.port(), asked.elapsed()))
}

/// The trace, once strace has written that the server ended.
pub async fn whole(file: &Path, pid: u32) -> Result<String> {
    let ended = |line: &str| line.starts_with(&format!("{pid} ")) && line.contains("+++ exited");
    let what = format!("strace has written the end of process {pid}");
    let (text, _) = until(&what, LAST_LINE, async || {
        let text = std::fs::read_to_string(file)?;
        Ok(text.lines().any(ended).then_some(text))
    })
    .await?;
    Ok(text)
}

fn print(request: &str, what: &str, proofs: &[Proof], exchanges: &[(u16, Duration)]) {
    println!(
        "{request}: {what} before the first byte of the answer, {} of {} times. The first:",
        proofs.len(),
        exchanges.len()
    );
    for call in proofs.iter().take(1).flat_map(|proof| &proof.0) {
        println!("{call}");
    }
    let fastest = exchanges.iter().map(|(_, took)| *took).min().unwrap_or_default();
    println!("fastest answer, under strace: {:.1} ms", fastest.as_secs_f64() * 1e3);
}
