//! Why a request was refused, in the words that its caller may not hear.
//!
//! Everything is read from the request's own log line: what this node keeps of its last refusals in memory, or a file of the log.

use std::io::{BufRead, Read as _};

use countersign_domain::time::{UnixMillis, rfc3339};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::app::trouble::{STORE_AWAY, STORE_FAULT};
use crate::log::names;
use crate::merchant::CUT_OFF;

/// A refused request and why.
#[derive(Debug, Serialize, ToSchema)]
pub struct Explained {
    /// Its id.
    pub request_id: String,
    /// Why it was refused, and what the caller has to change.
    pub why: String,
    /// Its line of the log.
    #[schema(value_type = Object)]
    pub line: Map<String, Value>,
}

/// Explains a line of the log; none where it is no line of a request. What a system log has put before it counts for nothing.
pub fn explain(line: &[u8]) -> Option<Explained> {
    let line = &line[line.iter().position(|byte| *byte == b'{')?..];
    let line: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let request_id = line.get("request_id")?.as_str()?.to_owned();
    line.get("status")?;
    Some(Explained { why: why(&line), request_id, line })
}

/// Longest line that is looked at; a request's is a tenth of it at the most.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The line of a request in a log of many, the last one. Holds two lines at a time, however long the log is.
pub fn find(mut log: impl BufRead, request_id: &str) -> std::io::Result<Option<Vec<u8>>> {
    let (mut line, mut found) = (Vec::new(), None);
    loop {
        line.clear();
        if (&mut log).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        if names(&line, request_id) && line.windows(STATUS.len()).any(|part| part == STATUS) {
            found = Some(line.clone());
        }
    }
}

const STATUS: &[u8] = b"\"status\":";

fn why(line: &Map<String, Value>) -> String {
    let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
    let drift = line.get("drift_ms").and_then(Value::as_i64).map_or_else(String::new, |ms| {
        let side = if ms >= 0 { "behind" } else { "ahead of" };
        format!(" Its timestamp was {} ms {side} the server's time.", ms.unsigned_abs())
    });
    // Where authentication failed as well, that is what there is to mend.
    let budget = match (text("code"), text("reason")) {
        ("400429", "" | "over_budget") => "",
        ("400429", _) => {
            " It was answered with 429, since more authentications of its address have failed than `failed_auth_per_s` allows."
        }
        _ => "",
    };
    format!("{}{budget}{drift}", in_words(line))
}

/// The reason of the log, and what ends it.
fn in_words(line: &Map<String, Value>) -> String {
    let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
    let (client, merchant, acts_for) = (text("client_id"), text("merchant_id"), text("on_behalf_of"));
    match (text("code"), text("reason")) {
        ("000000", _) => "It was accepted.".to_owned(),
        (_, "client_gone") => "Its caller went away before there was an answer.".to_owned(),
        (_, CUT_OFF) => "Its body ended too early: its caller went away, or announced more than it sent.".to_owned(),
        (_, "body_broken") => "Its body was not sent as HTTP demands: the message says how.".to_owned(),
        (_, "unknown_client") => {
            format!("No application has the ClientId {client:?}: it was mistyped, or belongs to another deployment.")
        }
        (_, "disabled") => format!(
            "The application {client} is disabled: `countersign application update {client} --enabled true` ends that."
        ),
        (_, "merchant_disabled") => format!(
            "The merchant {merchant} of the application {client} is disabled: `countersign merchant update {merchant} --enabled true` ends that."
        ),
        (_, "institution_disabled") => format!(
            "The institution {merchant} over the application {client} is disabled: `countersign institution update {merchant} --enabled true` ends that."
        ),
        (_, "wrong_signature") => format!(
            "No live secret of {client} gives this signature. Other bytes were signed than were sent (the body as it goes over the wire, \
             LF after timestamp, nonce and body), or with a secret that is not live: see `countersign secret list {client}`."
        ),
        (_, "unreadable_signature") => "Its signature is neither 128 hex digits nor 88 characters of Base64, padding included: the URL-safe alphabet, Base64 without \
             its padding and Base64 of hex digits are not read."
            .to_owned(),
        (_, "on_behalf_of_unknown") => format!("Its On-Behalf-Of, {acts_for:?}, is nobody's merchant_id."),
        (_, "on_behalf_of_foreign") => format!(
            "Its On-Behalf-Of, {acts_for:?}, is no sub-account of {merchant}: it belongs to another institution, or is no sub-account at all."
        ),
        (_, "on_behalf_of_disabled") => format!(
            "Its On-Behalf-Of, {acts_for}, is a sub-account of {merchant} that is disabled: `countersign sub-account update {acts_for} --enabled true` ends that."
        ),
        (_, "acts_for_itself_alone") => format!(
            "It came with On-Behalf-Of, {acts_for:?}, and only an institution's own key may act for another: {client} belongs to {merchant}, which is not an institution."
        ),
        (_, "stamped_before_crash") => {
            "The machine has come back from a crash and could not tell the request from a replay.".to_owned()
        }
        (_, "clock_was_ahead") => format!(
            "The service's clock was ahead once and is not any more, or was before a restore, and nonces of the time up to then are forgotten: \
             every signed request is refused until {} (docs/RUNBOOK.md, A clock that was ahead).",
            refused_through(line)
        ),
        (_, "clock_was_ahead_before_crash") => format!(
            "The service's clock was ahead once, and then the machine crashed, or the nonce journal was damaged: no request up to then can be told \
             from a replay, and every signed one is answered 503 until {} (docs/RUNBOOK.md, A clock that was ahead).",
            refused_through(line)
        ),
        (_, "tolerance_raised") => format!(
            "The tolerance of {client} was raised after its timestamp: what was stamped up to then is judged by the one before. Stamped later, it is accepted."
        ),
        (_, "own_tolerance") => format!("Its timestamp is outside the tolerance that {client} has of its own."),
        (_, "nonces_forgotten") => "Its timestamp is older than what is still known of nonces, as after a restore: it could be a replay.".to_owned(),
        (_, STORE_AWAY) => format!("Nothing was done, and it may be repeated: {}.", text("error_message")),
        (_, STORE_FAULT) => format!(
            "The store has a fault that repeating does not help against: {}. `countersign doctor` looks for what is wrong.",
            text("error_message")
        ),
        ("400003", _) => "Its timestamp is outside the tolerance of the deployment.".to_owned(),
        ("400021", _) => match line.get("nonce_first_stamped").and_then(Value::as_i64) {
            Some(first) => format!("Its nonce was used before, by a request of {client} that was stamped {first}."),
            None => format!("Its nonce was used before by {client}."),
        },
        _ => answered(line),
    }
}

