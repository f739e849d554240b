//! `serve`: the server in the foreground until a signal.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::SettingsArgs;
use crate::config::Config;
use crate::log::{self, LogSink};
use crate::{process, run};

/// SIGTERM, SIGINT and SIGHUP. From the moment this is made, none of them ends the process by itself.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signalled {
    /// SIGTERM or SIGINT.
    ToStop,
    /// SIGHUP.
    ToReadAgain,
}

impl StopSignals {
    /// Takes them over.
    pub fn catch() -> anyhow::Result<Self> {
        let catch = |kind| signal(kind).context("signals cannot be waited for");
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> Signalled {
        tokio::select! {
            _ = self.terminate.recv() => Signalled::ToStop,
            _ = self.interrupt.recv() => Signalled::ToStop,
            _ = self.hangup.recv() => Signalled::ToReadAgain,
        }
    }

    /// Waits for one that says to stop.
    pub async fn wait(&mut self) {
        while self.next().await != Signalled::ToStop {}
    }
}

/// Waits for SIGTERM or SIGINT.
pub async fn told_to_stop() -> anyhow::Result<()> {
    StopSignals::catch()?.wait().await;
    Ok(())
}

/// Before there are threads and keys: what a crash may leave, and how many files there may be.
fn prepare_process(config: &Config) -> anyhow::Result<()> {
    if !config.core_dumps {
        process::forbid_dumps().context("core dumps cannot be forbidden (core_dumps = true allows them)")?;
    }
    // What is missing is said with all else that is less safe than it could be.
    process::allow_files(config.connections());
    Ok(())
}

/// Waits for a signal to stop, or until a part of the server has broken: which.
async fn until_told(stop: &mut StopSignals, running: &run::Running) -> Option<&'static str> {
    loop {
        tokio::select! {
            told = stop.next() => match told {
                Signalled::ToStop => return None,
                Signalled::ToReadAgain if running.renew_certificate() => {}
                Signalled::ToReadAgain => {
                    tracing::info!("SIGHUP: there is no TLS certificate to read again; a change of settings takes a restart");
                }
            },
            part = running.broken() => return Some(part),
        }
    }
}

/// Waits until nobody should send anything here any more, or until it is told to stop once more. Which part of the server has broken meanwhile.
async fn until_left(stop: &mut StopSignals, running: &run::Running) -> Option<&'static str> {
    let broken = tokio::select! {
        () = running.leave() => None,
        () = stop.wait() => None,
        part = running.broken() => Some(part),
    };
    tracing::info!("The listeners close, and requests under way are let to end");
    broken
}

/// Serves until a signal, then drains. An error where a part of the server has broken.
pub fn serve(args: &SettingsArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let config = args.load(environment)?;
    let (sink, guard) = LogSink::start(std::io::stderr()).context("the log cannot be started")?;
    log::install(&sink, &config.log_level);
    let code = until_stopped(config, sink.clone()).map_or_else(
        |error| {
            // Behind the log and as patient as it is: who has the other end of stderr may have stopped reading.
            sink.push(super::last_line(&error).as_bytes());
            super::code_of(&error)
        },
        |()| ExitCode::SUCCESS,
    );
    drop(guard);
    Ok(code)
}

fn until_stopped(config: Config, sink: LogSink) -> anyhow::Result<()> {
    prepare_process(&config)?;
    let runtime = run::threads::runtime(config.worker_threads)?;
    let outcome = runtime.block_on(serve_and_stop(config, sink));
    run::threads::end(runtime);
    outcome
}

async fn serve_and_stop(config: Config, sink: LogSink) -> anyhow::Result<()> {
    // Before the first line: whoever reads it may send SIGTERM at once.
    let mut stop = StopSignals::catch()?;
    process::outlive_file_size_limit().context("signals cannot be waited for")?;
    let surroundings = run::Surroundings { clock: crate::clock::Clock::System, log: sink };
    let running = tokio::select! {
        running = run::start_in(config, surroundings) => running?,
        // A step of the schema may take hours, and what it had done is undone.
        () = stop.wait() => {
            tracing::info!("Told to stop before it served");
            return Ok(());
        }
    };
    print_addresses(&running);
    tracing::info!(listen = %running.listen, operator_listen = %running.operator_listen, health_listen = running.health_listen.map(tracing::field::display), version = env!("CARGO_PKG_VERSION"), "Countersign serves");
    let broken = match until_told(&mut stop, &running).await {
        None => until_left(&mut stop, &running).await,
        broken => broken,
    };
    if let Some(part) = broken {
        tracing::error!(part, "A part of the server broke: {part}. The process ends, so that it is started again");
    }
    running.stop().await?;
    if let Some(part) = broken {
        bail!("a part of the server broke: {part}");
    }
    tracing::info!("Stopped");
    Ok(())
}

/// On a thread of its own, which nobody waits for: where stdout is a full pipe that nobody reads, printing takes for ever. Whoever waits for
/// the line goes without it; those who call are served.
fn print_addresses(running: &run::Running) {
    let mut addresses =
        json!({ "listen": running.listen.to_string(), "operator_listen": running.operator_listen.to_string() });
    if let Some(address) = running.health_listen {
        addresses["health_listen"] = address.to_string().into();
    }
    let print = move || {
        if let Err(error) = super::say(&format!("{addresses}\n")) {
            tracing::warn!("The addresses could not be printed: {error:#}");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("addresses".to_owned()).spawn(print) {
        tracing::warn!("The addresses could not be printed: there is no thread for it: {error}");
    }
}
