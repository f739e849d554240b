//! Ways in which a callback's endpoint can behave, each with what an attempt must make of it.

use countersign_domain::delivery::Outcome;

mod endpoint;
mod run;

pub use endpoint::{At, Does, Endpoint, Flaw};
pub use run::{Made, Stage, fault, run};

/// A way to behave, and what the attempt's row must say.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// What it is, in words.
    pub name: &'static str,
    /// What the endpoint does.
    pub does: Does,
    /// How the attempt ends.
    pub outcome: Outcome,
    /// The status that is noted.
    pub status: Option<u16>,
    /// What is said in the attempt's `detail`; nothing where nothing is.
    pub detail: &'static str,
    /// How long the next attempt must wait because the endpoint asked for it, in seconds.
    pub retry_after_s: Option<i64>,
}

/// The name of the one that only says SUCCESS.
const PLAIN: &str = "SUCCESS";
/// Two whose handshake goes as far as the certificate.
const HANDSHAKES: [&str; 2] = ["an expired certificate", "a certificate for another name"];
const SUCCESS: &str = r#"{"returnCode":"SUCCESS","returnMessage":""}"#;
/// A gzip stream of 1 MiB of zeros begins so; what it would unfold to does not matter, since nothing unfolds it.
const GZIP: &[u8] =
    &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 0xec, 0xc1, 1, 1, 0, 0, 0, 0x80, 0x90, 0xfe, 0xaf, 0xee, 8, 10];
/// The settings frame that a server of HTTP/2 begins with.
const HTTP2: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A fatal alert, `protocol_version`: what a server that speaks TLS 1.1 at the most answers our hello with.
const TOO_NEW: &[u8] = &[21, 3, 2, 0, 2, 2, 70];

const NO_JSON: &str = "the answer is no JSON object with a returnCode";
const EMPTY: &str = "the answer is empty";
const MORE: &str = "the answer has something behind its JSON object";
const NO_HTTP: &str = "the answer is not HTTP";
const NOT_SUCCESS: &str = "the answer's returnCode is not SUCCESS";
const TOO_LARGE: &str = "the answer is larger than 64 KiB";
const HEAD_TOO_LARGE: &str = "the head of the answer is too large";
const BROKEN_OFF: &str = "the answer broke off before its end";
const RESET: &str = "the connection was reset before an answer";
const RESET_IN_HEAD: &str = "the connection was reset in the middle of the head of the answer";
const LATE_HEAD: &str = "passed while waiting for the head of the answer";
const LATE_BODY: &str = "passed while reading the body of the answer";
const NO_TLS: &str = "TLS failed: the endpoint does not speak TLS on this port";

fn behaves(name: &'static str, does: Does, outcome: Outcome, status: Option<u16>, detail: &'static str) -> Behaviour {
    Behaviour { name, does, outcome, status, detail, retry_after_s: None }
}

fn head(status: &str, further: &str, length: usize) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{further}Content-Length: {length}\r\n\r\n")
        .into_bytes()
}

/// An answer with a body of the right length.
fn answer(status: &str, further: &str, body: impl AsRef<[u8]>) -> Does {
    let body = body.as_ref();
    Does::Say([head(status, further, body.len()).as_slice(), body].concat())
}

fn say(text: impl AsRef<[u8]>) -> Does {
    Does::Say(text.as_ref().to_vec())
}

/// All of them.
pub fn all() -> Vec<Behaviour> {
    [connections(), tls(), heads(), bodies(), statuses(), acknowledgements()].concat()
}

fn connections() -> Vec<Behaviour> {
    use Outcome::{ConnectFailed, Timeout, TlsFailed, Unreadable};
    let reset = |at| Does::Reset(at);
    let hang = |at| Does::Hang(at);
    let torn = "the connection was reset in the middle of the answer";
    let in_tls = "passed while in the TLS handshake";
    let reset_tls = "TLS failed: the endpoint reset the connection in the handshake";
    let answer = head("200 OK", "", 43);
    vec![
        behaves("nobody listens", Does::Refuse, ConnectFailed, None, "127.0.0.1:"),
        behaves("reset when accepted", reset(At::Accept), ConnectFailed, None, "the connection was reset "),
        behaves("reset in the TLS hello", reset(At::Hello), TlsFailed, None, reset_tls),
        behaves("reset after the request's head", reset(At::Head), ConnectFailed, None, RESET),
        behaves("reset after the request", reset(At::Body), ConnectFailed, None, RESET),
        behaves("reset in the answer's head", reset(At::AnswerHead), ConnectFailed, None, RESET_IN_HEAD),
        behaves("reset in the answer's body", reset(At::AnswerBody), Unreadable, Some(200), torn),
        behaves("silent when accepted", hang(At::Accept), Timeout, None, LATE_HEAD),
        behaves("silent in the TLS hello", hang(At::Hello), Timeout, None, in_tls),
        behaves("silent after the request's head", hang(At::Head), Timeout, None, LATE_HEAD),
        behaves("silent after the request", hang(At::Body), Timeout, None, LATE_HEAD),
        behaves("silent in the answer's head", hang(At::AnswerHead), Timeout, None, LATE_HEAD),
        behaves("silent in the answer's body", hang(At::AnswerBody), Timeout, Some(200), LATE_BODY),
        behaves("the head a byte at a time", Does::Drip(Vec::new(), answer.clone()), Timeout, None, LATE_HEAD),
        behaves("the body a byte at a time", Does::Drip(answer, SUCCESS.into()), Timeout, Some(200), LATE_BODY),
    ]
}

