//! Reads a file from its beginning to its end, and names the first place that is wrong.

use std::fmt;
use std::io::{BufRead, Read as _};

use thiserror::Error;

use super::LINE_BYTES_MAX;
use super::chain::{self, Chain, Misfit};
use super::entry::{Entry, Kind};
use super::key::PublicKey;
use super::story::Story;
use super::words::Verified;

/// The first place that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its line, from 1; an entry's `seq` is the same.
    pub line: u64,
    /// What that line says it is.
    pub kind: Option<Kind>,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "line {} ({}): {}", self.line, kind.name(), self.what),
            None => write!(f, "line {}: {}", self.line, self.what),
        }
    }
}

/// Why a file was not found to be good.
#[derive(Debug, Error)]
pub enum Failed {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// It is not what was signed.
    #[error("{0}")]
    Wrong(Fault),
}

/// A file that is being checked, line by line.
#[derive(Debug)]
pub struct Verifier {
    key: PublicKey,
    chain: Chain,
    line: u64,
    story: Story,
    signed: Option<Verified>,
}

impl Verifier {
    /// Checks against this key.
    pub fn new(key: PublicKey) -> Self {
        Self { key, chain: Chain::default(), line: 0, story: Story::default(), signed: None }
    }

    /// Takes the next line, without its end.
    pub fn line(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.line += 1;
        if self.signed.is_some() {
            return Err(self.fault(None, "something follows the head, which is the last line"));
        }
        if bytes.len() > LINE_BYTES_MAX {
            return Err(self.fault(None, &format!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        let Ok(line) = std::str::from_utf8(bytes) else { return Err(self.fault(None, "it is not UTF-8")) };
        let kind = chain::told_kind(line);
        let told = if kind == Some(Kind::Head) { self.head(line).map(Some) } else { self.entry(line).map(|()| None) };
        match told {
            Ok(signed) => {
                self.signed = signed;
                Ok(())
            }
            Err(what) => Err(self.fault(kind, &what)),
        }
    }

    /// The file is over: what it shows.
    pub fn end(mut self) -> Result<Verified, Fault> {
        self.line += 1;
        let cut = "the file ends before its head: lines are missing at the end";
        self.signed.take().ok_or_else(|| self.fault(None, cut))
    }

    fn entry(&mut self, line: &str) -> Result<(), String> {
        let entry: Entry = self.chain.follow(line).map_err(|misfit| match misfit {
            Misfit::Form => "it is no line of evidence: a byte of its frame was changed, added or removed".to_owned(),
            Misfit::Hash => {
                "its hash does not fit: it was changed, or a line before it was removed, added or moved".to_owned()
            }
            Misfit::Entry(why) => format!("it cannot be read: {why}"),
        })?;
        self.story.take(&entry)
    }

    fn head(&self, line: &str) -> Result<Verified, String> {
        let read = chain::read_head(line)
            .ok_or_else(|| "it is no head: a byte of it was changed, added or removed".to_owned())?;
        let given = self.key;
        if !read.is_signed_by(given) {
            let named = self.story.header().map(|header| header.public_key.as_str());
            return Err(match named.and_then(PublicKey::parse).filter(|named| *named != given) {
                Some(named) => {
                    format!("signed by another key: the file names {}, and the key given is {}", named.id(), given.id())
                }
                None => format!("the signature is not that of the key {}", given.id()),
            });
        }
        if !self.chain.ends_with(&read.head) {
            return Err("it is the head of another chain: lines before it were changed, added or removed".to_owned());
        }
        self.story.end(&read.head, given)
    }

    fn fault(&self, kind: Option<Kind>, what: &str) -> Fault {
        Fault { line: self.line, kind, what: what.to_owned() }
    }
}

/// Checks a whole file; one line of it is held at a time.
pub fn verify(mut file: impl BufRead, key: PublicKey) -> Result<Verified, Failed> {
    let mut verifier = Verifier::new(key);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut file).take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
        if read == 0 {
            return verifier.end().map_err(Failed::Wrong);
        }
        let has_end = line.pop_if(|last| *last == b'\n').is_some();
        verifier.line(&line).map_err(Failed::Wrong)?;
        if !has_end {
            let what = "its end is missing: every line ends with a line feed".to_owned();
            let kind = std::str::from_utf8(&line).ok().and_then(chain::told_kind);
            return Err(Failed::Wrong(Fault { line: verifier.line, kind, what }));
        }
    }
}