/// Until when all signed requests are refused; a line of an older program does not say it.
fn refused_through(line: &Map<String, Value>) -> String {
    let through = line.get("refused_through").and_then(Value::as_i64);
    through.map_or_else(|| "the clock is there again".to_owned(), |ms| rfc3339(UnixMillis(ms)))
}

/// What has no reason of its own: what was answered says it.
fn answered(line: &Map<String, Value>) -> String {
    let text = |name: &str| line.get(name).and_then(Value::as_str).unwrap_or_default();
    let client = text("client_id");
    match (text("code"), text("reason")) {
        ("400429", "over_budget") => {
            "It was not looked at: more authentications of its address have failed than `failed_auth_per_s` allows."
                .to_owned()
        }
        // Of an operator there is none.
        ("400429", _) if !client.is_empty() => format!(
            "{client} has sent more requests to this node than its limit allows: \
             `countersign application update {client} --rate-limit-per-s N` sets another one."
        ),
        (code, reason) => match text("error_message") {
            "" if reason.is_empty() => format!("It was refused with {code}; the answer says all there is to say."),
            "" => format!("It was refused with {code} ({reason}); the answer says all there is to say."),
            sentence => format!("It was refused with {code}, and told: {sentence}."),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(more: &str) -> String {
        let line = format!(r#"{{"request_id":"r1","status":401,"client_id":"app_1","merchant_id":"m1"{more}}}"#);
        explain(line.as_bytes()).expect("a line of a request").why
    }

    #[test]
    fn the_reasons_that_look_alike_outside_are_told_apart() {
        for (reason, words) in [
            ("unknown_client", "No application has"),
            ("disabled", "application update app_1"),
            ("merchant_disabled", "merchant update m1 --enabled true"),
            ("institution_disabled", "institution update m1 --enabled true"),
            ("wrong_signature", "No live secret"),
        ] {
            let why = said(&format!(r#","code":"400002","reason":"{reason}","drift_ms":-12"#));
            assert!(why.contains(words) && why.ends_with("12 ms ahead of the server's time."), "{why}");
        }
        // Somebody may hand in a line that nobody wrote.
        let why = said(&format!(r#","code":"400001","drift_ms":{}"#, i64::MIN));
        assert!(why.ends_with("9223372036854775808 ms ahead of the server's time."), "{why}");
    }

    #[test]
    fn a_nonce_that_was_used_says_by_what() {
        assert!(said(r#","code":"400021","nonce_first_stamped":1767225600000"#).contains("stamped 1767225600000"));
    }

    #[test]
    fn where_every_request_is_refused_it_says_until_when() {
        for reason in ["clock_was_ahead", "clock_was_ahead_before_crash"] {
            let why = said(&format!(r#","reason":"{reason}","refused_through":1767225600000"#));
            assert!(why.contains("until 2026-01-01T00:00:00") && why.contains("A clock that was ahead"), "{why}");
            assert!(said(&format!(r#","reason":"{reason}""#)).contains("until the clock is there again"));
        }
    }

    #[test]
    fn where_the_answer_says_it_all_it_is_told_again() {
        let why = said(r#","code":"400001","error_message":"field r_markup: must be a JSON number""#);
        assert_eq!(why, "It was refused with 400001, and told: field r_markup: must be a JSON number.");
        assert!(said(r#","code":"400001","reason":"framing""#).contains("400001 (framing); the answer says"));
    }

    #[test]
    fn what_the_store_said_is_told_and_whether_to_repeat() {
        let told = |reason: &str, cause: &str| said(&format!(r#","reason":"{reason}","error_message":"{cause}""#));
        let why = told(STORE_AWAY, "the store cannot answer: no space");
        assert_eq!(why, "Nothing was done, and it may be repeated: the store cannot answer: no space.");
        let why = told(STORE_FAULT, "row 7 of table event cannot be read back");
        assert!(why.contains("does not help against: row 7 of table event") && why.contains("doctor"), "{why}");
    }

    #[test]
    fn the_limits_behind_a_429_are_told_apart() {
        let limited = |reason: &str| said(&format!(r#","code":"400429","reason":"{reason}""#));
        let budget = "`failed_auth_per_s` allows";
        assert!(limited("").contains("app_1 has sent more requests") && !limited("").contains(budget));
        let token = r#"{"request_id":"r1","status":429,"code":"400429","error_message":"too many tokens"}"#;
        assert!(explain(token.as_bytes()).expect("a line").why.ends_with("told: too many tokens."));
        assert!(limited("over_budget").starts_with("It was not looked at") && limited("over_budget").contains(budget));
        let wrong = limited("wrong_signature");
        assert!(wrong.starts_with("No live secret") && wrong.contains("429") && wrong.contains(budget), "{wrong}");
    }

    #[test]
    fn what_a_system_log_puts_before_a_line_counts_for_nothing() {
        let own = r#"{"request_id":"r1","status":401}"#;
        for before in ["", "Jan 02 03:04:05 host countersign[17]: ", "countersign-1  | ", "\u{1b}[33m<14>1 - "] {
            let log = format!("{before}{own}\n");
            let line = find(log.as_bytes(), "r1").expect("it is read").expect("it is found");
            assert_eq!(explain(&line).expect("a line of a request").request_id, "r1", "{before}");
        }
    }

    /// A log without end of a line, and how much of it was read at once.
    struct Endless(usize);

    impl std::io::Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let count = into.len().min(self.0);
            into[..count].fill(b'x');
            self.0 -= count;
            Ok(count)
        }
    }

    #[test]
    fn a_log_of_one_endless_line_and_bytes_that_are_no_text_is_read_in_parts() {
        let end = b"\xff\xfe\n{\"request_id\":\"r1\",\"status\":401}";
        let log = std::io::BufReader::new(std::io::Read::chain(Endless(1 << 20), &end[..]));
        let line = find(log, "r1").expect("it is read").expect("it is found");
        assert!(explain(&line).is_some());
        // One that begins like a line of the request, too: what is found of it is as much as was held.
        let begin = b"{\"request_id\":\"r1\",\"status\":401,\"more\":\"";
        let log = std::io::BufReader::new(std::io::Read::chain(&begin[..], Endless(1 << 20)));
        let line = find(log, "r1").expect("it is read").expect("it is found");
        assert!(line.len() as u64 <= LINE_BYTES_MAX, "{} bytes are held", line.len());
    }

    #[test]
    fn the_last_line_of_the_request_is_found_and_other_lines_are_not() {
        let log = "{\"message\":\"x\",\"request_id\":\"r1\"}\n{\"request_id\":\"r1\",\"status\":401}\n{\"request_id\":\"r12\",\"status\":400}\n";
        let found = |id: &str| {
            find(log.as_bytes(), id).expect("it is read").map(|line| String::from_utf8_lossy(&line).into_owned())
        };
        assert_eq!(found("r1").as_deref(), Some("{\"request_id\":\"r1\",\"status\":401}\n"));
        assert_eq!(found("r2"), None);
        assert!(explain(b"{\"message\":\"x\",\"request_id\":\"r1\"}").is_none());
        assert!(explain(b"no json").is_none());
    }
}
