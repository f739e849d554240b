//! `fee-rule what-if`: a rule that is not made yet, tried on what was paid. Says how far it is, then what it came to, and draws it.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::operator::{Call, Direct, Group, granted};
use super::provision::FeeRule;
use super::statement::may_be_replaced;
use crate::whole_file::UnfinishedFile;

mod picture;
mod report;

pub use report::Report;

/// How often somebody who is no terminal hears how far it is.
const SAID_EVERY: Duration = Duration::from_secs(5);
/// Longest line of an answer: a report with very many days and currencies.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Flags of `fee-rule what-if`.
#[derive(Debug, Args)]
pub struct WhatIfArgs {
    /// Whose orders: `sub_merchant_id`
    #[arg(long, value_name = "ID")]
    pub sub_account: String,
    /// As in a rule: percent from 0 to 100, or a fraction from 0 to 1 where the deployment says so; at most 8 decimals
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub r_markup: String,
    /// USDT, as in a rule: 0 to 5000000, at most 6 decimals [default: 0]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub f_markup: Option<String>,
    /// Only orders that were paid at this instant or later, as 2026-01-31T08:00:00Z
    #[arg(long, value_name = "INSTANT")]
    pub from: Option<String>,
    /// Only orders that were paid before this instant [default: up to now, as for one that is still to come]
    #[arg(long, value_name = "INSTANT")]
    pub to: Option<String>,
    /// Draw old against new by day into this file: its name ends with .svg
    #[arg(long, value_name = "FILE.svg", value_parser = svg)]
    pub picture: Option<PathBuf>,
}

fn svg(text: &str) -> Result<PathBuf, String> {
    let file = PathBuf::from(text);
    let is_svg = file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if is_svg { Ok(file) } else { Err("the picture is an SVG: give the file a name that ends with .svg".to_owned()) }
}

/// Runs a command about fee rules: a what-if is streamed, the others are calls.
pub fn fee_rule(group: &Group<FeeRule>, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let FeeRule::WhatIf(args) = &group.command else { return group.run(environment) };
    group.refuse_key()?;
    let direct = Direct::new(&group.operator, environment)?;
    args.picture.as_deref().map_or(Ok(()), |file| may_be_replaced(file, ""))?;
    let answer = ask(&direct, &args.call())?;
    let report = Report::read(&answer)?;
    if let Some(file) = &args.picture {
        draw(&report, file)?;
    }
    if group.operator.json {
        super::say(&format!("{answer}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    super::say(&report.in_words())?;
    if let Some(file) = &args.picture {
        super::say(&format!("\nOld against new by day: {}\n", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl WhatIfArgs {
    /// The call.
    pub fn call(&self) -> Call {
        Call::new(Method::GET, "/fee-rules/what-if")
            .query("sub_merchant_id", Some(self.sub_account.clone()))
            .query("r_markup", Some(self.r_markup.clone()))
            .query("f_markup", self.f_markup.clone())
            .query("from", self.from.clone())
            .query("to", self.to.clone())
    }
}

fn draw(report: &Report, file: &Path) -> anyhow::Result<()> {
    // Drawn first: what stands in the way of that leaves the picture of last time.
    let (picture, cannot) = (picture::svg(report)?, || format!("{} cannot be written", file.display()));
    let mut out = UnfinishedFile::begin_with_others(file).with_context(cannot)?;
    out.write_all(picture.as_bytes()).and_then(|()| out.replace()).with_context(cannot)
}

/// A line of the answer.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnswerLine<'a> {
    #[serde(borrow)]
    Progress(&'a RawValue),
    #[serde(borrow)]
    Report(&'a RawValue),
    Refused(Refusal),
}

#[derive(Deserialize)]
struct Refusal {
    code: String,
    detail: String,
}

#[derive(Deserialize)]
struct HowFar {
    orders: u64,
    per_mille: u64,
}

/// The report's JSON, as it came.
fn ask(direct: &Direct<'_>, call: &Call) -> anyhow::Result<String> {
    let (mut rest, mut report, mut progress) = (Vec::new(), None, Progress::new());
    let answer = direct.stream(call, "application/x-ndjson", |part| {
        rest.extend_from_slice(part);
        ensure!(rest.len() <= LINE_BYTES_MAX, "a line of the answer is too long");
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            match serde_json::from_slice(&line).context("the answer cannot be read")? {
                AnswerLine::Progress(how_far) => progress.show(&serde_json::from_str(how_far.get())?),
                AnswerLine::Report(found) => report = Some(found.get().to_owned()),
                AnswerLine::Refused(Refusal { code, detail }) => bail!("refused with {code}: {detail}"),
            }
        }
        Ok(())
    })?;
    progress.end();
    granted(&answer)?;
    report.context("the answer broke off before its report; ask again")
}

/// How far it is: a bar where somebody looks at a terminal, else a line now and then.
struct Progress {
    bar: Option<ProgressBar>,
    said: Instant,
}

impl Progress {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}");
            ProgressBar::new(1_000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, said: Instant::now() }
    }

    fn show(&mut self, HowFar { orders, per_mille }: &HowFar) {
        if let Some(bar) = &self.bar {
            bar.set_position(*per_mille);
            bar.set_message(format!("{orders} orders"));
        } else if self.said.elapsed() >= SAID_EVERY {
            self.said = Instant::now();
            // Nobody need be listening.
            let _ = writeln!(std::io::stderr(), "{orders} orders so far");
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests;
