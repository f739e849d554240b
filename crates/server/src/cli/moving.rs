//! `move`: a stopped deployment from its folder into a PostgreSQL database, with a proof of the copy.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use comfy_table::{CellAlignment, Table, presets};
use countersign_store::SqliteStore;
use countersign_store::contract::StoreError;
use countersign_store::moving::{self, Move, MoveError, Progress, Report};
use countersign_store::sqlite::MoveMark;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::{Config, Flag};
use crate::datadir::{DataDir, DataRefused};
use crate::keys;
use crate::run::{self, Database, deployment_settings};

/// Flags of `move`.
#[derive(Debug, Args)]
pub struct MoveArgs {
    /// Data folder of the deployment; no server may be running on it
    #[arg(long, value_name = "DIR", value_parser = NonEmptyStringValueParser::new())]
    pub from: String,
    /// Empty PostgreSQL database, or one that this move was begun into [default: COUNTERSIGN_DATABASE_URL]
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub to: Option<String>,
    /// File of the master key [default: master.key in the data folder]
    #[arg(long, value_name = "FILE", value_parser = NonEmptyStringValueParser::new())]
    pub master_key: Option<String>,
    /// Settings file (TOML); also COUNTERSIGN_CONFIG
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the report for programs
    #[arg(long)]
    pub json: bool,
}

impl MoveArgs {
    fn load(&self, environment: &BTreeMap<String, String>) -> anyhow::Result<Config> {
        let mut flags = vec![Flag { flag: "--from", setting: "data", text: self.from.clone() }];
        if let Some(to) = &self.to {
            flags.push(Flag { flag: "--to", setting: "database_url", text: to.clone() });
        }
        if let Some(file) = &self.master_key {
            flags.push(Flag { flag: "--master-key", setting: "master_key_file", text: file.clone() });
            // A flag lies over the environment, so the key there must not win.
            for setting in ["master_key", "master_key_command"] {
                flags.push(Flag { flag: "--master-key", setting, text: String::new() });
            }
        }
        Ok(Config::load(self.config.as_deref(), environment, &flags)?)
    }
}

/// Moves, or goes on with a move that was cut off, and prints what was proved.
pub fn run(args: &MoveArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let config = args.load(environment)?;
    let Database::Postgres(url) = Database::of(&config)? else {
        bail!("name the database to move into: --to postgres://..., or COUNTERSIGN_DATABASE_URL in the environment");
    };
    let data = DataDir::open(&config.data).map_err(|error| match error {
        DataRefused::NoFolder(path) => {
            anyhow!("there is no data folder {}: name that of the deployment with --from", path.display())
        }
        error => error.into(),
    })?;
    let _lock = data.lock()?;
    may_be_moved(&config, &data)?;
    let chance = Chance::default();
    let mut id = [0; 16];
    chance.fill(&mut id);
    let order = Move {
        from: data.database(),
        sqlite: run::sqlite_options(&chance),
        to: run::postgres_options(&config, url)?,
        id,
        now: Clock::System.now(),
        rows_per_portion: moving::ROWS_PER_PORTION,
        refuse_ahead_ms: None,
    };
    let mut display = Display::new();
    let moved = super::small_runtime()?.block_on(moving::run(order, |progress| display.show(progress)));
    display.end();
    let report = moved.map_err(|error| not_moved(error, &data.database()))?;
    super::say(&if args.json { as_json(&report) } else { in_words(&report, &data) })?;
    Ok(ExitCode::SUCCESS)
}

/// What a move says that did not come to its end. Nothing is lost, and nothing has to be undone.
fn not_moved(error: MoveError, file: &Path) -> anyhow::Error {
    // Only what a database could not leaves it open; whatever else is said, the one that was to be filled is not complete.
    let ends = match (&error, SqliteStore::move_mark(file)) {
        (MoveError::Store(_), Ok(Some(MoveMark::Ending(place)))) => Some(place),
        _ => None,
    };
    let then = match (ends, &error) {
        (Some(place), _) => format!(
            "whether it was moved to {place} is not known: that database may be complete; when what is said here is mended, run the move to it again, \
             which settles it"
        ),
        (None, MoveError::Store(StoreError::Unavailable(_))) => {
            "not moved; when that is mended, run the same command again: it goes on where it was".to_owned()
        }
        (None, _) => "not moved".to_owned(),
    };
    anyhow::Error::from(error).context(then)
}

