//! `statement`: a month's orders and fees, as they come, to stdout or into a file.
//!
//! Invariant: a file is there only if the statement is there to its last record. One that breaks off leaves what there was before.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use hyper::Method;

use super::operator::{Call, Direct, OperatorArgs, granted};
use crate::whole_file::UnfinishedFile;

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
    /// The file to be made; a file that is there is replaced, a link, pipe or device never [default: print it]
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
    may_be_replaced(file, "; without -o the statement is printed")?;
    let cannot = || format!("{} cannot be written", file.display());
    let mut out = BufWriter::new(UnfinishedFile::begin_with_others(file).with_context(cannot)?);
    whole(direct, call, format, |part| out.write_all(part).with_context(cannot))?;
    out.into_inner().with_context(cannot)?.replace().with_context(cannot)
}

/// A file of last time gives way to a new one. Anything else that has the name was put there for a purpose: a name given to a file would take
/// it away from a device, a pipe or a link, for everybody who uses them. `or` says what else there is to do.
pub(super) fn may_be_replaced(file: &Path, or: &str) -> anyhow::Result<()> {
    let found = match fs::symlink_metadata(file) {
        Ok(found) => found.file_type(),
        // Whether a file can be made there is seen then.
        Err(_) => return Ok(()),
    };
    ensure!(
        found.is_file(),
        "{} is no file but {}, and is never replaced: name another file{or}",
        file.display(),
        if found.is_symlink() {
            "a link"
        } else if found.is_dir() {
            "a folder"
        } else {
            "a device, a pipe or a socket"
        }
    );
    Ok(())
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

    #[test]
    fn a_file_gives_way_to_a_statement_and_nothing_else_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("october.csv"), "old").expect("written");
        may_be_replaced(&path("october.csv"), "").expect("a statement of last time");
        may_be_replaced(&path("november.csv"), "").expect("nothing is there");
        std::os::unix::fs::symlink(path("october.csv"), path("link")).expect("made");
        std::os::unix::fs::symlink(path("nowhere"), path("dangling")).expect("made");
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("made");
        for (file, what) in [
            (path("link"), "no file but a link"),
            (path("dangling"), "no file but a link"),
            (path("socket"), "no file but a device, a pipe or a socket"),
            (PathBuf::from("/dev/null"), "no file but a device, a pipe or a socket"),
            (folder.path().to_owned(), "no file but a folder"),
        ] {
            let refused = may_be_replaced(&file, "").expect_err("is refused").to_string();
            assert!(refused.contains(&file.display().to_string()) && refused.contains(what), "{refused}");
        }
    }

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
