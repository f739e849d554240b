//! Callbacks by hand: as the server would send them, and what they may be spoiled into.

use std::time::Duration;

use anyhow::{bail, ensure};
use countersign_domain::delivery::Outcome;
use countersign_domain::payment_order::PaymentStatus;
use countersign_domain::time::UnixMillis;
use countersign_protocol::callback::{Acknowledgement, CallbackBody, callback_nonce, read_acknowledgement};
use countersign_protocol::endpoint::events::Event;
use countersign_protocol::headers::HeaderNames;
use countersign_protocol::signing::{Encoding, SIGNATURE_BYTES, SigningKey, encode_signature};
use hyper::Uri;

use super::Usage;
use super::http::{demand_nobody, demand_port};
use crate::app::events::public_id;
use crate::chance::Chance;
use crate::clock::Clock;
use crate::dispatch::{ByHand, DEADLINE, Parts, Report, Spelling};
use crate::visible::for_terminals;

pub(super) mod pieces;
pub(super) mod subject;

use pieces::{Pieces, Sent};
use subject::{Order, Subject};

/// As many characters of what a receiver says are shown.
const MESSAGE_CHARS_MAX: usize = 200;

/// What an answer begins with of whoever speaks TLS and was spoken to in HTTP.
const TLS_ALERT: u8 = 0x15;

/// One request, not signed yet or signed already.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) timestamp: String,
    pub(super) nonce: String,
    /// None: the header is not sent.
    pub(super) signature: Option<String>,
    pub(super) signature_next: Option<String>,
    pub(super) event_id: String,
    pub(super) attempt: u32,
    /// None: the header is not sent.
    pub(super) sequence: Option<u32>,
    pub(super) body: Vec<u8>,
}

/// What a receiver did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// It said SUCCESS, as the server wants to hear it.
    Taken { took: Duration },
    /// Anything else that is an answer.
    NotTaken(String),
    /// 429 or 503: it could not judge it now, and wants it again after so long, if it says when.
    Busy { what: String, retry_after: Option<Duration> },
    /// No answer: it closed the connection, or does not speak HTTP.
    Silent(String),
    /// No answer within the time for one.
    Late(String),
    /// No connection: it got nothing of what was to be sent, and so did nothing about it.
    Unreached(String),
}

impl Reaction {
    /// Whether it said so at all, however late.
    pub(super) const fn is_taken(&self) -> bool {
        matches!(self, Self::Taken { .. })
    }

    /// How long it took, where the server would call that delivered.
    pub(super) fn delivered_after(&self) -> Option<Duration> {
        match self {
            Self::Taken { took } => Some(*took).filter(|took| *took <= DEADLINE),
            Self::NotTaken(_) | Self::Busy { .. } | Self::Silent(_) | Self::Late(_) | Self::Unreached(_) => None,
        }
    }

    /// Whether the server would.
    pub(super) fn is_delivered(&self) -> bool {
        self.delivered_after().is_some()
    }

    /// Whether it is an answer, and no SUCCESS.
    pub(super) const fn is_not_taken(&self) -> bool {
        matches!(self, Self::NotTaken(_) | Self::Busy { .. })
    }

    pub(super) const fn is_busy(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }

    pub(super) const fn is_late(&self) -> bool {
        matches!(self, Self::Late(_))
    }

    pub(super) const fn is_unreached(&self) -> bool {
        matches!(self, Self::Unreached(_))
    }

    /// For people.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Taken { took } if *took > DEADLINE => {
                format!(
                    "SUCCESS after {} ms, too late: the server waits {} s in all",
                    took.as_millis(),
                    DEADLINE.as_secs()
                )
            }
            Self::Taken { took } => format!("taken: SUCCESS after {} ms", took.as_millis()),
            Self::NotTaken(what) => format!("not taken: {what}"),
            Self::Busy { what, .. } => format!("put off: {what}"),
            Self::Silent(what) | Self::Late(what) => format!("no answer: {what}"),
            Self::Unreached(what) => format!("not reached: {what}"),
        }
    }
}

/// Who says what time it is.
type Now = Box<dyn Fn() -> UnixMillis + Send + Sync>;

/// Writes letters and brings them.
pub(super) struct Courier {
    by_hand: ByHand,
    now: Now,
    client_id: String,
    key: SigningKey,
    encoding: Encoding,
    subject: Subject,
    chance: Chance,
}