fn tls() -> Vec<Behaviour> {
    use Outcome::TlsFailed;
    let other_name = "TLS failed: the certificate is for another name";
    let stranger = "TLS failed: the certificate is from no authority that is trusted here";
    let too_old = "TLS failed: the endpoint ended the handshake with the alert protocol version";
    let plain = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec();
    vec![
        behaves("garbage for a TLS hello", Does::Greet(b"\0\x01\x02 no TLS at all".to_vec()), TlsFailed, None, NO_TLS),
        behaves("plain HTTP on a TLS port", Does::Greet(plain), TlsFailed, None, NO_TLS),
        behaves("TLS 1.1 at the most", Does::Greet(TOO_NEW.to_vec()), TlsFailed, None, too_old),
        behaves(
            "an expired certificate",
            Does::Show(Flaw::Expired),
            TlsFailed,
            None,
            "TLS failed: the certificate has expired",
        ),
        behaves("a certificate for another name", Does::Show(Flaw::OtherName), TlsFailed, None, other_name),
        behaves("a certificate of nobody known", Does::Show(Flaw::Stranger), TlsFailed, None, stranger),
    ]
}

fn heads() -> Vec<Behaviour> {
    use Outcome::{ConnectFailed, Delivered, Unreadable};
    let success = |heads: &str| say(format!("{heads}\r\n\r\n{SUCCESS}"));
    let storm = Does::SayOn(Vec::new(), b"HTTP/1.1 100 Continue\r\n\r\n".to_vec());
    let endless = Does::SayOn(b"HTTP/1.1 200 OK\r\n".to_vec(), b"X-More: of the same\r\n".to_vec());
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 43";
    let closed = "the connection was closed before an answer";
    vec![
        behaves("100 Continue without end", storm, Unreadable, None, HEAD_TOO_LARGE),
        behaves("103 and then 200", success(hints), Delivered, Some(200), ""),
        behaves("garbage for a head", say(b"\0\x01\x02 this is not HTTP\r\n\r\n"), Unreadable, None, NO_HTTP),
        behaves("a head without end", endless, Unreadable, None, HEAD_TOO_LARGE),
        behaves("closed without a word", say(""), ConnectFailed, None, closed),
        behaves("HTTP/0.9: a body and no head", say(SUCCESS), Unreadable, None, NO_HTTP),
        behaves("HTTP/2 to a question in HTTP/1.1", say(HTTP2), Unreadable, None, NO_HTTP),
        behaves(
            "two lengths that differ",
            success("HTTP/1.1 200 OK\r\nContent-Length: 43\r\nContent-Length: 44"),
            Unreadable,
            None,
            NO_HTTP,
        ),
        behaves("no length, and the end", success("HTTP/1.1 200 OK"), Delivered, Some(200), ""),
    ]
}

