//! Log lines: JSON, one object a line, written by a thread of their own so that no request waits for a terminal or a pipe.
//!
//! Invariant: no secret, signature, nonce or body ever reaches a line.
//! Lines of the last 10 ms may be lost by a kill; the audit log, which is in the store, is not.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, Write};

use countersign_domain::time::{UnixMillis, rfc3339};
use tracing_subscriber::fmt::MakeWriter;

mod filter;
mod kept;
mod sink;

pub use filter::is_filter;
pub use kept::{REFUSED_KEPT_MAX, names};
pub use sink::{LOST, LogGuard, LogSink};

/// Longest method in a line, in bytes. Methods are ASCII.
const METHOD_BYTES_MAX: usize = 16;
/// Longest path in a line, in bytes.
const PATH_BYTES_MAX: usize = 256;

/// One event of `tracing`, handed over whole when it is dropped.
#[derive(Debug)]
pub struct LineWriter {
    sink: LogSink,
    line: Vec<u8>,
}

impl Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LineWriter {
    fn drop(&mut self) {
        self.sink.push(&self.line);
    }
}

impl<'a> MakeWriter<'a> for LogSink {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter { sink: self.clone(), line: Vec::with_capacity(256) }
    }
}

/// Sends the events of `tracing` to `sink` as JSON lines. `filter`: `info`, `countersign=debug`, ... Once per process; later calls change nothing.
pub fn install(sink: &LogSink, filter: &str) {
    let filter = filter::made_of(filter);
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .with_env_filter(filter)
        .with_writer(sink.clone())
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Sends what `tracing` warns of to stderr, as a command's own lines. Once per process; later calls change nothing.
pub fn warn_people() {
    let subscriber = tracing_subscriber::fmt()
        .without_time()
        .with_target(false)
        .with_ansi(false)
        .with_max_level(tracing::Level::WARN)
        .with_writer(io::stderr)
        .finish();
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// As much of a path as a line holds: strangers choose its length.
pub fn shown(path: &str) -> &str {
    if path.len() <= PATH_BYTES_MAX {
        return path;
    }
    (0..=PATH_BYTES_MAX).rev().find_map(|end| path.get(..end)).unwrap_or_default()
}

/// As much of a method: those that are known are shorter.
pub fn shown_method(method: &str) -> &str {
    method.get(..METHOD_BYTES_MAX).unwrap_or(method)
}

/// What strangers wrote, without what may be a secret of ours: people put it where a ClientId or a path belongs, with the word before it or without.
pub fn blinded(text: &str) -> Cow<'_, str> {
    const KINDS: [&str; 2] = ["sk_", "cso_"];
    let begins = KINDS.iter().filter_map(|kind| text.find(kind).map(|at| at + kind.len()));
    match begins.chain(digits(text)).min() {
        None => Cow::Borrowed(text),
        Some(end) => Cow::Owned(format!("{}(withheld)", &text[..end])),
    }
}

/// Where so many digits of hex stand in a row that they may be a secret.
fn digits(text: &str) -> Option<usize> {
    const ENOUGH: usize = 40;
    let mut begun = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !byte.is_ascii_hexdigit() {
            begun = at + 1;
        } else if at + 1 - begun >= ENOUGH {
            return Some(begun);
        }
    }
    None
}

/// The one canonical line of a request.
#[derive(Debug)]
pub struct RequestLine<'a> {
    /// When it came.
    pub at: UnixMillis,
    /// Its id, as in the answer's header.
    pub request_id: &'a str,
    /// Which listener.
    pub listener: &'static str,
    /// The method.
    pub method: &'a str,
    /// The path without its query.
    pub path: &'a str,
    /// Status of the answer.
    pub status: u16,
    /// Code of the answer.
    pub code: &'a str,
    /// More about a refusal than the answer says.
    pub reason: &'a str,
    /// What the answer says of a refusal; empty where `reason` says more. Where the store did not answer, what that said.
    pub sentence: &'a str,
    /// The ClientId, as claimed.
    pub client_id: &'a str,
    /// The merchant that the key belongs to.
    pub merchant_id: &'a str,
    /// On whose behalf.
    pub on_behalf_of: &'a str,
    /// Address it came from.
    pub source: &'a str,
    /// How far the request's timestamp was from our time; positive: behind.
    pub drift_ms: Option<i64>,
    /// For a nonce that was used before: the timestamp of the request that used it.
    pub nonce_first_stamped: Option<i64>,
    /// Where every signed request is refused: those that are stamped up to then.
    pub refused_through: Option<i64>,
    /// From the head's arrival to the answer.
    pub duration_us: u64,
}

thread_local! {
    static LINE: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(512));
    static SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