impl Courier {
    /// To this URL, signed with this secret, stamped by this machine's clock. Whoever gives no answer within the deadline has given none.
    pub(super) fn new(
        url: &str,
        names: &HeaderNames,
        client_id: &str,
        secret: &str,
        encoding: Encoding,
        deadline: Duration,
    ) -> anyhow::Result<Self> {
        demand_receiver(url)?;
        ByHand::accepts(url).map_err(|refused| Usage(refused.to_string()))?;
        let by_hand = ByHand::new(url, names, deadline)?;
        let key = SigningKey::new(secret.as_bytes());
        let (client_id, subject) = (client_id.to_owned(), Subject::default());
        let now = Box::new(|| Clock::System.now());
        Ok(Self { by_hand, now, client_id, key, encoding, subject, chance: Chance::default() })
    }

    /// The same, with callbacks that are stamped by another clock.
    pub(super) fn stamping_by(self, now: impl Fn() -> UnixMillis + Send + Sync + 'static) -> Self {
        Self { now: Box::new(now), ..self }
    }

    /// The same, with callbacks that tell of this.
    pub(super) fn telling_of(self, subject: Subject) -> Self {
        Self { subject, ..self }
    }

    /// Whether callbacks tell of one order, which somebody has named.
    pub(super) const fn tells_of_one_order(&self) -> bool {
        self.subject.biz_id.is_some()
    }

    /// An order: the given one, or one that nobody has.
    pub(super) fn order(&self) -> Order {
        self.subject.order(&self.chance, (self.now)())
    }

    /// What a callback says of an order that has become so.
    pub(super) fn body(&self, order: &Order, status: PaymentStatus) -> CallbackBody {
        self.subject.told(order, status, &self.client_id)
    }

    /// What a good callback about something new says: an order was paid.
    pub(super) fn news(&self) -> CallbackBody {
        self.body(&self.order(), PaymentStatus::Paid)
    }

    /// The bytes of the callback that tells of this event: the server's own.
    pub(super) fn body_of(event: &Event) -> Vec<u8> {
        let body = CallbackBody {
            biz_type: event.biz_type.clone(),
            biz_id: event.biz_id.clone(),
            biz_status: event.biz_status.clone(),
            client_id: event.client_id.clone(),
            data: event.data.clone(),
        };
        body.to_bytes()
    }

    /// A good callback about something new.
    pub(super) fn good(&self) -> Letter {
        self.letter(self.news().to_bytes())
    }

    /// A good callback with this body, stamped now.
    pub(super) fn letter(&self, body: Vec<u8>) -> Letter {
        let event_id = public_id(self.chance.sorted_id((self.now)()));
        self.signed(Letter {
            timestamp: String::new(),
            nonce: String::new(),
            signature: None,
            signature_next: None,
            event_id,
            attempt: 1,
            sequence: Some(1),
            body,
        })
    }

    /// The same event once more: stamped now, with a nonce and a signature of its own.
    pub(super) fn signed(&self, letter: Letter) -> Letter {
        self.signed_at(letter, 0)
    }

    /// The same, stamped so many ms from now.
    pub(super) fn signed_at(&self, letter: Letter, from_now_ms: i64) -> Letter {
        let timestamp = (self.now)().plus_ms(from_now_ms).0.to_string();
        let nonce = callback_nonce(self.chance.bits128());
        self.with_signature(Letter { timestamp, nonce, ..letter })
    }

    /// Signed as it stands.
    pub(super) fn with_signature(&self, letter: Letter) -> Letter {
        let signature = Some(self.signature_of(&letter));
        Letter { signature, ..letter }
    }

    /// The right one.
    pub(super) fn signature_of(&self, letter: &Letter) -> String {
        self.signature(&self.key, letter)
    }

    /// What somebody with another secret would make of it.
    pub(super) fn signature_of_a_stranger(&self, letter: &Letter) -> String {
        self.signature(&SigningKey::new(format!("sk_{}", self.chance.hex(32)).as_bytes()), letter)
    }

    /// What somebody would make of it whose secret is this.
    pub(super) fn signature_with(&self, secret: &[u8], letter: &Letter) -> String {
        self.signature(&SigningKey::new(secret), letter)
    }

    /// The same letter with its right signature, changed and written in this way.
    pub(super) fn spelled(&self, letter: Letter, encoding: Encoding, change: fn(&mut [u8; SIGNATURE_BYTES])) -> Letter {
        let mut signature = self.key.sign(&letter.timestamp, &letter.nonce, &letter.body);
        change(&mut signature);
        Letter { signature: Some(encode_signature(&signature, encoding)), ..letter }
    }

    /// That of any text.
    pub(super) fn signature_of_text(&self, text: &[u8]) -> String {
        encode_signature(&self.key.hmac(text), self.encoding)
    }

    /// How signatures are written.
    pub(super) const fn encoding(&self) -> Encoding {
        self.encoding
    }

