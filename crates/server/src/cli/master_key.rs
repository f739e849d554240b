//! `master-key`: which one seals, and sealing every secret again under another.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use hyper::Method;
use serde::Deserialize;

use super::numbers::counted;
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
    #[serde(default)]
    previous_key_id: Option<String>,
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
        let call = Call { goes_on: true, ..Call::new(Method::POST, "/master-key/rewrap") };
        let last = loop {
            let answer = direct.send(&call)?;
            let body = accepted(&answer).map_err(|said| call.unsure(&answer, said))?;
            let done: Outcome = serde_json::from_str(body).context("the answer cannot be read")?;
            total += done.rewrapped;
            unreadable.extend(done.unreadable.iter().cloned());
            if done.done {
                break done;
            }
        };
        let Outcome { key_id, previous_key_id, .. } = last;
        if self.operator.json {
            super::say(&format!(
                "{}\n",
                serde_json::json!({ "key_id": key_id, "rewrapped": total, "unreadable": unreadable, "done": true })
            ))?;
        }
        if !unreadable.is_empty() {
            let names = unreadable.into_iter().collect::<Vec<_>>().join(", ");
            bail!(
                "sealed {} again; these do not open, since somebody has changed their rows, and were left as they are: {names}; \
                 rotate and revoke each (`countersign secret rotate`, `countersign secret revoke`), then run this again",
                counted(total, "secret")
            );
        }
        if !self.operator.json {
            super::say(&said(total, &key_id, previous_key_id.as_deref()))?;
        }
        Ok(())
    }
}

/// What became of it, in words. A node without another key cannot tell whether the one it has is the one that is meant.
fn said(total: u64, key_id: &str, previous_key_id: Option<&str>) -> String {
    if total == 0 && previous_key_id.is_none() {
        return format!(
            "Nothing was to be done: everything is under the master key {key_id}, and the node that answered has no other key. If another key was meant, that node \
             does not have it yet: start every node again with it, and with the one before as master_key_previous, then run this again.\n"
        );
    }
    format!(
        "Sealed {} again under the master key {key_id}. All are under it now: where master_key_previous is set, take it away at the next start.\n",
        counted(total, "secret")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_one_key_alone_does_not_say_that_the_key_has_changed() {
        let alone = said(0, "k1", None);
        assert!(alone.contains("Nothing was to be done") && alone.contains("k1"), "{alone}");
        for (total, previous) in [(0, Some("k0")), (3, None)] {
            assert!(said(total, "k1", previous).contains("All are under it now"), "{total}");
        }
        assert!(
            said(1, "k1", None).starts_with("Sealed 1 secret again under") && said(2, "k1", None).contains("2 secrets")
        );
    }
}