/// Refuses a folder without a deployment, and a key that does not open its secrets: nodes on the new database will need it.
fn may_be_moved(config: &Config, data: &DataDir) -> anyhow::Result<()> {
    let (path, folder) = (data.database(), data.path().display());
    ensure!(path.exists(), "{folder} holds no database: there is nothing to move");
    let wanted =
        SqliteStore::peek(&path, deployment_settings::MASTER_KEY_ID).with_context(|| run::cannot_be_used(&path))?;
    let Some(wanted) = wanted else { bail!("{folder} is not initialised: there is nothing to move") };
    let vault = keys::vault(config, data)?;
    ensure!(
        vault.knows(&wanted),
        "this is not the master key of {folder} (key id {}, wanted {wanted}): name the right one with --master-key",
        vault.key_id()
    );
    Ok(())
}

/// A bar on a terminal; elsewhere a line for each twentieth.
#[derive(Debug)]
struct Display {
    bar: Option<ProgressBar>,
    total: u64,
    done: u64,
    said: u64,
}

impl Display {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg:<30} {wide_bar} {percent:>3} % {eta:>4} left");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { bar, total: 0, done: 0, said: 0 }
    }

    fn show(&mut self, progress: Progress) {
        let (what, table) = match progress {
            Progress::Begun { rows, already } => {
                // Every row is copied, then compared.
                self.total = 2 * rows;
                self.done = already;
                if let Some(bar) = &self.bar {
                    bar.set_length(self.total);
                    bar.set_position(already);
                    bar.reset_eta();
                } else if already > 0 {
                    Self::line(&format!("going on: {already} of {rows} rows were copied before"));
                }
                return;
            }
            Progress::Copied { table, rows } => {
                self.done += rows;
                ("copying", table)
            }
            Progress::Compared { table, rows } => {
                self.done += rows;
                ("comparing", table)
            }
        };
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{what} {table}"));
            bar.set_position(self.done);
            return;
        }
        let percent = 100 * self.done / self.total.max(1);
        if percent >= self.said + 5 {
            self.said = percent;
            Self::line(&format!("{percent} %: {what} {table}"));
        }
    }

    fn line(text: &str) {
        let _ = writeln!(std::io::stderr(), "{text}");
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn as_json(report: &Report) -> String {
    let table = |table: &moving::TableReport| {
        let sums: BTreeMap<_, _> = table.sums.iter().map(|(column, sum)| (*column, sum.to_string())).collect();
        json!({ "table": table.table, "rows": table.rows, "sha256": table.digest, "sums": sums })
    };
    let report = json!({
        "moved_to": report.place,
        "tables": report.tables.iter().map(table).collect::<Vec<_>>(),
        "chains": report.chains.iter().map(|chain| json!({ "about": chain.about, "links": chain.links })).collect::<Vec<_>>(),
        "refused_through": report.horizon.map(|horizon| horizon.0),
    });
    format!("{report}\n")
}

fn in_words(report: &Report, data: &DataDir) -> String {
    let folder = data.path().display();
    let mut text = String::new();
    if report.tables.is_empty() {
        let _ = writeln!(text, "Moved to {}; an earlier run had proved the copy.\n", report.place);
    } else {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header([
            "Table",
            "Rows",
            "SHA-256 over every value, equal on both sides",
        ]);
        for proved in &report.tables {
            table.add_row([proved.table.to_owned(), proved.rows.to_string(), proved.digest.clone()]);
        }
        if let Some(rows) = table.column_mut(1) {
            rows.set_cell_alignment(CellAlignment::Right);
        }
        let _ = writeln!(text, "Moved to {}, every row compared:\n\n{}\n", report.place, table.trim_fmt());
        for chain in &report.chains {
            let _ = writeln!(text, "{:>10}  {}", chain.links, chain.about);
        }
        text.push('\n');
    }
    let (key, flag) = if data.master_key().exists() {
        ("It keeps the master key, and", "")
    } else {
        ("The master key is not in it and stays where it is. It", " --master-key FILE")
    };
    let _ = writeln!(
        text,
        "{folder} is not served any more. {key} can be the folder of the first node:\n\n\
         \x20 countersign serve --data {folder} --database-url postgres://...{flag}\n\n\
         Further nodes: countersign init --data DIR --database-url postgres://... --master-key FILE\n\n\
         In COUNTERSIGN_DATABASE_URL other users of the machine do not see the address's password."
    );
    text
}
