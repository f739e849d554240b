//! `call`: one signed call, as a merchant's program would make it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::Args;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::Endpoint;
use countersign_protocol::headers::{Header, HeaderNames};
use countersign_protocol::query::encode;
use countersign_protocol::signing::Encoding;
use hyper::Method;
use serde::Deserialize;

use super::http::{self, Answer, Ask};
use super::pretty::{Layout, pretty};
use super::sign::{self, Signed, body_of, header_names, signed};
use super::{Usage, authorities};

/// Flags of `call`.
#[derive(Debug, Args)]
pub struct CallArgs {
    /// GET or POST
    method: String,
    /// Path and query: "/v1/pay/convert/order?orderId=123"; blanks are encoded for you
    path: String,
    /// File with the body; - is standard input [default: no body]
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// Address of the merchant API
    #[arg(long, value_name = "URL", env = http::URL, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// MerchantId header: the institution, for fee rules
    #[arg(long, value_name = "ID")]
    merchant_id: Option<String>,
    /// On-Behalf-Of header: a sub-account of the institution
    #[arg(long, value_name = "ID")]
    on_behalf_of: Option<String>,
    /// What the header names begin with
    #[arg(long, default_value = "X-Service-")]
    prefix: String,
}

/// Who calls, for [`ask`].
#[derive(Clone, Debug)]
pub struct Caller<'a> {
    /// The ClientId.
    pub client_id: &'a str,
    /// The header names.
    pub names: &'a HeaderNames,
    /// MerchantId header.
    pub merchant_id: Option<&'a str>,
    /// On-Behalf-Of header.
    pub on_behalf_of: Option<&'a str>,
}

/// A signed request, ready to send.
pub fn ask(caller: &Caller<'_>, method: Method, path: &str, body: Vec<u8>, signed: &Signed) -> Ask {
    let named = |header: Header, value: &str| (caller.names.display(header), value.to_owned());
    let mut headers = vec![
        named(Header::ClientId, caller.client_id),
        named(Header::Timestamp, &signed.timestamp),
        named(Header::Nonce, &signed.nonce),
        named(Header::Signature, &signed.signature),
    ];
    headers.extend(caller.merchant_id.map(|id| named(Header::MerchantId, id)));
    headers.extend(caller.on_behalf_of.map(|id| named(Header::OnBehalfOf, id)));
    headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
    Ask { method, path: path.to_owned(), headers, body: (!body.is_empty()).then_some(body) }
}

/// A path and query with those characters percent-encoded that may not stand in one: blanks, what is not ASCII, `#`, which would cut the
/// rest off. What is encoded stays as it is, so a `%` that means itself is written `%25`. Neither is signed.
fn in_a_request(path: &str) -> String {
    let may_stand =
        |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '#' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}');
    let mut sent = String::with_capacity(path.len());
    for c in path.chars() {
        if may_stand(c) {
            sent.push(c);
        } else {
            sent.push_str(&encode(c.encode_utf8(&mut [0; 4])));
        }
    }
    sent
}

/// Whether the operation at this path is answered without a signature.
fn is_for_anybody(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    Endpoint::ALL.iter().any(|endpoint| endpoint.path() == path && !endpoint.is_signed())
}

/// What to do where a change may have been done.
const THEN: &str = "look before you do it again";

#[derive(Deserialize)]
struct EnvelopeHead {
    status: String,
    code: String,
    label: String,
}

/// Makes the call and shows status line and envelope. A FAIL is exit code 1.
pub fn call(args: &CallArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    // What needs no signature needs nobody who signs.
    let who = if is_for_anybody(&args.path) {
        None
    } else {
        Some((sign::client_id(environment)?, sign::secret(environment)?))
    };
    let names = header_names(&args.prefix)?;
    http::address(&args.url)
        .map_err(|error| error.context(http::given_by("--url", http::URL, &args.url, environment)))?;
    authorities::demand(&args.url, environment)?;
    ensure!(args.path.starts_with('/'), Usage("the path must begin with a slash".to_owned()));
    let method = match args.method.to_ascii_uppercase().as_str() {
        "GET" => Method::GET,
        "POST" => Method::POST,
        _ => bail!(Usage(format!("{:?} is no method of the merchant API: GET or POST", args.method))),
    };
    sign::demand_merchant("--merchant-id", args.merchant_id.as_deref())?;
    sign::demand_merchant("--on-behalf-of", args.on_behalf_of.as_deref())?;
    let body = body_of(args.body.as_deref())?;
    let path = in_a_request(&args.path);
    let ask = match who {
        Some((client_id, secret)) => {
            let caller = Caller {
                client_id,
                names: &names,
                merchant_id: args.merchant_id.as_deref(),
                on_behalf_of: args.on_behalf_of.as_deref(),
            };
            let signed = signed(secret, &body, None, None, Encoding::Hex);
            ask(&caller, method, &path, body, &signed)
        }
        None => Ask { method, path, headers: Vec::new(), body: (!body.is_empty()).then_some(body) },
    };
    let answer = super::small_runtime()?.block_on(http::exchange(&args.url, &ask));
    let writes = may_change(&ask.method, &args.path);
    let answer = answer.map_err(|error| http::lost(error, writes, "the merchant API did not answer", THEN))?;
    let named = answer.request_id.as_ref().map_or_else(String::new, |id| format!(", request {id}"));
    super::say(&format!("HTTP {}{named}\n{}\n", answer.status, pretty(&answer.body, 0, Layout::Tall))).map_err(
        |error| {
            if writes { error.context(format!("the call was made, and its answer not shown: {THEN}")) } else { error }
        },
    )?;
    success(&answer, writes)?;
    Ok(ExitCode::SUCCESS)
}