fn bodies() -> Vec<Behaviour> {
    use Outcome::{Delivered, Unreadable};
    let chunked = |rest: &str| say(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{rest}"));
    let chunks = Does::SayOn(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
        b"10\r\n                \r\n".to_vec(),
    );
    let endless = Does::SayOn(b"HTTP/1.1 200 OK\r\n\r\n{\"returnCode\":\"".to_vec(), b"SUCCESS".to_vec());
    let padded = |bytes: usize| format!("{SUCCESS}{}", " ".repeat(bytes - SUCCESS.len()));
    let too_long = [head("200 OK", "", 500).as_slice(), SUCCESS.as_bytes()].concat();
    let too_short = [head("200 OK", "", 10).as_slice(), SUCCESS.as_bytes()].concat();
    let no_http = "the body of the answer is not HTTP";
    vec![
        behaves(
            "chunks, as they should be",
            chunked(&format!("2b\r\n{SUCCESS}\r\n0\r\n\r\n")),
            Delivered,
            Some(200),
            "",
        ),
        behaves("a chunk whose size is no number", chunked("nothing\r\n"), Unreadable, Some(200), no_http),
        behaves("a chunk larger than any number", chunked("fffffffffffffffff\r\n"), Unreadable, Some(200), no_http),
        behaves("chunks that break off", chunked("2b\r\n{\"ret"), Unreadable, Some(200), BROKEN_OFF),
        behaves("chunks without end", chunks, Unreadable, Some(200), TOO_LARGE),
        behaves("a body without end", endless, Unreadable, Some(200), TOO_LARGE),
        behaves("a length that is too long", Does::Say(too_long), Unreadable, Some(200), BROKEN_OFF),
        behaves(
            "a length that is too short",
            Does::Say(too_short),
            Unreadable,
            Some(200),
            "the answer's JSON ends in the middle",
        ),
        behaves(
            "a gzip bomb",
            answer("200 OK", "Content-Encoding: gzip\r\n", GZIP.repeat(400)),
            Unreadable,
            Some(200),
            "the answer has a Content-Encoding, and is not decoded",
        ),
        behaves("64 KiB exactly", answer("200 OK", "", padded(65_536)), Delivered, Some(200), ""),
        behaves("64 KiB and a byte", answer("200 OK", "", padded(65_537)), Unreadable, Some(200), TOO_LARGE),
    ]
}

fn statuses() -> Vec<Behaviour> {
    use Outcome::{HttpStatus, Unreadable};
    let status = |name, line, code, detail| behaves(name, answer(line, "", SUCCESS), HttpStatus, Some(code), detail);
    let elsewhere = "Location: http://127.0.0.1:9/elsewhere\r\n";
    let later = |name, line, code, detail| Behaviour {
        retry_after_s: Some(120),
        ..behaves(name, answer(line, "Retry-After: 120\r\n", SUCCESS), HttpStatus, Some(code), detail)
    };
    let redirect =
        |name, line, code, detail| behaves(name, answer(line, elsewhere, SUCCESS), HttpStatus, Some(code), detail);
    vec![
        behaves("204 without a body", say("HTTP/1.1 204 No Content\r\n\r\n"), Unreadable, Some(204), EMPTY),
        behaves("200 and nothing", answer("200 OK", "", ""), Unreadable, Some(200), EMPTY),
        redirect("301", "301 Moved Permanently", 301, "answered 301; redirects are not followed"),
        redirect("302", "302 Found", 302, "answered 302; redirects are not followed"),
        redirect("307", "307 Temporary Redirect", 307, "answered 307; redirects are not followed"),
        status("400", "400 Bad Request", 400, "answered 400"),
        status("401", "401 Unauthorized", 401, "answered 401"),
        status("404", "404 Not Found", 404, "answered 404"),
        status("410, gone for good", "410 Gone", 410, "answered 410"),
        status("500", "500 Internal Server Error", 500, "answered 500"),
        later("429 with Retry-After", "429 Too Many Requests", 429, "answered 429"),
        later("503 with Retry-After", "503 Service Unavailable", 503, "answered 503"),
        behaves(
            "500 with a body without end",
            Does::SayOn(b"HTTP/1.1 500 Oops\r\n\r\n".to_vec(), b"why? ".to_vec()),
            HttpStatus,
            Some(500),
            "answered 500",
        ),
    ]
}

fn acknowledgements() -> Vec<Behaviour> {
    use Outcome::{Delivered, Fail, Unreadable};
    let says =
        |name, body: &str, outcome, detail| behaves(name, answer("200 OK", "", body), outcome, Some(200), detail);
    let nul = "{\"returnCode\":\"SUCCESS\"}\0\0";
    vec![
        says(PLAIN, SUCCESS, Delivered, ""),
        behaves("SUCCESS with 201", answer("201 Created", "", SUCCESS), Delivered, Some(201), ""),
        says("an honest FAIL", r#"{"returnCode":"FAIL","returnMessage":"not today"}"#, Fail, NOT_SUCCESS),
        says("success in small letters", r#"{"returnCode":"success"}"#, Fail, NOT_SUCCESS),
        says(
            "a returnCode that is a number",
            r#"{"returnCode":0}"#,
            Unreadable,
            "the answer's returnCode is not a text",
        ),
        says("SUCCESS and garbage behind it", r#"{"returnCode":"SUCCESS"} and more"#, Unreadable, MORE),
        says("SUCCESS without JSON", "SUCCESS", Unreadable, NO_JSON),
        says(
            "a byte order mark before it",
            "\u{feff}{\"returnCode\":\"SUCCESS\"}",
            Unreadable,
            "the answer begins with a byte order mark",
        ),
        says("NUL bytes behind it", nul, Unreadable, MORE),
        says("an HTML page", "<html><body>OK</body></html>", Unreadable, NO_JSON),
    ]
}
