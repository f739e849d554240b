use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use countersign_sdk::WindowRefused;
use countersign_sdk::protocol::callback::{
    Acknowledgement, CallbackBody, CallbackRefused as NotGenuine, callback_nonce, read_acknowledgement,
};
use countersign_sdk::protocol::replay::WINDOW_NONCES_MAX;
use countersign_sdk::protocol::signing::{Encoding, SigningKey, encode_signature};
use countersign_sdk::{Callback, CallbackRefused, CallbackVerifier, Error, Secret, SecretRefused, callback};
use serde_json::{Value, json};

use crate::stub::{CLIENT_ID, NOW_MS, SECRET};

const OTHER: &str = "another-secret-of-the-same-application";
const SENT_MS: i64 = NOW_MS - 1_000;

/// A callback request, as the server sends it.
#[derive(Clone)]
pub struct Request {
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

pub fn body() -> CallbackBody {
    CallbackBody {
        biz_type: "PAYMENT_ORDER".to_owned(),
        biz_id: "77".to_owned(),
        biz_status: "SUCCESS".to_owned(),
        client_id: "app_01".to_owned(),
        data: r#"{"merchantTradeNo":"T-1"}"#.to_owned(),
    }
}

fn signature(secret: &str, timestamp: &str, nonce: &str, body: &[u8], encoding: Encoding) -> String {
    encode_signature(&SigningKey::new(secret.as_bytes()).sign(timestamp, nonce, body), encoding)
}

impl Request {
    pub fn signed(secret: &str, sent_ms: i64, nonce: &str, body: Vec<u8>) -> Self {
        let timestamp = sent_ms.to_string();
        let signature = signature(secret, &timestamp, nonce, &body, Encoding::Hex);
        let headers = [
            ("timestamp", timestamp.as_str()),
            ("nonce", nonce),
            ("signature", &signature),
            ("event-id", "evt_1"),
            ("attempt", "2"),
            ("sequence", "5"),
        ];
        let headers =
            headers.into_iter().map(|(name, value)| (format!("x-service-{name}"), value.to_owned())).collect();
        Self { headers, body }
    }

    fn good() -> Self {
        Self::signed(SECRET, SENT_MS, &callback_nonce(7), body().to_bytes())
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(format!("x-service-{name}"), value.to_owned());
        self
    }

    fn without(mut self, name: &str) -> Self {
        assert!(self.headers.remove(&format!("x-service-{name}")).is_some());
        self
    }

    fn verified_by(&self, verifier: &CallbackVerifier, now_ms: i64) -> Result<Callback, CallbackRefused> {
        verifier.verify(|name| self.headers.get(name).map(String::as_str), &self.body, now_ms)
    }

