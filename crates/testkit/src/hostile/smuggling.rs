//! Sends every shape over a socket of its own and looks at what came of it: in the answers, and in the log of the server.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::shapes::{self, Shape, Targets, Wanted};
use crate::patience::until;
use crate::wire::once;

/// Nothing more comes on a connection that has been silent for this long, where it may stay open. What comes later is still found in the log.
/// Longer than the server that is asked waits for a head or a body ([`SHORT`]).
const SILENCE: Duration = Duration::from_millis(3_500);
/// Settings of a server to which shapes are sent: it waits for nothing longer than a second.
pub const SHORT: &str = "[limits]\nhead_timeout = \"1s\"\nbody_timeout = \"1s\"\n";
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an answer or an end that must come may take.
const DUE_WITHIN: Duration = Duration::from_secs(60);

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The server itself: it ends a connection whose rest two readers may understand differently.
    Server,
    /// A proxy before it, which keeps its clients' connections as it likes.
    Proxy,
}

impl Asked {
    /// Whether a connection must be closed behind what is wanted so.
    fn must_close(self, wanted: Wanted) -> bool {
        self == Self::Server && !matches!(wanted, Wanted::Answers(_))
    }
}

/// What came of a shape.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The shape's name.
    pub name: String,
    /// What was wanted.
    pub wanted: Wanted,
    /// The status of each answer that was no interim one.
    pub statuses: Vec<u16>,
    /// Whether the server ended the connection.
    pub is_closed: bool,
}

impl Outcome {
    /// What is wrong with it, in words.
    pub fn fault(&self, asked: Asked) -> Option<String> {
        let Self { name, wanted, statuses, is_closed } = self;
        let is_good = match wanted {
            Wanted::Refused => statuses.len() <= 1 && statuses.iter().all(|status| *status >= 400),
            Wanted::OnceAtMost => statuses.len() <= 1,
            Wanted::Answers(count) => statuses.len() == *count,
        };
        let is_ended = *is_closed || !asked.must_close(*wanted);
        (!is_good || !is_ended)
            .then(|| format!("{name}: wanted {wanted:?}, got answers {statuses:?}, closed: {is_closed}"))
    }
}

/// Sends all shapes at once, each on its own connection.
pub async fn send_all(asked: Asked, address: SocketAddr, targets: Targets) -> Result<Vec<Outcome>> {
    let mut sending = tokio::task::JoinSet::new();
    for (n, shape) in shapes::shapes(targets).into_iter().enumerate() {
        sending.spawn(async move { (n, send(asked, address, shape).await) });
    }
    let mut outcomes = sending.join_all().await;
    outcomes.sort_by_key(|(n, _)| *n);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

async fn send(asked: Asked, address: SocketAddr, shape: Shape) -> Result<Outcome> {
    let (mut reading, mut writing) =
        TcpStream::connect(address).await.context("the server takes connections")?.into_split();
    let bytes = shape.bytes;
    // A server that has refused a head may close before it has taken everything: that is no fault.
    let written = tokio::spawn(async move {
        let _ = writing.write_all(&bytes).await;
        writing
    });
    let (mut said, mut is_closed) = (Vec::new(), false);
    loop {
        let is_due = match shape.wanted {
            Wanted::Answers(count) => statuses(&said).len() < count,
            Wanted::Refused | Wanted::OnceAtMost => asked.must_close(shape.wanted),
        };
        let patience = if is_due { DUE_WITHIN } else { SILENCE };
        let Ok(read) = tokio::time::timeout(patience, reading.read_buf(&mut said)).await else { break };
        if read.is_err() || read.is_ok_and(|count| count == 0) {
            is_closed = true;
            break;
        }
    }
    written.abort();
    Ok(Outcome { name: shape.name, wanted: shape.wanted, statuses: statuses(&said), is_closed })
}

/// The status of each answer, told by its first line: no body of ours holds one.
fn statuses(said: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(said);
    let found = text.match_indices("HTTP/1.").filter_map(|(at, _)| text.get(at + 9..at + 12)?.parse().ok());
    found.filter(|status| *status >= 200).collect()
}

/// Waits until a last request, sent now to `through`, stands in the log of the server, and then finds no bait in it.
pub async fn no_bait_was_taken(through: SocketAddr, log: &Path, last: &str) -> Result<()> {
    let request = format!("GET {last} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    once(through, request.as_bytes()).await?;
    let (said, _) = until("the last request is in the log", PATIENCE, async || {
        let said = std::fs::read_to_string(log)?;
        Ok(said.contains(last).then_some(said))
    })
    .await?;
    let taken: Vec<&str> = said.lines().filter(|line| line.contains(shapes::BAIT)).collect();
    ensure!(taken.is_empty(), "a hidden request was answered:\n{}", taken.join("\n"));
    Ok(())
}

/// A table for people.
pub fn print(title: &str, outcomes: &[Outcome]) {
    println!("{title}: {} shapes", outcomes.len());
    for outcome in outcomes {
        let said = match &outcome.statuses[..] {
            [] => "closed without an answer".to_owned(),
            some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        let end = if outcome.is_closed { "closed" } else { "open" };
        println!("  {:<62} {said:<26} {end}", outcome.name);
    }
}

/// Every fault of shapes that were sent to the server itself; none is what is wanted.
pub fn faults(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().filter_map(|outcome| outcome.fault(Asked::Server)).collect()
}

/// The same behind a proxy.
pub fn faults_behind(outcomes: &[Outcome]) -> Vec<String> {
    outcomes.iter().filter_map(|outcome| outcome.fault(Asked::Proxy)).collect()
}

/// Asks so many times through a proxy, each time for a path of its own: every answer must be the one to its question.
pub async fn honest_ones_get_their_own(through: SocketAddr, count: usize) -> Result<()> {
    let id = |answer: &crate::wire::Answer| answer.header("x-service-request-id").map(str::to_owned);
    let mut ids = std::collections::HashSet::new();
    for n in 0..count {
        // Two kinds in turns: whose answer comes one too late is seen at once.
        let (path, wanted) = if n % 2 == 0 { ("/v1/time", 200) } else { ("/v1/honest", 404) };
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = once(through, request.as_bytes()).await?;
        ensure!(answer.status == wanted, "{path} was answered {}: {}", answer.status, answer.json());
        ensure!(ids.insert(id(&answer).context("an id")?), "two requests got one answer");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_answers_do_not_count() {
        let said = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n";
        assert_eq!(statuses(said), [400, 200]);
    }

    #[test]
    fn an_answer_too_many_is_a_fault() {
        let outcome = |wanted, statuses: &[u16]| {
            let said = Outcome { name: "x".to_owned(), wanted, statuses: statuses.to_vec(), is_closed: true };
            said.fault(Asked::Server).is_some()
        };
        assert!(!outcome(Wanted::Refused, &[]) && !outcome(Wanted::Refused, &[400]));
        assert!(outcome(Wanted::Refused, &[200]) && outcome(Wanted::Refused, &[400, 404]));
        assert!(!outcome(Wanted::OnceAtMost, &[200]) && outcome(Wanted::OnceAtMost, &[200, 404]));
        let left_open =
            Outcome { name: "x".to_owned(), wanted: Wanted::Refused, statuses: vec![400], is_closed: false };
        assert!(left_open.fault(Asked::Server).is_some() && left_open.fault(Asked::Proxy).is_none());
        assert!(!outcome(Wanted::Answers(2), &[200, 200]) && outcome(Wanted::Answers(2), &[200]));
    }
}
