//! `statement`: a month's orders and fees, as they come, to stdout or into a file.
//!
//! Invariant: a file is there only if the statement is there to its last record. One that breaks off leaves what there was before.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use hyper::Method;

use super::operator::{Call, Direct, OperatorArgs, granted};

/// What a merchant has earned is its owner's to read.
const FILE_MODE: u32 = 0o600;

/// Flags of `statement`.
#[derive(Debug, Args)]
pub struct StatementArgs {
    /// Whose: a `merchant_id` or `sub_merchant_id`; an institution's has all its sub-accounts in it
    pub merchant: String,
    /// Which month, in the time zone of the rules; one that is not over is given up to now
    #[arg(long, value_name = "YYYY-MM")]
    pub month: String,
    /// How it is written [default: csv, or jsonl with --json]
    #[arg(long, value_enum)]
    pub format: Option<StatementFormat>,
    /// The file to be made or replaced [default: print it]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How the operator API is reached.
    #[command(flatten)]
    pub operator: OperatorArgs,
}

/// How a statement is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatementFormat {
    /// For spreadsheets.
    Csv,
    /// For programs.
    Jsonl,
}

impl StatementFormat {
    const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }

    /// Whether a line is the last one of a statement.
    fn is_last(self, line: &[u8]) -> bool {
        match self {
            Self::Csv => line.starts_with(b"complete,") || line.starts_with(b"incomplete,"),
            Self::Jsonl => line.starts_with(b"{\"totals\":"),
        }
    }
}

/// What was seen of a statement: whether its last line is the one that ends it.
#[derive(Debug, Default)]
struct Seen {
    /// The beginning of the line that is under way.
    line: Vec<u8>,
    is_whole: bool,
}

impl Seen {
    /// As much of a line as tells what it is.
    const BEGINNING: usize = 16;

    fn take(&mut self, format: StatementFormat, part: &[u8]) {
        for &byte in part {
            if byte == b'\n' {
                self.is_whole = format.is_last(&self.line);
                self.line.clear();
            } else if self.line.len() < Self::BEGINNING {
                self.line.push(byte);
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.is_whole && self.line.is_empty()
    }
}

/// Asks for a statement and writes it.
pub fn run(args: &StatementArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let direct = Direct::new(&args.operator, environment)?;
    let usual = if args.operator.json { StatementFormat::Jsonl } else { StatementFormat::Csv };
    let format = args.format.unwrap_or(usual);
    let call = Call::new(Method::GET, "/statements")
        .query("merchant_id", Some(args.merchant.clone()))
        .query("month", Some(args.month.clone()))
        .query("format", Some(format.name().to_owned()));
    if let Some(file) = &args.output {
        into_file(&direct, &call, format, file)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut is_read = true;
    whole(&direct, &call, format, |part| {
        // A reader that went away has seen enough.
        is_read = is_read && super::say_bytes(part)?;
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn into_file(direct: &Direct<'_>, call: &Call, format: StatementFormat, file: &Path) -> anyhow::Result<()> {
    let beside = beside(file)?;
    let cannot = || format!("{} cannot be written", file.display());
    let made = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&beside);
    let mut out = BufWriter::new(made.with_context(cannot)?);
    let written = whole(direct, call, format, |part| out.write_all(part).with_context(cannot)).and_then(|()| {
        let out = out.into_inner().with_context(cannot)?;
        out.sync_all().with_context(cannot)?;
        fs::rename(&beside, file).with_context(cannot)
    });
    if written.is_err() {
        // It may be gone already, and the reason is told anyway.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Where a file is made before it takes its name: in the same folder, under a name of this process.
fn beside(file: &Path) -> anyhow::Result<PathBuf> {
    let Some(name) = file.file_name().filter(|_| !file.is_dir()) else { bail!("{} is no file", file.display()) };
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.part", std::process::id()));
    Ok(file.with_file_name(hidden))
}

fn whole(
    direct: &Direct<'_>,
    call: &Call,
    format: StatementFormat,
    mut write: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut seen = Seen::default();
    let answer = direct.stream(call, "*/*", |part| {
        seen.take(format, part);
        write(part)
    })?;
    granted(&answer)?;
    if !seen.is_whole() {
        bail!("the statement broke off: its last record is missing, so what came is no statement; ask again");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_whole(format: StatementFormat, parts: &[&str]) -> bool {
        let mut seen = Seen::default();
        for part in parts {
            seen.take(format, part.as_bytes());
        }
        seen.is_whole()
    }

    #[test]
    fn a_statement_is_whole_when_its_last_record_is_there_to_its_end() {
        use StatementFormat::{Csv, Jsonl};
        assert!(is_whole(Csv, &["record,x\r\norder,1\r\n", "compl", "ete,,\r", "\n"]));
        assert!(is_whole(Csv, &["record,x\r\nincomplete,,\r\n"]));
        assert!(is_whole(Jsonl, &["{\"order\":{}}\n{\"totals\":{}}\n"]));
        for (format, parts) in [
            (Csv, &[][..]),
            (Csv, &["record,x\r\n"]),
            (Csv, &["complete,,"]),
            (Csv, &["complete,,\r\norder,1\r\n"]),
            (Csv, &["complete,,\r\nor"]),
            (Csv, &["{\"totals\":{}}\n"]),
            (Jsonl, &["{\"order\":{\"x\":\"{\\\"totals\\\":\"}}\n"]),
            (Jsonl, &["{\"totals\":{}}"]),
        ] {
            assert!(!is_whole(format, parts), "{parts:?}");
        }
    }
}
