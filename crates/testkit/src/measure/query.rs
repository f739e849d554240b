//! The signed convert query beside bare hyper answering the same bytes: one core each for server and generator. PostgreSQL, where that is the
//! store, runs where the kernel puts it, every commit synced, and its CPU does not count.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use countersign_store::testing::{Server as Postgres, ServerOptions};
use serde_json::json;

use super::load::{Asker, Slice, slice};
use super::{spread, table};
use crate::backing::StoreKind;
use crate::process::Deployment;
use crate::wire::once;

const ROUNDS: usize = 12;
pub(super) const SLICE: Duration = Duration::from_millis(600);
pub(super) const CONNECTIONS: usize = 64;
/// So many that none comes near the default limit of 1,000 requests a second.
const APPLICATIONS: usize = 200;

/// The yardstick's process; ends with its owner.
pub(super) struct Bare(Child);

impl Bare {
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the yardstick in a process of its own: its body, and where it speaks TLS the files of its certificate and key.
pub(super) fn bare(body: &str, certified: &[&str]) -> Result<(Bare, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut child = command.args(["bare", body]).args(certified).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("stdout is piped")?).read_line(&mut line)?;
    Ok((Bare(child), line.trim().parse()?))
}

/// Pins a process to a core; says so where that cannot be done.
pub(super) fn pin(pid: u32, core: &str) {
    let done = Command::new("taskset").args(["-a", "-p", "-c", core, &pid.to_string()]).stdout(Stdio::null()).status();
    if !done.is_ok_and(|status| status.success()) {
        println!("(process {pid} could not be pinned to core {core}: the figures are noisier)");
    }
}

/// Prints the table of a store.
pub async fn run(store: StoreKind) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let postgres = match store {
        StoreKind::Model => bail!("a server has no store in memory"),
        StoreKind::Sqlite => None,
        StoreKind::Postgres => {
            Some(Postgres::start(ServerOptions { fsync: true, large: true, ..ServerOptions::default() }))
        }
    };
    if let Some(postgres) = &postgres {
        postgres.ask("postgres", "CREATE DATABASE measure");
    }
    let url = postgres.as_ref().map(|postgres| postgres.url("measure"));
    let deployment = Deployment::init_at(&folder.path().join("data"), url)?;
    let server = deployment.serve()?;
    let askers = Rc::new(askers(&server).await?);
    let sample = sample(server.listen, &askers[0]).await?;
    let (bare, bare_address) = bare(&sample, &[])?;
    pin(server.pid(), "0");
    pin(bare.id(), "0");
    pin(std::process::id(), "1");
    let nothing = Rc::new(vec![Asker { client_id: "x".into(), secret: b"x".to_vec(), target: "/".into() }]);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        theirs.push(slice(bare_address, bare.id(), &nothing, CONNECTIONS, SLICE).await?);
        ours.push(slice(server.listen, server.pid(), &askers, CONNECTIONS, SLICE).await?);
    }
    print(store, &ours, &theirs, sample.len());
    Ok(())
}

/// Applications that each have one order to ask about.
pub(super) async fn askers(server: &crate::process::Server) -> Result<Vec<Asker>> {
    let mut askers = Vec::new();
    for n in 0..APPLICATIONS {
        let merchant = format!("m{n}");
        server.access.provision("POST", "/merchants", json!({"name": merchant, "merchant_id": merchant})).await?;
        let made = server
            .access
            .provision("POST", &format!("/merchants/{merchant}/applications"), json!({"name": "measure"}))
            .await?;
        let order = server.access.convert_order(&merchant).await?;
        askers.push(Asker {
            client_id: made["client_id"].as_str().context("a client id")?.to_owned(),
            secret: made["payment_api_secret"].as_str().context("a secret")?.as_bytes().to_vec(),
            target: format!("/v1/pay/convert/order?orderId={order}"),
        });
    }
    Ok(askers)
}

/// One real answer, whose bytes the yardstick gives too.
pub(super) async fn sample(address: SocketAddr, asker: &Asker) -> Result<String> {
    let signer = crate::wire::Signer {
        client_id: asker.client_id.clone(),
        key: countersign_protocol::signing::SigningKey::new(&asker.secret),
        merchant_id: None,
    };
    let answer = once(address, &signer.draft("GET", &asker.target, b"").bytes()).await?;
    ensure!(answer.code() == "000000", "the query is answered: {}", answer.json());
    Ok(String::from_utf8(answer.body)?)
}

fn print(store: StoreKind, ours: &[Slice], theirs: &[Slice], bytes: usize) {
    let of = |list: &[Slice], field: fn(&Slice) -> f64| spread(&list.iter().map(field).collect::<Vec<_>>());
    let ratio = |field: fn(&Slice) -> f64| {
        spread(&ours.iter().zip(theirs).map(|(a, b)| field(a) / field(b)).collect::<Vec<_>>())
    };
    let row = |name: &str, list: &[Slice]| {
        vec![
            name.to_owned(),
            format!("{:.0}", of(list, |s| s.rate).median),
            format!("{:.2}", of(list, |s| s.cpu_us).median),
            format!("{:.0}", of(list, |s| s.p50_us).median),
            format!("{:.0}", of(list, |s| s.p99_us).median),
        ]
    };
    println!(
        "Signed convert query on {}, shipped default configuration, beside bare hyper answering the same {bytes} bytes",
        store.name()
    );
    println!(
        "({ROUNDS} rounds of {} ms, {CONNECTIONS} connections, server on one core, generator on the other)\n",
        SLICE.as_millis()
    );
    let rows = [row("bare hyper", theirs), row("signed convert query", ours)];
    println!("{}", table(&["server", "requests/s", "CPU us per request", "p50 us", "p99 us"], &rows));
    println!("CPU per request, ratio to bare hyper: {}", ratio(|s| s.cpu_us));
    println!("requests/s, ratio to bare hyper:      {}\n", ratio(|s| s.rate));
}
