//! The master key is changed while the real server runs, which is killed at a random point of it; then every secret is used.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::backing::{Backing, StoreKind};
use crate::dice::Dice;
use crate::process::{Deployment, Server};
use crate::wire::{Connection, Signer};

/// Secrets at the beginning, one of each application.
const SECRETS: usize = 120;

/// Rounds beyond those asked for, where too few kills came in the middle: how long a re-wrap takes changes with the machine's load.
const MORE: usize = 20;

/// What all rounds together have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Changes of the master key, each with a kill.
    pub rounds: usize,
    /// Kills that came before the first secret was sealed again, between the first and the last, and after the last.
    pub kills: (usize, usize, usize),
    /// Signed requests, each proving one secret readable.
    pub proofs: usize,
}

impl Report {
    /// An error where too few kills came in the middle of a re-wrap: the others show nothing.
    pub fn verdict(&self) -> Result<()> {
        let (before, between, after) = self.kills;
        ensure!(before + between + after == self.rounds, "{self:?}: a round without a kill");
        ensure!(
            self.is_telling(),
            "only {between} of {} kills came between the first secret and the last",
            self.rounds
        );
        Ok(())
    }

    /// Enough kills came in the middle: those that come before the first secret or after the last show nothing.
    fn is_telling(&self) -> bool {
        self.kills.1 >= (self.rounds / 5).max(1)
    }
}

/// What a kill waits for.
enum Point {
    /// So long after the call was sent.
    After(Duration),
    /// So many portions told in the audit log: how long a portion takes changes with the machine's load.
    Portions(usize),
}

impl Point {
    /// Every third anything, up to a bit behind the end of a `whole` re-wrap; the others its middle.
    fn next(whole: Duration, round: usize, dice: &mut Dice) -> Result<Self> {
        Ok(if round.is_multiple_of(3) {
            Self::After(whole.mul_f64(f64::from(i32::try_from(dice.between(0, 1_100))?) / 1_000.0))
        } else {
            Self::Portions(usize::try_from(dice.between(1, 3))?)
        })
    }

