//! What is checked, in order. A receiver that takes nothing passes no check: the good callback comes first.

use std::time::Duration;

use anyhow::bail;

use super::super::courier::{Courier, Letter, Reaction};
use super::{Finding, Verdict};

const HOUR_MS: i64 = 60 * 60 * 1_000;
/// Longer than any common server waits between two bytes is not asked for.
const SLOW_PIECES: usize = 8;
const SLOW_PAUSE: Duration = Duration::from_millis(400);
/// Data of a genuine callback that a receiver must be able to take.
const LARGE_BYTES: usize = 48 * 1024;
/// A body that no genuine callback has.
const HUGE_BYTES: usize = 16 * 1024 * 1024;
/// As many characters of a signature as a receiver might log, or compare.
const FEW: usize = 8;
/// So many send the same request at once.
const AT_ONCE: usize = 4;
/// The server waits three times as long; a receiver this slow fails on a bad day.
const PROMPT: Duration = Duration::from_secs(5);

/// What is known about a check before it is done.
#[derive(Clone, Copy)]
struct Check {
    name: &'static str,
    sent: &'static str,
    why: &'static str,
}

impl Check {
    fn found(self, verdict: Verdict, came: impl Into<String>) -> Finding {
        Finding { check: self.name, verdict, sent: self.sent, came: came.into(), why: self.why }
    }

    fn must_take(self, reaction: &Reaction) -> Finding {
        self.found(if reaction.is_delivered() { Verdict::Pass } else { Verdict::Fail }, reaction.told())
    }

    fn must_refuse(self, reaction: &Reaction) -> Finding {
        self.found(refused(std::slice::from_ref(reaction)), reaction.told())
    }

    /// Each of them, under a name of its own.
    fn must_refuse_each(self, reactions: &[(&str, Reaction)]) -> Finding {
        let all: Vec<Reaction> = reactions.iter().map(|(_, reaction)| reaction.clone()).collect();
        let told: Vec<String> =
            reactions.iter().map(|(what, reaction)| format!("{what} {}", reaction.told())).collect();
        self.found(refused(&all), told.join("; "))
    }

    fn had_better_take(self, reaction: &Reaction) -> Finding {
        let verdict = match reaction {
            Reaction::Taken { .. } => Verdict::Pass,
            Reaction::Unreached(_) => Verdict::Untold,
            Reaction::NotTaken(_) | Reaction::Silent(_) => Verdict::Advice,
        };
        self.found(verdict, reaction.told())
    }
}

/// Where none of them may be taken. What did not reach the receiver was not refused by it.
fn refused(reactions: &[Reaction]) -> Verdict {
    if reactions.iter().any(Reaction::is_taken) {
        Verdict::Fail
    } else if reactions.iter().any(Reaction::is_unreached) {
        Verdict::Untold
    } else {
        Verdict::Pass
    }
}

