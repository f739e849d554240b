//! CPU of an attempt by the way that it takes: to an address, to a name that is looked up, over TLS, and over TLS on a connection of its own each time.
//! One core for whoever sends, the other for the receivers.

use std::io::Write as _;
use std::path::Path;

use anyhow::Result;
use tokio::task::{spawn_local, yield_now};

use super::sink::Sink;
use super::{AT_ONCE, Worker, per_callback};
use crate::measure::query::pin;
use crate::measure::{Spread, spread, table};

/// Callbacks of a round of each kind, and of those that shake hands each time.
const CALLBACKS: usize = 16_000;
const SHAKEN: usize = 1_600;

/// Kinds of a round, in the order of the table: its name, and which of them stands beside it. They take turns in being the first, so that each stands at
/// each place of the order once.
const KINDS: [(&str, Option<usize>); 7] = [
    ("bare sockets, to an address", None),
    ("attempt, to an address", Some(0)),
    ("attempt, to a name in the hosts file", Some(0)),
    ("the HTTP library by itself, over TLS", None),
    ("attempt, over TLS", Some(3)),
    ("the HTTP library by itself, over TLS, a connection for each", None),
    ("attempt, over TLS, a connection for each", Some(5)),
];
const ROUNDS: usize = KINDS.len();

/// CPU of the sending process, in us for each callback of each kind.
type Round = [f64; KINDS.len()];

/// Who attempts callbacks there.
async fn attempts(url: &str, data: &Path, certificate: Option<&str>) -> Result<Worker> {
    let data = data.display().to_string();
    let words: Vec<&str> = ["outbox", url, &data].into_iter().chain(certificate).collect();
    let mut worker = Worker::start(&words)?;
    worker.ask(&format!("attempts {AT_ONCE}\n")).await?;
    pin(worker.child.id(), "0");
    Ok(worker)
}

/// Prints the table.
pub async fn run() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    let plain = Sink::start().await?;
    let ((keeps, keeps_pem), (closes, closes_pem)) = (Sink::start_tls(true).await?, Sink::start_tls(false).await?);
    let [keeps_file, closes_file] = ["keeps.pem", "closes.pem"].map(|name| at(name).display().to_string());
    std::fs::write(&keeps_file, keeps_pem)?;
    std::fs::write(&closes_file, closes_pem)?;
    let to_address = attempts(&format!("http://{}/callback", plain.address), &at("address"), None).await?;
    let to_name = format!("http://localhost:{}/callback", plain.address.port());
    let to_name = attempts(&to_name, &at("name"), None).await?;
    let over_tls = attempts(&format!("https://{}/callback", keeps.address), &at("tls"), Some(&keeps_file)).await?;
    let shaking = attempts(&format!("https://{}/callback", closes.address), &at("anew"), Some(&closes_file)).await?;
    let sample = plain.first();
    let mut kinds = [
        (posts(&[&plain.address.to_string()], &sample)?, "sockets", CALLBACKS),
        (to_address, "attempts", CALLBACKS),
        (to_name, "attempts", CALLBACKS),
        (posts(&[&keeps.address.to_string(), &keeps_file], &sample)?, "library", CALLBACKS),
        (over_tls, "attempts", CALLBACKS),
        (posts(&[&closes.address.to_string(), &closes_file], &sample)?, "anew", SHAKEN),
        (shaking, "attempts", SHAKEN),
    ];
    pin(std::process::id(), "1");
    // As in `callbacks`: who receives never sleeps.
    spawn_local(async {
        loop {
            yield_now().await;
        }
    });
    let mut rounds = Vec::new();
    for first in 0..ROUNDS {
        let mut round = Round::default();
        for kind in (0..KINDS.len()).map(|place| (first + place) % KINDS.len()) {
            let (worker, what, count) = &mut kinds[kind];
            round[kind] = per_callback(worker.ask(&format!("{what} {count}\n")).await?, *count);
        }
        rounds.push(round);
    }
    print(&rounds);
    Ok(())
}

/// Who posts that sample without the dispatcher: yardsticks.
fn posts(to: &[&str], sample: &[u8]) -> Result<Worker> {
    let words: Vec<&str> = ["post"].into_iter().chain(to.iter().copied()).collect();
    let mut worker = Worker::start(&words)?;
    worker.stdin.write_all(&[format!("{}\n", sample.len()).as_bytes(), sample].concat())?;
    pin(worker.child.id(), "0");
    Ok(worker)
}

fn print(rounds: &[Round]) {
    let of = |field: &dyn Fn(&Round) -> f64| -> Spread { spread(&rounds.iter().map(field).collect::<Vec<_>>()) };
    println!("CPU of whoever sends, for each callback that is signed afresh and answered SUCCESS; nothing is recorded");
    println!(
        "({ROUNDS} rounds, {CALLBACKS} callbacks each and {SHAKEN} with a connection for each, {AT_ONCE} at once; the sender on one core, the receiver on the other)\n"
    );
    let rows: Vec<_> = (KINDS.iter().enumerate())
        .map(|(kind, (name, beside))| {
            let ratio = beside.map(|beside| of(&|round| round[kind] / round[beside]).to_string());
            vec![(*name).to_owned(), of(&|round| round[kind]).to_string(), ratio.unwrap_or_else(|| "1".to_owned())]
        })
        .collect();
    println!("{}", table(&["sender", "CPU us each", "ratio"], &rows));
}