    /// Returns when that is so.
    async fn come(self, server: &Server) -> Result<()> {
        let wanted = match self {
            Self::After(pause) => {
                tokio::time::sleep(pause).await;
                return Ok(());
            }
            Self::Portions(wanted) => wanted,
        };
        let mut connection = Connection::open(server.access.address).await?;
        let key = server.access.call_on(&mut connection, "GET", "/operator/v1/master-key").await?.json();
        let key_id = key["key_id"].as_str().with_context(|| format!("no key: {key}"))?;
        let target = format!("/operator/v1/audit?action=master_key.rewrap_secrets&subject={key_id}&limit={wanted}");
        loop {
            let told = server.access.call_on(&mut connection, "GET", &target).await?.json();
            let items = told["items"].as_array().with_context(|| format!("no list: {told}"))?;
            if items.len() >= wanted {
                return Ok(());
            }
            // A portion takes longer than this.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Changes the key `rounds` times, and up to [`MORE`] times more until enough kills came in the middle.
/// An error names the first secret that could not be used.
pub async fn run(kind: StoreKind, rounds: usize, seed: u64) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let backing = Backing::fresh(kind).await;
    let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing)?;
    let mut dice = Dice::new(seed);
    let mut key = deployment.data.join("master.key");
    let server = deployment.serve()?;
    let mut signers = vec![server.access.institution("bank", 0, None).await?];
    for _ in 1..SECRETS {
        signers.push(server.access.application("bank", None).await?);
    }
    let order = server.access.convert_order("bank").await?;
    let evidence_key = evidence_key(&server).await?;
    ensure!(server.terminate()?, "the first process did not end in order");
    let mut report = Report::default();
    // How long a whole re-wrap takes: the first one, of its own, is let to its end.
    let mut whole: Option<Duration> = None;
    for round in 0..=rounds + MORE {
        if round > rounds && report.is_telling() {
            break;
        }
        let next = new_key(folder.path(), round, &mut dice)?;
        let (to, from) = (next.display(), key.display());
        deployment.config =
            format!("master_key_file = \"{to}\"\nmaster_key_previous_file = \"{from}\"\nrate_limit_per_s = 0\n");
        let server = deployment.serve()?;
        let Some(whole) = whole else {
            let began = Instant::now();
            ensure!(finish(&server).await? == signers.len(), "the first change seals every secret again");
            whole = Some(began.elapsed());
            ensure!(server.terminate()?, "a process did not end with code 0 after SIGTERM");
            key = next;
            continue;
        };
        let call = server.access.provision("POST", "/master-key/rewrap", json!({}));
        let point = Point::next(whole, round, &mut dice)?;
        // Whether the answer came or not: the kill comes at that point.
        tokio::select! {
            answered = call => drop(answered.context("a re-wrap failed before its kill")?),
            came = point.come(&server) => came?,
        }
        server.kill();
        let server = deployment.serve()?;
        report.proofs += prove(&server, &signers, &order).await?;
        let left = finish(&server).await?;
        report.rounds += 1;
        match left {
            0 => report.kills.2 += 1,
            all if all == signers.len() => report.kills.0 += 1,
            _ => report.kills.1 += 1,
        }
        // One more each time: what was made under the last key is sealed under the next one.
        signers.push(server.access.application("bank", None).await?);
        ensure!(server.terminate()?, "a process did not end with code 0 after SIGTERM");
        // Without the old key.
        deployment.config = format!("master_key_file = \"{}\"\nrate_limit_per_s = 0\n", next.display());
        let server = deployment.serve()?;
        report.proofs += prove(&server, &signers, &order).await?;
        // One application was made in each round before, and its secret is sealed again in each round after.
        ensure_told(&server, SECRETS + round - 1).await?;
        let verified = server.access.provision("POST", "/audit/verify", json!({})).await?;
        ensure!(verified["holds"] == true, "the audit log does not hold under the new key: {verified}");
        ensure!(evidence_key == self::evidence_key(&server).await?, "evidence is signed by another key than before");
        ensure!(server.terminate()?, "a process did not end with code 0 after SIGTERM");
        key = next;
    }
    Ok(report)
}

/// A key file that only its owner may read.
fn new_key(folder: &Path, round: usize, dice: &mut Dice) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let file = folder.join(format!("key-{round}"));
    let digits: Vec<String> = (0..4).map(|_| format!("{:016x}", dice.bits())).collect();
    std::fs::write(&file, digits.concat())?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Finishes what a kill has left; how many secrets that were.
async fn finish(server: &Server) -> Result<usize> {
    let mut sealed = 0;
    loop {
        let done = server.access.provision("POST", "/master-key/rewrap", json!({})).await?;
        ensure!(done["unreadable"] == json!([]), "secrets are lost: {done}");
        sealed += usize::try_from(done["rewrapped"].as_u64().unwrap_or_default())?;
        if done["done"] == true {
            return Ok(sealed);
        }
    }
}

/// The public key of the deployment's evidence: sealed again, it is the same.
async fn evidence_key(server: &Server) -> Result<String> {
    let told = server.access.call("GET", "/operator/v1/evidence/key", None).await?.json();
    Ok(told["public_key"].as_str().with_context(|| format!("no key: {told}"))?.to_owned())
}

/// The audit log tells of every secret that was sealed again, whatever was killed, and of the deployment's own keys.
async fn ensure_told(server: &Server, secrets: usize) -> Result<()> {
    let key = server.access.call("GET", "/operator/v1/master-key", None).await?.json();
    ensure!(key["all_rewrapped"] == true, "something is left under an old key: {key}");
    let mut connection = Connection::open(server.access.address).await?;
    let (mut after, mut told, mut own) = (String::new(), 0, [0; 2]);
    loop {
        let target = format!("/operator/v1/audit?limit=500{after}");
        let page = server.access.call_on(&mut connection, "GET", &target).await?.json();
        for line in page["items"].as_array().into_iter().flatten().filter(|line| line["subject"] == key["key_id"]) {
            match line["action"].as_str() {
                Some("master_key.rewrap_secrets") => told += line["after"]["rewrapped"].as_u64().unwrap_or_default(),
                Some("master_key.rewrap_chain_key") => own[0] += 1,
                Some("master_key.rewrap_evidence_key") => own[1] += 1,
                Some(_) | None => {}
            }
        }
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    ensure!(told == u64::try_from(secrets)?, "{secrets} secrets were sealed again, the audit log tells of {told}");
    ensure!(own == [1; 2], "the keys of chain and evidence were sealed again once, the audit log tells of {own:?}");
    Ok(())
}

/// Every secret signs a request that is accepted.
async fn prove(server: &Server, signers: &[Signer], order: &str) -> Result<usize> {
    let mut connection = Connection::open(server.listen).await?;
    for signer in signers {
        let draft = signer.draft("GET", &crate::kill::load::query_target(order), b"");
        let answer = connection.send(&draft.bytes()).await?;
        ensure!(answer.code() == "000000", "a secret of {} is not readable: {}", signer.client_id, answer.json());
    }
    Ok(signers.len())
}

/// Prints a report.
pub fn print(report: &Report) {
    let (before, between, after) = report.kills;
    println!("changes of the master key, each killed    {}", report.rounds);
    println!("  before the first secret                 {before}");
    println!("  between the first and the last          {between}");
    println!("  after the last                          {after}");
    println!("requests signed, every secret, accepted   {}", report.proofs);
}