const GOOD: Check = Check {
    name: "good",
    sent: "a callback as the server sends it",
    why: "only HTTP 2xx with a JSON object whose returnCode is exactly SUCCESS, within 15 s, counts as delivered; anything else is sent again for days, then given up. \
          Where the signature is what the receiver refuses, look at the usual mistakes in docs/PROTOCOL.md, and say --encoding base64 if its application has that",
};
const PROMPTLY: Check = Check {
    name: "prompt",
    sent: "a callback as the server sends it",
    why: "the server waits 15 s in all; answer first and work afterwards, or a busy day makes every callback fail",
};
const UNSIGNED: Check = Check {
    name: "no-signature",
    sent: "a callback without its signature header",
    why: "anybody who knows the URL could report payments that nobody made",
};
const STRANGER: Check = Check {
    name: "wrong-secret",
    sent: "a callback signed with another secret",
    why: "anybody who knows the URL could report payments that nobody made",
};
const UNSET_SECRET: Check = Check {
    name: "unset-secret",
    sent: "callbacks signed, in the headers Signature and Signature-Next, with what a variable that is not set becomes: an empty text, undefined, null, None",
    why: "a variable that is not set, such as that of an old secret when none is being replaced, becomes a secret that everybody knows, and anybody could report payments that nobody made; refuse to start without a secret, and leave an empty second one out",
};
const HALF: Check = Check {
    name: "half-signature",
    sent: "two callbacks whose signature is right in one half and a stranger's in the other",
    why: "a signature of which only a part is compared can be found by trying, and that much sooner; compare all 64 bytes, in constant time",
};
const SHORT: Check = Check {
    name: "short-signature",
    sent: "callbacks with a right signature that is cut: to its first half, to its first characters, to nothing",
    why: "a receiver that compares as much as was sent takes one character for a signature, which anybody guesses, or none at all; demand all 64 bytes",
};
const WRONG_NEXT: Check = Check {
    name: "wrong-next",
    sent: "a callback signed with another secret, in the header Signature-Next, too",
    why: "anybody can send the header of a rotation; it counts only where its signature is right",
};
const TAMPERED: Check = Check {
    name: "tampered-body",
    sent: "a callback whose amount was changed after it was signed",
    why: "whoever stands between could turn a payment of 1 into one of 1,000",
};
const RESPACED: Check = Check {
    name: "respaced-body",
    sent: "a callback that got white space after it was signed",
    why: "a receiver that parses the body and writes it anew before it checks the signature checks its own text, not what came; verify the raw bytes",
};
const UNUSUAL: Check = Check {
    name: "raw-bytes",
    sent: "a good callback whose JSON is spaced and escaped in an unusual, but correct way, with letters beyond ASCII",
    why: "the signature covers the bytes as they came, which are UTF-8; a receiver that parses the body and writes it anew, or reads it in another charset, refuses good callbacks",
};
const RESTAMPED: Check = Check {
    name: "tampered-timestamp",
    sent: "a callback of an hour ago whose timestamp header was set to now",
    why: "whoever once recorded a callback could make it look new; sign timestamp and nonce with the body",
};
const STALE: Check = Check {
    name: "stale",
    sent: "a callback that was signed an hour ago",
    why: "without a look at the timestamp a recorded callback can be sent again for ever; refuse what is more than 5 minutes away",
};
const FUTURE: Check = Check {
    name: "future",
    sent: "a callback that is stamped an hour ahead",
    why: "it could be kept and sent when nonces of today are forgotten; refuse what is more than 5 minutes away",
};
const REPLAYED: Check = Check {
    name: "replayed",
    sent: "the very same signed request once more, under another event id",
    why: "the event id is not covered by the signature, so it alone does not stop a replay; remember nonces for as long as timestamps are accepted",
};
const REPLAYED_AT_ONCE: Check = Check {
    name: "replayed-at-once",
    sent: "the very same signed request four times at the same moment, under four event ids",
    why: "a receiver that looks a nonce up and notes it later has a gap between the two, which several requests fit through; note it in one step that only the first can do, such as a unique key",
};
const REFLECTED: Check = Check {
    name: "reflected",
    sent: "a well-signed request whose nonce does not begin with \"callback\"",
    why: "one's own requests to the API carry the same kind of signature; turned round, they would pass for callbacks",
};
const DUPLICATE: Check = Check {
    name: "duplicate",
    sent: "an event that was taken already, as a second attempt",
    why: "an answer can be lost; the event then comes again, and a receiver that does not answer SUCCESS gets it for days. Process it once, acknowledge it each time",
};
const OUT_OF_ORDER: Check = Check {
    name: "out-of-order",
    sent: "the second event of an order, then the first, then the second again",
    why: "after a long outage a later event can come first; a receiver that never takes it blocks the order",
};
const UNKNOWN: Check = Check {
    name: "unknown-kind",
    sent: "a good callback of a bizType that nobody knows yet",
    why: "new kinds come with new versions; acknowledge what you do not use, or it is sent again for days",
};
const ROTATION: Check = Check {
    name: "rotation",
    sent: "a callback signed with a secret you do not have, and with yours in the header Signature-Next",
    why: "while a secret is rotated both sign; a receiver that looks at both headers can switch at any moment of the overlap",
};
const ROTATION_BEGINS: Check = Check {
    name: "rotation-begins",
    sent: "a callback signed with your secret, and with one you do not have in the header Signature-Next",
    why: "that is what comes from the moment in which a new secret is made; a receiver that goes by the second header alone refuses every callback of a rotation",
};
const SLOW: Check = Check {
    name: "slow",
    sent: "a good callback whose body takes some seconds to arrive, in pieces that cut letters in two",
    why: "lines are slow at times; a limit of one or two seconds turns that into failed callbacks",
};
const LARGE: Check = Check {
    name: "large",
    sent: "a good callback with 48 KiB of data",
    why: "data has no fixed length; a receiver with a small limit fails for the largest orders only",
};
const HUGE: Check = Check {
    name: "huge",
    sent: "16 MiB that nobody signed, then a good callback",
    why: "a receiver that reads without a bound before it checks anything can be stopped by anybody",
};

