//! The operator API from the shell: sends one call, shows tables to people and JSON to programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, Subcommand};
use hyper::Method;
use serde::Deserialize;

use super::http::{self, Answer, Arriving, Ask};
use super::tables::Members;
pub use super::tables::table;
use super::{Usage, authorities};
use crate::chance::Chance;
use crate::cli::numbers::whole;
use crate::operator::KEY_BYTES_MAX;

/// The variable of the bearer token.
pub const TOKEN_VARIABLE: &str = "COUNTERSIGN_OPERATOR_TOKEN";

/// What the help has behind a command's own options.
const CONNECTION: &str = "The operator API";

/// How the operator API is reached. The token comes from `COUNTERSIGN_OPERATOR_TOKEN` only: flags can be read by others in `ps`.
#[derive(Clone, Debug, Args)]
pub struct OperatorArgs {
    /// Address of the operator API; the token comes from COUNTERSIGN_OPERATOR_TOKEN
    #[arg(
        long,
        global = true,
        help_heading = CONNECTION,
        value_name = "URL",
        env = http::OPERATOR_URL,
        default_value = "http://127.0.0.1:8081"
    )]
    pub operator_url: String,
    /// Print the answer's JSON as it came, for programs
    #[arg(long, global = true, help_heading = CONNECTION)]
    pub json: bool,
}

/// A command with subcommands that each make one call.
#[derive(Debug, Args)]
pub struct Group<C: Subcommand> {
    /// How the operator API is reached.
    #[command(flatten)]
    pub operator: OperatorArgs,
    /// Of a change: whatever is sent under one key is done once [default: a new one each time]
    #[arg(long, global = true, help_heading = CONNECTION, value_name = "KEY")]
    pub idempotency_key: Option<String>,
    /// Which call.
    #[command(subcommand)]
    pub command: C,
}

/// A page of a list.
#[derive(Clone, Debug, Args)]
pub struct PageArgs {
    /// How many at most, up to 500 [default: 50]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>)]
    pub limit: Option<u32>,
    /// Go on after this cursor, as the list before printed it
    #[arg(long, value_name = "CURSOR", allow_negative_numbers = true)]
    pub after: Option<String>,
}

/// One call of the operator API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Path under `/operator/v1`, its parts already escaped.
    pub path: String,
    /// Names and values of the query.
    pub query: Vec<(&'static str, String)>,
    /// The members of the body, each a JSON text. GET and DELETE send no body.
    pub body: Vec<(&'static str, String)>,
    /// Columns of the table, for lists; others go by member.
    pub columns: &'static [&'static str],
    /// The `Idempotency-Key` of a change.
    pub key: Option<String>,
    /// Whether doing it again goes on where it was.
    pub goes_on: bool,
    /// Whether it changes anything. All do but GET, unless told otherwise.
    pub writes: bool,
}

