//! What strace has written, as calls with a beginning and an end; and what it proves.

use std::collections::HashMap;
use std::fmt;

use anyhow::{Context, Result, ensure};

/// One system call. Lines count in the order in which strace saw them: a line that stands before another happened before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The thread that made it.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Arguments as strace shows them; files and sockets with their names.
    pub arguments: String,
    /// Result as strace shows it; empty if the process ended first.
    pub result: String,
    /// The line in which it began.
    pub began: usize,
    /// The line in which it returned.
    pub ended: usize,
    /// When it began, as strace says.
    pub at: String,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = if self.began == self.ended {
            format!("line {}", self.began)
        } else {
            format!("lines {} to {}", self.began, self.ended)
        };
        let Self { thread, name, arguments, result, at, .. } = self;
        write!(f, "{lines:>16} | thread {thread} {at} {name}({arguments}) = {result}")
    }
}

/// Reads the whole trace; signals and ends of threads are left out.
pub fn parse(trace: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut open: HashMap<u32, Call> = HashMap::new();
    for (index, line) in trace.lines().enumerate() {
        let number = index + 1;
        let Some((thread, at, rest)) = columns(line) else { continue };
        if let Some((_, resumed)) = rest.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            let Some(mut call) = open.remove(&thread) else { continue };
            let (arguments, result) = split_result(resumed);
            call.arguments.push_str(arguments);
            result.clone_into(&mut call.result);
            call.ended = number;
            calls.push(call);
            continue;
        }
        let Some((name, rest)) = rest.split_once('(') else { continue };
        let call = |arguments: &str, result: &str| Call {
            thread,
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            result: result.to_owned(),
            began: number,
            ended: number,
            at: at.to_owned(),
        };
        if let Some(arguments) = rest.strip_suffix(" <unfinished ...>") {
            open.insert(thread, call(arguments, ""));
        } else {
            let (arguments, result) = split_result(rest);
            calls.push(call(arguments, result));
        }
    }
    calls.sort_by_key(|call| call.began);
    calls
}

/// Thread, time, and the rest of a line.
fn columns(line: &str) -> Option<(u32, &str, &str)> {
    let (thread, rest) = line.split_once(char::is_whitespace)?;
    let (at, rest) = rest.trim_start().split_once(' ')?;
    Some((thread.parse().ok()?, at, rest))
}

/// `arguments) = result`.
fn split_result(rest: &str) -> (&str, &str) {
    rest.rsplit_once(" = ")
        .map_or((rest, ""), |(arguments, result)| (arguments.trim_end().trim_end_matches(')'), result))
}

impl Call {
    fn is_one_of(&self, names: &[&str]) -> bool {
        names.contains(&self.name.as_str())
    }

    /// Whether it began when `other` had returned.
    fn is_after(&self, other: &Self) -> bool {
        self.began > other.ended
    }

    fn worked(&self) -> bool {
        !self.result.is_empty() && !self.result.starts_with('-')
    }
}

const SENDS: [&str; 4] = ["write", "writev", "sendto", "sendmsg"];
const FILE_WRITES: [&str; 3] = ["write", "writev", "pwrite64"];
const SYNCS: [&str; 2] = ["fdatasync", "fsync"];

/// The calls that prove the order, first to last.
#[derive(Clone, Debug)]
pub struct Proof(pub Vec<Call>);

/// The request's arrival on the client's `port`, and the first call that sends something back.
fn exchange(calls: &[Call], port: u16) -> Result<(&Call, &Call)> {
    let label = format!(":{port}]>");
    let ours = |call: &&Call| call.arguments.contains(&label) && call.worked();
    let arrived = calls.iter().filter(ours).find(|call| call.is_one_of(&["read", "recvfrom", "recvmsg", "readv"]));
    let arrived = arrived.with_context(|| format!("no request came from port {port} in the trace"))?;
    let sent = calls.iter().filter(ours).find(|call| call.is_one_of(&SENDS));
    let sent = sent.with_context(|| format!("no answer to port {port} in the trace"))?;
    ensure!(sent.is_after(arrived), "the answer was sent before the request came:\n{arrived}\n{sent}");
    ensure!(sent.arguments.contains("HTTP/1.1 200"), "the first thing sent is no 200:\n{sent}");
    Ok((arrived, sent))
}

/// The write-ahead log was written after the request came, and its sync had returned before the first byte of the answer left.
pub fn synced_before_answer(calls: &[Call], port: u16) -> Result<Proof> {
    let (arrived, sent) = exchange(calls, port)?;
    let log = |call: &&Call| call.arguments.contains("-wal>") && call.is_after(arrived) && call.worked();
    let mut syncs = calls.iter().filter(log).filter(|call| call.is_one_of(&SYNCS));
    let synced = syncs.find(|sync| {
        let writes = calls.iter().filter(log).filter(|call| call.is_one_of(&FILE_WRITES));
        sent.is_after(sync) && writes.into_iter().any(|write| sync.is_after(write))
    });
    let synced = synced.with_context(|| {
        let seen: Vec<String> = calls.iter().filter(log).map(Call::to_string).collect();
        format!(
            "no sync of the written log returned before the answer was sent:\n{arrived}\n{}\n{sent}",
            seen.join("\n")
        )
    })?;
    let mut writes = calls.iter().filter(log).filter(|call| call.is_one_of(&FILE_WRITES) && synced.is_after(call));
    let written = writes.next().context("the log was written")?;
    Ok(Proof(vec![arrived.clone(), written.clone(), synced.clone(), sent.clone()]))
}