/// The checks that mean something only for a receiver that takes good callbacks.
const BEYOND_GOOD: &[Check] = &[
    PROMPTLY,
    UNSIGNED,
    STRANGER,
    UNSET_SECRET,
    HALF,
    SHORT,
    WRONG_NEXT,
    TAMPERED,
    RESPACED,
    UNUSUAL,
    RESTAMPED,
    STALE,
    FUTURE,
    REPLAYED,
    REPLAYED_AT_ONCE,
    REFLECTED,
    DUPLICATE,
    OUT_OF_ORDER,
    UNKNOWN,
    ROTATION,
    ROTATION_BEGINS,
    SLOW,
    LARGE,
    HUGE,
];

/// Does every check. An error where the receiver cannot be reached at all.
pub(super) async fn all(courier: &Courier) -> anyhow::Result<Vec<Finding>> {
    let first = courier.bring(&courier.good()).await;
    if let Reaction::Silent(why) | Reaction::Unreached(why) = &first {
        bail!("the receiver gave no answer to a good callback: {why}");
    }
    let mut findings = vec![GOOD.must_take(&first)];
    let Some(took) = first.delivered_after() else {
        let untold = |check: &Check| check.found(Verdict::Untold, "not told: the good callback was not taken");
        findings.extend(BEYOND_GOOD.iter().map(untold));
        return Ok(findings);
    };
    findings.push(PROMPTLY.found(
        if took <= PROMPT { Verdict::Pass } else { Verdict::Advice },
        format!("answered after {} ms", took.as_millis()),
    ));
    findings.extend(signatures(courier).await);
    findings.extend(times(courier).await);
    findings.extend(repetitions(courier).await);
    findings.extend(contents(courier).await);
    Ok(findings)
}

async fn signatures(courier: &Courier) -> Vec<Finding> {
    let mut findings = forged(courier).await;
    findings.push(with_no_secret(courier).await);
    findings.extend(in_part(courier).await);
    findings.extend(bodies(courier).await);
    findings
}

async fn forged(courier: &Courier) -> Vec<Finding> {
    let unsigned = Letter { signature: None, ..courier.good() };
    let good = courier.good();
    let strange = Letter { signature: Some(courier.signature_of_a_stranger(&good)), ..good };
    vec![UNSIGNED.must_refuse(&courier.bring(&unsigned).await), STRANGER.must_refuse(&courier.bring(&strange).await)]
}

/// What a variable that is not set becomes as a text: in most languages, in JavaScript, in JSON and Java, in Python.
const UNSET: [(&str, &str); 4] = [("empty:", ""), ("undefined:", "undefined"), ("null:", "null"), ("None:", "None")];

/// A receiver may have two secrets, and either may be unset: both headers carry the signature.
async fn with_no_secret(courier: &Courier) -> Finding {
    let mut reactions = Vec::with_capacity(UNSET.len());
    for (name, unset) in UNSET {
        let letter = courier.good();
        let nobody = Some(courier.signature_of_nobody(&letter, unset));
        let letter = Letter { signature: nobody.clone(), signature_next: nobody, ..letter };
        reactions.push((name, courier.bring(&letter).await));
    }
    UNSET_SECRET.must_refuse_each(&reactions)
}

/// Signatures of which a part is right, and two that are wrong.
async fn in_part(courier: &Courier) -> Vec<Finding> {
    let first = courier.good();
    let (right, strange) = (courier.signature_of(&first), courier.signature_of_a_stranger(&first));
    let first = Letter { signature: Some(half(&right).0.to_owned() + half(&strange).1), ..first };
    let last = courier.good();
    let (right, strange) = (courier.signature_of(&last), courier.signature_of_a_stranger(&last));
    let last = Letter { signature: Some(half(&strange).0.to_owned() + half(&right).1), ..last };
    let halves = [("first half right:", courier.bring(&first).await), ("last half right:", courier.bring(&last).await)];
    let cut = |characters: fn(&str) -> &str| {
        let letter = courier.good();
        Letter { signature: Some(characters(&courier.signature_of(&letter)).to_owned()), ..letter }
    };
    let (to_half, to_few, to_nothing) = (cut(|whole| half(whole).0), cut(|whole| &whole[..FEW]), cut(|_| ""));
    let short = [
        ("half:", courier.bring(&to_half).await),
        ("a few characters:", courier.bring(&to_few).await),
        ("empty:", courier.bring(&to_nothing).await),
    ];
    let wrong = courier.good();
    let (one, other) = (courier.signature_of_a_stranger(&wrong), courier.signature_of_a_stranger(&wrong));
    let wrong = Letter { signature: Some(one), signature_next: Some(other), ..wrong };
    vec![
        HALF.must_refuse_each(&halves),
        SHORT.must_refuse_each(&short),
        WRONG_NEXT.must_refuse(&courier.bring(&wrong).await),
    ]
}

