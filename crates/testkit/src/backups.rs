//! Backups of the real server under load, each restored elsewhere: what is there is a prefix of what was acknowledged, and nothing is sent.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use countersign_store::testing::Database;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::backing::{Backing, StoreKind};
use crate::books::{check_acknowledged, check_versions};
use crate::kill::load::{Aim, Broken, Load, Sent};
use crate::patience::until;
use crate::process::{Deployment, Server};
use crate::wire::{Connection, once};

/// Sub-accounts that upgrades are spread over.
const SUB_ACCOUNTS: usize = 16;
/// How long nothing may be sent though it is due, at least.
const DUE_AND_HELD: Duration = Duration::from_secs(3);
/// It is this many times what a released one needs until it sends: else the silence shows nothing.
const SHOWN_BY: u32 = 3;
/// How long a released deployment may take to send.
const PATIENCE: Duration = Duration::from_secs(30);

/// What all rounds together have shown.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Backups, each restored elsewhere.
    pub rounds: usize,
    /// Changes acknowledged before a backup began: all found in what was restored from it.
    pub acknowledged: usize,
    /// Changes acknowledged from a moment before a backup until one after it.
    pub meanwhile: usize,
    /// Upgrades acknowledged between the begin and the end of the command.
    pub during: usize,
    /// Lines of the audit logs of what was restored: each a prefix of the original's.
    pub lines: u64,
    /// Requests that the original had accepted, refused by the restored.
    pub replays_refused: usize,
    /// Bytes of the last backup.
    pub bytes: u64,
}

/// Takes and restores `rounds` backups.
pub async fn run(kind: StoreKind, rounds: usize) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    let backing = Backing::fresh(kind).await;
    let mut deployment = Deployment::init_on(&folder.path().join("data"), &backing)?;
    deployment.config.push_str("rate_limit_per_s = 0\n");
    let server = deployment.serve()?;
    // Nobody listens there: whatever was emitted is due, again and again.
    let deaf = "http://127.0.0.1:9/callback";
    let signer = Arc::new(server.access.institution("bank", SUB_ACCOUNTS, Some(deaf)).await?);
    let order = server.access.convert_order("bank").await?;
    let aim = Aim {
        listen: server.listen,
        access: server.access.clone(),
        signer: signer.clone(),
        order: order.clone(),
        clients: vec![signer.client_id.clone()],
        writers: SUB_ACCOUNTS,
        broken: Broken::GoOn,
    };
    let mut report = Report { rounds, ..Report::default() };
    for round in 0..rounds {
        let before = worked(&aim).await?;
        let load = Load::start(&aim);
        load.until_acknowledged(20).await?;
        let file = folder.path().join(format!("backup-{round}"));
        // Where the load itself stood still meanwhile, the backup is made anew.
        let made = async || {
            let at_begin = load.acknowledged();
            let said = tokio::task::block_in_place(|| deployment.backup(&file))?;
            let during = load.acknowledged() - at_begin;
            if during == 0 {
                std::fs::remove_file(&file)?;
            }
            Ok((during > 0).then_some((said, during)))
        };
        let ((said, during), _) = until("something is acknowledged while a backup is made", PATIENCE, made).await?;
        report.during += during;
        report.bytes = said["backup"]["bytes"].as_u64().unwrap_or_default();
        load.until_acknowledged(20).await?;
        let meanwhile = load.stop().await;
        ensure!(
            meanwhile.refused.is_empty() && meanwhile.away == 0 && meanwhile.broken == 0,
            "a backup was noticed: {} answers of 503, {} broken connections, refused {:?}",
            meanwhile.away,
            meanwhile.broken,
            meanwhile.refused.first()
        );
        report.acknowledged += before.upgrades.len() + before.events.len();
        report.meanwhile += meanwhile.upgrades.len() + meanwhile.events.len();
        restored(
            &Round { kind, deployment: &deployment, file: &file, folder: folder.path(), number: round },
            &server,
            &before,
            &mut report,
        )
        .await?;
        // Two of each of many are enough disk.
        std::fs::remove_file(&file)?;
    }
    ensure!(server.terminate()?, "the server did not end with code 0 after SIGTERM");
    Ok(report)
}

