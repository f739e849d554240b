//! Receivers that verify every callback, each with one fault of its own: exactly the checks that are about it say so.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use countersign_protocol::signing::{Encoding, decode_signature, encode_signature};
use countersign_testkit::wire::wall_ms;
use http_body_util::BodyExt as _;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

/// What a receiver does that it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It works before it answers.
    WorksFirst,
    /// It takes no event a second time, not even to say that it has it.
    TakesNothingTwice,
    /// It takes nothing that is behind what it has of an order.
    InsistsOnOrder,
    /// It takes only the kinds that it knows.
    TakesKnownKindsOnly,
    /// It takes no body that does not come at once.
    IsImpatient,
    /// It takes bodies as large as frameworks do by themselves: less than the largest.
    IsSmall,
    /// It takes very small bodies only.
    IsTiny,
    /// It reads whatever comes, and is gone after too much.
    ReadsWithoutEnd,
    /// It reads whatever comes before it looks at anything.
    ReadsAll,
    /// It has a bound for bodies that say how long they are.
    ReadsAllChunks,
    /// It has a bound for bodies that do not.
    ReadsAllThatIsStated,
    /// It compares the first half of a signature.
    ComparesTheFirstHalf,
    /// It compares all of a signature but the end.
    ComparesAllButTheEnd,
    /// It compares all of a signature but the beginning.
    ComparesAllButTheBeginning,
    /// It looks whether the same digits are in it.
    ComparesWithoutOrder,
    /// It takes the first half of a signature for one.
    TakesAHalf,
    /// It takes some characters of a signature for one.
    TakesAFewCharacters,
    /// It takes an empty signature for a right one.
    TakesAnEmptyOne,
    /// The variable of its secret is not set, which is this text.
    HasNoSecret(&'static str),
    /// The variable of its other secret is not set.
    HasNoOtherSecret(&'static str),
    /// While a secret is rotated it looks at the second header alone.
    GoesByTheNextAlone,
    /// It takes bytes for letters.
    ReadsLatin1,
    /// It writes the body anew, compact and in ASCII, before it looks at the signature.
    WritesAscii,
    /// It makes a text of each part of the body by itself.
    ReadsByParts,
    /// It strips white space off the body.
    Strips,
    /// It strips what is before it.
    StripsBefore,
    /// It strips what is behind it.
    StripsBehind,
    /// It drops what is no letter.
    DropsWhatIsNoText,
    /// It remembers signatures in place of nonces, as they are written.
    RemembersSignatures,
    /// It remembers what the first header says in place of nonces.
    RemembersTheHeader,
    /// It takes nothing of an order before the first event.
    WaitsForTheFirst,
    /// It believes whoever says that a secret is rotated.
    BelievesInRotation,
    /// It looks whether it has seen a nonce, and notes it some time afterwards.
    NotesNoncesLate,
    /// It takes nonces of any kind.
    TakesAnyNonce,
    /// It takes nonces of any kind that have the signs of one.
    TakesAnySoundNonce,
}

/// How long the body of a callback is that `slow` sends in pieces. `raw-bytes` does so, too, with one that is longer.
const SLOW: Range<usize> = 2 * 1024..3 * 1024;
/// What no callback has.
const TOO_MUCH: usize = 1024 * 1024;

struct Faulty {
    fault: Fault,
    verifier: CallbackVerifier,
    has_worked: AtomicBool,
    is_gone: AtomicBool,
    /// Events that were taken, orders of which a second event was, and nonces.
    taken: Mutex<HashSet<String>>,
    /// Nonces that are looked at.
    under_way: Mutex<HashSet<String>>,
    second: Notify,
    /// Whether an event came a second time: those with one nonce come behind it.
    has_repeated: AtomicBool,
}

impl Faulty {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    async fn read(&self, headers: &HeaderMap, body: Body) -> Option<Bytes> {
        let length = headers.get("content-length");
        let is_stated = length.is_some();
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0);
        if self.has(Fault::IsImpatient) && SLOW.contains(&length) {
            return first_part(body).await.filter(|part| part.len() == length);
        }
        let most = match self.fault {
            Fault::IsSmall => 100 * 1024,
            Fault::IsTiny => 1024,
            Fault::ReadsWithoutEnd | Fault::ReadsAll => usize::MAX,
            Fault::ReadsAllChunks if !is_stated => usize::MAX,
            Fault::ReadsAllThatIsStated if is_stated => usize::MAX,
            _ => TOO_MUCH,
        };
        timeout(Duration::from_secs(60), to_bytes(body, most)).await.ok()?.ok()
    }

    /// What it verifies in place of what came.
    fn treated(&self, body: Bytes) -> Bytes {
        match self.fault {
            Fault::ReadsLatin1 => body.iter().map(|byte| char::from(*byte)).collect::<String>().into(),
            Fault::WritesAscii => written_in_ascii(&body).map_or(body, Bytes::from),
            Fault::ReadsByParts => body.chunks(7).map(String::from_utf8_lossy).collect::<String>().into(),
            Fault::Strips => body.trim_ascii().to_vec().into(),
            Fault::StripsBefore => body.trim_ascii_start().to_vec().into(),
            Fault::StripsBehind => body.trim_ascii_end().to_vec().into(),
            Fault::DropsWhatIsNoText => body.utf8_chunks().map(|chunk| chunk.valid()).collect::<String>().into(),
            _ => body,
        }
    }

    /// The signature that it goes by: the right one, where what came is enough for it.
    fn believed(&self, headers: &HeaderMap, body: &[u8]) -> Option<String> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let came = text("x-service-signature")?.to_owned();
        let (timestamp, nonce) = (text("x-service-timestamp")?, text("x-service-nonce")?);
        let signature = |secret: &str| {
            encode_signature(&SigningKey::new(secret.as_bytes()).sign(timestamp, nonce, body), Encoding::Hex)
        };
        if self.has(Fault::GoesByTheNextAlone) {
            return Some(text("x-service-signature-next").map_or(came, str::to_owned));
        }
        let right = signature(SECRET);
        let (half, is_whole) = (right.len() / 2, came.len() == right.len());
        let is_enough = match self.fault {
            Fault::ComparesTheFirstHalf => is_whole && came[..half] == right[..half],
            Fault::ComparesAllButTheEnd => is_whole && came[..right.len() - 1] == right[..right.len() - 1],
            Fault::ComparesAllButTheBeginning => is_whole && came[1..] == right[1..],
            Fault::ComparesWithoutOrder => sorted(&came) == sorted(&right),
            Fault::TakesAHalf => came == right[..half],
            Fault::TakesAFewCharacters => (1..half).contains(&came.len()) && right.starts_with(&came),
            Fault::TakesAnEmptyOne => came.is_empty(),
            Fault::HasNoSecret(unset) => came == signature(unset),
            Fault::HasNoOtherSecret(unset) => text("x-service-signature-next") == Some(&signature(unset)),
            Fault::BelievesInRotation => headers.contains_key("x-service-signature-next"),
            _ => false,
        };
        Some(if is_enough { right } else { came })
    }

    /// Whether a genuine callback has a nonce that it has not seen.
    async fn has_new_nonce(&self, nonce: &str, is_repeated: bool) -> bool {
        if self.taken().contains(nonce) {
            return false;
        }
        let is_second = !self.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(nonce.to_owned());
        // What it does in the meantime takes its time: until somebody else comes with the same one, where several do. If none does, it answers
        // before its sender gives up.
        if is_second {
            self.second.notify_one();
        } else if is_repeated {
            self.has_repeated.store(true, Ordering::SeqCst);
        } else if self.has_repeated.swap(false, Ordering::SeqCst) {
            let _ = timeout(Duration::from_secs(10), self.second.notified()).await;
        }
        self.taken().insert(nonce.to_owned());
        true
    }

    /// Whether what came is signed, in time and new, by a verifier of its own that does not look how a nonce begins.
    fn is_signed(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (timestamp, nonce) = (text("x-service-timestamp"), text("x-service-nonce"));
        let key = SigningKey::new(SECRET.as_bytes());
        let is_right = |name| {
            let signature = decode_signature(text(name).as_bytes());
            signature.is_some_and(|signature| key.verify(timestamp, nonce, body, &signature))
        };
        let off_ms = timestamp.parse::<i64>().map(|at| (wall_ms() - at).abs());
        (is_right("x-service-signature") || is_right("x-service-signature-next"))
            && off_ms.is_ok_and(|off_ms| off_ms <= 300_000)
            && self.taken().insert(nonce.to_owned())
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a genuine callback has signatures that it has seen, in its opinion.
    fn remembers(&self, first: &str, next: &str) -> bool {
        let mut taken = self.taken();
        let is_new = taken.insert(first.to_owned());
        // Each of two may be the right one.
        let is_next_new = self.has(Fault::RemembersTheHeader) || next.is_empty() || taken.insert(next.to_owned());
        !is_new || !is_next_new
    }

    /// Whether it takes this genuine callback.
    fn takes(&self, event: &callback::Callback) -> bool {
        let mut taken = self.taken();
        let is_new = taken.insert(event.event_id.clone());
        let order = match event.sequence {
            Some(2) if !self.has(Fault::WaitsForTheFirst) => Some(event.biz_id.clone()),
            Some(1) if self.has(Fault::WaitsForTheFirst) => Some(event.biz_id.clone()),
            _ => None,
        };
        taken.extend(order);
        match self.fault {
            Fault::TakesNothingTwice => is_new,
            Fault::InsistsOnOrder => event.sequence != Some(1) || !taken.contains(&event.biz_id),
            Fault::WaitsForTheFirst => taken.contains(&event.biz_id),
            Fault::TakesKnownKindsOnly => event.biz_type == "PAYMENT_ORDER",
            _ => true,
        }
    }
}

