//! `demo`: the whole system on this machine, walked through once over real sockets, then served.
//!
//! Nothing here is a shortcut: the server is started as `serve` starts it, identities come from the operator API, merchants
//! use the SDK, and the receiver is a web server of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use crate::chance::Chance;
use crate::config::{Config, Flag};
use crate::log::{self, LogSink};
use crate::run::{self, Initialised};

mod afterwards;
mod callbacks;
mod convert;
mod payments;
mod receiver;
mod refusals;
mod restart;
mod rules;
mod screen;
mod stage;

use receiver::Receiver;
use restart::Server;
use screen::Screen;
use stage::{Cast, Stage};

/// Flags of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// End after the walk; exit code 0 only if every claim held
    #[arg(long)]
    pub once: bool,
    /// Keep the data in this new folder [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Walk on this new PostgreSQL database [default: SQLite in the data folder]
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub database_url: Option<String>,
    /// Wait as little as possible between steps
    #[arg(long)]
    pub fast: bool,
}

/// The data folder of the demo; a temporary one is removed at the end.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    is_temporary: bool,
}

impl Folder {
    fn of(args: &DemoArgs) -> Self {
        match &args.data {
            Some(path) => Self { path: path.clone(), is_temporary: false },
            None => Self {
                path: std::env::temp_dir().join(format!("countersign-demo-{}", Chance::default().hex(6))),
                is_temporary: true,
            },
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_temporary {
            // What cannot be removed is in the system's own temporary folder.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Starts everything, walks, and serves on unless `--once`.
pub fn run(args: &DemoArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let folder = Folder::of(args);
    let config = settings(&folder.path, args)?;
    let runtime = run::threads::runtime(config.worker_threads)?;
    // Before there is a log: in a folder that is refused nothing is left.
    let made = runtime.block_on(run::initialise(&config))?;
    let (sink, _guard) = LogSink::start(log_target(&folder.path)?).context("the log cannot be started")?;
    log::install(&sink, &config.log_level);
    let mut screen = Screen::stdout(environment);
    let held = runtime.block_on(perform(args, &folder, made, config, sink, &mut screen));
    run::threads::end(runtime);
    ensure!(held?, "not every claim of the demo held");
    screen.demand_written()?;
    Ok(ExitCode::SUCCESS)
}

/// The log goes into the data folder, so that the page stays readable.
fn log_target(folder: &Path) -> anyhow::Result<std::fs::File> {
    let path = folder.join("demo.log");
    std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("{} cannot be written", path.display()))
}

/// The demo's settings: free ports, callbacks to this machine, retries after a moment. All else is the default.
fn settings(folder: &Path, args: &DemoArgs) -> anyhow::Result<Config> {
    let schedule = if args.fast { "200ms,1s,2s" } else { "2s,5s,10s" };
    let flags = [
        ("data", folder.to_str().context("the path of the data folder is no UTF-8")?),
        ("database_url", args.database_url.as_deref().unwrap_or_default()),
        ("listen", "127.0.0.1:0"),
        ("operator_listen", "127.0.0.1:0"),
        ("allow_private_callbacks", "true"),
        ("callback_schedule", schedule),
    ];
    let flags = flags.map(|(setting, text)| Flag { flag: "demo", setting, text: text.to_owned() });
    // The demo is the same on every machine: the environment's settings do not reach it.
    let config = Config::load(None, &BTreeMap::new(), &flags)?;
    config.check_listeners()?;
    Ok(config)
}

async fn perform(
    args: &DemoArgs,
    folder: &Folder,
    made: Initialised,
    config: Config,
    log: LogSink,
    screen: &mut Screen,
) -> anyhow::Result<bool> {
    let mut server = Server::start(config, log).await?;
    let receiver = Receiver::start().await?;
    let mut stage = Stage {
        merchant_url: server.merchant_url(),
        operator_url: server.operator_url(),
        token: made.operator_token,
        receiver,
        fast: args.fast,
    };
    opening(screen, folder, &stage);
    let cast = tokio::select! {
        cast = walk(&mut stage, &mut server, folder, screen) => cast,
        stopped = super::serve::told_to_stop() => {
            stopped?;
            bail!("stopped in the middle of the walk");
        }
    };
    let held = screen.summary();
    let mut broken = None;
    if !args.once {
        if let Some(cast) = &cast {
            afterwards::how_to_call(screen, &stage, cast);
        }
        broken = tokio::select! {
            stopped = super::serve::told_to_stop() => stopped.map(|()| None)?,
            part = server.broken() => Some(part),
        };
        screen.line("");
        screen.line(if folder.is_temporary {
            "Stopping; the temporary data folder is removed."
        } else {
            "Stopping; the data folder is kept."
        });
    }
    server.stop().await?;
    ensure!(broken.is_none(), "a part of the server broke: {}", broken.unwrap_or_default());
    Ok(held)
}

fn opening(screen: &Screen, folder: &Folder, stage: &Stage) {
    screen.title(
        "Countersign demo: a real server, two merchants' programs and a receiver, over real sockets on this machine",
    );
    let kept = if folder.is_temporary { " (temporary: removed at the end)" } else { "" };
    screen.fact("data folder", &format!("{}{kept}", folder.path.display()));
    screen.fact("merchant API", &stage.merchant_url);
    screen.fact("operator API", &stage.operator_url);
    screen.fact("receiver", &stage.receiver.url);
    screen.fact("server's log", &folder.path.join("demo.log").display().to_string());
}

/// All chapters. One that breaks off is a claim that did not hold; those after it are walked if they can be.
async fn walk(stage: &mut Stage, server: &mut Server, folder: &Folder, screen: &mut Screen) -> Option<Cast> {
    let cast = match stage.provision(screen).await {
        Ok(cast) => cast,
        Err(error) => {
            screen.broke("the parties can be set up", &error);
            return None;
        }
    };
    if let Err(error) = rules::walk(stage, &cast, screen).await {
        screen.broke("the journey of the fee rule can be walked to its end", &error);
    }
    if let Err(error) = convert::walk(stage, &cast, screen).await {
        screen.broke("the journey of the convert order can be walked to its end", &error);
    }
    let captured = callbacks::walk(stage, &cast, screen).await;
    if let Err(error) = &captured {
        screen.broke("the journey of the callback can be walked to its end", error);
    }
    match refusals::walk(stage, &cast, captured.as_ref().ok(), screen).await {
        Err(error) => screen.broke("the refusals can be shown", &error),
        Ok(used) => {
            if let Err(error) = restart::walk(stage, server, &cast, &used, &folder.path, screen).await {
                screen.broke("the server can be started again", &error);
            }
        }
    }
    Some(cast)
}
