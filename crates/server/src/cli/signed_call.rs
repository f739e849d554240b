//! `call`: one signed call, as a merchant's program would make it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{bail, ensure};
use clap::Args;
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
    #[arg(long, value_name = "URL", env = "COUNTERSIGN_URL", default_value = "http://127.0.0.1:8080")]
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
    http::address(&args.url).map_err(|error| error.context("--url"))?;
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
    let then = "look before you do it again";
    let answer = answer.map_err(|error| http::lost(error, &ask.method, "the merchant API did not answer", then))?;
    let named = answer.request_id.as_ref().map_or_else(String::new, |id| format!(", request {id}"));
    super::say(&format!("HTTP {}{named}\n{}\n", answer.status, pretty(&answer.body, 0, Layout::Tall)))?;
    success(&answer)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses what is no envelope that says SUCCESS.
fn success(answer: &Answer) -> anyhow::Result<()> {
    match serde_json::from_str::<EnvelopeHead>(&answer.body) {
        Ok(head) if answer.status.is_success() && head.status == "SUCCESS" => Ok(()),
        Ok(head) => {
            let hint = answer.request_id.as_ref();
            let hint = hint.map(|id| format!("; its operator learns more with `countersign explain {id}`"));
            let status = answer.status.as_u16();
            bail!("the call was answered with {status} {} {}{}", head.code, head.label, hint.unwrap_or_default())
        }
        // Perhaps none of ours has answered, which knows no request of that name.
        Err(_) => bail!("the answer is no envelope: is this the merchant API?"),
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
            success(&Answer { status, body: body.to_owned(), request_id: None }).err().map(|error| error.to_string())
        };
        let envelope =
            |status: &str| format!(r#"{{"status":"{status}","code":"C","label":"L","errorMessage":"","data":null}}"#);
        assert_eq!(said(200, &envelope("SUCCESS")), None);
        assert_eq!(said(404, &envelope("FAIL")).as_deref(), Some("the call was answered with 404 C L"));
        assert!(said(200, &envelope("FAIL")).is_some());
        assert!(said(500, &envelope("SUCCESS")).is_some());
        assert_eq!(said(200, "ok").as_deref(), Some("the answer is no envelope: is this the merchant API?"));
    }
}
