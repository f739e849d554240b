//! `serve`: the server in the foreground until a signal.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::SettingsArgs;
use crate::config::Config;
use crate::log::{self, LogSink};
use crate::run;

/// A runtime with as many threads as the settings say.
pub fn runtime(config: &Config) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if config.worker_threads > 0 {
        builder.worker_threads(config.worker_threads);
    }
    builder.enable_all().build().context("the runtime cannot be started")
}

/// SIGTERM and SIGINT. From the moment this is made, neither ends the process by itself.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Takes them over.
    pub fn catch() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("signals cannot be waited for");
        Ok(Self { terminate: catch(SignalKind::terminate())?, interrupt: catch(SignalKind::interrupt())? })
    }

    /// Waits for one of them.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits for SIGTERM or SIGINT.
pub async fn told_to_stop() -> anyhow::Result<()> {
    StopSignals::catch()?.wait().await;
    Ok(())
}

/// Serves until a signal, then drains.
pub fn serve(args: &SettingsArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let config = args.load(environment)?;
    let (sink, guard) = LogSink::start(std::io::stderr()).context("the log cannot be started")?;
    log::install(&sink, &config.log_level);
    let runtime = runtime(&config)?;
    let outcome = runtime.block_on(async {
        // Before the first line: whoever reads it may send SIGTERM at once.
        let mut stop = StopSignals::catch()?;
        let running = run::start_in(config, run::Surroundings { clock: crate::clock::Clock::System, log: sink }).await?;
        let addresses = json!({ "listen": running.listen.to_string(), "operator_listen": running.operator_listen.to_string() });
        super::say(&format!("{addresses}\n"));
        tracing::info!(listen = %running.listen, operator_listen = %running.operator_listen, version = env!("CARGO_PKG_VERSION"), "Countersign serves");
        stop.wait().await;
        tracing::info!("Told to stop: requests under way are let to end");
        running.stop().await?;
        tracing::info!("Stopped");
        Ok(ExitCode::SUCCESS)
    });
    drop(guard);
    outcome
}