impl RequestLine<'_> {
    /// Writes the line.
    pub fn write(&self, sink: &LogSink) {
        LINE.with_borrow_mut(|line| {
            line.clear();
            self.compose(line);
            sink.push(line);
            if self.status >= 400 {
                sink.keep_refused(line);
            }
        });
    }

    fn compose(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(b"{\"timestamp\":\"");
        push_instant(line, self.at);
        line.extend_from_slice(b"\",\"level\":\"INFO\",\"message\":\"request\"");
        push_text(line, "request_id", self.request_id);
        push_text(line, "listener", self.listener);
        push_text(line, "method", self.method);
        push_text(line, "path", self.path);
        push_number(line, "status", i64::from(self.status));
        push_text(line, "code", self.code);
        for (name, value) in [
            ("reason", self.reason),
            // A caller may have named a field as its secret is.
            ("error_message", shown(&blinded(self.sentence))),
            ("client_id", self.client_id),
            ("merchant_id", self.merchant_id),
            ("on_behalf_of", self.on_behalf_of),
            ("source", self.source),
        ] {
            if !value.is_empty() {
                push_text(line, name, value);
            }
        }
        if let Some(drift) = self.drift_ms {
            push_number(line, "drift_ms", drift);
        }
        if let Some(stamped) = self.nonce_first_stamped {
            push_number(line, "nonce_first_stamped", stamped);
        }
        if let Some(through) = self.refused_through {
            push_number(line, "refused_through", through);
        }
        push_number(line, "duration_us", i64::try_from(self.duration_us).unwrap_or(i64::MAX));
        line.extend_from_slice(b"}\n");
    }
}

/// RFC 3339 with milliseconds; the text of the second is kept, since thousands of lines share one.
fn push_instant(line: &mut Vec<u8>, at: UnixMillis) {
    SECOND.with_borrow_mut(|(second, text)| {
        let now = at.0.div_euclid(1000);
        if *second != now {
            *text = rfc3339(UnixMillis(now * 1000));
            text.truncate(19);
            *second = now;
        }
        line.extend_from_slice(text.as_bytes());
    });
    let _ = write!(line, ".{:03}Z", at.0.rem_euclid(1000));
}

fn push_text(line: &mut Vec<u8>, name: &str, value: &str) {
    line.extend_from_slice(b",\"");
    line.extend_from_slice(name.as_bytes());
    line.extend_from_slice(b"\":");
    let plain = value.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'"' && b != b'\\');
    if plain {
        line.push(b'"');
        line.extend_from_slice(value.as_bytes());
        line.push(b'"');
    } else {
        // Texts that strangers send are escaped by the library.
        let _ = serde_json::to_writer(line, value);
    }
}

fn push_number(line: &mut Vec<u8>, name: &str, value: i64) {
    let _ = write!(line, ",\"{name}\":{value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_is_one_json_object_whatever_strangers_send() {
        let line = RequestLine {
            at: UnixMillis(1_767_225_600_123),
            request_id: "r1",
            listener: "merchant",
            method: "GET",
            path: "/a\"b\n",
            status: 401,
            code: "400002",
            reason: "unknown_client",
            sentence: "field sk_live_4711\"...: must be given once",
            client_id: "x\u{7}\\",
            merchant_id: "",
            on_behalf_of: "",
            source: "127.0.0.1",
            drift_ms: Some(-5),
            nonce_first_stamped: None,
            refused_through: None,
            duration_us: 17,
        };
        let mut bytes = Vec::new();
        line.compose(&mut bytes);
        let value: serde_json::Value = serde_json::from_slice(&bytes).expect("a line is JSON");
        assert_eq!(value["timestamp"], "2026-01-01T00:00:00.123Z");
        assert_eq!(value["path"], "/a\"b\n");
        assert_eq!(value["client_id"], "x\u{7}\\");
        assert_eq!(value["drift_ms"], -5);
        assert_eq!(value["error_message"], "field sk_(withheld)");
        assert!(value.get("merchant_id").is_none());
    }

    #[test]
    fn what_may_be_a_secret_is_withheld() {
        assert_eq!(blinded("/v1/pay/events"), "/v1/pay/events");
        assert_eq!(blinded("app_01"), "app_01");
        assert_eq!(blinded("/operator/v1/applications/sk_0011"), "/operator/v1/applications/sk_(withheld)");
        assert_eq!(blinded("a cso_77 b sk_88"), "a cso_(withheld)");
        let bare = "0123456789abcdef".repeat(4);
        for text in [&bare, &bare[..40], &bare.to_uppercase()] {
            assert_eq!(blinded(text), "(withheld)");
            assert_eq!(blinded(&format!("/v1/\u{e9}/{text}/x")), "/v1/\u{e9}/(withheld)");
        }
        assert_eq!(blinded(&bare[..39]), &bare[..39]);
    }

    #[test]
    fn a_long_path_is_cut_whatever_its_characters() {
        assert_eq!(shown("/v1/time"), "/v1/time");
        for path in ["/a".repeat(1000), format!("/{}", "\u{e9}".repeat(1000)), format!("/{}", "\u{20ac}".repeat(1000))]
        {
            let cut = shown(&path);
            assert!(
                path.starts_with(cut) && (PATH_BYTES_MAX - 3..=PATH_BYTES_MAX).contains(&cut.len()),
                "{}",
                cut.len()
            );
        }
    }
}
