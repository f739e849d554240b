//! A panic in the middle of a signed request, in a process of its own whose words are kept.

use std::convert::Infallible;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::{Context as _, Result, ensure};
use countersign::edges::IntakeLimits;
use countersign::log::{self, LogSink};
use countersign::merchant::{Budget, Edge, EdgeSettings};
use countersign::source::Sources;
use countersign_protocol::headers::Prefixes;
use countersign_protocol::signing::SigningKey;
use hyper::Request;
use hyper::body::{Body, Bytes, Frame};
use serde_json::json;

use super::search::Needles;
use crate::backing::StoreKind;
use crate::process::binary;
use crate::wire::Signer;
use crate::world::World;

/// What the program of the testkit is told to become this.
pub const WORD: &str = "panic";
/// How many secrets are in use when it happens.
const SECRETS: usize = 10;

/// A body that breaks whoever reads it.
#[derive(Debug)]
struct Bomb;

impl Body for Bomb {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("a fault on purpose");
    }
}

/// Starts the program `canaries` anew to panic there; adds the secrets that were in use, and returns all that was printed.
pub fn in_a_process_of_its_own(folder: &Path, needles: &mut Needles) -> Result<Vec<u8>> {
    let program = binary().with_file_name("canaries");
    let words = folder.join("panic.log");
    let out = Command::new(&program)
        .arg(WORD)
        .env("RUST_BACKTRACE", "full")
        .stdin(Stdio::null())
        .stderr(File::create(&words)?)
        .output()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    let printed = std::fs::read(&words)?;
    ensure!(out.status.success(), "it did not come through: {}", String::from_utf8_lossy(&printed));
    let secrets = String::from_utf8(out.stdout)?;
    ensure!(secrets.lines().count() == SECRETS, "it did not say which secrets it had: {secrets}");
    for secret in secrets.lines() {
        needles.add(secret);
    }
    let text = String::from_utf8_lossy(&printed);
    ensure!(text.contains("a fault on purpose") && text.contains("stack backtrace"), "nothing panicked: {text}");
    Ok(printed)
}

/// What that process does. Its secrets go to stdout, everything else to stderr.
pub async fn panic_here() -> Result<()> {
    let (sink, _guard) = LogSink::start(std::io::stderr())?;
    log::install(&sink, "trace");
    let world = World::start_on(StoreKind::Sqlite, |_| {}).await?;
    world.access.institution("bank", 0, None).await?;
    let settings = EdgeSettings {
        prefixes: Prefixes::new(&["X-Service-".to_owned()])?,
        limits: IntakeLimits::default(),
        sources: Sources::default(),
        budget: Budget::default(),
        request_limit: Arc::default(),
    };
    let edge = Edge::new(world.running.app.clone(), settings, sink)?;
    for _ in 0..SECRETS {
        let made = world.access.provision("POST", "/merchants/bank/applications", json!({"name": "a"})).await?;
        let secret = made["payment_api_secret"].as_str().context("a secret")?;
        println!("{secret}");
        let client_id = made["client_id"].as_str().context("a ClientId")?.to_owned();
        let signer = Signer { client_id, key: SigningKey::new(secret.as_bytes()), merchant_id: None };
        let draft = world.draft(&signer, "GET", "/v1/pay/events", "");
        world.send(&draft).await?;
        let mut request =
            Request::builder().method("POST").uri("/rate/commission_rule/upgrade").header("host", "localhost");
        for (name, value) in &draft.headers {
            request = request.header(name, value);
        }
        let answer = edge.serve(request.body(Bomb)?, IpAddr::V4(Ipv4Addr::LOCALHOST)).await;
        ensure!(answer.status() == 500, "a panic is answered {}", answer.status());
    }
    world.running.stop().await
}