impl Call {
    /// A call without query, body and columns.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        let (path, writes) = (path.into(), method != Method::GET);
        Self { method, path, query: Vec::new(), body: Vec::new(), columns: &[], key: None, goes_on: false, writes }
    }

    /// One that changes nothing, whatever its method.
    pub fn reads(self) -> Self {
        Self { writes: false, ..self }
    }

    /// A list.
    pub fn list(path: impl Into<String>, columns: &'static [&'static str]) -> Self {
        Self { columns, ..Self::new(Method::GET, path) }
    }

    /// Adds a page to the query.
    pub fn page(self, page: &PageArgs) -> Self {
        self.query("limit", page.limit.map(|limit| limit.to_string())).query("after", page.after.clone())
    }

    /// Adds to the query, where there is a value.
    pub fn query(mut self, name: &'static str, value: Option<String>) -> Self {
        self.query.extend(value.map(|value| (name, value)));
        self
    }

    /// Adds a text to the body, where there is one.
    pub fn text(mut self, name: &'static str, value: Option<&str>) -> Self {
        self.body.extend(value.map(|value| (name, quoted(value))));
        self
    }

    /// Adds a member whose value is JSON already (a number, true, an object), where there is one.
    pub fn raw(mut self, name: &'static str, value: Option<String>) -> Self {
        self.body.extend(value.map(|value| (name, value)));
        self
    }

    /// What to do where it may have been done without an answer that says so.
    fn then(&self) -> String {
        let look = if self.goes_on { "run it again, it goes on where it was" } else { "look before you do it again" };
        self.key.as_ref().map_or_else(
            || look.to_owned(),
            |key| format!("the same command with --idempotency-key {key} does it once, and says what came of it"),
        )
    }

    /// What an answer says of a change that failed within, or that a proxy gave up on.
    pub fn unsure(&self, answer: &Answer, said: anyhow::Error) -> anyhow::Error {
        if self.writes && answer.leaves_open() { http::unsure(&said, &self.then()) } else { said }
    }

    /// A call that was done, and of which nobody could be shown what came.
    fn unseen(&self, error: anyhow::Error) -> anyhow::Error {
        if self.writes { error.context(format!("it was done, and not shown: {}", self.then())) } else { error }
    }

    /// The body's bytes. Numbers stay digit for digit as they were typed.
    pub fn body_bytes(&self) -> Option<Vec<u8>> {
        let members: Vec<String> = self.body.iter().map(|(name, value)| format!("{}:{value}", quoted(name))).collect();
        let needs_body = [Method::POST, Method::PUT, Method::PATCH].contains(&self.method);
        needs_body.then(|| format!("{{{}}}", members.join(",")).into_bytes())
    }

    /// Path and query.
    pub fn target(&self) -> String {
        let query: Vec<String> = self.query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("/operator/v1{}{mark}{}", self.path, query.join("&"))
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Percent-escapes what is not unreserved, for a part of a path or a value of a query.
pub fn escaped(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Says why an answer stands in the way of what comes next.
pub type Judge = Box<dyn Fn(&str) -> anyhow::Result<()>>;

/// What turns a subcommand into a call.
pub trait IntoCall {
    /// The call, or why these words make none.
    fn call(&self) -> anyhow::Result<Call>;

    /// What has to be so before the call is made: the call that shows it, and the judge of its answer.
    fn before(&self) -> Option<(Call, Judge)> {
        None
    }

    /// Of an answer that shows something this once: what is made, and what to do where nobody saw it.
    fn shown_once(&self, _answer: &str) -> Option<String> {
        None
    }

    /// What else to think of, now that the call is done. Said on stderr.
    fn notice(&self, _answer: &str) -> Option<String> {
        None
    }

    /// Whether what was wanted came of a call that was accepted; else why not. It is shown first in any case.
    fn judge(&self, _answer: &str) -> anyhow::Result<()> {
        Ok(())
    }
}

impl<C: Subcommand + IntoCall> Group<C> {
    /// Makes the call and shows what came back.
    pub fn run(&self, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
        let mut call = self.command.call()?;
        call.key = if call.method == Method::GET { self.refuse_key().map(|()| None)? } else { Some(self.key()?) };
        let direct = Direct::new(&self.operator, environment)?;
        if let Some((call, judge)) = self.command.before() {
            judge(accepted(&direct.send(&call)?)?)?;
        }
        let answer = direct.send(&call)?;
        let body = accepted(&answer).map_err(|said| call.unsure(&answer, said))?;
        let text = if self.operator.json { format!("{}\n", body.trim_end()) } else { table(&call, body) };
        if call.method == Method::POST && was_shown_before(body) {
            // Nobody need be listening.
            let _ = writeln!(std::io::stderr(), "{SHOWN_BEFORE}");
        }
        match self.command.shown_once(body) {
            Some(lost) => super::say_once(&text, || lost)?,
            None => super::say(&text).map_err(|error| call.unseen(error))?,
        }
        if let Some(notice) = self.command.notice(body) {
            let _ = writeln!(std::io::stderr(), "{notice}");
        }
        self.command.judge(body)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What is said where a call is repeated that showed something once.
const SHOWN_BEFORE: &str = "This call was done before, under the same --idempotency-key, and is answered as it was then. What it made is shown once \
    and kept nowhere: where nobody has it, end it, and make another under another key.";

/// Whether an answer lacks what was shown when the call was done.
fn was_shown_before(answer: &str) -> bool {
    let Ok(answer) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(answer) else { return false };
    ["payment_api_secret", "token"].iter().any(|name| answer.get(*name).is_some_and(serde_json::Value::is_null))
}

impl<C: Subcommand> Group<C> {
    /// The key that was given. A new one else: a proxy that sends a request twice has it done once, and whoever gets no answer can ask again.
    fn key(&self) -> anyhow::Result<String> {
        let key = self.idempotency_key.clone().unwrap_or_else(|| Chance::default().hex(16));
        if (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(key);
        }
        bail!(Usage(format!("--idempotency-key: must be 1 to {KEY_BYTES_MAX} visible ASCII characters")))
    }

    /// For commands that change nothing through the operator API.
    pub fn refuse_key(&self) -> anyhow::Result<()> {
        if self.idempotency_key.is_some() {
            bail!(Usage(
                "--idempotency-key: is for commands that change something through the operator API".to_owned()
            ));
        }
        Ok(())
    }
}

/// The operator API and the right to call it.
#[derive(Clone)]
pub struct Direct<'a> {
    url: &'a str,
    token: &'a str,
}

impl std::fmt::Debug for Direct<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct").field("url", &self.url).finish_non_exhaustive()
    }
}

impl<'a> Direct<'a> {
    /// With the token of the environment.
    pub fn new(operator: &'a OperatorArgs, environment: &'a BTreeMap<String, String>) -> anyhow::Result<Self> {
        let Some(token) = environment.get(TOKEN_VARIABLE).filter(|token| !token.is_empty()) else {
            bail!("set {TOKEN_VARIABLE} to an operator token: `countersign init` shows the first one");
        };
        let token = token.trim();
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            bail!(
                "{TOKEN_VARIABLE} is no operator token: there is a line feed, a space or another character in it that no token has; set it to the token alone"
            );
        }
        http::address(&operator.operator_url).map_err(|error| {
            error.context(http::given_by("--operator-url", http::OPERATOR_URL, &operator.operator_url, environment))
        })?;
        authorities::demand(&operator.operator_url, environment)?;
        Ok(Self { url: &operator.operator_url, token })
    }

    /// Makes one call whose answer comes in parts, in the form that is named.
    pub fn stream(
        &self,
        call: &Call,
        accept: &str,
        mut take: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Answer> {
        let ask = ask(self.token, call, Some(accept))?;
        let mut not_taken = None;
        let kept = |part: &[u8]| {
            take(part).map_err(|error| {
                not_taken = Some(error);
                anyhow!("what came could not be taken")
            })
        };
        let answer = super::small_runtime()?.block_on(http::stream(self.url, &ask, kept));
        // A disk that is full is no fault of the API.
        not_taken.map_or_else(|| answer.context("the operator API did not answer in full"), Err)
    }

    /// Makes one call.
    pub fn send(&self, call: &Call) -> anyhow::Result<Answer> {
        super::small_runtime()?.block_on(send(self.url, self.token, call))
    }

    /// Makes one call whose answer may be of any length.
    pub async fn open(&self, call: &Call) -> anyhow::Result<Arriving> {
        http::open(self.url, &ask(self.token, call, None)?).await.context("the operator API did not answer")
    }
}

/// Sends a call with its bearer token.
pub async fn send(base: &str, token: &str, call: &Call) -> anyhow::Result<Answer> {
    let answer = http::exchange(base, &ask(token, call, None)?).await;
    answer.map_err(|error| http::lost(error, call.writes, "the operator API did not answer", &call.then()))
}

/// Refused where an id in the path is empty, as that of a variable that is not set: it would be another path.
fn ask(token: &str, call: &Call, accept: Option<&str>) -> anyhow::Result<Ask> {
    if let Some((behind, _)) = call.path.split_once("//").or_else(|| call.path.strip_suffix('/').map(|path| (path, "")))
    {
        bail!(Usage(format!("the id behind {behind} is empty: say which one is meant")));
    }
    let body = call.body_bytes();
    let mut headers = vec![("authorization".to_owned(), format!("Bearer {token}"))];
    headers.extend(accept.map(|accept| ("accept".to_owned(), accept.to_owned())));
    headers.extend(call.key.as_ref().map(|key| ("idempotency-key".to_owned(), key.clone())));
    if body.is_some() {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    Ok(Ask { method: call.method.clone(), path: call.target(), headers, body })
}

#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    code: String,
    #[serde(default)]
    label: String,
    #[serde(default)]
    detail: String,
}

/// An answer of the merchants' API: its envelope, which no problem document looks like.
#[derive(Deserialize)]
struct Envelope {
    status: String,
    #[serde(rename = "errorMessage")]
    _message: String,
}

/// The body of an answer that says yes, a JSON object of the operator API; else the refusal as one sentence.
pub fn accepted(answer: &Answer) -> anyhow::Result<&str> {
    granted(answer)?;
    if serde_json::from_str::<Members<'_>>(&answer.body).is_err() {
        return Err(somebody_else(answer));
    }
    Ok(&answer.body)
}

