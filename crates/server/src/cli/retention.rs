//! `retention`: what age would free now.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;

use super::operator::{Call, Direct, OperatorArgs, accepted, table};

const COLUMNS: &[&str] = &["kind", "kept_for_s", "older_than", "rows", "rows_is_at_least", "bytes"];

/// What is old enough to be freed now.
#[derive(Debug, Args)]
pub struct Retention {
    /// How the operator API is reached.
    #[command(flatten)]
    pub operator: OperatorArgs,
}

impl Retention {
    /// Shows it. Nothing is freed.
    pub fn run(&self, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
        let call = Call::list("/retention", COLUMNS);
        let answer = Direct::new(&self.operator, environment)?.send(&call)?;
        let body = accepted(&answer)?;
        super::say(&if self.operator.json { format!("{}\n", body.trim_end()) } else { table(&call, body) })?;
        Ok(ExitCode::SUCCESS)
    }
}