async fn worked(aim: &Aim) -> Result<Sent> {
    let load = Load::start(aim);
    load.until_acknowledged(20).await?;
    let sent = load.stop().await;
    ensure!(sent.away == 0 && sent.broken == 0, "a server without trouble was away");
    ensure!(sent.refused.is_empty(), "an honest request was refused: {:?}", sent.refused.first());
    Ok(sent)
}

/// One backup and where it goes.
struct Round<'a> {
    kind: StoreKind,
    deployment: &'a Deployment,
    file: &'a Path,
    folder: &'a Path,
    number: usize,
}

/// What was restored from a backup, and serves.
struct Restored {
    server: Server,
    data: PathBuf,
    // Behind the server: fields are dropped in this order.
    _database: Option<Database>,
}

impl Round<'_> {
    async fn restore(&self) -> Result<Restored> {
        let data = self.folder.join(format!("restored-{}", self.number));
        let database = if self.kind == StoreKind::Postgres { Some(Database::new().await) } else { None };
        let url = database.as_ref().map(Database::url);
        let mut deployment = tokio::task::block_in_place(|| self.deployment.restore(self.file, &data, url))?;
        deployment.config.push_str("rate_limit_per_s = 0\n");
        Ok(Restored { server: deployment.serve()?, data, _database: database })
    }
}

impl Restored {
    fn end(self) -> Result<()> {
        ensure!(self.server.terminate()?, "what was restored did not end with code 0 after SIGTERM");
        std::fs::remove_dir_all(&self.data)?;
        Ok(())
    }
}

async fn restored(of: &Round<'_>, original: &Server, before: &Sent, report: &mut Report) -> Result<()> {
    let copy = of.restore().await?;
    let server = &copy.server;

    // All that was acknowledged before is there, and what is there is what the original has, line by line, up to some line.
    let config_ids = before.upgrades.iter().map(|(_, config_id)| config_id);
    check_acknowledged(&server.access, SUB_ACCOUNTS, config_ids, before.events.iter()).await?;
    let heads = heads_before_the_restore(server).await?;
    let own = server.access.provision("POST", "/audit/verify", json!({})).await?;
    ensure!(own["holds"] == true, "the audit log of what was restored does not hold: {own}");
    let theirs = original.access.provision("POST", "/audit/verify", json!({ "heads": heads })).await?;
    ensure!(theirs["holds"] == true, "what was restored is no prefix of the original: {theirs}");
    report.lines += own["lines"].as_u64().unwrap_or_default();
    let upgrades = check_versions(&server.access, SUB_ACCOUNTS).await?;
    check_effects(server, upgrades).await?;

    // What the original has accepted is not accepted again.
    for draft in before.upgrades.iter().map(|(draft, _)| draft).take(5).chain(before.queries.iter().take(5)) {
        let answer = once(server.listen, &draft.bytes()).await?;
        ensure!(answer.code() == "400003", "an accepted request came to {} {}", answer.status, answer.json());
        report.replays_refused += 1;
    }
    let mut silence = DUE_AND_HELD;
    let mut took = sends_when_told(server, silence).await?;
    copy.end()?;
    // Where a released one needed long, another copy shows more by a longer silence.
    while took * SHOWN_BY > silence {
        silence = took * SHOWN_BY;
        let copy = of.restore().await?;
        took = sends_when_told(&copy.server, silence).await?;
        copy.end()?;
    }
    Ok(())
}

/// The heads of the audit log as the backup has them: the restored deployment has put a line behind the system's.
async fn heads_before_the_restore(server: &Server) -> Result<Vec<Value>> {
    let mut heads = items(server, "/audit/heads").await?;
    let lines = items(server, "/audit/lines").await?;
    let of_the_system: Vec<&Value> = lines.iter().filter(|line| line["merchant_id"].is_null()).collect();
    let [.., last, restore] = of_the_system[..] else { bail!("too few lines of the system: {of_the_system:?}") };
    ensure!(restore["action"] == "deployment.restore", "the audit log does not end with the restore: {restore}");
    let head = heads.iter_mut().find(|head| head["merchant_id"].is_null()).context("the system's own lines")?;
    *head = json!({ "merchant_id": null, "no": last["no"], "link": last["link"] });
    Ok(heads)
}