    fn verified(&self) -> Result<Callback, CallbackRefused> {
        self.verified_by(&verifier(SECRET), NOW_MS)
    }
}

fn verifier(secret: &str) -> CallbackVerifier {
    CallbackVerifier::new(CLIENT_ID, secret).expect("a secret")
}

/// In the middle of a rotation.
fn both() -> CallbackVerifier {
    let verifier = verifier(SECRET);
    verifier.set_secrets(CLIENT_ID, [SECRET, OTHER]).expect("two secrets");
    verifier
}

#[test]
fn a_genuine_callback_is_read() {
    let got = Request::good().verified().expect("genuine");
    assert_eq!((got.event_id.as_str(), got.attempt, got.sequence, got.sent_ms), ("evt_1", 2, Some(5), SENT_MS));
    assert_eq!(
        (got.biz_type.as_str(), got.biz_id.as_str(), got.biz_status.as_str()),
        ("PAYMENT_ORDER", "77", "SUCCESS")
    );
    assert_eq!((got.client_id.as_str(), got.nonce.as_str()), ("app_01", callback_nonce(7).as_str()));
    assert_eq!(got.data_as::<Value>().expect("JSON"), json!({"merchantTradeNo": "T-1"}));
}

#[test]
fn each_fault_has_an_error_of_its_own() {
    let good = Request::good;
    for name in ["timestamp", "nonce", "signature", "event-id", "attempt"] {
        let wanted = CallbackRefused::MissingHeader(format!("x-service-{name}"));
        assert_eq!(good().without(name).verified(), Err(wanted));
    }
    let swapped = Request { body: good().body.to_ascii_lowercase(), ..good() };
    let table = [
        (good().with("timestamp", "17672256000000"), NotGenuine::TimestampMalformed),
        (good().with("nonce", "callback nonce"), NotGenuine::NonceMalformed),
        (Request::signed(SECRET, SENT_MS, "0123456789abcdef", body().to_bytes()), NotGenuine::NotACallbackNonce),
        (good().with("signature", "00"), NotGenuine::SignatureMalformed),
        (good().with("signature", &"0".repeat(128)), NotGenuine::SignatureMismatch),
        (Request::signed(OTHER, SENT_MS, &callback_nonce(7), body().to_bytes()), NotGenuine::SignatureMismatch),
        (good().with("nonce", &callback_nonce(8)), NotGenuine::SignatureMismatch),
        (good().with("timestamp", &(SENT_MS + 1).to_string()), NotGenuine::SignatureMismatch),
        (swapped, NotGenuine::SignatureMismatch),
    ];
    for (request, wanted) in table {
        assert_eq!(request.verified(), Err(wanted.into()));
    }
    for body in ["", "[]", r#"{"bizType":"X"}"#, r#"{"bizType":"X","bizId":7,"bizStatus":"","client_id":"","data":""}"#]
    {
        let request = Request::signed(SECRET, SENT_MS, &callback_nonce(7), body.as_bytes().to_vec());
        assert!(matches!(request.verified(), Err(CallbackRefused::Unreadable(_))), "{body}");
    }
    assert!(matches!(good().with("attempt", "second").verified(), Err(CallbackRefused::Unreadable(_))));
}

#[test]
fn a_callback_is_good_for_five_minutes_both_ways_and_once() {
    let five_minutes = 300_000;
    for (now_ms, fresh) in [
        (SENT_MS + five_minutes, true),
        (SENT_MS + five_minutes + 1, false),
        (SENT_MS - five_minutes, true),
        (SENT_MS - five_minutes - 1, false),
    ] {
        let verifier = verifier(SECRET);
        let first = Request::good().verified_by(&verifier, now_ms);
        assert_eq!(first.is_ok(), fresh, "{now_ms}");
        let wanted = if fresh {
            CallbackRefused::NotNew(WindowRefused::Seen)
        } else {
            let drift_ms = now_ms - SENT_MS;
            NotGenuine::TimestampOutOfRange { drift_ms, tolerance_ms: five_minutes }.into()
        };
        assert_eq!(Request::good().verified_by(&verifier, now_ms), Err(wanted));
    }
}

#[test]
fn the_same_event_on_another_attempt_is_not_a_replay() {
    let verifier = verifier(SECRET);
    for attempt in 1..=3u32 {
        let sent_ms = NOW_MS + 5_000 * i64::from(attempt);
        let request = Request::signed(SECRET, sent_ms, &callback_nonce(u128::from(attempt)), body().to_bytes());
        let got = request.with("attempt", &attempt.to_string()).verified_by(&verifier, sent_ms + 20).expect("genuine");
        assert_eq!((got.event_id.as_str(), got.attempt), ("evt_1", attempt));
    }
}

#[test]
fn a_captured_callback_that_another_process_takes_is_known_by_its_nonce_alone() {
    let (one, another) = (verifier(SECRET), verifier(SECRET));
    let first = Request::good().verified_by(&one, NOW_MS).expect("genuine");
    let captured = Request::good().with("event-id", "evt_2").with("attempt", "1").with("sequence", "6");
    assert_eq!(captured.verified_by(&one, NOW_MS), Err(CallbackRefused::NotNew(WindowRefused::Seen)));
    let second = captured.verified_by(&another, NOW_MS).expect("it cannot know");
    assert_ne!((&first.event_id, first.attempt, first.sequence), (&second.event_id, second.attempt, second.sequence));
    assert_eq!((&first.nonce, first.sent_ms), (&second.nonce, second.sent_ms));
    let renamed = Request::good().with("nonce", &callback_nonce(8)).verified_by(&another, NOW_MS);
    assert_eq!(renamed, Err(NotGenuine::SignatureMismatch.into()), "a nonce is signed");
}

#[test]
fn what_was_refused_uses_no_nonce_up() {
    let verifier = verifier(SECRET);
    Request::good().with("signature", &"0".repeat(128)).verified_by(&verifier, NOW_MS).expect_err("forged");
    Request::good().with("attempt", "x").verified_by(&verifier, NOW_MS).expect_err("not readable");
    Request::good().verified_by(&verifier, NOW_MS).expect("genuine, and not used up by the forger");
}

fn forged() -> CallbackRefused {
    Request::good().with("signature", &"0".repeat(128)).verified().expect_err("forged")
}

#[test]
fn a_verifier_remembers_as_many_callbacks_as_it_is_told_and_refuses_the_others_as_too_many() {
    const { assert!(WINDOW_NONCES_MAX > 3_000 * 300, "unless told, 3,000 a second for five minutes") };
    let full = CallbackRefused::NotNew(WindowRefused::Full);
    assert_eq!(full.http_status(), 503, "the server sends more slowly");
    for other in
        [CallbackRefused::NotNew(WindowRefused::Seen), CallbackRefused::NotNew(WindowRefused::TooOld), forged()]
    {
        assert_eq!(other.http_status(), 401, "{other}");
    }
    let (minute, minute_ms) = (Duration::from_secs(60), 60_000);
    for verifier in [verifier(SECRET).nonces_max(2).tolerance(minute), verifier(SECRET).tolerance(minute).nonces_max(2)]
    {
        let request = |nonce, sent_ms| Request::signed(SECRET, sent_ms, &callback_nonce(nonce), body().to_bytes());
        request(1, NOW_MS).verified_by(&verifier, NOW_MS).expect("there is room");
        request(2, NOW_MS).verified_by(&verifier, NOW_MS).expect("there is room");
        assert_eq!(request(3, NOW_MS).verified_by(&verifier, NOW_MS), Err(full.clone()));
        let again = request(1, NOW_MS).verified_by(&verifier, NOW_MS);
        assert_eq!(
            again,
            Err(CallbackRefused::NotNew(WindowRefused::Seen)),
            "a full memory still knows what it has seen"
        );
        let later_ms = NOW_MS + minute_ms + 1;
        request(3, later_ms).verified_by(&verifier, later_ms).expect("the others are too old by now");
    }
}

#[test]
fn while_a_secret_is_rotated_either_one_is_enough_on_either_side() {
    for (index, secret) in [SECRET, OTHER].into_iter().enumerate() {
        let request = Request::signed(secret, SENT_MS, &callback_nonce(7), body().to_bytes());
        let got = request.verified_by(&both(), NOW_MS).expect("one of the two");
        assert_eq!(got.secret_index, index, "it says which");
    }
    // The server signs with both, the receiver knows only the one of the second header.
    let good = Request::good();
    let (timestamp, nonce) = (SENT_MS.to_string(), callback_nonce(7));
    let next = signature(OTHER, &timestamp, &nonce, &good.body, Encoding::Hex);
    let request = good.clone().with("signature-next", &next);
    request.verified_by(&verifier(OTHER), NOW_MS).expect("the other live secret");
    request.verified().expect("the first header is enough");
    let chosen = request.verified_by(&both(), NOW_MS).expect("both fit");
    assert_eq!(chosen.secret_index, 0, "the one that the server has chosen");
    let forged = good.with("signature-next", &"0".repeat(128));
    let refused = forged.verified_by(&verifier(OTHER), NOW_MS);
    assert_eq!(refused, Err(NotGenuine::SignatureMismatch.into()));
}

/// What a variable that is set to nothing may come as. HMAC fills keys up with zeros: those of zeros are the empty one, too.
const EMPTY: [&str; 5] = ["", " ", "\r\n", "\0", "\0 \0"];

#[test]
fn no_verifier_takes_what_is_signed_with_an_empty_secret() {
    for secret in EMPTY {
        let signed = |by: &str, nonce| Request::signed(by, SENT_MS, &callback_nonce(nonce), body().to_bytes());
        let next = signed(secret, 8).headers["x-service-signature"].clone();
        let requests = [signed(secret, 7), signed(OTHER, 8).with("signature-next", &next)];
        // Each way to a verifier that might know such a key.
        assert_eq!(Secret::new(secret).expect_err("it is empty"), SecretRefused::Empty);
        assert_eq!(Secret::of_any_form(secret).expect_err("it is empty"), SecretRefused::Empty);
        let verifier = verifier(SECRET);
        for refused in [
            CallbackVerifier::new(CLIENT_ID, secret).map(drop),
            verifier.set_secrets(CLIENT_ID, [SECRET, secret]),
            verifier.set_secrets(CLIENT_ID, [secret, SECRET]),
            verifier.set_secrets("app_02", [secret]),
        ] {
            let why = match refused {
                Err(Error::Usage(why)) => why,
                other => panic!("{secret:?}: {other:?}"),
            };
            assert!(why.starts_with("the secret is empty"), "{why}");
        }
        for request in requests {
            assert_eq!(request.verified(), Err(NotGenuine::SignatureMismatch.into()), "{secret:?}");
            assert_eq!(request.verified_by(&verifier, NOW_MS), Err(NotGenuine::SignatureMismatch.into()), "{secret:?}");
        }
    }
    Secret::of_any_form(" a").expect("what has a character is one");
}

#[test]
fn a_callback_is_for_the_application_whose_secret_signed_it() {
    let verifier = verifier(SECRET);
    verifier.set_secrets("app_02", [OTHER]).expect("another application");
    let of = |client_id: &str, secret, nonce| {
        let body = CallbackBody { client_id: client_id.to_owned(), ..body() };
        Request::signed(secret, SENT_MS, &callback_nonce(nonce), body.to_bytes()).verified_by(&verifier, NOW_MS)
    };
    assert_eq!(of("app_02", OTHER, 1).expect("its own").client_id, "app_02");
    assert_eq!(of(CLIENT_ID, SECRET, 2).expect("its own").client_id, CLIENT_ID);
    for (client_id, secret) in [(CLIENT_ID, OTHER), ("app_02", SECRET), ("app_03", SECRET), ("", SECRET)] {
        assert_eq!(of(client_id, secret, 3), Err(CallbackRefused::OtherClient), "{client_id}");
    }
    assert_eq!(CallbackRefused::OtherClient.http_status(), 401);
    of(CLIENT_ID, SECRET, 3).expect("what was refused used no nonce up");
    // Two that share a secret: it is the body that tells them apart.
    verifier.set_secrets("app_02", [SECRET]).expect("a secret");
    assert_eq!(of("app_02", SECRET, 4).expect("its own").client_id, "app_02");
}

/// Whoever cannot sign must not make a verifier of many applications try all their secrets.
#[test]
fn of_many_applications_the_secrets_of_the_one_that_the_body_names_are_tried_and_few_others() {
    let secret_of = |n: usize| format!("{SECRET}-{n}");
    let verifier = verifier(&secret_of(0));
    for n in 1..100 {
        verifier.set_secrets(format!("app_many_{n}"), [secret_of(n)]).expect("a secret");
    }
    let of = |client_id: &str, n: usize| {
        let body = CallbackBody { client_id: client_id.to_owned(), ..body() };
        let request = Request::signed(&secret_of(n), SENT_MS, &callback_nonce(7), body.to_bytes());
        request.verified_by(&verifier, NOW_MS)
    };
    assert_eq!(of("app_many_99", 0), Err(CallbackRefused::OtherClient), "one of the first few");
    assert_eq!(of("app_many_99", 98), Err(NotGenuine::SignatureMismatch.into()), "not tried");
    assert_eq!(of("app_many_99", 99).expect("its own").client_id, "app_many_99");
}

#[test]
fn an_application_that_is_taken_out_is_known_no_more_and_what_has_come_of_others_is() {
    let verifier = verifier(SECRET);
    verifier.set_secrets("app_02", [OTHER]).expect("another application");
    let of_other = |nonce| {
        let body = CallbackBody { client_id: "app_02".to_owned(), ..body() };
        Request::signed(OTHER, SENT_MS, &callback_nonce(nonce), body.to_bytes()).verified_by(&verifier, NOW_MS)
    };
    of_other(1).expect("its own");
    Request::good().verified_by(&verifier, NOW_MS).expect("genuine");
    assert!(verifier.remove("app_02") && !verifier.remove("app_02") && !verifier.remove("app_03"));
    assert_eq!(of_other(2), Err(NotGenuine::SignatureMismatch.into()));
    assert_eq!(Request::good().verified_by(&verifier, NOW_MS), Err(CallbackRefused::NotNew(WindowRefused::Seen)));
    verifier.set_secrets("app_02", [OTHER]).expect("again");
    assert_eq!(of_other(1), Err(CallbackRefused::NotNew(WindowRefused::Seen)), "a nonce is not forgotten with it");
    assert!(verifier.remove("app_02") && verifier.remove(CLIENT_ID));
    let refused = Request::good().with("nonce", &callback_nonce(9)).verified_by(&verifier, NOW_MS);
    assert_eq!(refused, Err(NotGenuine::SignatureMismatch.into()), "one that knows nobody takes nothing");
}

#[test]
fn secrets_are_changed_while_what_has_come_is_remembered() {
    let verifier = verifier(SECRET);
    let by = |secret, nonce| Request::signed(secret, SENT_MS, &callback_nonce(nonce), body().to_bytes());
    by(SECRET, 1).verified_by(&verifier, NOW_MS).expect("genuine");
    verifier.set_secrets(CLIENT_ID, [OTHER, SECRET]).expect("two secrets");
    let again = by(SECRET, 1).verified_by(&verifier, NOW_MS);
    assert_eq!(again, Err(CallbackRefused::NotNew(WindowRefused::Seen)));
    assert_eq!(by(OTHER, 2).verified_by(&verifier, NOW_MS).expect("genuine").secret_index, 0);
    assert_eq!(by(SECRET, 3).verified_by(&verifier, NOW_MS).expect("genuine").secret_index, 1);
    verifier.set_secrets(CLIENT_ID, [OTHER]).expect("a secret");
    assert_eq!(by(SECRET, 4).verified_by(&verifier, NOW_MS), Err(NotGenuine::SignatureMismatch.into()));
    let none: [&str; 0] = [];
    for refused in [verifier.set_secrets(CLIENT_ID, none), verifier.set_secrets(CLIENT_ID, ["too short"])] {
        assert!(matches!(refused, Err(Error::Usage(_))), "{refused:?}");
    }
    by(OTHER, 5).verified_by(&verifier, NOW_MS).expect("a change that is refused changes nothing");
}

#[test]
fn what_was_sent_before_the_start_is_refused_and_its_repeat_is_not() {
    let verifier = verifier(SECRET).refuse_sent_before(SENT_MS + 1);
    assert_eq!(Request::good().verified_by(&verifier, NOW_MS), Err(WindowRefused::TooOld.into()));
    let repeat = Request::signed(SECRET, SENT_MS + 1, &callback_nonce(8), body().to_bytes());
    repeat.verified_by(&verifier, NOW_MS).expect("stamped afresh");
    let forged = Request::good().with("signature", &"0".repeat(128)).verified_by(&verifier, NOW_MS);
    assert_eq!(forged, Err(NotGenuine::SignatureMismatch.into()), "whoever cannot sign is told nothing of the start");
}

#[test]
fn the_present_is_what_the_clock_says() {
    let clock = Arc::new(AtomicI64::new(NOW_MS));
    let shown = clock.clone();
    let verifier = verifier(SECRET).clock(move || shown.load(Ordering::Relaxed));
    let now = |request: Request| verifier.verify_now(|n| request.headers.get(n).map(String::as_str), &request.body);
    now(Request::good()).expect("genuine");
    clock.store(NOW_MS + 600_000, Ordering::Relaxed);
    assert!(matches!(now(Request::good()), Err(CallbackRefused::NotGenuine(NotGenuine::TimestampOutOfRange { .. }))));
}

#[test]
fn base64_another_prefix_and_another_tolerance_are_understood() {
    let good = Request::good();
    let base64 = signature(SECRET, &SENT_MS.to_string(), &callback_nonce(7), &good.body, Encoding::Base64);
    good.clone().with("signature", &base64).verified().expect("genuine");

    let headers = good.headers.iter().map(|(name, value)| (name.replace("x-service-", "x-other-"), value.clone()));
    let renamed = Request { headers: headers.collect(), body: good.body.clone() };
    let other = verifier(SECRET).header_prefix("X-Other-").expect("a good prefix");
    renamed.verified_by(&other, NOW_MS).expect("genuine");
    assert_eq!(renamed.verified(), Err(CallbackRefused::MissingHeader("x-service-timestamp".to_owned())));
    assert!(verifier(SECRET).header_prefix("X Other ").is_err());

    let strict = verifier(SECRET).tolerance(Duration::from_millis(999));
    let wanted = NotGenuine::TimestampOutOfRange { drift_ms: 1_000, tolerance_ms: 999 };
    assert_eq!(good.verified_by(&strict, NOW_MS), Err(wanted.into()));
}

#[test]
fn its_answers_are_what_the_server_reads() {
    assert_eq!(callback::processed(), br#"{"returnCode":"SUCCESS","returnMessage":""}"#);
    assert_eq!(read_acknowledgement(&callback::processed()), Acknowledgement::Success);
    let fail = Acknowledgement::Fail { return_message: "no \"such\" order".to_owned() };
    assert_eq!(read_acknowledgement(&callback::failed("no \"such\" order")), fail);
}

#[test]
fn a_verifier_prints_no_secret() {
    let text = format!("{:?}", both());
    assert!(text.contains(CLIENT_ID) && !text.contains(SECRET) && !text.contains(OTHER), "{text}");
}