/// Whether such a call may change something. What is no operation of ours may.
fn may_change(method: &Method, path: &str) -> bool {
    let path = path.split('?').next().unwrap_or(path);
    let is_it = |endpoint: &&Endpoint| endpoint.path() == path && endpoint.method() == method.as_str();
    *method != Method::GET && Endpoint::ALL.iter().find(is_it).is_none_or(|endpoint| endpoint.changes())
}

/// Refuses what is no envelope that says SUCCESS. Of a change that may have been done all the same it says so.
fn success(answer: &Answer, writes: bool) -> anyhow::Result<()> {
    let head = serde_json::from_str::<EnvelopeHead>(&answer.body).ok();
    // Of a request that came twice the second is told that its nonce was used: the first may have been done.
    let came_twice = |head: &EnvelopeHead| head.code == Code::NonceReused.code();
    let is_open = writes && (answer.leaves_open() || head.as_ref().is_none_or(came_twice));
    refuse_failure(answer, head).map_err(|said| if is_open { http::unsure(&said, THEN) } else { said })
}

fn refuse_failure(answer: &Answer, head: Option<EnvelopeHead>) -> anyhow::Result<()> {
    match head {
        Some(head) if answer.status.is_success() && head.status == "SUCCESS" => Ok(()),
        Some(head) => {
            let hint = answer.request_id.as_ref();
            let hint = hint.map(|id| format!("; its operator learns more with `countersign explain {id}`"));
            let status = answer.status.as_u16();
            bail!("the call was answered with {status} {} {}{}", head.code, head.label, hint.unwrap_or_default())
        }
        // Perhaps none of ours has answered, which knows no request of that name.
        None => bail!("the answer is no envelope: is this the merchant API?"),
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    #[test]
    fn what_may_not_stand_in_a_query_is_encoded_and_what_is_encoded_stays() {
        for (written, sent) in [
            ("/v1/time", "/v1/time"),
            ("/a?t=2036-06-01 00:00:00", "/a?t=2036-06-01%2000:00:00"),
            ("/a?t=2036-06-01%2000:00:00&b=c+d", "/a?t=2036-06-01%2000:00:00&b=c+d"),
            ("/a?b=\u{e9}#\"<>\\^`{|}\n", "/a?b=%C3%A9%23%22%3C%3E%5C%5E%60%7B%7C%7D%0A"),
        ] {
            assert_eq!(in_a_request(written), sent);
            assert!(sent.parse::<hyper::Uri>().is_ok(), "{sent}");
        }
    }

    #[test]
    fn only_an_envelope_that_says_success_is_one() {
        let said = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).expect("a status");
            let answer = Answer { status, body: body.to_owned(), request_id: None };
            success(&answer, false).err().map(|error| error.to_string())
        };
        let envelope =
            |status: &str| format!(r#"{{"status":"{status}","code":"C","label":"L","errorMessage":"","data":null}}"#);
        assert_eq!(said(200, &envelope("SUCCESS")), None);
        assert_eq!(said(404, &envelope("FAIL")).as_deref(), Some("the call was answered with 404 C L"));
        assert!(said(200, &envelope("FAIL")).is_some());
        assert!(said(500, &envelope("SUCCESS")).is_some());
        assert_eq!(said(200, "ok").as_deref(), Some("the answer is no envelope: is this the merchant API?"));
    }

    #[test]
    fn a_change_that_was_answered_and_may_have_been_done_is_told_so_and_none_else() {
        let id = "0123456789abcdef0123456789ab";
        let envelope =
            |code: &str| format!(r#"{{"status":"FAIL","code":"{code}","label":"L","errorMessage":"","data":null}}"#);
        for (status, request_id, body, is_open) in [
            (504, None, "<html>".to_owned(), true),
            (404, None, "<html>".to_owned(), true),
            (200, None, "ok".to_owned(), true),
            (500, Some(id), envelope("500000"), true),
            (503, None, envelope("503000"), true),
            (503, Some(id), envelope("503000"), false),
            (401, Some(id), envelope("400021"), true),
            (400, Some(id), envelope("400201"), false),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            let answer = Answer { status, body, request_id: request_id.map(str::to_owned) };
            let said = success(&answer, true).expect_err("it is refused").to_string();
            let end = " (it may have been done: look before you do it again)";
            assert_eq!(said.ends_with(end), is_open, "{said}");
            let read = success(&answer, false).expect_err("it is refused").to_string();
            assert_eq!(read, said.trim_end_matches(end), "what only reads is never done");
        }
        for (method, path, wanted) in [
            (Method::POST, "/v1/pay/order?x=1", true),
            (Method::POST, "/rate/commission_rule", true),
            (Method::POST, "/rate/commission_rule/list", false),
            (Method::POST, "/else", true),
            (Method::GET, "/else", false),
        ] {
            assert_eq!(may_change(&method, path), wanted, "{method} {path}");
        }
    }
}
