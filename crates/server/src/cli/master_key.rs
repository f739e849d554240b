//! `master-key`: which one seals, and sealing every secret again under another.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use hyper::Method;
use serde::Deserialize;

use super::operator::{Call, Direct, OperatorArgs, accepted, table};

/// The master key.
#[derive(Debug, Args)]
pub struct MasterKey {
    /// How the operator API is reached.
    #[command(flatten)]
    pub operator: OperatorArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: MasterKeyCommand,
}

/// What can be done with it.
#[derive(Debug, Subcommand)]
pub enum MasterKeyCommand {
    /// Which master keys the server has, by their ids
    Show,
    /// Seal every secret again under the server's master key, while it runs with the one before as `master_key_previous`
    Rewrap,
}

#[derive(Deserialize)]
struct Outcome {
    key_id: String,
    rewrapped: u64,
    unreadable: Vec<String>,
    done: bool,
}

impl MasterKey {
    /// Does it.
    pub fn run(&self, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
        let direct = Direct::new(&self.operator, environment)?;
        match self.command {
            MasterKeyCommand::Show => {
                let call = Call::new(Method::GET, "/master-key");
                let answer = direct.send(&call)?;
                let body = accepted(&answer)?;
                super::say(&if self.operator.json { format!("{}\n", body.trim_end()) } else { table(&call, body) })?;
            }
            MasterKeyCommand::Rewrap => self.rewrap(&direct)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Calls until all is done; each call goes on for some seconds.
    fn rewrap(&self, direct: &Direct<'_>) -> anyhow::Result<()> {
        let mut total = 0;
        let mut unreadable = std::collections::BTreeSet::new();
        let key_id = loop {
            let answer = direct.send(&Call::new(Method::POST, "/master-key/rewrap"))?;
            let done: Outcome = serde_json::from_str(accepted(&answer)?).context("the answer cannot be read")?;
            total += done.rewrapped;
            unreadable.extend(done.unreadable);
            if done.done {
                break done.key_id;
            }
        };
        if self.operator.json {
            super::say(&format!(
                "{}\n",
                serde_json::json!({ "key_id": key_id, "rewrapped": total, "unreadable": unreadable, "done": true })
            ))?;
        }
        if !unreadable.is_empty() {
            let names = unreadable.into_iter().collect::<Vec<_>>().join(", ");
            bail!(
                "sealed {total} secrets again; these do not open, since somebody has changed their rows, and were left as they are: {names}; \
                 rotate and revoke each (`countersign secret rotate`, `countersign secret revoke`), then run this again"
            );
        }
        if !self.operator.json {
            super::say(&format!(
                "Sealed {total} secrets again under the master key {key_id}. All are under it now: where master_key_previous is set, take it away at the next start.\n"
            ))?;
        }
        Ok(())
    }
}
