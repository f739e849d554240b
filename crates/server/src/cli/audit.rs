//! `audit`: the log of who did what, its chain, and its export. At the machine, without a server, too.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use countersign_store::{AnyStore, StoreError};
use hyper::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Usage;
use super::input::Input;
use super::numbers::counted;
use super::operator::{Call, Direct, OperatorArgs, PageArgs, accepted, table};
use super::out::shown;
use super::settings::DataArgs;
use super::tables::one_by_one;
use crate::app::audit_chain::{self, Begun, KeptHead, VerifiedFault};
use crate::app::error::AppError;
use crate::chance::hex;
use crate::config::Config;
use crate::datadir::DataRefused;
use crate::operator::audit_chain::AuditLink;
use crate::run::chain::{self, BegunHere};
use crate::run::deployment_settings::Settings;
use crate::run::{Machine, deployment_settings};

const COLUMNS: &[&str] = &["at", "actor", "source", "action", "subject", "request_id"];
/// The most that kept heads are read of: those of millions of merchants fit.
const HEADS_BYTES_MAX: u64 = 1 << 30;
/// The most that a line of kept heads is read of; one has some 150 bytes.
const HEAD_BYTES_MAX: u64 = 4096;
/// Lines asked for at a time.
const PAGE: u32 = 500;
/// Heads sent at a time: well below the largest body.
const HEADS_PER_CALL: usize = 500;
/// How often a long walk says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

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
    List(ListArgs),
    /// Walk over the whole log and name what is not as it was written: the first twenty lines of it
    Verify(VerifyArgs),
    /// The end of each chain, a JSON line each: keep them elsewhere, and give them to `verify --heads`
    Heads(AtMachine),
    /// Every line with its link, a JSON line each
    Export(AtMachine),
    /// Begin the chain of a deployment that a program from before the chain made, at the machine, with every node stopped
    Begin(BeginArgs),
}

/// Flags of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only lines of this institution, those about its sub-accounts included, or of this plain merchant
    #[arg(long, visible_alias = "merchant-id", value_name = "ID")]
    pub merchant: Option<String>,
    /// Only what this one did: token:tok_..., application:app_..., system, or machine for commands at the machine
    #[arg(long)]
    pub actor: Option<String>,
    /// Only this action; `fee_rule.`, with a dot at its end, is every action that begins so
    #[arg(long)]
    pub action: Option<String>,
    /// Only what was done to this
    #[arg(long)]
    pub subject: Option<String>,
    /// Only what this request did
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
    /// Only at this instant or later, as 2026-01-31T08:00:00Z
    #[arg(long, value_name = "INSTANT")]
    pub from: Option<String>,
    /// Only before this instant
    #[arg(long, value_name = "INSTANT")]
    pub to: Option<String>,
    /// Show what each line changed: every member of it, before and after among them
    #[arg(long)]
    pub changes: bool,
    /// Which page.
    #[command(flatten)]
    pub page: PageArgs,
}

impl ListArgs {
    fn call(&self) -> Call {
        Call::list("/audit", COLUMNS)
            .query("merchant_id", self.merchant.clone())
            .query("actor", self.actor.clone())
            .query("action", self.action.clone())
            .query("subject", self.subject.clone())
            .query("request_id", self.request_id.clone())
            .query("from", self.from.clone())
            .query("to", self.to.clone())
            .page(&self.page)
    }
}

/// Flags of `begin`.
#[derive(Debug, Args)]
pub struct BeginArgs {
    /// Where the data is.
    #[command(flatten)]
    pub data: DataArgs,
    /// Begin it over a log that is broken already, or whose chain was taken away: what is wrong stays named
    #[arg(long)]
    pub accept: bool,
}

