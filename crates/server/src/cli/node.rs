//! `node`: the nodes of the deployment.

use clap::Subcommand;

use super::operator::{Call, IntoCall};

const NODE_COLUMNS: &[&str] = &[
    "name",
    "version",
    "key_id",
    "alive",
    "lanes",
    "clock_ahead_ms",
    "settings_differ",
    "started_at",
    "seen_at",
    "this_node",
    "node_id",
];

/// The nodes of the deployment.
#[derive(Debug, Subcommand)]
pub enum Node {
    /// List the nodes that share the database: version, master key, lanes, settings that differ, when each was seen
    List,
}

impl IntoCall for Node {
    fn call(&self) -> anyhow::Result<Call> {
        match self {
            Self::List => Ok(Call::list("/nodes", NODE_COLUMNS)),
        }
    }
}
