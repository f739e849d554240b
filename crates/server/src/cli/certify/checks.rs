//! What is checked, in order. A receiver that takes nothing passes no check: the good callback comes first.

use std::time::Duration;

use countersign_protocol::callback::CallbackBody;
use countersign_protocol::signing::SIGNATURE_BYTES;
use serde_json::Value;

use super::super::courier::pieces::{Length, Pieces};
use super::super::courier::{Courier, Letter, Reaction};
use super::catalogue::{
    BEYOND_GOOD, Check, FUTURE, LARGE, LOWER_CASE, NEVER_FIRST, PARTLY, PROMPTLY, RESPACED, RESTAMPED, ROTATION,
    ROTATION_BEGINS, SHORT, SLOW, STALE, STRANGER, TAMPERED, UNKNOWN, UNSET_SECRET, UNSIGNED, UNUSUAL, WRONG_NEXT,
};
use super::good::{self, Good};
use super::patience::{in_the_end, until_judged};
use super::{DATA_BYTES_MAX, Finding, Verdict, huge, repetitions};

const HOUR_MS: i64 = 60 * 60 * 1_000;
/// Twice what a receiver should allow.
const TEN_MINUTES_MS: i64 = 10 * 60 * 1_000;
/// Longer than any common server waits between two bytes is not asked for.
const SLOWLY: Pieces = Pieces { count: 8, pause: Duration::from_millis(400), length: Length::Stated };
/// Slowly enough for a receiver to read one by one, and in less time than any allows for a body.
const CUT: Pieces = Pieces { count: 8, pause: Duration::from_millis(50), length: Length::Stated };
/// Some for each piece.
const SLOW_BYTES: usize = 2 * 1024;
/// What the name of an amount ends with: the last one is that which was paid.
const AMOUNT: &str = "mount\":";
/// As many characters of a signature as a receiver might log, or compare.
const FEW: usize = 8;
/// The server waits three times as long; a receiver this slow fails on a bad day.
const PROMPT: Duration = Duration::from_secs(5);

/// What was found so far, told as it is found.
pub(super) struct Findings<'a> {
    found: Vec<Finding>,
    tell: &'a mut dyn FnMut(&Finding),
}

impl<'a> Findings<'a> {
    pub(super) fn new(tell: &'a mut dyn FnMut(&Finding)) -> Self {
        Self { found: Vec::with_capacity(BEYOND_GOOD.len() + 1), tell }
    }

    pub(super) fn push(&mut self, finding: Finding) {
        (self.tell)(&finding);
        self.found.push(finding);
    }

    pub(super) fn into_all(self) -> Vec<Finding> {
        self.found
    }
}

/// Does every check. An error where the receiver gives no answer at all.
pub(super) async fn all(courier: &Courier, secret: &str, findings: &mut Findings<'_>) -> Result<(), String> {
    // The first event of an order that somebody has named was taken long ago: nothing is missing.
    let is_left_out = |check: &Check| courier.tells_of_one_order() && check.name == NEVER_FIRST.name;
    let beyond = BEYOND_GOOD.iter().filter(|check| !is_left_out(check));
    let untold = beyond.map(|check| check.found(Verdict::Untold, "not told: the good callback was not taken"));
    let took = match Box::pin(good::found(courier, secret)).await {
        Good::Taken(finding, took) => {
            findings.push(finding);
            took
        }
        Good::NotTaken(finding) => {
            findings.push(finding);
            untold.for_each(|finding| findings.push(finding));
            return Ok(());
        }
        Good::Unanswered(finding, why) => {
            // For programs alone: people are told in a sentence.
            findings.found.push(finding);
            findings.found.extend(untold);
            return Err(why);
        }
    };
    findings.push(PROMPTLY.found(
        if took <= PROMPT { Verdict::Pass } else { Verdict::Advice },
        format!("answered after {} ms", took.as_millis()),
    ));
    forged(courier, findings).await;
    in_part(courier, findings).await;
    bodies(courier, findings).await;
    rotations(courier, findings).await;
    times(courier, findings).await;
    repetitions::all(courier, findings).await;
    contents(courier, findings).await;
    Ok(())
}

