//! Evidence of a real order, exported by the real command, spoiled in every way there is, and forged.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use countersign::evidence::{Failed, Fault, PublicKey, Verified, verify};
use serde_json::{Value, json};

use crate::backing::{Backing, StoreKind};
use crate::dice::Dice;
use crate::patience::until;
use crate::process::{Deployment, Server, bare};
use crate::receiver::{Receiver, Reply};
use crate::wire::{Connection, Signer};

mod forging;
mod spoiling;

pub use forging::forgeries;
pub use spoiling::{Spoiled, Way, spoil};

/// How long callbacks may take.
const PATIENCE: Duration = Duration::from_secs(20);
const ORDERS: &str = "/operator/v1/payment-orders";

/// How large a run is.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Trials of each way of spoiling.
    pub trials: usize,
    /// What chance is made of.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Lines and bytes of the file.
    pub size: (usize, usize),
    /// Each way with how many trials were found with their place named.
    pub found: Vec<(Way, usize)>,
    /// Chains that were rebuilt without the key, each refused.
    pub forged: usize,
    /// How long all verifications took together.
    pub verified_in: Duration,
}

/// A deployment with one order of a sub-account: made under a rule, paid, told of, and the first attempt at telling failed.
#[derive(Debug)]
pub struct Shop {
    /// The running server.
    pub server: Server,
    /// Its deployment.
    pub deployment: Deployment,
    /// The order.
    pub prepay_id: String,
    /// What the order's merchant signs with.
    pub signer: Signer,
    /// Where callbacks go.
    pub receiver: Receiver,
    folder: tempfile::TempDir,
    _backing: Backing,
}

impl Shop {
    /// Opens it, with this further configuration.
    pub async fn open(kind: StoreKind, config: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let backing = Backing::fresh(kind).await;
        let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing)?;
        deployment.config = format!("callback_schedule = [\"10ms\", \"1s\"]\n{config}");
        let server = deployment.serve()?;
        let receiver = Receiver::start().await?;
        let bank = server.access.institution("bank", 1, None).await?;
        let signer = server.access.application("bank-1", Some(&receiver.url())).await?;
        let upgrade = json!({"sub_merchant_id": "bank-1", "r_markup": 0.333_333_33, "f_markup": 0.5, "effective_date": "2026-01-01 00:00:00"});
        let mut shop =
            Self { server, deployment, prepay_id: String::new(), signer, receiver, folder, _backing: backing };
        shop.signed(&bank, "/rate/commission_rule/upgrade", &upgrade).await?;
        shop.receiver
            .script([Reply::Raw(b"HTTP/1.1 503 Busy\r\nX-Odd: \xff\xfe\r\nContent-Length: 4\r\n\r\nbusy".to_vec())]);
        shop.prepay_id = shop.paid_order("E-1").await?;
        Ok(shop)
    }

    async fn signed(&self, signer: &Signer, target: &str, body: &Value) -> Result<Value> {
        let mut connection = Connection::open(self.server.listen).await?;
        let draft = signer.draft("POST", target, body.to_string().as_bytes());
        let answer = connection.send(&draft.bytes()).await?.json();
        ensure!(answer["code"] == "000000", "{target}: {answer}");
        Ok(answer["data"].clone())
    }

    /// An order that is made, in process, and paid, and whose callbacks have arrived: its number.
    pub async fn paid_order(&self, trade_no: &str) -> Result<String> {
        let body = json!({"merchantTradeNo": trade_no, "currency": "USDT", "orderAmount": "10.5", "goods": {"goodsName": "Tea \u{1f375}"}});
        let made = self.signed(&self.signer, "/v1/pay/order", &body).await?;
        let id = made["prepayId"].as_str().context("a number")?.to_owned();
        for to in ["PROCESS", "PAID"] {
            self.advance(&id, &json!({"status": to})).await?;
        }
        self.told(&id, 2).await?;
        Ok(id)
    }

    /// Moves an order as the back end does.
    pub async fn advance(&self, id: &str, body: &Value) -> Result<()> {
        self.server.access.provision("PATCH", &format!("/payment-orders/{id}"), body.clone()).await?;
        Ok(())
    }

    /// Waits until so many callbacks about an order were delivered.
    pub async fn told(&self, id: &str, count: usize) -> Result<()> {
        let path = format!("/operator/v1/events?bizId={id}&state=delivered");
        let ask = async || {
            let events = self.server.access.call("GET", &path, None).await?.json();
            Ok((events["items"].as_array().map_or(0, Vec::len) == count).then_some(()))
        };
        until("the callbacks are delivered", PATIENCE, ask).await?;
        Ok(())
    }

    /// Where files go.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs `countersign evidence` with these words.
    pub fn command(&self, words: &[&str]) -> Result<Output> {
        let url = format!("http://{}", self.server.access.address);
        let mut command = bare();
        command.env("COUNTERSIGN_OPERATOR_TOKEN", self.deployment.operator_token());
        Ok(command.arg("evidence").args(words).args(["--operator-url", &url]).output()?)
    }

    /// The public key as the command tells it.
    pub fn key(&self) -> Result<PublicKey> {
        let out = self.command(&["key", "--json"])?;
        ensure!(out.status.success(), "evidence key: {}", String::from_utf8_lossy(&out.stderr));
        let said: Value = serde_json::from_slice(&out.stdout)?;
        said["public_key"].as_str().and_then(PublicKey::parse).context("a public key")
    }

    /// Exports an order by the command; the file.
    pub fn export(&self, id: &str) -> Result<PathBuf> {
        let file = self.folder().join(format!("{id}.evidence"));
        let out = self.command(&[id, "-o", file.to_str().context("a path")?])?;
        ensure!(out.status.success(), "evidence: {}", String::from_utf8_lossy(&out.stderr));
        Ok(file)
    }

    /// The history of an order, as operators see it.
    pub async fn shown(&self, id: &str) -> Result<Value> {
        Ok(self.server.access.call("GET", &format!("{ORDERS}/{id}"), None).await?.json())
    }
}

