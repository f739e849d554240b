//! Fee-rule upgrades per second on PostgreSQL through the whole use case, beside pgbench running the product's own statement for one row
//! on the same server: same schema, same disk, every commit synced.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use countersign::clock::Clock;
use countersign::config::{Config, Optional};
use countersign::run;
use countersign_store::testing::{Server, ServerOptions};

use super::callers::Loaded;
use super::{spread, table};

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_millis(1500);
const INSTITUTIONS: usize = 100;
const SUBS: usize = 10;

/// Prints the table.
pub async fn run() -> Result<()> {
    let server = Server::start(ServerOptions { fsync: true, tcp: false });
    let folder = tempfile::tempdir()?;
    let many = loaded(&server, "many", folder.path(), INSTITUTIONS, SUBS).await?;
    let one = loaded(&server, "one", folder.path(), 1, INSTITUTIONS * SUBS).await?;
    for callers in [1, 16, 128] {
        for (name, loaded) in [("100 institutions", &many), ("one institution", &one)] {
            let (mut rates, mut mine, mut theirs) = (Vec::new(), vec![], vec![]);
            let pm = server.process().unwrap();
            for _ in 0..ROUNDS {
                let (a, b) = (super::cpu_ns(std::process::id()), super::cpu_ns_of_children(pm));
                let rate = loaded.slice(callers, loaded.keys(), SLICE).await?.rate;
                let n = rate * SLICE.as_secs_f64() * 1e3;
                rates.push(rate);
                mine.push((super::cpu_ns(std::process::id()) - a) as f64 / n);
                theirs.push((super::cpu_ns_of_children(pm) - b) as f64 / n);
            }
            println!("{callers} {name}: {} cpu ours {} pg {}", spread(&rates), spread(&mine), spread(&theirs));
        }
    }
    let _ = table;
    Ok(())
}

async fn loaded(server: &Server, name: &str, folder: &Path, institutions: usize, subs: usize) -> Result<Loaded> {
    server.ask("postgres", &format!("CREATE DATABASE {name}"));
    let mut config = Config { data: folder.join(name), ..Config::default() };
    config.database_url = Optional(Some(server.url(name)));
    run::initialise(&config).await?;
    let app = Arc::new(run::open_app(&config, Clock::System, None).await?);
    Loaded::fill(app, institutions, subs).await
}
