//! The platform's back end, as far as Countersign hears of it: puts rates, moves convert orders, tells merchants of transfer addresses.
//! What happened in the platform comes as lines on standard input:
//!
//! ```text
//! COUNTERSIGN_OPERATOR_TOKEN=cso_... cargo run -p countersign-sdk --example back_end -- http://127.0.0.1:8081
//! rate GT_USDT 22.38741462
//! converted 415628130304
//! not-converted 415628130305
//! address app_... T-1 TRANSFERRED_ADDRESS_DELAY {"merchantTradeNo":"T-1"}
//! ```
//!
//! Every line is sent until it is known to be done, under an `Idempotency-Key` of its own: where an answer is lost, the same call with the same
//! key is answered as the first one was, and nothing happens twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Method, Response, StatusCode};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::sleep;

/// How often a call is made before a person has to look.
const TRIES: u32 = 8;
/// How long one call may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between the first two tries; twice as long each time.
const PAUSE: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let base_url = std::env::args().nth(1).context("argument: the operator API, such as http://127.0.0.1:8081")?;
    let token = environment("COUNTERSIGN_OPERATOR_TOKEN")?;
    let back_end = BackEnd::new(&base_url, &token)?;
    // One line after the other: nothing else waits for this thread.
    for (number, line) in std::io::stdin().lines().enumerate() {
        let line = line?;
        match back_end.play(&line, &key(number)?).await {
            Ok(said) => println!("{said}"),
            // One line that cannot be done must not keep the others waiting.
            Err(error) => eprintln!("{line}: {error:#}"),
        }
    }
    Ok(())
}

/// A key that no other line of no other run has. A real back end takes the id of its own record in place of it, so that the key is the same
/// also after it was started anew.
#[expect(clippy::disallowed_methods, reason = "a program's own key, which nothing is judged by")]
fn key(number: usize) -> anyhow::Result<String> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).context("a clock after 1970")?;
    Ok(format!("back-end-{}-{number}", since.as_nanos()))
}

#[expect(clippy::disallowed_methods, reason = "a program's own configuration")]
fn environment(name: &str) -> anyhow::Result<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty()).with_context(|| format!("{name} is not set"))
}

/// An answer, each member as the text that came: a number keeps all its digits.
type Members = BTreeMap<String, Box<RawValue>>;

fn member<'a>(answer: &'a Members, name: &str) -> &'a str {
    answer.get(name).map_or("null", |value| value.get())
}

/// An event. Its data goes on as it was written: numbers that were read as floating point would lose digits.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    #[serde(rename = "client_id")]
    client_id: &'a str,
    biz_type: &'a str,
    biz_id: &'a str,
    biz_status: &'a str,
    data: &'a RawValue,
}

/// What calls the operator API.
pub(crate) struct BackEnd {
    http: reqwest::Client,
    base: String,
    bearer: String,
}

impl BackEnd {
    pub(crate) fn new(base_url: &str, token: &str) -> anyhow::Result<Self> {
        // Plain HTTP to a private address: nobody is trusted. For https put your roots in here.
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let http = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy().timeout(TIMEOUT).build()?;
        Ok(Self {
            http,
            base: format!("{}/operator/v1", base_url.trim_end_matches('/')),
            bearer: format!("Bearer {token}"),
        })
    }

    /// Does what a line says, and says what came of it.
    pub(crate) async fn play(&self, line: &str, key: &str) -> anyhow::Result<String> {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        match words.as_slice() {
            ["rate", pair, rate] => {
                let body = json!({"rate": rate}).to_string();
                let put = self.call(Method::PUT, &format!("/rates/{pair}"), &body, key).await?;
                Ok(format!("{pair} is {} since {}", member(&put, "rate"), member(&put, "updated_at")))
            }
            ["converted", order] => self.move_order(order, 3, key).await,
            ["not-converted", order] => self.move_order(order, 6, key).await,
            ["address", client_id, biz_id, status, data] => {
                let data = serde_json::from_str(data).context("the data of an event is JSON")?;
                let event = Event { client_id, biz_type: "TRANSFER_ADDRESS", biz_id, biz_status: status, data };
                let emitted = self.call(Method::POST, "/events", &serde_json::to_string(&event)?, key).await?;
                Ok(format!("{biz_id} {status} is event {}", member(&emitted, "event_id")))
            }
            _ => bail!(
                "lines are: rate PAIR RATE | converted ORDER | not-converted ORDER | address CLIENT_ID BIZ_ID STATUS JSON"
            ),
        }
    }

    async fn move_order(&self, order: &str, status: i64, key: &str) -> anyhow::Result<String> {
        let body = json!({"status": status}).to_string();
        let moved = self.call(Method::PATCH, &format!("/convert-orders/{order}"), &body, key).await?;
        Ok(format!("order {order} has status {}", member(&moved, "status")))
    }

    /// One call, again and again until somebody has answered it.
    async fn call(&self, method: Method, path: &str, body: &str, key: &str) -> anyhow::Result<Members> {
        let mut pause = PAUSE;
        let mut last = String::new();
        for _ in 0..TRIES {
            match self.once(method.clone(), path, body, key).await {
                Ok(Answer { status, body, .. }) if status.is_success() => return Ok(serde_json::from_slice(&body)?),
                Ok(answer) if is_temporary(answer.status) => {
                    pause = pause.max(answer.retry_after);
                    last = format!("HTTP {}", answer.status);
                }
                // Our mistake: to repeat it would not help.
                Ok(answer) => {
                    let problem: Members = serde_json::from_slice(&answer.body).unwrap_or_default();
                    bail!("refused with {}: {}", member(&problem, "label"), member(&problem, "detail"));
                }
                // Nobody knows whether it was done. The key makes it safe to ask again.
                Err(error) => last = error.to_string(),
            }
            sleep(pause).await;
            pause *= 2;
        }
        bail!("not answered in {TRIES} tries: {last}")
    }

    /// With the whole body: an answer that breaks off in the middle is none.
    async fn once(&self, method: Method, path: &str, body: &str, key: &str) -> reqwest::Result<Answer> {
        let request = self.http.request(method, format!("{}{path}", self.base)).header(AUTHORIZATION, &self.bearer);
        let request = request.header("Idempotency-Key", key).header(CONTENT_TYPE, "application/json");
        let response = request.body(body.to_owned()).send().await?;
        let (status, retry_after) = (response.status(), retry_after(&response));
        Ok(Answer { status, retry_after, body: response.bytes().await?.into() })
    }
}

/// An answer as it came.
struct Answer {
    status: StatusCode,
    /// How long its sender wants to be left alone.
    retry_after: Duration,
    body: Vec<u8>,
}

fn is_temporary(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn retry_after(answer: &Response) -> Duration {
    let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}
