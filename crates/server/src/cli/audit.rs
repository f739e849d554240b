//! `audit`: the log of who did what, its chain, and its export. At the machine, without a server, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand};
use countersign_store::AnyStore;
use hyper::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::operator::{Call, Direct, OperatorArgs, PageArgs, accepted, table};
use super::settings::DataArgs;
use crate::app::audit_chain::{self, KeptHead};
use crate::config::Config;
use crate::datadir::DataDir;
use crate::operator::audit_chain::AuditLink;
use crate::run::Database;
use crate::vault::Vault;
use crate::{keys, run};

const COLUMNS: &[&str] = &["at", "actor", "source", "action", "subject", "request_id"];
/// Lines asked for at a time.
const PAGE: u32 = 500;

/// The audit log.
#[derive(Debug, Args)]
pub struct Audit {
    /// How the operator API is reached.
    #[command(flatten)]
    pub operator: OperatorArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: AuditCommand,
}

/// What can be done with the log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List who did what, newest first
    List(PageArgs),
    /// Walk over the whole log and name the first line that is not what was written
    Verify(VerifyArgs),
    /// The end of each chain, a JSON line each: keep them elsewhere, and give them to `verify --heads`
    Heads(AtMachine),
    /// Every line with its link, a JSON line each
    Export(AtMachine),
}

/// Where the log is: with --data or --database-url at the machine, without a server, else behind the operator API.
#[derive(Debug, Args)]
pub struct AtMachine {
    /// Where the data is.
    #[command(flatten)]
    pub data: DataArgs,
}

/// How the log is verified.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Where the log is.
    #[command(flatten)]
    pub place: AtMachine,
    /// File of heads that `audit heads` printed earlier: what was cut off since is found by them
    #[arg(long, value_name = "FILE")]
    pub heads: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Verdict {
    holds: bool,
    lines: u64,
    chains: u64,
    lines_before_chain: u64,
    fault: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    merchant_id: Option<String>,
    no: i64,
    what: String,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
    next: Option<String>,
}

impl Audit {
    /// Does it.
    pub fn run(&self, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
        match &self.command {
            AuditCommand::List(page) => {
                let call = Call::list("/audit", COLUMNS).page(page);
                let answer = Direct::new(&self.operator, environment)?.send(&call)?;
                let body = accepted(&answer)?;
                super::say(&if self.operator.json { format!("{}\n", body.trim_end()) } else { table(&call, body) });
                Ok(ExitCode::SUCCESS)
            }
            AuditCommand::Verify(args) => self.verify(args, environment),
            AuditCommand::Heads(place) => self.print(place, "/audit/heads", environment),
            AuditCommand::Export(place) => self.print(place, "/audit/lines", environment),
        }
    }

    fn verify(&self, args: &VerifyArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
        let kept = args.heads.as_deref().map(read_heads).transpose()?.unwrap_or_default();
        let answer = if let Some(config) = args.place.config(environment)? {
            let act = async |store: &AnyStore, vault: &Vault| Ok(audit_chain::verify_named(vault, store, kept).await?);
            serde_json::to_string(&at_machine(&config, act)?)?
        } else {
            let heads = serde_json::to_string(&kept)?;
            let call = Call::new(Method::POST, "/audit/verify").raw("heads", Some(heads));
            accepted(&Direct::new(&self.operator, environment)?.send(&call)?)?.to_owned()
        };
        if self.operator.json {
            super::say(&format!("{}\n", answer.trim_end()));
        }
        let verdict: Verdict = serde_json::from_str(&answer).context("the answer cannot be read")?;
        if let Some(Fault { merchant_id, no, what }) = verdict.fault {
            let of = merchant_id.unwrap_or_else(|| "the system".to_owned());
            bail!("the audit log does not hold: line {no} of {of}: {what}");
        }
        ensure!(verdict.holds, "the audit log does not hold");
        if !self.operator.json {
            let before = match verdict.lines_before_chain {
                0 => String::new(),
                count => format!(", {count} of them from before the chain"),
            };
            super::say(&format!(
                "The audit log holds: {} lines in {} chains{before}.\n",
                verdict.lines, verdict.chains
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints every item of a list, one a line, as it comes.
    fn print(
        &self,
        place: &AtMachine,
        path: &'static str,
        environment: &BTreeMap<String, String>,
    ) -> anyhow::Result<ExitCode> {
        if let Some(config) = place.config(environment)? {
            at_machine(&config, async |store, _| {
                if path == "/audit/heads" { print_heads(store).await } else { print_lines(store).await }
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let direct = Direct::new(&self.operator, environment)?;
        let mut after = None;
        loop {
            let page = PageArgs { limit: Some(PAGE), after };
            let answer = direct.send(&Call::new(Method::GET, path).page(&page))?;
            let page: Page<'_> = serde_json::from_str(accepted(&answer)?).context("the answer cannot be read")?;
            let lines: Vec<String> = page.items.iter().map(|item| format!("{item}\n")).collect();
            super::say(&lines.concat());
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

impl AtMachine {
    /// The settings, where flags say that the log is read at the machine.
    fn config(&self, environment: &BTreeMap<String, String>) -> anyhow::Result<Option<Config>> {
        let DataArgs { data, database_url, master_key: _, config } = &self.data;
        if data.is_none() && database_url.is_none() && config.is_none() {
            return Ok(None);
        }
        Ok(Some(self.data.load(environment)?))
    }
}

fn read_heads(file: &Path) -> anyhow::Result<Vec<KeptHead>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let heads = text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str);
    heads.collect::<Result<_, _>>().with_context(|| format!("{} holds no heads of the audit log", file.display()))
}

async fn print_heads(store: &AnyStore) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let page = audit_chain::named_heads(store, after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(*last);
        for (_, head) in &page {
            super::say(&format!("{}\n", serde_json::to_string(head)?));
        }
    }
}

async fn print_lines(store: &AnyStore) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let page = audit_chain::named_lines(store, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.place);
        for line in &page {
            super::say(&format!("{}\n", serde_json::to_string(&AuditLink::from(line))?));
        }
    }
}

/// Opens the deployment without serving it. A folder is taken for this command alone; a shared database may be served meanwhile.
fn at_machine<T>(config: &Config, act: impl AsyncFnOnce(&AnyStore, &Vault) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let data = DataDir::open(&config.data)?;
    let _lock = match Database::of(config)? {
        Database::Sqlite => {
            let path = data.database();
            ensure!(path.exists(), "{} is not there: name the data folder with --data", path.display());
            let lock = data.lock();
            Some(lock.context("ask the running server instead (leave --data out), or stop it")?)
        }
        Database::Postgres(_) => None,
    };
    super::small_runtime()?.block_on(async {
        let vault = keys::vault(config, &data)?;
        let store = run::open_store(config, &data).await?;
        let outcome = act(&store, &vault).await;
        run::close_store(&store)?;
        outcome
    })
}
