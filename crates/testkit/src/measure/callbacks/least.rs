//! A yardstick: the least that an outbox on SQLite can do for a callback, in a process of its own.

use std::io::BufRead as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use countersign_store::testing::LeastOutbox;

use super::sink::ANSWER;
use crate::measure::cpu_ns;

/// As many as the dispatcher brings about where 64 attempts are made at once.
pub const TOGETHER: usize = 32;
/// Of the body of an event, and of the head of its request.
const BODY_BYTES: usize = 300;
const SENT_BYTES: usize = 400;

/// Reads numbers from stdin: queues so many, takes them, and prints the CPU time that taking took, in ns.
pub fn serve(path: &Path) -> Result<()> {
    let mut outbox = LeastOutbox::make(path)?;
    let (body, sent) = (vec![b'x'; BODY_BYTES], vec![b'y'; SENT_BYTES]);
    for line in std::io::stdin().lock().lines() {
        let wanted = line?.trim().parse().context("how many")?;
        outbox.queue(wanted, &body)?;
        let began = cpu_ns(std::process::id());
        ensure!(outbox.take_all(TOGETHER, &sent, ANSWER)? == wanted, "each was to be taken once");
        println!("{}", cpu_ns(std::process::id()) - began);
    }
    Ok(())
}