    fn signature(&self, key: &SigningKey, letter: &Letter) -> String {
        encode_signature(&key.sign(&letter.timestamp, &letter.nonce, &letter.body), self.encoding)
    }

    /// Brings it as the server would, and looks how it is taken.
    pub(super) async fn bring(&self, letter: &Letter) -> Reaction {
        reaction(Box::pin(self.by_hand.send(parts(letter), letter.body.clone())).await)
    }

    /// The same with the names of its headers in lower case.
    pub(super) async fn bring_in_lower_case(&self, letter: &Letter) -> Reaction {
        self.bring_otherwise(letter, Spelling::Lower, Pieces::ONE).await.0
    }

    /// The same with the body in pieces, and how much of it had gone out when something came back.
    pub(super) async fn bring_in_pieces(&self, letter: &Letter, pieces: Pieces) -> (Reaction, Sent) {
        self.bring_otherwise(letter, Spelling::Title, pieces).await
    }

    async fn bring_otherwise(&self, letter: &Letter, spelling: Spelling, pieces: Pieces) -> (Reaction, Sent) {
        let body = letter.body.clone();
        let (report, sent) = Box::pin(pieces::send(&self.by_hand, parts(letter), spelling, body, pieces)).await;
        (reaction(report), sent)
    }
}

fn parts(letter: &Letter) -> Parts<String> {
    Parts {
        signature: letter.signature.clone(),
        signature_next: letter.signature_next.clone(),
        timestamp: letter.timestamp.clone(),
        nonce: letter.nonce.clone(),
        event_id: letter.event_id.clone(),
        attempt: letter.attempt.to_string(),
        sequence: letter.sequence.map(|sequence| sequence.to_string()),
    }
}

/// Refuses what is no URL of a receiver, or names somebody in it.
fn demand_receiver(url: &str) -> anyhow::Result<()> {
    demand_nobody(url)?;
    let no_url = || Usage(format!("{url:?} is no URL such as https://shop.example/callback"));
    let uri: Uri = url.parse().map_err(|_| no_url())?;
    let (Some(scheme), Some(_)) = (uri.scheme_str(), uri.authority()) else { bail!(no_url()) };
    if !matches!(scheme, "http" | "https") {
        bail!(Usage(format!("{url:?} must begin with https:// or http://")));
    }
    ensure!(
        !url.contains('#'),
        Usage(format!(
            "what stands behind the # of {url:?} is never sent: leave it out, or write %23 where the sign itself is meant"
        ))
    );
    demand_port(&uri)
}

/// By the server's own judgement.
fn reaction(report: Report) -> Reaction {
    let Report { outcome, http_status, retry_after_ms, detail, took, bytes, .. } = report;
    let Some(bytes) = bytes else { return Reaction::Unreached(detail) };
    let status = http_status.map_or_else(String::new, |status| format!("status {status}"));
    match outcome {
        Outcome::Delivered => Reaction::Taken { took },
        Outcome::HttpStatus => {
            let is_redirect = http_status.is_some_and(|status| (300..400).contains(&status));
            let redirect = if is_redirect { "; redirects are not followed" } else { "" };
            let what = format!("{status}{redirect}{}", said(&bytes.answer_body));
            if matches!(http_status, Some(429 | 503)) {
                let retry_after = retry_after_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
                return Reaction::Busy { what, retry_after };
            }
            Reaction::NotTaken(what)
        }
        Outcome::Fail => {
            let said = said(&bytes.answer_body);
            Reaction::NotTaken(format!("{status}, and a returnCode that is not SUCCESS{said}"))
        }
        Outcome::Unreadable if http_status.is_some() => {
            Reaction::NotTaken(format!("{status}, and {}", unreadable(&bytes.answer_body, &detail)))
        }
        Outcome::Unreadable if bytes.answer_head.starts_with(b"HTTP/") => Reaction::NotTaken(detail),
        Outcome::Unreadable if bytes.answer_head.first() == Some(&TLS_ALERT) => {
            Reaction::Silent(format!("{detail} but TLS: say https://"))
        }
        Outcome::Unreadable => Reaction::Silent(detail),
        Outcome::Timeout => Reaction::Late(detail),
        Outcome::RefusedAddress | Outcome::DnsFailed | Outcome::ConnectFailed | Outcome::TlsFailed => {
            Reaction::Silent(detail)
        }
    }
}

/// The message of a FAIL, where there is one.
fn said(body: &[u8]) -> String {
    match read_acknowledgement(body) {
        Acknowledgement::Fail { return_message } if !return_message.is_empty() => {
            format!(": {}", shown(&return_message))
        }
        Acknowledgement::Fail { .. } | Acknowledgement::Success | Acknowledgement::Unreadable => String::new(),
    }
}