/// What the verifier says of bytes.
pub fn judge(bytes: &[u8], key: PublicKey) -> Result<Result<Verified, Fault>> {
    match verify(BufReader::new(bytes), key) {
        Ok(verified) => Ok(Ok(verified)),
        Err(Failed::Wrong(fault)) => Ok(Err(fault)),
        Err(Failed::Read(error)) => Err(error.into()),
    }
}

/// The command on one file: whether it found it good, and what it said.
fn commanded(shop: &Shop, file: &Path, key: PublicKey) -> Result<(bool, String)> {
    let out = shop.command(&["verify", file.to_str().context("a path")?, "--key", &key.to_hex()])?;
    let said = [&out.stdout[..], &out.stderr[..]].concat();
    Ok((out.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// Runs the plan; an error says what was not found, or which place was named in its stead.
pub async fn run(kind: StoreKind, plan: Plan) -> Result<Report> {
    let shop = Shop::open(kind, "").await?;
    let (file, key) = (shop.export(&shop.prepay_id)?, shop.key()?);
    let good = std::fs::read(&file)?;
    let verified = judge(&good, key)?.map_err(|fault| anyhow::anyhow!("the file itself is refused: {fault}"))?;
    let first = verified.callbacks.first().context("a callback")?;
    ensure!(first.attempts == 2, "the first attempt was to fail: {first:?}");
    let (is_good, said) = commanded(&shop, &file, key)?;
    ensure!(is_good && said.contains(&shop.prepay_id), "the command refuses the file: {said}");
    let mut report = Report { size: (good.split_inclusive(|b| *b == b'\n').count(), good.len()), ..Report::default() };
    let mut dice = Dice::new(plan.seed);
    for way in Way::ALL {
        let mut found = 0;
        for _ in 0..plan.trials {
            let Spoiled { bytes, lines } = spoil(way, &good, &mut dice);
            let began = Instant::now();
            let judged = judge(&bytes, key)?;
            report.verified_in += began.elapsed();
            match judged {
                Err(fault) if lines.contains(&fault.line) => found += 1,
                Err(fault) => bail!("{}: lines {lines:?} were spoiled, and named was {fault}", way.name()),
                Ok(_) => bail!("{}: lines {lines:?} were spoiled, and the file was found good", way.name()),
            }
        }
        report.found.push((way, found));
    }
    let spoiled = spoil(Way::Change, &good, &mut dice);
    std::fs::write(&file, &spoiled.bytes)?;
    let (is_good, said) = commanded(&shop, &file, key)?;
    let place = format!("line {} ", spoiled.lines.start());
    ensure!(
        !is_good && (said.contains(&place) || said.contains(place.trim_end())),
        "the command says {said}, not {place}"
    );
    for (what, forged) in forgeries(&good, &mut dice)? {
        match judge(&forged, key)? {
            Err(_) => report.forged += 1,
            Ok(_) => bail!("a forger without the key was believed: {what}"),
        }
    }
    Ok(report)
}

/// Runs and prints what was seen.
pub async fn report(kind: StoreKind, plan: Plan) -> Result<()> {
    let Plan { trials, seed } = plan;
    println!("evidence of one order, {trials} trials of each way on {}, seed {seed}\n", kind.name());
    let Report { size: (lines, bytes), found, forged, verified_in } = run(kind, plan).await?;
    println!("the file                                {lines} lines, {bytes} bytes");
    for (way, count) in &found {
        println!("{:40}{count} found, each with its place", way.name());
    }
    println!("chains rebuilt without the key          {forged} refused");
    let count = u32::try_from(found.len() * trials).unwrap_or(u32::MAX).max(1);
    println!("one verification                        {:.2} ms", (verified_in / count).as_secs_f64() * 1_000.0);
    Ok(())
}