async fn forged(courier: &Courier, findings: &mut Findings<'_>) {
    let unsigned = || Letter { signature: None, ..courier.good() };
    findings.push(UNSIGNED.must_refuse(&in_the_end(courier, unsigned).await));
    let strange = || {
        let good = courier.good();
        Letter { signature: Some(courier.signature_of_a_stranger(&good)), ..good }
    };
    findings.push(STRANGER.must_refuse(&in_the_end(courier, strange).await));
    findings.push(with_no_secret(courier).await);
}

/// What a variable that is not set becomes as a text: in most languages, in JavaScript, in JSON and Java, in Python.
const UNSET: [(&str, &str); 4] = [("empty:", ""), ("undefined:", "undefined"), ("null:", "null"), ("None:", "None")];

/// A receiver may have two secrets, and either may be unset: both headers carry the signature.
async fn with_no_secret(courier: &Courier) -> Finding {
    let mut reactions = Vec::with_capacity(UNSET.len());
    for (name, unset) in UNSET {
        let letter = || {
            let letter = courier.good();
            let nobody = Some(courier.signature_with(unset.as_bytes(), &letter));
            Letter { signature: nobody.clone(), signature_next: nobody, ..letter }
        };
        reactions.push((name, in_the_end(courier, letter).await));
    }
    UNSET_SECRET.must_refuse_each(&reactions)
}

type Respell = fn(&mut [u8; SIGNATURE_BYTES]);

/// One digit, or one character, that is wrong; and all of them elsewhere than they should be.
const NEARLY: [(&str, Respell); 3] = [
    ("all but the first digit right:", |bytes| bytes[0] ^= 0x10),
    ("all but the last digit right:", |bytes| bytes[SIGNATURE_BYTES - 1] ^= 0x01),
    ("its halves swapped:", |bytes| bytes.rotate_left(SIGNATURE_BYTES / 2)),
];

/// Signatures that are right in part, and two that are wrong.
async fn in_part(courier: &Courier, findings: &mut Findings<'_>) {
    let mut nearly = Vec::with_capacity(NEARLY.len());
    for (name, spoil) in NEARLY {
        let letter = || courier.spelled(courier.good(), courier.encoding(), spoil);
        nearly.push((name, in_the_end(courier, letter).await));
    }
    findings.push(PARTLY.must_refuse_each(&nearly));
    let cut = |characters: fn(&str) -> &str| {
        let letter = courier.good();
        Letter { signature: Some(characters(&courier.signature_of(&letter)).to_owned()), ..letter }
    };
    let short = [
        ("half:", in_the_end(courier, || cut(half)).await),
        ("a few characters:", in_the_end(courier, || cut(|whole| &whole[..FEW])).await),
        ("empty:", in_the_end(courier, || cut(|_| "")).await),
    ];
    findings.push(SHORT.must_refuse_each(&short));
    let wrong = || {
        let wrong = courier.good();
        let (one, other) = (courier.signature_of_a_stranger(&wrong), courier.signature_of_a_stranger(&wrong));
        Letter { signature: Some(one), signature_next: Some(other), ..wrong }
    };
    findings.push(WRONG_NEXT.must_refuse(&in_the_end(courier, wrong).await));
}

type Spoil = fn(&[u8]) -> Vec<u8>;

/// The same JSON with what a reader may drop: white space, where a writer puts it and where a reader strips it, and a byte that is no letter.
const RESPELT: [(&str, Spoil); 4] = [
    ("within:", |body| replaced(body, ",\"bizId\":", ", \"bizId\": ")),
    ("before it:", |body| [b"\n", body].concat()),
    ("behind it:", |body| [body, b"\n"].concat()),
    ("no letter:", |body| [&body[..1], b"\xff", &body[1..]].concat()),
];

