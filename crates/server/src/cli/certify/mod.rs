//! `certify`: fires callbacks at a merchant's receiver, good ones and bad ones, and says what it does not check and why that matters.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::courier::Courier;
use super::sign::{CLIENT_ID_VARIABLE, SECRET_VARIABLE, SignatureForm, header_names, required};

mod checks;

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
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
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
    /// It cannot be told: a good callback was not taken, or the request did not reach the receiver.
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
    let client_id = required(environment, CLIENT_ID_VARIABLE)?;
    let secret = required(environment, SECRET_VARIABLE)?;
    let names = header_names(&args.prefix)?;
    let courier = Courier::new(&args.url, names, client_id, secret, args.encoding.into())?;
    let findings = super::small_runtime()?.block_on(checks::all(&courier))?;
    let certified = findings.iter().all(|finding| matches!(finding.verdict, Verdict::Pass | Verdict::Advice));
    if args.json {
        let report = Report { url: &args.url, certified, checks: &findings };
        super::say(&format!("{}\n", serde_json::to_string(&report)?))?;
    } else {
        super::say(&told(&args.url, &findings))?;
    }
    Ok(if certified { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn told(url: &str, findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut lines = vec![format!("The receiver at {url}"), String::new()];
    for Finding { check, verdict, sent, came, why } in findings {
        lines.push(format!("{:>6}  {check:width$}  {came}", verdict.word()));
        if matches!(verdict, Verdict::Fail | Verdict::Advice) {
            lines.extend(
                [format!("Sent: {sent}."), format!("Why it matters: {why}.")]
                    .map(|line| format!("{:width$}{line}", "", width = width + 10)),
            );
        }
    }
    let count = |wanted: Verdict| findings.iter().filter(|finding| finding.verdict == wanted).count();
    let counts =
        [(Verdict::Fail, "failed"), (Verdict::Advice, "could be better"), (Verdict::Untold, "could not be told")];
    let rest = counts.map(|(verdict, what)| (count(verdict), what));
    let rest: Vec<String> = rest.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(", {n} {what}")).collect();
    lines.extend([
        String::new(),
        format!("{} of {} checks passed{}.", count(Verdict::Pass), findings.len(), rest.concat()),
        String::new(),
    ]);
    lines.join("\n")
}
