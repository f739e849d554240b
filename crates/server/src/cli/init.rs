//! `init` and `migrate`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use countersign_store::{PostgresStore, SqliteStore};
use serde_json::json;

use super::DataArgs;
use super::out::shown;
use crate::config::Config;
use crate::datadir::DataDir;
use crate::run::missing_deployment::{Presence, presence};
use crate::run::{self, Database, Prepared, cannot_be_used};

const MADE: &str = "the deployment is made, and its operator token is shown above";

/// Flags of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Where the data will be.
    #[command(flatten)]
    pub data: DataArgs,
    /// Print {"data","operator_token"} for programs
    #[arg(long)]
    pub json: bool,
}

/// Makes a data folder and shows its first operator token, once.
pub fn init(args: &InitArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let config = args.data.load(environment)?;
    let made = match super::small_runtime()?.block_on(run::prepare(&config))? {
        Prepared::First(made) => made,
        Prepared::Joined(folder) => {
            joined(args, &config, &folder)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    // Another `init` would find the folder full.
    let lost = || {
        let again = run::command("token recover", &config);
        format!("the deployment is made, but its operator token is lost: `{again}` makes another")
    };
    let data = made.data.display().to_string();
    let token = made.operator_token.expose();
    if args.json {
        super::say_once(&format!("{}\n", json!({ "data": data, "operator_token": token })), lost)?;
        return shown(made.unclosed, MADE);
    }
    let key = match (config.master_key.get(), config.master_key_file.get()) {
        (Some(_), _) => "from COUNTERSIGN_MASTER_KEY".to_owned(),
        (None, Some(file)) => file.display().to_string(),
        (None, None) => made.data.join("master.key").display().to_string(),
    };
    let text = format!(
        "Made the data folder {data}.\n\n\
         Master key       {key}\n\
         \x20                Keep a copy elsewhere: without it no secret in the database can ever be opened again.\n\
         Operator token   {token}\n\
         \x20                Shown this once. Role: security; ends {}.\n\n\
         Next:\n\
         \x20 {}\n\
         \x20 export COUNTERSIGN_OPERATOR_TOKEN=...   # the token above\n\
         \x20 countersign institution create --name \"My institution\"\n",
        made.token_ends(),
        run::command("serve", &config)
    );
    super::say_once(&text, lost)?;
    shown(made.unclosed, MADE)
}

/// Says that a further node is ready.
fn joined(args: &InitArgs, config: &Config, folder: &Path) -> anyhow::Result<()> {
    let data = folder.display().to_string();
    if args.json {
        super::say(&format!("{}\n", json!({ "data": data, "operator_token": null })))
    } else {
        super::say(&format!(
            "The database is initialised, and this is its master key: {data} is ready as a further node.\n\n\
             Start it with `{}`.\n",
            run::command("serve", config)
        ))
    }
}

/// Brings the schema up to this program's; `serve` does the same at its start.
pub fn migrate(args: &DataArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let config = args.load(environment)?;
    // It may wait long for a table that somebody holds.
    crate::log::warn_people();
    // A file, too: at its size limit the process goes on.
    let runtime = super::small_runtime()?;
    let (data, _lock) = match Database::of(&config)? {
        Database::Postgres(_) => (DataDir::named(&config.data), None),
        Database::Sqlite => {
            let data = run::folder(&config)?;
            run::demand_database(&config, &data)?;
            let lock = data.lock()?;
            run::demand_not_moved(&config, &data)?;
            (data, Some(lock))
        }
    };
    let found = runtime.block_on(presence(&config, &data))?;
    if found != Presence::Deployment {
        // What would be said next is to run `init`.
        run::missing_deployment::refuse_half_restored(&data)?;
    }
    let (state, what) = match Database::of(&config)? {
        Database::Postgres(url) => {
            let options = run::postgres_options(&config, url)?;
            let state = runtime.block_on(async {
                let state = PostgresStore::migrate(&options).await?;
                // A schema alone is not what makes half a deployment one that can be served.
                PostgresStore::refuse_unfinished(&options).await.map(|()| state)
            });
            (state.map_err(run::postgres_cannot_be_used)?, "the database".to_owned())
        }
        Database::Sqlite => {
            let file = data.database();
            let state = SqliteStore::migrate(&file).with_context(|| cannot_be_used(&file))?;
            (state, file.display().to_string())
        }
    };
    // Whoever may make tables may be somebody else than who initialises.
    let none = || format!("No deployment is in it yet: `{}` makes one.\n", run::command("init", &config));
    let begun = match found {
        Presence::Nothing => format!("There was none before. {}", none()),
        Presence::Tables => none(),
        Presence::Deployment => String::new(),
    };
    let (applied, known) = (state.applied, state.known);
    super::say(&format!("The schema of {what} is up to date: step {applied} of {known}.\n{begun}"))?;
    Ok(ExitCode::SUCCESS)
}