/// That the operator API says yes, where its body is no single JSON object; else the refusal as one sentence.
pub fn granted(answer: &Answer) -> anyhow::Result<()> {
    let status = answer.status.as_u16();
    if answer.status.is_success() {
        return if answer.request_id.is_some() { Ok(()) } else { Err(somebody_else(answer)) };
    }
    if serde_json::from_str::<Envelope>(&answer.body).is_ok_and(|envelope| envelope.status == "FAIL") {
        bail!(
            "refused with {status}: this is the address of the merchants' API; name that of the operator API with --operator-url or COUNTERSIGN_OPERATOR_URL"
        );
    }
    Err(match serde_json::from_str::<Problem>(&answer.body) {
        Ok(problem) if !problem.code.is_empty() => {
            anyhow!("refused with {status} {} {}: {}", problem.code, problem.label, problem.detail)
        }
        Ok(_) | Err(_) => {
            anyhow!("refused with {status}, and the answer is none of Countersign's: is this the operator API?")
        }
    })
}

/// Any server answers 200 to something: that is not done what was asked.
fn somebody_else(answer: &Answer) -> anyhow::Error {
    let status = answer.status.as_u16();
    anyhow!("answered with {status}, but the answer is none of Countersign's: is this the operator API?")
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let request_id = Some("0123456789abcdef0123456789ab".to_owned());
        Answer { status: StatusCode::from_u16(status).expect("a status"), body: body.to_owned(), request_id }
    }

    #[test]
    fn an_id_that_is_empty_is_another_path_and_asked_of_nobody() {
        let asked = |path: &str| ask("token", &Call::new(Method::GET, path), None);
        for (path, behind) in [
            ("/events/", "/events"),
            ("/events//redeliver", "/events"),
            ("/applications/app_1/secrets/", "/applications/app_1/secrets"),
        ] {
            let refused = asked(path).expect_err(path);
            assert!(refused.is::<Usage>());
            assert_eq!(refused.to_string(), format!("the id behind {behind} is empty: say which one is meant"));
        }
        assert!(asked("/events").is_ok() && asked("/events/%2F/redeliver").is_ok());
    }

    #[test]
    fn whoever_lost_an_answer_is_told_whether_to_look_or_to_go_on() {
        let call = Call::new(Method::POST, "/master-key/rewrap");
        assert_eq!(call.then(), "look before you do it again");
        assert_eq!(Call { goes_on: true, ..call.clone() }.then(), "run it again, it goes on where it was");
        let keyed = Call { key: Some("k".to_owned()), ..call };
        assert!(keyed.then().starts_with("the same command with --idempotency-key k "), "{}", keyed.then());
    }

    #[test]
    fn a_call_is_written_with_its_query_escaped_and_its_numbers_untouched() {
        let call = Call::new(Method::POST, format!("/merchants/{}/x", escaped("a b/ü")))
            .query("client_id", Some("a&b".to_owned()))
            .query("state", None)
            .text("name", Some("Acme \"Ltd\""))
            .text("absent", None)
            .raw("rate", Some("0.10000000000000000001".to_owned()));
        assert_eq!(call.target(), "/operator/v1/merchants/a%20b%2F%C3%BC/x?client_id=a%26b");
        let body = call.body_bytes().expect("it has a body");
        assert_eq!(String::from_utf8_lossy(&body), r#"{"name":"Acme \"Ltd\"","rate":0.10000000000000000001}"#);
        assert_eq!(Call::new(Method::GET, "/audit").body_bytes(), None);
    }

    #[test]
    fn a_refusal_is_one_sentence_with_its_code() {
        let body = r#"{"title":"x","status":404,"code":"400404","label":"NOT_FOUND","detail":"no merchant m9"}"#;
        let said = accepted(&answer(404, body)).expect_err("it is refused").to_string();
        assert_eq!(said, "refused with 404 400404 NOT_FOUND: no merchant m9");
        assert!(
            accepted(&answer(502, "<html>")).expect_err("it is refused").to_string().contains("none of Countersign's")
        );
        let envelope =
            r#"{"status":"FAIL","code":"400404","label":"NOT_FOUND","errorMessage":"no operation","data":null}"#;
        let said = accepted(&answer(404, envelope)).expect_err("it is refused").to_string();
        assert!(said.contains("the merchants' API") && said.contains("--operator-url"), "{said}");
        assert_eq!(accepted(&answer(201, "{}")).expect("it is accepted"), "{}");
    }

    #[test]
    fn what_somebody_else_answers_is_accepted_by_nobody_whatever_its_status() {
        for body in ["<html>It works</html>", "", "[]", "1", "null"] {
            let said = accepted(&answer(200, body)).expect_err("it is none of ours").to_string();
            assert_eq!(said, "answered with 200, but the answer is none of Countersign's: is this the operator API?");
        }
        for body in ["{}", r#"{"items":[],"next":null}"#] {
            let stranger = Answer { request_id: None, ..answer(200, body) };
            assert!(accepted(&stranger).is_err() && granted(&stranger).is_err(), "{body}");
        }
    }

    #[test]
    fn a_token_that_none_can_be_is_named_and_never_shown() {
        let operator = OperatorArgs { operator_url: "http://127.0.0.1:1".to_owned(), json: false };
        let with = |token: &str| {
            let environment = BTreeMap::from([(TOKEN_VARIABLE.to_owned(), token.to_owned())]);
            Direct::new(&operator, &environment)
                .map(|direct| direct.token.to_owned())
                .map_err(|error| error.to_string())
        };
        assert_eq!(with(" cso_abc\n").as_deref(), Ok("cso_abc"));
        for bad in ["cso_a\nbc", "cso_a bc", "cso_a\u{7f}bc", "cso_a\tbc", "cso_ä", "cso_a\u{200b}"] {
            let said = with(bad).expect_err("it is refused");
            assert!(said.contains(TOKEN_VARIABLE) && !said.contains("cso_") && said.lines().count() == 1, "{said}");
        }
    }
}
