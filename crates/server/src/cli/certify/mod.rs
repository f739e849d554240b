//! `certify`: fires callbacks at a merchant's receiver, good ones and bad ones, and says what it does not check and why that matters.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::courier::Courier;
use super::courier::subject::Subject;
use super::sign::{self, SignatureForm, body_of, header_names};
use super::{Usage, authorities};
use crate::operator::events;

mod catalogue;
mod checks;
mod good;
mod huge;
mod mistakes;
mod patience;
mod repetitions;

use checks::Findings;

/// As much data as servers take of an event by the shipped settings.
const DATA_BYTES_MAX: usize = 64 * 1024;

/// Flags of `certify`.
#[derive(Debug, Args)]
pub struct CertifyArgs {
    /// The receiver's callback URL; one for tests, since it is told of payments that nobody made
    url: String,
    /// How signatures are written
    #[arg(long, value_enum, default_value = "hex")]
    encoding: SignatureForm,
    /// What the header names begin with
    #[arg(long, default_value = "X-Service-")]
    prefix: String,
    /// How long an answer may take; the server waits 15 s
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, default_value = "15", value_parser = timeout_s)]
    timeout: u64,
    /// What kind of event callbacks tell of
    #[arg(long, default_value = "PAYMENT_ORDER")]
    biz_type: String,
    /// What became of it [default: what the service says of an order that was paid]
    #[arg(long)]
    biz_status: Option<String>,
    /// Of which order, where the receiver looks it up [default: another one each time, which nobody made]
    #[arg(long)]
    biz_id: Option<String>,
    /// File with the event's data, JSON; - is standard input [default: that of an order which nobody made]
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

fn timeout_s(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=60).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds from 1 to 60 is wanted".to_owned())
}

/// What callbacks tell of, as the server would take it for an event.
fn subject(args: &CertifyArgs) -> anyhow::Result<Subject> {
    let data = args.data.as_deref().map(|file| body_of(Some(file))).transpose()?;
    let data =
        data.map(String::from_utf8).transpose().map_err(|_| Usage("--data: it is no text in UTF-8".to_owned()))?;
    let data = data.map(|data| data.trim().to_owned());
    if data.as_ref().is_some_and(|data| data.len() > DATA_BYTES_MAX) {
        bail!(Usage("--data: at most 64 KiB are wanted".to_owned()));
    }
    let event = json!({
        "client_id": "certify",
        "bizType": args.biz_type,
        "bizId": args.biz_id.as_deref().unwrap_or("certify"),
        "bizStatus": args.biz_status.as_deref().unwrap_or("SUCCESS"),
        "data": data.as_deref().unwrap_or("{}"),
    });
    events::parse(event.to_string().as_bytes()).map_err(|refused| Usage(refused.sentence))?;
    let (biz_type, biz_status) = (args.biz_type.clone(), args.biz_status.clone());
    Ok(Subject { biz_type, biz_status, biz_id: args.biz_id.clone(), data })
}

/// What came of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// As it should be.
    Pass,
    /// Somebody can lose money or events by it.
    Fail,
    /// Better otherwise, but nothing is lost.
    Advice,
    /// It cannot be told: a good callback was not taken, or not for this reason, or the request did not reach the receiver.
    Untold,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Pass => "ok",
            Self::Fail => "FAIL",
            Self::Advice => "advice",
            Self::Untold => "?",
        }
    }
}

/// One check and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) check: &'static str,
    pub(super) verdict: Verdict,
    /// What was sent.
    pub(super) sent: &'static str,
    /// What came back.
    pub(super) came: String,
    /// What goes wrong with a receiver that does otherwise.
    pub(super) why: &'static str,
    /// What it seems to do wrong; only where it takes no good callback and takes one that is spoiled in this way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mistake: Option<&'static str>,
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Report<'a> {
    url: &'a str,
    certified: bool,
    checks: &'a [Finding],
}

/// Runs every check. Exit code 1 where one failed.
pub fn run(args: &CertifyArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let client_id = sign::client_id(environment)?;
    let secret = sign::secret(environment)?;
    let names = header_names(&args.prefix)?;
    let timeout = Duration::from_secs(args.timeout);
    let courier = Courier::new(&args.url, &names, client_id, secret, args.encoding.into(), timeout)?;
    let courier = courier.telling_of(subject(args)?);
    authorities::demand(&args.url, environment)?;
    let (mut head, mut unsaid) = (Some(format!("The receiver at {}\n\n", args.url)), None);
    let mut tell = |finding: &Finding| {
        // Some checks take seconds: each is told when it is done. What cannot be written is told at the end.
        if !args.json && unsaid.is_none() {
            unsaid = super::say(&[head.take().unwrap_or_default(), line(finding)].concat()).err();
        }
    };
    let mut findings = Findings::new(&mut tell);
    let answered = super::small_runtime()?.block_on(checks::all(&courier, secret, &mut findings));
    let findings = findings.into_all();
    if let Some(error) = unsaid {
        return Err(error);
    }
    let certified = findings.iter().all(|finding| matches!(finding.verdict, Verdict::Pass | Verdict::Advice));
    if args.json {
        let report = Report { url: &args.url, certified, checks: &findings };
        super::say(&format!("{}\n", serde_json::to_string(&report)?))?;
    }
    if let Err(why) = answered {
        let rest = findings.len() - 1;
        bail!("the receiver gave no answer to a good callback, and the other {rest} checks were not tried: {why}");
    }
    if !args.json {
        super::say(&counted(&findings))?;
    }
    if !certified {
        let failed = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).map(|finding| finding.check);
        let failed = failed.collect::<Vec<_>>().join(", ");
        bail!(
            "the receiver at {} does not pass: {}",
            args.url,
            if failed.is_empty() { "some checks could not be told" } else { &failed }
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// One finding for people.
fn line(finding: &Finding) -> String {
    let Finding { check, verdict, sent, came, why, mistake } = finding;
    let width = catalogue::NAME_CHARS_MAX;
    let mut lines = vec![format!("{:>6}  {check:width$}  {came}\n", verdict.word())];
    if matches!(verdict, Verdict::Fail | Verdict::Advice) {
        let mistake = mistake.map(|mistake| format!("A likely cause: the receiver {mistake}."));
        let more = mistake.into_iter().chain([format!("Sent: {sent}."), format!("Why it matters: {why}.")]);
        lines.extend(more.map(|more| format!("{:width$}{more}\n", "", width = width + 10)));
    }
    lines.concat()
}

fn counted(findings: &[Finding]) -> String {
    let count = |wanted: Verdict| findings.iter().filter(|finding| finding.verdict == wanted).count();
    let counts =
        [(Verdict::Fail, "failed"), (Verdict::Advice, "could be better"), (Verdict::Untold, "could not be told")];
    let rest = counts.map(|(verdict, what)| (count(verdict), what));
    let rest: Vec<String> = rest.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}")).collect();
    format!("\n{} of {} checks passed{}.\n", count(Verdict::Pass), findings.len(), rest.concat())
}
