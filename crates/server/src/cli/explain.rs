//! `explain`: why a request was refused.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::Args;
use hyper::Method;

use super::input::Input;
use super::operator::{Call, Direct, OperatorArgs, accepted, escaped, table};
use crate::explain;

/// Flags of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The request's id: the answer's header X-Service-Request-Id
    pub request_id: String,
    /// A file of the server's log, instead of asking the server; - is standard input. Needs no token
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// How the operator API is reached.
    #[command(flatten)]
    pub operator: OperatorArgs,
}

/// Says why.
pub fn run(args: &ExplainArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let id = &args.request_id;
    let call = Call::new(Method::GET, format!("/requests/{}", escaped(id)));
    let body = if let Some(file) = &args.log {
        let name = Input::named(file);
        let line = name.open().and_then(|log| explain::find(log, id));
        let line = line.with_context(|| format!("{name} cannot be read"))?;
        let line = line.and_then(|line| explain::explain(&line));
        let explained = line.ok_or_else(|| anyhow!("{name} has no line of the request {id}"))?;
        serde_json::to_string(&explained)?
    } else {
        accepted(&Direct::new(&args.operator, environment)?.send(&call)?)?.to_owned()
    };
    super::say(&if args.operator.json { format!("{}\n", body.trim_end()) } else { table(&call, &body) })?;
    Ok(ExitCode::SUCCESS)
}
