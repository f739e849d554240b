//! `evidence`: all that is known of one payment order in one file, and whether such a file is good.
//!
//! What is exported is checked before it gets its name, so a file that is there is whole. Checking needs no server, no token and no network.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::{Args, Subcommand};
use hyper::Method;
use serde::Deserialize;

use super::input::Input;
use super::operator::{Call, Direct, OperatorArgs, accepted, escaped, table};
use crate::evidence::{LINE_BYTES_MAX, PublicKey, Verified, Verifier, verify};
use crate::whole_file::UnfinishedFile;

/// The merchant's answers are in it.
/// A file that names a key is a line.
const KEY_FILE_BYTES_MAX: u64 = 1024;

/// Evidence of a payment order.
#[derive(Debug, Args)]
#[command(subcommand_negates_reqs = true)]
pub struct Evidence {
    /// How the operator API is reached.
    #[command(flatten)]
    pub operator: OperatorArgs,
    /// The order: its prepayId
    #[arg(value_name = "ORDER", required = true)]
    pub prepay_id: Option<String>,
    /// The file to be made; one that is there is never replaced [default: it is printed]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// What else to do.
    #[command(subcommand)]
    pub command: Option<EvidenceCommand>,
}

/// What else can be done.
#[derive(Debug, Subcommand)]
pub enum EvidenceCommand {
    /// Check a file without a server; names the first place that is wrong
    Verify(VerifyArgs),
    /// The public key that the server signs evidence with
    Key,
}

/// How a file is checked.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The file; - is standard input
    pub file: PathBuf,
    /// The deployment's public key, 64 hex digits or Base64, or a file with it, such as what `countersign evidence key` printed
    #[arg(long, value_name = "KEY", value_parser = public_key)]
    pub key: PublicKey,
}

/// A key, or a file that holds one.
fn public_key(text: &str) -> Result<PublicKey, String> {
    if let Some(key) = PublicKey::parse(text) {
        return Ok(key);
    }
    let wrong =
        || format!("{text:?} is neither a public key (64 hex digits, or 44 characters of Base64) nor a file with one");
    let read = || {
        use std::io::Read as _;
        let mut held = String::new();
        File::open(text).and_then(|file| file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut held)).map(|_| held)
    };
    key_in(&read().map_err(|_| wrong())?).ok_or_else(wrong)
}

/// A key by itself, or as the one of what `evidence key` prints.
fn key_in(text: &str) -> Option<PublicKey> {
    let answered = || serde_json::from_str::<KeyAnswer>(text).ok().map(|answer| answer.public_key);
    let printed = || {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find_map(|(name, key)| (name == "public_key").then(|| key.to_owned()))
    };
    PublicKey::parse(text).or_else(|| PublicKey::parse(&answered().or_else(printed)?))
}

#[derive(Deserialize)]
struct KeyAnswer {
    public_key: String,
}

impl Evidence {
    /// Does it.
    pub fn run(&self, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
        match (&self.command, &self.prepay_id) {
            (Some(EvidenceCommand::Verify(args)), None) => self.verify(args)?,
            (Some(EvidenceCommand::Key), None) => {
                let call = Call::new(Method::GET, "/evidence/key");
                let answer = Direct::new(&self.operator, environment)?.send(&call)?;
                let body = accepted(&answer)?;
                super::say(&if self.operator.json { format!("{}\n", body.trim_end()) } else { table(&call, body) })?;
            }
            (None, Some(id)) => self.export(id, &Direct::new(&self.operator, environment)?)?,
            (Some(_), Some(_)) | (None, None) => bail!("name an order, or `verify FILE`, or `key`: one of them"),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn verify(&self, args: &VerifyArgs) -> anyhow::Result<()> {
        let file = Input::named(&args.file);
        let opened = file.open().with_context(|| format!("{file} cannot be read"))?;
        let verified = verify(opened, args.key).with_context(|| format!("{file} is not good"))?;
        super::say(&self.told(&verified)?)
    }

    fn told(&self, verified: &Verified) -> anyhow::Result<String> {
        Ok(if self.operator.json { format!("{}\n", serde_json::to_string(verified)?) } else { verified.to_string() })
    }

    fn export(&self, id: &str, direct: &Direct<'_>) -> anyhow::Result<()> {
        let answer = direct.send(&Call::new(Method::GET, "/evidence/key"))?;
        let key: KeyAnswer = serde_json::from_str(accepted(&answer)?).context("the answer cannot be read")?;
        let key = PublicKey::parse(&key.public_key).ok_or_else(|| anyhow!("the server's public key cannot be read"))?;
        let runtime = super::small_runtime()?;
        let Some(output) = &self.output else {
            let mut is_read = true;
            // A reader that went away has seen enough.
            let print = |piece: &[u8]| {
                is_read = is_read && super::say_bytes(piece)?;
                Ok(())
            };
            runtime.block_on(fetch(direct, id, key, print))?;
            return Ok(());
        };
        let is_there = || format!("{} is there already, and is never replaced: name another file", output.display());
        // A link that leads nowhere has the name, too.
        ensure!(output.symlink_metadata().is_err(), is_there());
        let unnamed = || {
            if output.symlink_metadata().is_ok() { is_there() } else { format!("{} cannot be made", output.display()) }
        };
        let unwritable = || format!("{} cannot be written", output.display());
        let mut file = UnfinishedFile::begin_with_others(output).with_context(unwritable)?;
        let write = |piece: &[u8]| file.write_all(piece).with_context(unwritable);
        let verified = runtime.block_on(fetch(direct, id, key, write))?;
        file.name_new().with_context(unnamed)?;
        super::say(&self.told(&verified)?)
    }
}

/// Writes what comes as it comes, and checks it line by line.
async fn fetch(
    direct: &Direct<'_>,
    id: &str,
    key: PublicKey,
    mut write: impl FnMut(&[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<Verified> {
    let call = Call::new(Method::GET, format!("/payment-orders/{}/evidence", escaped(id)));
    let mut answer = direct.open(&call).await?;
    if !answer.status.is_success() {
        accepted(&answer.whole().await?)?;
        bail!("the operator API did not answer with evidence");
    }
    let mut verifier = Verifier::new(key);
    let mut rest: Vec<u8> = Vec::new();
    let wrong = |fault| anyhow!("what the server sent is not good: {fault}");
    while let Some(piece) = answer.next().await? {
        write(&piece)?;
        rest.extend_from_slice(&piece);
        let mut from = 0;
        while let Some(at) = rest[from..].iter().position(|byte| *byte == b'\n') {
            verifier.line(&rest[from..from + at]).map_err(wrong)?;
            from += at + 1;
        }
        rest.drain(..from);
        if rest.len() > LINE_BYTES_MAX {
            bail!("what the server sent is not good: it has a line of more than {LINE_BYTES_MAX} bytes");
        }
    }
    if !rest.is_empty() {
        bail!("what the server sent is not good: its last line has no end");
    }
    verifier.end().map_err(wrong)
}