/// The nonce journal was written after the request came and before the first byte of the answer left.
pub fn noted_before_answer(calls: &[Call], port: u16) -> Result<Proof> {
    let (arrived, sent) = exchange(calls, port)?;
    let journal = |call: &&Call| call.arguments.contains(".journal>") && call.is_one_of(&FILE_WRITES) && call.worked();
    let noted = calls.iter().filter(journal).find(|call| call.is_after(arrived) && sent.is_after(call));
    let noted =
        noted.with_context(|| format!("the journal was not written before the answer was sent:\n{arrived}\n{sent}"))?;
    Ok(Proof(vec![arrived.clone(), noted.clone(), sent.clone()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRIVED: &str =
        r#"7 10:00:00.1 recvfrom(24<TCP:[127.0.0.1:80->127.0.0.1:5000]>, "POST /ra"..., 8192, 0, NULL, NULL) = 300"#;
    const WRITTEN: &str = r#"9 10:00:00.2 pwrite64(12</d/countersign.db-wal>, "\0"..., 4096, 56) = 4096"#;
    const SYNC_BEGAN: &str = "9 10:00:00.3 fdatasync(12</d/countersign.db-wal> <unfinished ...>";
    const SYNC_ENDED: &str = "9 10:00:00.4 <... fdatasync resumed>) = 0 (DELAYED)";
    const SENT: &str = r#"8 10:00:00.5 writev(24<TCP:[127.0.0.1:80->127.0.0.1:5000]>, [{iov_base="HTTP/1.1 200 OK\r\n"..., iov_len=9}], 1) = 9"#;
    const NOTED: &str = r#"8 10:00:00.2 write(15</d/nonces-1.journal>, "\0"..., 32) = 32"#;

    fn calls(lines: &[&str]) -> Vec<Call> {
        parse(&lines.join("\n"))
    }

    #[test]
    fn a_call_that_was_interrupted_in_the_trace_is_one_call() {
        let calls = calls(&[SYNC_BEGAN, WRITTEN, "7 10:00:00.3 --- SIGTERM {si_signo=SIGTERM} ---", SYNC_ENDED]);
        let seen: Vec<_> = calls.iter().map(|call| (call.name.as_str(), call.began, call.ended)).collect();
        assert_eq!(seen, [("fdatasync", 1, 4), ("pwrite64", 2, 2)]);
        assert_eq!(
            (calls[0].arguments.as_str(), calls[0].result.as_str()),
            ("12</d/countersign.db-wal>", "0 (DELAYED)")
        );
    }

    #[test]
    fn a_sync_that_returned_before_the_answer_is_a_proof() {
        let proof = synced_before_answer(&calls(&[ARRIVED, WRITTEN, SYNC_BEGAN, SYNC_ENDED, SENT]), 5000);
        assert_eq!(proof.expect("in order").0.len(), 4);
        assert!(noted_before_answer(&calls(&[ARRIVED, NOTED, SENT]), 5000).is_ok());
    }

    #[test]
    fn every_other_order_is_no_proof() {
        let orders: [&[&str]; 7] = [
            &[ARRIVED, WRITTEN, SYNC_BEGAN, SENT, SYNC_ENDED],
            &[ARRIVED, WRITTEN, SENT, SYNC_BEGAN, SYNC_ENDED],
            &[ARRIVED, SYNC_BEGAN, SYNC_ENDED, WRITTEN, SENT],
            &[WRITTEN, SYNC_BEGAN, SYNC_ENDED, ARRIVED, SENT],
            &[ARRIVED, WRITTEN, SENT],
            &[ARRIVED, WRITTEN, SYNC_BEGAN, SYNC_ENDED],
            &[SENT, ARRIVED, WRITTEN, SYNC_BEGAN, SYNC_ENDED],
        ];
        for lines in orders {
            assert!(synced_before_answer(&calls(lines), 5000).is_err(), "{lines:#?}");
        }
        let failed = SYNC_ENDED.replace("= 0 (DELAYED)", "= -1 EIO (Input/output error)");
        assert!(synced_before_answer(&calls(&[ARRIVED, WRITTEN, SYNC_BEGAN, &failed, SENT]), 5000).is_err());
        assert!(synced_before_answer(&calls(&[ARRIVED, WRITTEN, SYNC_BEGAN, SYNC_ENDED, SENT]), 5001).is_err());
        assert!(noted_before_answer(&calls(&[ARRIVED, SENT, NOTED]), 5000).is_err());
        assert!(noted_before_answer(&calls(&[NOTED, ARRIVED, SENT]), 5000).is_err());
    }
}