/// What an answer is in place of an acknowledgement. `detail` is what the server says of it.
fn unreadable(body: &[u8], detail: &str) -> String {
    if body.trim_ascii_start().starts_with(b"<") {
        "an HTML page instead of a JSON object with a returnCode".to_owned()
    } else {
        detail.to_owned()
    }
}

/// What a receiver says, cut.
fn shown(message: &str) -> String {
    let cut: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
    let more = if cut.len() < message.len() { "..." } else { "" };
    format!("{}{more}", for_terminals(&cut))
}

#[cfg(test)]
mod tests {
    use countersign_protocol::headers::Prefixes;
    use countersign_store::attempt_log::{AttemptBytes, Phases};

    use super::*;
    use crate::app::events::parse_public_id;

    #[test]
    fn a_letter_has_an_event_id_as_the_server_makes_them() {
        let prefixes = Prefixes::new(&["X-Service-".to_owned()]).expect("a prefix");
        let courier = Courier::new("http://127.0.0.1:1/", prefixes.first(), "app_1", "sk_1", Encoding::Hex, DEADLINE);
        let courier = courier.expect("a courier");
        let (one, other) = (courier.good().event_id, courier.good().event_id);
        assert!(parse_public_id(&one).is_some() && one != other, "{one} {other}");
    }

    #[test]
    fn a_url_that_names_somebody_is_refused_and_its_password_repeated_by_nobody() {
        assert!(demand_receiver("http://127.0.0.1:1/@a?of=me@shop.example").is_ok(), "path and query may have one");
        for url in ["http://me:canary@127.0.0.1:1/callback", "https://me@shop.example", "ftp://me:canary@h"] {
            let refused = demand_receiver(url).expect_err(url);
            assert!(refused.is::<Usage>() && !refused.to_string().contains("canary"), "{refused}");
            assert!(refused.to_string().starts_with("no user name"), "{refused}");
        }
    }

    #[test]
    fn a_url_that_would_be_sent_without_its_end_is_refused() {
        assert!(demand_receiver("http://127.0.0.1:1/a?b=%23c").is_ok());
        for url in ["http://127.0.0.1:1/a#b", "http://127.0.0.1:1#", "https://shop.example/?a=b#c"] {
            let refused = demand_receiver(url).expect_err(url);
            assert!(refused.is::<Usage>() && refused.to_string().contains("%23"), "{refused}");
        }
    }

    /// An answer as it came, judged as the server judged it.
    fn answered(outcome: Outcome, http_status: u16, body: &str, took: Duration) -> Reaction {
        let bytes = AttemptBytes {
            sent_head: b"POST / HTTP/1.1\r\n\r\n".to_vec(),
            answer_head: b"HTTP/1.1 ...".to_vec(),
            answer_body: body.as_bytes().to_vec(),
            answer_length: 0,
            is_cut: false,
        };
        reaction(Report {
            outcome,
            http_status: Some(http_status),
            retry_after_ms: None,
            address: None,
            detail: String::new(),
            took,
            phases: Phases::default(),
            bytes: Some(bytes),
            lack: None,
        })
    }

    #[test]
    fn what_comes_after_the_server_has_given_up_is_taken_and_not_delivered() {
        let after = |seconds| answered(Outcome::Delivered, 200, "", Duration::from_secs(seconds));
        assert!(after(15).is_delivered() && after(16).is_taken() && !after(16).is_delivered());
        assert_eq!(after(16).told(), "SUCCESS after 16000 ms, too late: the server waits 15 s in all");
    }

    #[test]
    fn what_a_receiver_says_is_shown_cut_and_safe_for_terminals() {
        let judged = |body: &str| answered(Outcome::Fail, 200, body, Duration::ZERO).told();
        let refusal = r#"{"returnCode":"FAIL","returnMessage":"timestamp"}"#;
        let refused = answered(Outcome::HttpStatus, 401, refusal, Duration::ZERO).told();
        assert_eq!(refused, "not taken: status 401: timestamp");
        let failed = "not taken: status 200, and a returnCode that is not SUCCESS";
        assert_eq!(judged(r#"{"returnCode":"FAIL"}"#), failed);
        let said = judged(r#"{"returnCode":"FAIL","returnMessage":"no \u001b[2Jorder\n\u202e1"}"#);
        assert_eq!(said, format!("{failed}: no \u{fffd}[2Jorder\u{fffd}\u{fffd}1"));
        let long = format!(r#"{{"returnCode":"FAIL","returnMessage":"{}"}}"#, "\u{e4}".repeat(201));
        assert_eq!(judged(&long), format!("{failed}: {}...", "\u{e4}".repeat(200)));
    }
}