async fn items(server: &Server, path: &str) -> Result<Vec<Value>> {
    let (mut all, mut after) = (Vec::new(), String::new());
    let mut connection = Connection::open(server.access.address).await?;
    loop {
        let target = format!("/operator/v1{path}?limit=500{after}");
        let page = server.access.call_on(&mut connection, "GET", &target).await?.json();
        all.extend(page["items"].as_array().context("items")?.iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(all),
        }
    }
}

/// Each change and its line of the audit log came together.
async fn check_effects(server: &Server, upgrades: usize) -> Result<()> {
    let lines = items(server, "/audit/lines").await?;
    let of = |action: &str| lines.iter().filter(|line| line["action"] == action).count();
    let events = items(server, "/events").await?.len();
    // The first version of each sub-account is an upgrade, too.
    ensure!(of("fee_rule.upgrade") == upgrades, "{} lines of upgrades, {upgrades} versions", of("fee_rule.upgrade"));
    ensure!(of("event.emit") == events, "{} lines of events, {events} events", of("event.emit"));
    Ok(())
}

/// Whether a server has made an attempt at a callback since its start.
async fn attempts(server: &Server) -> Result<bool> {
    let answer = once(server.access.address, &server.access.draft("GET", "/metrics", None).bytes()).await?;
    let said = String::from_utf8_lossy(&answer.body).into_owned();
    let mut counted = said.lines().filter(|line| line.starts_with("countersign_callback_attempts_total{"));
    Ok(counted.any(|line| !line.ends_with("} 0")))
}

/// Nothing is sent though much is due, for so long; once it is told to, it sends. How long that took.
async fn sends_when_told(server: &Server, silence: Duration) -> Result<Duration> {
    let ready = once(server.access.address, &server.access.draft("GET", "/readyz", None).bytes()).await?.json();
    ensure!(ready["delivery"] == "held", "/readyz does not say that callbacks are held: {ready}");
    until("something is due", PATIENCE, async || Ok(is_due(server).await?.then_some(()))).await?;
    sleep(silence).await;
    ensure!(!attempts(server).await?, "a restored deployment has sent before it was told to");
    server.access.provision("POST", "/delivery/release", json!({})).await?;
    let sends = async || Ok(attempts(server).await?.then_some(()));
    Ok(until("a released deployment sends", PATIENCE, sends).await?.1)
}

/// Whether any callback may go by now: it is due, and waits for no earlier one of its bizId.
async fn is_due(server: &Server) -> Result<bool> {
    let events = items(server, "/events").await?;
    let mut first: HashMap<(&str, &str), (i64, bool)> = HashMap::new();
    // Of a bizId the first is the only one that is certain to go. While all callbacks are held no event has a time: one that was never tried is
    // due since it was made.
    for event in events.iter().filter(|event| event["state"] == "pending") {
        let text = |key: &str| event[key].as_str().with_context(|| format!("an event's {key}: {event}"));
        let sequence = event["sequence"].as_i64().context("a sequence")?;
        let this = (sequence, event["attempt_count"] == 0);
        let known = first.entry((text("client_id")?, text("bizId")?)).or_insert(this);
        *known = this.min(*known);
    }
    Ok(first.values().any(|(_, is_new)| *is_new))
}

/// Prints a report.
pub fn print(report: &Report) {
    println!("backups under load, restored elsewhere    {}", report.rounds);
    println!("acknowledged before a backup, all found   {}", report.acknowledged);
    println!(
        "acknowledged while backups were made      {}, {} upgrades within the command",
        report.meanwhile, report.during
    );
    println!("lines of audit logs, each a prefix        {}", report.lines);
    println!("replays to what was restored, refused     {}", report.replays_refused);
    println!("bytes of the last backup                  {}", report.bytes);
}