/// Where the log is: with --data or --database-url at the machine, without a server, else behind the operator API.
#[derive(Clone, Debug, Args)]
pub struct AtMachine {
    /// Read the log in this data folder, without a server [default: the operator API is asked]
    #[arg(long, value_name = "DIR", value_parser = NonEmptyStringValueParser::new())]
    pub data: Option<String>,
    /// Read the log in this database, without a server
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub database_url: Option<String>,
    /// File of the master key, beside the two above [default: master.key in the data folder]
    #[arg(long, value_name = "FILE", value_parser = NonEmptyStringValueParser::new())]
    pub master_key: Option<String>,
    /// Read the log where this settings file (TOML) says, without a server
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// How the log is verified.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Where the log is.
    #[command(flatten)]
    pub place: AtMachine,
    /// File of heads that `audit heads` printed earlier, - is standard input: what was cut off since is found by them
    #[arg(long, value_name = "FILE")]
    pub heads: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Verdict {
    holds: Option<bool>,
    lines: u64,
    chains: u64,
    lines_before_chain: u64,
    #[serde(default)]
    faults: Vec<VerifiedFault>,
    next: Option<String>,
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
            AuditCommand::List(list) => {
                let call = list.call();
                let answer = Direct::new(&self.operator, environment)?.send(&call)?;
                let body = accepted(&answer)?;
                super::say(&match (self.operator.json, list.changes) {
                    (true, _) => format!("{}\n", body.trim_end()),
                    (false, true) => one_by_one(&call, body),
                    (false, false) => table(&call, body),
                })?;
                Ok(ExitCode::SUCCESS)
            }
            AuditCommand::Verify(args) => self.verify(args, environment),
            AuditCommand::Heads(place) => self.print(place, "/audit/heads", environment),
            AuditCommand::Export(place) => self.print(place, "/audit/lines", environment),
            AuditCommand::Begin(args) => self.begin(args, environment),
        }
    }

    fn verify(&self, args: &VerifyArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
        let file = args.heads.as_deref().map(Input::named);
        let kept = file.map(read_heads).transpose()?.unwrap_or_default();
        let compared = file.map(|file| (kept.len(), file));
        let answer = if let Some(config) = args.place.config(environment)? {
            let mut progress = Progress::default();
            let act = async |machine: &Machine| {
                chain::compare(&machine.data, &machine.vault, &machine.store).await?;
                let tell = |lines| progress.show(lines);
                Ok(audit_chain::verify_named(&machine.vault, &machine.store, kept, tell).await?)
            };
            serde_json::to_string(&at_machine(&config, act)?)?
        } else {
            ask_until_the_end(&Direct::new(&self.operator, environment)?, &kept)?
        };
        let verdict: Verdict = serde_json::from_str(&answer).context("the answer cannot be read")?;
        if self.operator.json {
            super::say(&format!("{}\n", answer.trim_end()))?;
        }
        if !verdict.faults.is_empty() {
            let said: Vec<String> = verdict.faults.iter().map(in_words).collect();
            bail!("the audit log does not hold: {}", said.join("; "));
        }
        ensure!(verdict.holds == Some(true), "the audit log does not hold");
        if !self.operator.json {
            super::say(&verdict.in_words(compared))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Begins the chain, and says what it vouches for.
    fn begin(&self, args: &BeginArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
        let config = args.data.load(environment)?;
        let BegunHere { begun, unfinished } = super::small_runtime()?.block_on(chain::begin(&config, args.accept))?;
        let said = self.say_begun(&begun);
        // First what a second run would not tell, since it begins nothing.
        let ended = shown(unfinished, "the chain is begun, as is said above")?;
        said.context("the chain is begun, and what was to be said of it was not")?;
        Ok(ended)
    }

    fn say_begun(&self, begun: &Begun) -> anyhow::Result<()> {
        let (lines, key) = (begun.unlinked, hex(&begun.key.fingerprint()));
        if self.operator.json {
            let said = serde_json::json!({
                "lines_before_chain": lines, "lines_of_another_chain": begun.linked, "faults": begun.faults, "chain_key": key
            });
            return super::say(&format!("{said}\n"));
        }
        super::say(&format!(
            "Began the chain of the audit log (key {key}). It vouches for what came before it, {}, as that is now, not as it was written.\n",
            counted(lines, "line")
        ))?;
        for fault in &begun.faults {
            super::say(&format!("Accepted: {}\n", in_words(fault)))?;
        }
        Ok(())
    }

    /// Prints every item of a list, one a line, as it comes.
    fn print(
        &self,
        place: &AtMachine,
        path: &'static str,
        environment: &BTreeMap<String, String>,
    ) -> anyhow::Result<ExitCode> {
        if let Some(config) = place.config(environment)? {
            at_machine(&config, async |machine| {
                if path == "/audit/heads" {
                    print_heads(&machine.store).await
                } else {
                    print_lines(&machine.store).await
                }
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
            let is_read = super::say_more(&lines.concat())?;
            match page.next {
                Some(next) if is_read => after = Some(next),
                Some(_) | None => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}

fn in_words(fault: &VerifiedFault) -> String {
    let of = fault.merchant_id.as_deref().unwrap_or("the system");
    format!("line {} of {of}: {}", fault.no, fault.what)
}

impl Verdict {
    fn in_words(&self, compared: Option<(usize, Input<'_>)>) -> String {
        let before = match self.lines_before_chain {
            0 => String::new(),
            1 => ", 1 of them from before the chain: it is what it was when that began".to_owned(),
            count => format!(", {count} of them from before the chain: they are what they were when it began"),
        };
        let heads = match compared {
            Some((count, file)) => {
                format!("It was compared with {} kept in {file}.\n", counted(count as u64, "head"))
            }
            None => {
                "It was compared with no heads: lines that were cut off at its end cannot be seen without --heads.\n"
                    .to_owned()
            }
        };
        let (lines, chains) = (counted(self.lines, "line"), counted(self.chains, "chain"));
        format!("The audit log holds: {lines} in {chains}{before}.\n{heads}")
    }
}

/// Says now and then how far a long walk is, to people.
#[derive(Debug)]
struct Progress {
    said: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self { said: Instant::now() }
    }
}

impl Progress {
    fn show(&mut self, lines: u64) {
        if self.said.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.said = Instant::now();
        // Nobody need be listening.
        let _ = writeln!(std::io::stderr(), "{lines} lines so far");
    }
}

/// Asks the server until its walk is at its end. What it said last.
fn ask_until_the_end(direct: &Direct<'_>, kept: &[KeptHead]) -> anyhow::Result<String> {
    let mut progress = Progress::default();
    let mut pages = kept.chunks(HEADS_PER_CALL).peekable();
    let mut after = None;
    loop {
        let page = pages.next().unwrap_or_default();
        let call = Call::new(Method::POST, "/audit/verify")
            .reads()
            .raw("heads", Some(serde_json::to_string(page)?))
            .raw("more_heads", Some(pages.peek().is_some().to_string()))
            .text("after", after.as_deref());
        let answer = accepted(&direct.send(&call)?)?.to_owned();
        let verdict: Verdict = serde_json::from_str(&answer).context("the answer cannot be read")?;
        progress.show(verdict.lines);
        match verdict.next {
            Some(next) => after = Some(next),
            None => return Ok(answer),
        }
    }
}

impl AtMachine {
    /// The settings, where flags say that the log is read at the machine.
    fn config(&self, environment: &BTreeMap<String, String>) -> anyhow::Result<Option<Config>> {
        let Self { data, database_url, master_key, config } = self.clone();
        if data.is_none() && database_url.is_none() && config.is_none() {
            let unused = "--master-key: is for a log that is read without a server: say with --data, --database-url or --config where it is";
            ensure!(master_key.is_none(), Usage(unused.to_owned()));
            return Ok(None);
        }
        Ok(Some(DataArgs { data, database_url, master_key, config }.load(environment)?))
    }
}

/// The heads of a file. One that is in it twice, as in two days' files in one, is compared once and counted once.
fn read_heads(file: Input<'_>) -> anyhow::Result<Vec<KeptHead>> {
    let unread = || format!("{file} cannot be read");
    let mut lines = file.open().with_context(unread)?.take(HEADS_BYTES_MAX);
    let (mut heads, mut line) = (BTreeSet::new(), Vec::new());
    for no in 1.. {
        line.clear();
        ensure!(lines.limit() > 0, "{file} is longer than 1 GiB, which no heads are");
        if (&mut lines).take(HEAD_BYTES_MAX).read_until(b'\n', &mut line).with_context(unread)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        heads.insert(serde_json::from_slice::<KeptHead>(&line).map_err(|_| {
            anyhow!(
                "line {no} of {file} is no head of the audit log: name the file that `countersign audit heads` printed"
            )
        })?);
    }
    // Every deployment has the system's own, at least.
    ensure!(!heads.is_empty(), "{file} is empty: it holds no heads of the audit log");
    Ok(heads.into_iter().collect())
}

async fn print_heads(store: &AnyStore) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let page = audit_chain::named_heads(store, after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(*last);
        let lines = page.iter().map(|(_, head)| Ok(format!("{}\n", serde_json::to_string(head)?)));
        if !super::say_more(&lines.collect::<anyhow::Result<String>>()?)? {
            return Ok(());
        }
    }
}

async fn print_lines(store: &AnyStore) -> anyhow::Result<()> {
    let (mut after, mut limit) = (None, PAGE);
    loop {
        let page = match audit_chain::named_lines(store, after, limit).await {
            // A line of the page cannot be read: those before it are printed.
            Err(AppError::Store(StoreError::Corrupt { .. })) if limit > 1 => {
                limit /= 2;
                continue;
            }
            page => page?,
        };
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.place);
        let lines = page.iter().map(|line| Ok(format!("{}\n", serde_json::to_string(&AuditLink::from(line))?)));
        if !super::say_more(&lines.collect::<anyhow::Result<String>>()?)? {
            return Ok(());
        }
    }
}

/// Opens the deployment without serving it. A folder is taken for this command alone; a shared database may be served meanwhile, and is not
/// changed.
fn at_machine<T>(config: &Config, act: impl AsyncFnOnce(&Machine) -> anyhow::Result<T>) -> anyhow::Result<T> {
    super::small_runtime()?.block_on(async {
        let machine = Machine::open(config).await;
        let locked = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(DataRefused::Locked(_)));
        let machine = machine.map_err(|error| {
            let advice = "ask the running server instead (leave --data out), or stop it";
            if locked(&error) { error.context(advice) } else { error }
        })?;
        let outcome =
            match deployment_settings::compare_key(config, &machine.vault, &Settings::Of(&machine.store)).await {
                Ok(()) => act(&machine).await,
                Err(refused) => Err(refused),
            };
        // Nothing was to be written, so what was found out holds however the database is closed.
        match outcome {
            Ok(found) => {
                if let Err(error) = machine.close(Ok(())) {
                    // Nobody need be listening.
                    let _ = writeln!(std::io::stderr(), "countersign: {error:#}; what was read holds all the same");
                }
                Ok(found)
            }
            refused @ Err(_) => machine.close(refused),
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::AuditCommand;
    use crate::cli::{Cli, Command};

    #[test]
    fn a_list_asks_by_the_names_of_the_api() {
        let words = "countersign audit list --merchant m --actor system --action fee_rule. --subject s --request-id r \
                     --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --limit 5 --after 1.2.3";
        let Command::Audit(audit) = Cli::try_parse_from(words.split_whitespace()).expect("flags").command else {
            panic!("another command")
        };
        let AuditCommand::List(list) = audit.command else { panic!("another command of it") };
        let query: Vec<String> = list.call().query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let wanted = "merchant_id=m actor=system action=fee_rule. subject=s request_id=r from=2026-01-01T00:00:00Z \
                      to=2026-02-01T00:00:00Z limit=5 after=1.2.3";
        assert_eq!(query.join(" "), wanted);
    }

    #[test]
    fn help_says_that_the_operator_api_is_asked_unless_a_place_is_named() {
        let mut cli = Cli::command();
        let audit = cli.find_subcommand_mut("audit").expect("a command");
        for name in ["verify", "heads", "export"] {
            let help = audit.find_subcommand_mut(name).expect("a command").render_long_help().to_string();
            assert!(!help.contains("[default: countersign-data]") && !help.contains("SQLite in"), "{name}: {help}");
            assert_eq!(help.matches("without a server").count(), 3, "{name}: {help}");
        }
        let begin = audit.find_subcommand_mut("begin").expect("a command").render_long_help().to_string();
        assert!(begin.contains("[default: countersign-data]"), "{begin}");
    }
}