async fn bodies(courier: &Courier, findings: &mut Findings<'_>) {
    let changed = || {
        let news = courier.news();
        Letter { body: tampered(news.clone()).to_bytes(), ..courier.letter(news.to_bytes()) }
    };
    findings.push(TAMPERED.must_refuse(&in_the_end(courier, changed).await));
    let mut respaced = Vec::with_capacity(RESPELT.len());
    for (name, spoil) in RESPELT {
        let spoiled = || {
            let good = courier.good();
            Letter { body: spoil(&good.body), ..good }
        };
        respaced.push((name, in_the_end(courier, spoiled).await));
    }
    findings.push(RESPACED.must_refuse_each(&respaced));
    let in_pieces = async || {
        let unusual = courier.letter(unusual(&with(courier.news(), &spoken()).to_bytes()));
        courier.bring_in_pieces(&unusual, CUT).await.0
    };
    findings.push(UNUSUAL.must_take(&until_judged(in_pieces).await));
    let in_lower_case = async || courier.bring_in_lower_case(&courier.good()).await;
    findings.push(LOWER_CASE.had_better_take(&until_judged(in_lower_case).await));
}

async fn rotations(courier: &Courier, findings: &mut Findings<'_>) {
    let rotated = || {
        let letter = courier.good();
        Letter {
            signature: Some(courier.signature_of_a_stranger(&letter)),
            signature_next: letter.signature.clone(),
            ..letter
        }
    };
    findings.push(ROTATION.had_better_take(&in_the_end(courier, rotated).await));
    let begun = || {
        let letter = courier.good();
        Letter { signature_next: Some(courier.signature_of_a_stranger(&letter)), ..letter }
    };
    findings.push(ROTATION_BEGINS.must_take(&in_the_end(courier, begun).await));
}

async fn times(courier: &Courier, findings: &mut Findings<'_>) {
    let restamped = || {
        let old = courier.signed_at(courier.good(), -HOUR_MS);
        Letter { timestamp: courier.good().timestamp, ..old }
    };
    findings.push(RESTAMPED.must_refuse(&in_the_end(courier, restamped).await));
    for (check, direction) in [(STALE, -1), (FUTURE, 1)] {
        let stamped = |ms: i64| courier.signed_at(courier.good(), direction * ms);
        let an_hour = in_the_end(courier, || stamped(HOUR_MS)).await;
        let ten_minutes = in_the_end(courier, || stamped(TEN_MINUTES_MS)).await;
        findings.push(out_of_time(check, an_hour, ten_minutes));
    }
}

/// Whoever takes what is an hour away sets no bound that helps; ten minutes are more than anybody needs.
fn out_of_time(check: Check, an_hour: Reaction, ten_minutes: Reaction) -> Finding {
    let only_the_nearer = ten_minutes.is_taken() && !an_hour.is_taken() && !an_hour.is_late();
    let nearer = if an_hour.is_unreached() || an_hour.is_busy() { Verdict::Untold } else { Verdict::Advice };
    let finding = check.must_refuse_each(&[("an hour:", an_hour), ("ten minutes:", ten_minutes)]);
    if only_the_nearer { Finding { verdict: nearer, ..finding } } else { finding }
}

async fn contents(courier: &Courier, findings: &mut Findings<'_>) {
    let unknown = CallbackBody { biz_type: "KIND_OF_TOMORROW".to_owned(), ..courier.news() };
    let unknown = || courier.letter(unknown.to_bytes());
    findings.push(UNKNOWN.had_better_take(&in_the_end(courier, unknown).await));
    findings.push(Box::pin(slow(courier)).await);
    let large = || courier.letter(large(courier.news()).to_bytes());
    findings.push(LARGE.must_take(&in_the_end(courier, large).await));
    findings.push(Box::pin(huge::found(courier)).await);
}

