//! The signed convert query over TLS beside bare hyper over TLS answering the same bytes: on connections that are kept, and on one for each request.
//! One core for the servers, the other for the generator.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::client::Resumption;
use tokio_rustls::TlsConnector;

use super::callbacks::library::trusting;
use super::load::{Asker, Slice, Way, slice_by};
use super::query::{CONNECTIONS, SLICE, askers, bare, pin, sample};
use super::{spread, table};
use crate::process::Deployment;

/// By what the two servers are asked; each stands at each place of a round twice.
const KINDS: [&str; 3] = ["plain", "TLS, kept", "TLS, a connection and a whole handshake for each"];
const ROUNDS: usize = 2 * KINDS.len();

/// Bare hyper, and ours.
type Pair = (Slice, Slice);

/// Who is asked, where, and its process.
struct Asked {
    plain: (SocketAddr, u32),
    tls: (SocketAddr, u32),
}

/// Prints the table.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    std::fs::write(at("cert.pem"), made.cert.pem())?;
    std::fs::write(at("key.pem"), made.signing_key.serialize_pem())?;
    let (cert, key) = (at("cert.pem"), at("key.pem"));
    let (cert, key) = (cert.to_str().context("a path")?, key.to_str().context("a path")?);
    let plain = Deployment::init(&at("plain"))?.serve()?;
    let certified = Deployment::init(&at("tls"))?.serve_with(&["--tls-cert", cert, "--tls-key", key])?;
    let (askers_plain, askers_tls) = (Rc::new(askers(&plain).await?), Rc::new(askers(&certified).await?));
    let sample = sample(plain.listen, &askers_plain[0]).await?;
    let (bare_plain, bare_plain_at) = bare(&sample, &[])?;
    let (bare_tls, bare_tls_at) = bare(&sample, &[cert, key])?;
    for pid in [plain.pid(), certified.pid(), bare_plain.id(), bare_tls.id()] {
        pin(pid, "0");
    }
    pin(std::process::id(), "1");
    let theirs = Asked { plain: (bare_plain_at, bare_plain.id()), tls: (bare_tls_at, bare_tls.id()) };
    let ours = Asked { plain: (plain.listen, plain.pid()), tls: (certified.listen, certified.pid()) };
    let nobody = Rc::new(vec![Asker { client_id: "x".into(), secret: b"x".to_vec(), target: "/".into() }]);
    let kept = trusting(made.cert.pem().as_bytes())?;
    let mut whole = kept.config().as_ref().clone();
    whole.resumption = Resumption::disabled();
    let ways = [Way::Plain, Way::Kept(kept), Way::Anew(TlsConnector::from(Arc::new(whole)))];
    let mut pairs: [Vec<Pair>; KINDS.len()] = Default::default();
    for round in 0..ROUNDS {
        for kind in (0..KINDS.len()).map(|place| (round + place) % KINDS.len()) {
            let way = &ways[kind];
            let at = |asked: &Asked| if matches!(way, Way::Plain) { asked.plain } else { asked.tls };
            let askers = if matches!(way, Way::Plain) { &askers_plain } else { &askers_tls };
            let of_bare = async || slice_by(way, at(&theirs), &nobody, CONNECTIONS, SLICE).await;
            let of_ours = async || slice_by(way, at(&ours), askers, CONNECTIONS, SLICE).await;
            // Each of the two is the first in half of the rounds.
            let pair = if round < KINDS.len() {
                let bare = of_bare().await?;
                (bare, of_ours().await?)
            } else {
                let ours = of_ours().await?;
                (of_bare().await?, ours)
            };
            pairs[kind].push(pair);
        }
    }
    print(&pairs);
    Ok(())
}

fn print(pairs: &[Vec<Pair>]) {
    println!(
        "Signed convert query on SQLite beside bare hyper answering the same bytes, CPU of the server for each request"
    );
    println!(
        "({ROUNDS} rounds of {} ms each, {CONNECTIONS} connections, servers on one core, generator on the other)\n",
        SLICE.as_millis()
    );
    let of = |pairs: &[Pair], field: fn(&Pair) -> f64| spread(&pairs.iter().map(field).collect::<Vec<_>>());
    let rows: Vec<_> = KINDS
        .iter()
        .zip(pairs)
        .map(|(name, pairs)| {
            vec![
                (*name).to_owned(),
                of(pairs, |(bare, _)| bare.cpu_us).to_string(),
                of(pairs, |(_, ours)| ours.cpu_us).to_string(),
                of(pairs, |(bare, ours)| ours.cpu_us / bare.cpu_us).to_string(),
                of(pairs, |(bare, ours)| ours.cpu_us - bare.cpu_us).to_string(),
            ]
        })
        .collect();
    println!("{}", table(&["way", "bare hyper, us", "signed query, us", "ratio", "more, us"], &rows));
}