/// What comes of a body together.
async fn first_part(mut body: Body) -> Option<Bytes> {
    let frame = body.frame().await?.ok()?;
    frame.into_data().ok()
}

fn sorted(digits: &str) -> Vec<u8> {
    let mut digits = digits.as_bytes().to_vec();
    digits.sort_unstable();
    digits
}

/// As `json.dumps(json.loads(body), separators=(',', ':'))` of Python.
fn written_in_ascii(body: &[u8]) -> Option<String> {
    let parsed: countersign_protocol::callback::CallbackBody = serde_json::from_slice(body).ok()?;
    let text = String::from_utf8(parsed.to_bytes()).ok()?;
    let mut written = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            written.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            write!(written, "\\u{unit:04x}").ok()?;
        }
    }
    Some(written)
}

async fn receive_faultily(State(receiver): State<Arc<Faulty>>, headers: HeaderMap, body: Body) -> Response {
    let refused = |why: &str| (StatusCode::BAD_REQUEST, callback::failed(why)).into_response();
    if receiver.has(Fault::WorksFirst) && !receiver.has_worked.swap(true, Ordering::SeqCst) {
        // Longer than a receiver should take, and no race: it is what this one does.
        sleep(Duration::from_millis(5_200)).await;
    }
    let Some(body) = receiver.read(&headers, body).await else { return refused("no body") };
    if receiver.has(Fault::ReadsWithoutEnd) && body.len() > TOO_MUCH {
        receiver.is_gone.store(true, Ordering::SeqCst);
    }
    if receiver.is_gone.load(Ordering::SeqCst) {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let body = receiver.treated(body);
    let believed = receiver.believed(&headers, &body);
    let header = |name: &str| match name.to_ascii_lowercase().as_str() {
        "x-service-signature" => believed.as_deref(),
        _ => headers.get(name).and_then(|value| value.to_str().ok()),
    };
    if matches!(receiver.fault, Fault::RemembersSignatures | Fault::RemembersTheHeader) {
        let [first, next] = ["x-service-signature", "x-service-signature-next"]
            .map(|name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default());
        // A verifier that remembers nothing.
        return match verifier().verify_now(header, &body) {
            Ok(_) if receiver.remembers(first, next) => refused("it came before"),
            Ok(_) => (StatusCode::OK, callback::processed()).into_response(),
            Err(why) => refused(&why.to_string()),
        };
    }
    if receiver.has(Fault::NotesNoncesLate) {
        // Not the later one of an order, which is behind them.
        let is_repeated = header("x-service-attempt") == Some("2") && header("x-service-sequence") != Some("2");
        // A verifier that remembers nothing.
        return match verifier().verify_now(header, &body) {
            Ok(_) if receiver.has_new_nonce(header("x-service-nonce").unwrap_or_default(), is_repeated).await => {
                (StatusCode::OK, callback::processed()).into_response()
            }
            Ok(_) => refused("a nonce that came before"),
            Err(why) => refused(&why.to_string()),
        };
    }
    if receiver.has(Fault::TakesAnyNonce) || receiver.has(Fault::TakesAnySoundNonce) {
        let is_sound = |sign: char| sign.is_ascii_alphanumeric() || "._-".contains(sign);
        let is_taken = receiver.has(Fault::TakesAnyNonce)
            || header("X-Service-Nonce").is_some_and(|nonce| nonce.chars().all(is_sound));
        return if is_taken && receiver.is_signed(&headers, &body) {
            (StatusCode::OK, callback::processed()).into_response()
        } else {
            refused("not signed")
        };
    }
    match receiver.verifier.verify_now(header, &body) {
        Ok(event) if receiver.takes(&event) => (StatusCode::OK, callback::processed()).into_response(),
        Ok(_) => refused("not this one"),
        Err(why) => refused(&why.to_string()),
    }
}

/// A receiver with this fault.
pub(super) fn routes(fault: Fault) -> Router {
    let state = Arc::new(Faulty {
        fault,
        verifier: verifier(),
        has_worked: AtomicBool::new(false),
        is_gone: AtomicBool::new(false),
        taken: Mutex::default(),
        under_way: Mutex::default(),
        second: Notify::new(),
        has_repeated: AtomicBool::new(false),
    });
    Router::new().route("/callback", post(receive_faultily)).with_state(state)
}

async fn found_of(fault: Fault) -> (Fault, Vec<(String, String)>, Option<i32>) {
    let (found, code) = found(routes(fault)).await;
    (fault, found, code)
}

const FAULTS: [Fault; 39] = [
    Fault::WorksFirst,
    Fault::TakesNothingTwice,
    Fault::InsistsOnOrder,
    Fault::TakesKnownKindsOnly,
    Fault::IsImpatient,
    Fault::IsSmall,
    Fault::IsTiny,
    Fault::ReadsWithoutEnd,
    Fault::ReadsAll,
    Fault::ReadsAllChunks,
    Fault::ReadsAllThatIsStated,
    Fault::ComparesTheFirstHalf,
    Fault::ComparesAllButTheEnd,
    Fault::ComparesAllButTheBeginning,
    Fault::ComparesWithoutOrder,
    Fault::TakesAHalf,
    Fault::TakesAFewCharacters,
    Fault::TakesAnEmptyOne,
    Fault::HasNoSecret(""),
    Fault::HasNoSecret("undefined"),
    Fault::HasNoSecret("null"),
    Fault::HasNoSecret("None"),
    Fault::HasNoOtherSecret(""),
    Fault::HasNoOtherSecret("undefined"),
    Fault::GoesByTheNextAlone,
    Fault::ReadsLatin1,
    Fault::WritesAscii,
    Fault::ReadsByParts,
    Fault::Strips,
    Fault::StripsBefore,
    Fault::StripsBehind,
    Fault::DropsWhatIsNoText,
    Fault::RemembersSignatures,
    Fault::RemembersTheHeader,
    Fault::WaitsForTheFirst,
    Fault::BelievesInRotation,
    Fault::NotesNoncesLate,
    Fault::TakesAnyNonce,
    Fault::TakesAnySoundNonce,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_with_one_fault_is_named_for_that_one_and_for_no_other() {
    let mut all = JoinSet::new();
    // All at once each would be slow to answer, which is a fault of its own.
    let places = Arc::new(Semaphore::new(8));
    for fault in FAULTS {
        let places = Arc::clone(&places);
        all.spawn(async move {
            let _place = places.acquire_owned().await.expect("stays open");
            found_of(fault).await
        });
    }
    let mut wrong = String::new();
    for (fault, found, code) in all.join_all().await {
        let (wanted, ends): (&[(&str, &str)], i32) = match fault {
            Fault::WorksFirst => (&[("prompt", "advice")], 0),
            Fault::TakesNothingTwice => (&[("duplicate", "fail"), ("out-of-order", "fail")], 1),
            Fault::InsistsOnOrder => (&[("out-of-order", "fail")], 1),
            Fault::TakesKnownKindsOnly => (&[("unknown-kind", "advice")], 0),
            Fault::IsImpatient => (&[("slow", "fail")], 1),
            Fault::IsSmall => (&[("large", "fail")], 1),
            Fault::IsTiny => (&[("raw-bytes", "fail"), ("slow", "untold"), ("large", "fail")], 1),
            Fault::ReadsWithoutEnd => (&[("huge", "fail")], 1),
            Fault::ReadsAll | Fault::ReadsAllChunks | Fault::ReadsAllThatIsStated => (&[("huge", "advice")], 0),
            Fault::ComparesTheFirstHalf
            | Fault::ComparesAllButTheEnd
            | Fault::ComparesAllButTheBeginning
            | Fault::ComparesWithoutOrder => (&[("part-signature", "fail")], 1),
            Fault::TakesAHalf | Fault::TakesAFewCharacters | Fault::TakesAnEmptyOne => {
                (&[("short-signature", "fail")], 1)
            }
            Fault::HasNoSecret(_) | Fault::HasNoOtherSecret(_) => (&[("unset-secret", "fail")], 1),
            Fault::GoesByTheNextAlone => (&[("rotation-begins", "fail")], 1),
            Fault::ReadsLatin1 | Fault::ReadsByParts => (&[("raw-bytes", "fail")], 1),
            Fault::WritesAscii => (&[("respaced-body", "fail"), ("raw-bytes", "fail")], 1),
            Fault::Strips | Fault::StripsBefore | Fault::StripsBehind | Fault::DropsWhatIsNoText => {
                (&[("respaced-body", "fail")], 1)
            }
            Fault::RemembersSignatures | Fault::RemembersTheHeader => (&[("replayed", "fail")], 1),
            Fault::WaitsForTheFirst => (&[("first-missing", "advice")], 0),
            // Of the header it believes everything.
            Fault::BelievesInRotation => (&[("unset-secret", "fail"), ("wrong-next", "fail")], 1),
            Fault::NotesNoncesLate => (&[("replayed-at-once", "fail")], 1),
            Fault::TakesAnyNonce | Fault::TakesAnySoundNonce => (&[("reflected", "fail")], 1),
        };
        let wanted: Vec<_> = wanted.iter().map(|(check, verdict)| pair(check, verdict)).collect();
        if (&found, code) != (&wanted, Some(ends)) {
            let _ = writeln!(wrong, "{fault:?}: {found:?}, exit code {code:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