async fn bodies(courier: &Courier) -> Vec<Finding> {
    let good = courier.good();
    let tampered = Letter { body: replaced(&good.body, "12.50", "92.50"), ..good };
    let good = courier.good();
    let respaced = Letter { body: replaced(&good.body, ",\"bizId\":", ", \"bizId\": "), ..good };
    let unusual = courier.letter(unusual(&courier.body(&courier.biz_id(), &spoken(1))));
    let letter = courier.good();
    let begun = Letter { signature_next: Some(courier.signature_of_a_stranger(&letter)), ..letter };
    let letter = courier.good();
    let rotated = Letter {
        signature: Some(courier.signature_of_a_stranger(&letter)),
        signature_next: letter.signature.clone(),
        ..letter
    };
    vec![
        TAMPERED.must_refuse(&courier.bring(&tampered).await),
        RESPACED.must_refuse(&courier.bring(&respaced).await),
        UNUSUAL.must_take(&courier.bring(&unusual).await),
        ROTATION.had_better_take(&courier.bring(&rotated).await),
        ROTATION_BEGINS.must_take(&courier.bring(&begun).await),
    ]
}

async fn times(courier: &Courier) -> Vec<Finding> {
    let old = courier.signed_at(courier.good(), -HOUR_MS);
    let restamped = Letter { timestamp: courier.good().timestamp, ..old };
    let stale = courier.signed_at(courier.good(), -HOUR_MS);
    let future = courier.signed_at(courier.good(), HOUR_MS);
    vec![
        RESTAMPED.must_refuse(&courier.bring(&restamped).await),
        STALE.must_refuse(&courier.bring(&stale).await),
        FUTURE.must_refuse(&courier.bring(&future).await),
    ]
}

async fn repetitions(courier: &Courier) -> Vec<Finding> {
    let good = courier.good();
    let taken = courier.bring(&good).await;
    let replayed = Letter { event_id: courier.good().event_id, ..good.clone() };
    let replayed = courier.bring(&replayed).await;
    let again = courier.bring(&courier.signed(Letter { attempt: 2, ..good.clone() })).await;
    let reflected = courier.good();
    let nonce = reflected.nonce.trim_start_matches("callback").to_owned();
    let reflected = courier.bring(&courier.with_signature(Letter { nonce, ..reflected })).await;
    let duplicate = if taken.is_taken() { DUPLICATE.must_take(&again) } else { DUPLICATE.must_take(&taken) };
    // A replay of what was not taken is no replay.
    let replayed = if taken.is_taken() {
        REPLAYED.must_refuse(&replayed)
    } else {
        REPLAYED.found(Verdict::Untold, format!("not told: the first time {}", taken.told()))
    };
    vec![
        replayed,
        Box::pin(at_once(courier)).await,
        REFLECTED.must_refuse(&reflected),
        duplicate,
        out_of_order(courier).await,
    ]
}

/// Whoever takes none of them is too busy to be told apart.
const fn once_at_most(taken: usize, unreached: usize) -> Verdict {
    match (taken, unreached) {
        (0, 0) => Verdict::Advice,
        (1, 0) => Verdict::Pass,
        (0 | 1, _) => Verdict::Untold,
        _ => Verdict::Fail,
    }
}

async fn at_once(courier: &Courier) -> Finding {
    let one = courier.good();
    let letters: [Letter; AT_ONCE] =
        std::array::from_fn(|_| Letter { event_id: courier.good().event_id, ..one.clone() });
    let [a, b, c, d] = letters.each_ref().map(|letter| courier.bring(letter));
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    let all = [a, b, c, d];
    let taken = all.iter().filter(|reaction| reaction.is_taken()).count();
    let unreached = all.iter().filter(|reaction| reaction.is_unreached()).count();
    let missed = if unreached == 0 { String::new() } else { format!(", {unreached} did not reach the receiver") };
    REPLAYED_AT_ONCE.found(once_at_most(taken, unreached), format!("{taken} of {AT_ONCE} taken{missed}"))
}

