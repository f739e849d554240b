//! The server of the demo, stopped and started again: what was acknowledged is still there, and secrets lie nowhere in the clear.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;
use countersign_protocol::endpoint::rule_query;
use serde::Deserialize;

use super::refusals::refused_as;
use super::screen::Screen;
use super::stage::{Cast, Stage};
use crate::cli::http::Ask;
use crate::cli::operator::Call;
use crate::clock::Clock;
use crate::config::Config;
use crate::log::LogSink;
use crate::run::{self, Running, Surroundings};

/// The server, which can be started again in the same data folder.
#[derive(Debug)]
pub struct Server {
    config: Config,
    log: LogSink,
    running: Option<Running>,
    /// Where it listened before.
    listened: Option<(SocketAddr, SocketAddr)>,
    merchant_url: String,
    operator_url: String,
}

impl Server {
    /// Starts it as `serve` does.
    pub async fn start(config: Config, log: LogSink) -> anyhow::Result<Self> {
        let mut server = Self {
            config,
            log,
            running: None,
            listened: None,
            merchant_url: String::new(),
            operator_url: String::new(),
        };
        server.start_again().await?;
        Ok(server)
    }

    async fn start_again(&mut self) -> anyhow::Result<()> {
        let start = async |config: &Config| {
            let surroundings = Surroundings { clock: Clock::System, log: self.log.clone() };
            run::start_in(config.clone(), surroundings).await
        };
        // Where people have read that it listens, unless somebody else has taken that meanwhile.
        let running = match self.listened {
            Some((listen, operator_listen)) => {
                match start(&Config { listen, operator_listen, ..self.config.clone() }).await {
                    Ok(running) => running,
                    Err(_) => start(&self.config).await?,
                }
            }
            None => start(&self.config).await?,
        };
        self.listened = Some((running.listen, running.operator_listen));
        self.merchant_url = format!("http://{}", running.listen);
        self.operator_url = format!("http://{}", running.operator_listen);
        self.running = Some(running);
        Ok(())
    }

    /// Whether its data is in a database outside the data folder.
    fn shares_a_database(&self) -> bool {
        self.config.database_url.get().is_some()
    }

    /// Base address of the merchant API.
    pub fn merchant_url(&self) -> String {
        self.merchant_url.clone()
    }

    /// Base address of the operator API.
    pub fn operator_url(&self) -> String {
        self.operator_url.clone()
    }

    /// Waits until a part of it has broken: which.
    pub async fn broken(&self) -> &'static str {
        match &self.running {
            Some(running) => running.broken().await,
            None => std::future::pending().await,
        }
    }

    /// Stops it, as SIGTERM does.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        match self.running.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }
}

#[derive(Deserialize)]
struct Found<T> {
    items: Vec<T>,
}

/// Walks it. `used` is a request that was accepted once already.
pub async fn walk(
    stage: &mut Stage,
    server: &mut Server,
    cast: &Cast,
    used: &Ask,
    folder: &Path,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    screen.chapter(
        "Stopped, and started again",
        "What was acknowledged must outlive the process. The server is stopped and started in the same data folder.",
    );
    server.stop().await.context("the server does not stop")?;
    server.start_again().await.context("the server does not start again")?;
    stage.merchant_url = server.merchant_url();
    stage.operator_url = server.operator_url();
    screen.detail(&format!("now on {} (merchants) and {} (operators)", stage.merchant_url, stage.operator_url));

    screen.say("The listener on the line tries the request once more that was accepted before:");
    let answer = stage.send(screen, used).await?;
    screen.proves(
        refused_as(&answer, 401, "NONCE_REUSED")?,
        "Still refused: used nonces are kept on the disk, those of reads too.",
    );

    screen.say("What does Corner Shop pay?");
    let sub = &cast.sub_account.merchant_id;
    let request = rule_query::Request { sub_merchant_id: sub.clone(), query_time: None };
    screen.sent(&format!("GET /rate/commission_rule?{}", request.to_query()), None);
    let found = stage.client(&cast.institution)?.rule_query(&request).await?;
    screen.got("data", &serde_json::to_string(&found)?);
    screen.proves(found.version_no == Some(2), "Version 2, as before.");

    screen.say("Is there a callback that was left behind?");
    let call = Call::list("/events", &[])
        .query("client_id", Some(cast.sub_account.client_id.clone()))
        .query("state", Some("pending".to_owned()));
    let pending: Found<serde::de::IgnoredAny> = stage.operate_well(screen, &call).await?;
    screen.proves(pending.items.is_empty(), "None is pending: both were delivered, and that is on the disk.");
    nothing_in_the_clear(stage, cast, folder, server.shares_a_database(), screen)
}

/// Looks through every file in the data folder for the secrets that were given out.
fn nothing_in_the_clear(
    stage: &Stage,
    cast: &Cast,
    folder: &Path,
    shares_a_database: bool,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    screen
        .say("A look at the disk: every byte of the data folder's files, searched for the two secrets and the operator token.");
    let wanted =
        [cast.institution.secret.as_bytes(), cast.sub_account.secret.as_bytes(), stage.token.expose().as_bytes()];
    let (mut bytes_seen, mut names, mut is_found) = (0, Vec::new(), false);
    for entry in std::fs::read_dir(folder).context("the data folder cannot be read")? {
        let entry = entry?;
        // The server makes no folders, and what is no file may wait for a writer.
        if !entry.file_type().context("the data folder cannot be read")?.is_file() {
            continue;
        }
        let path = entry.path();
        let bytes = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        bytes_seen += bytes.len();
        names.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        is_found |= wanted.iter().any(|secret| holds(&bytes, secret));
    }
    names.sort();
    screen.detail(&format!("{} bytes in {}", bytes_seen, names.join(", ")));
    let holds = !is_found && bytes_seen > 0;
    let claim = if shares_a_database {
        "None of them is there: the folder holds the master key and the log, and all else is in the database."
    } else {
        "None of them is there: secrets lie sealed under the master key, the token as a hash, and the log holds none."
    };
    screen.proves(holds, claim);
    Ok(())
}

fn holds(bytes: &[u8], secret: &[u8]) -> bool {
    bytes.windows(secret.len()).any(|window| window == secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_wherever_it_lies() {
        assert!(holds(b"..secret", b"secret") && holds(b"secret..", b"secret"));
        assert!(!holds(b"secre.t", b"secret") && !holds(b"", b"secret"));
    }
}