/// Whoever refuses the same when it comes at once is to blame for something else than for haste, which other checks name.
async fn slow(courier: &Courier) -> Finding {
    // Compact and in ASCII, as most libraries would write it anew: only its pace is unusual.
    let body = with(courier.news(), &padded(SLOW_BYTES)).to_bytes();
    let slowly = async || courier.bring_in_pieces(&courier.letter(body.clone()), SLOWLY).await.0;
    let slow = until_judged(slowly).await;
    if !matches!(slow, Reaction::NotTaken(_)) {
        return SLOW.must_take(&slow);
    }
    paced(&slow, &in_the_end(courier, || courier.letter(body.clone())).await)
}

fn paced(slow: &Reaction, at_once: &Reaction) -> Finding {
    match at_once {
        Reaction::NotTaken(_) | Reaction::Busy { .. } => {
            SLOW.found(Verdict::Untold, format!("not told: at once the same is {}", at_once.told()))
        }
        Reaction::Taken { .. } | Reaction::Silent(_) | Reaction::Late(_) | Reaction::Unreached(_) => {
            SLOW.must_take(slow)
        }
    }
}

fn replaced(body: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(body);
    assert!(text.contains(from), "a callback holds {from}");
    text.replace(from, to).into_bytes()
}

/// The first half of what is written in ASCII.
fn half(signature: &str) -> &str {
    &signature[..signature.len() / 2]
}

/// Another amount; of data without one, another number in it; of data without any, another order.
fn tampered(body: CallbackBody) -> CallbackBody {
    let is_digit = |c: char| c.is_ascii_digit();
    let amount = body.data.rfind(AMOUNT).map(|at| at + AMOUNT.len());
    let amount = amount.and_then(|at| Some(at + body.data[at..].find(is_digit)?));
    let changed = amount.or_else(|| body.data.rfind(is_digit)).map(|at| {
        let other = if body.data[at..].starts_with('1') { "2" } else { "1" };
        [&body.data[..at], other, &body.data[at + 1..]].concat()
    });
    match changed.filter(|data| serde_json::from_str::<Value>(data).is_ok()) {
        Some(data) => CallbackBody { data, ..body },
        None => CallbackBody { biz_id: format!("{}1", body.biz_id), ..body },
    }
}

/// The same JSON as a person or another library might write it.
fn unusual(body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(body).replace("\",\"", "\" ,\n  \"");
    let status = "\"bizStatus\":\"";
    let (before, rest) = text.split_at(text.find(status).map_or(0, |at| at + status.len()));
    let mut letters = rest.chars();
    match letters.next().filter(char::is_ascii_alphanumeric) {
        Some(first) => format!("{before}\\u{:04x}{}", u32::from(first), letters.as_str()).into_bytes(),
        None => text.into_bytes(),
    }
}

/// The same with one more member in its data. Data that is no object gives way to one.
fn with(body: CallbackBody, member: &str) -> CallbackBody {
    let data = match body.data.trim_end().strip_suffix('}').map(str::trim_end) {
        Some(open) if open.ends_with('{') => format!("{open}{member}}}"),
        Some(open) => format!("{open},{member}}}"),
        None => format!("{{{member}}}"),
    };
    CallbackBody { data, ..body }
}

/// Words of people, in ever longer rows: evenly cut, each row is cut at another place of its letters.
fn spoken() -> String {
    let words: String = (0..40).flat_map(|row| ["Caf\u{e9}".to_owned(), "\u{1f600}".repeat(row)]).collect();
    format!(r#""goodsName":"{words}""#)
}

/// With as much data as an event may have, most of it quotes. Each is escaped in the data, and with its escape once more in the callback: four bytes
/// of two.
fn large(news: CallbackBody) -> CallbackBody {
    let quotes = |count| format!(r#""note":"{}""#, r#"\""#.repeat(count));
    let room = DATA_BYTES_MAX.saturating_sub(with(news.clone(), &quotes(0)).data.len());
    with(news, &quotes(room / 2))
}

fn padded(bytes: usize) -> String {
    format!(r#""note":"{}""#, "n".repeat(bytes))
}

#[cfg(test)]
mod tests;