/// The later one may be put off until the earlier one has come.
async fn out_of_order(courier: &Courier) -> Finding {
    let biz_id = courier.biz_id();
    let first = courier.letter(courier.body(&biz_id, r#"{"status":"PROCESS"}"#));
    let second = Letter { sequence: Some(2), ..courier.letter(courier.body(&biz_id, r#"{"status":"SUCCESS"}"#)) };
    let early = courier.bring(&second).await;
    let first = courier.bring(&first).await;
    let again = courier.bring(&courier.signed(Letter { attempt: 2, ..second })).await;
    let is_answered = matches!(early, Reaction::Taken { .. } | Reaction::NotTaken(_));
    let all_right = first.is_taken() && again.is_taken() && is_answered;
    OUT_OF_ORDER.found(
        if all_right { Verdict::Pass } else { Verdict::Fail },
        format!("the second {}; the first {}; the second again {}", early.told(), first.told(), again.told()),
    )
}

async fn contents(courier: &Courier) -> Vec<Finding> {
    let good = courier.good();
    let unknown = courier.letter(replaced(&good.body, "PAYMENT_ORDER", "KIND_OF_TOMORROW"));
    let slow = courier.letter(courier.body(&courier.biz_id(), &spoken(200)));
    let large = courier.letter(courier.body(&courier.biz_id(), &padded(LARGE_BYTES)));
    let huge = Letter { body: vec![b'x'; HUGE_BYTES], ..courier.good() };
    let mut findings = vec![
        UNKNOWN.had_better_take(&courier.bring(&unknown).await),
        SLOW.must_take(&courier.bring_slowly(&slow, SLOW_PIECES, SLOW_PAUSE).await),
        LARGE.must_take(&courier.bring(&large).await),
    ];
    let huge = courier.bring(&huge).await;
    // Closing the connection on it is a good answer; being gone afterwards is not.
    let alive = courier.bring(&courier.good()).await;
    let verdict = if alive.is_taken() { refused(std::slice::from_ref(&huge)) } else { Verdict::Fail };
    findings.push(HUGE.found(verdict, format!("{}; the good one after it {}", huge.told(), alive.told())));
    findings
}

fn replaced(body: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(body);
    assert!(text.contains(from), "a callback holds {from}");
    text.replace(from, to).into_bytes()
}

/// Both halves of what is written in ASCII.
fn half(signature: &str) -> (&str, &str) {
    signature.split_at(signature.len() / 2)
}

/// The same JSON as a person or another library might write it.
fn unusual(body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(body).replace("\",\"", "\" ,\n  \"").replace("SUCCESS", "SU\\u0043CESS");
    text.into_bytes()
}

/// Words of people, again and again.
fn spoken(times: usize) -> String {
    format!(r#"{{"status":"SUCCESS","goodsName":"{}"}}"#, "Caf\u{e9} \u{1f600} ".repeat(times))
}

fn padded(bytes: usize) -> String {
    format!(r#"{{"status":"SUCCESS","note":"{}"}}"#, "n".repeat(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_at_once_is_good_none_tells_nothing_and_two_are_one_too_many() {
        let verdict = |taken| once_at_most(taken, 0);
        assert_eq!([0, 1, 2].map(verdict), [Verdict::Advice, Verdict::Pass, Verdict::Fail]);
    }

    #[test]
    fn what_did_not_reach_the_receiver_is_told_neither_way() {
        let silent = || Reaction::Silent("closed".to_owned());
        let unreached = || Reaction::Unreached("refused".to_owned());
        let taken = || Reaction::Taken { took: Duration::ZERO };
        assert_eq!(STALE.must_refuse(&silent()).verdict, Verdict::Pass);
        assert_eq!(STALE.must_refuse(&unreached()).verdict, Verdict::Untold);
        assert_eq!(HALF.must_refuse_each(&[("a", silent()), ("b", unreached())]).verdict, Verdict::Untold);
        assert_eq!(HALF.must_refuse_each(&[("a", taken()), ("b", unreached())]).verdict, Verdict::Fail);
        assert_eq!(ROTATION.had_better_take(&unreached()).verdict, Verdict::Untold);
        assert_eq!(ROTATION.had_better_take(&silent()).verdict, Verdict::Advice);
        assert_eq!(GOOD.must_take(&unreached()).verdict, Verdict::Fail);
        assert_eq!([0, 1, 2].map(|taken| once_at_most(taken, 1)), [Verdict::Untold, Verdict::Untold, Verdict::Fail]);
    }

    #[test]
    fn the_page_for_operators_lists_every_check() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/OPERATING.md");
        let page = std::fs::read_to_string(page).expect("docs/OPERATING.md is there");
        let named = |name: &str| page.lines().filter(|line| line.starts_with(&format!("| `{name}` |"))).count();
        for check in std::iter::once(&GOOD).chain(BEYOND_GOOD) {
            assert_eq!(named(check.name), 1, "{}", check.name);
        }
        let count = format!("{} checks", BEYOND_GOOD.len() + 1);
        assert!(page.contains(&count), "{count}");
    }
}
