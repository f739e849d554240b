//! What comes more than once, turned round, or in another order than it happened.

use std::time::Duration;

use countersign_domain::payment_order::PaymentStatus;
use countersign_protocol::headers::{NONCE_CHARS_MAX, RESERVED_NONCE_PREFIX};
use countersign_protocol::signing::Encoding;

use super::super::courier::{Courier, Letter, Reaction};
use super::catalogue::{DUPLICATE, HANGS, NEVER_FIRST, OUT_OF_ORDER, REFLECTED, REPLAYED, REPLAYED_AT_ONCE};
use super::checks::Findings;
use super::patience::{in_the_end, judged_letter, until_judged};
use super::{Finding, Verdict};

/// So many send the same request at once.
const AT_ONCE: usize = 4;
/// Where fewer were judged, nobody can tell whether a second one would have been taken.
const JUDGED_MIN: usize = 2;
/// How long those that come at once wait before they come again, where some were put off.
const PUT_OFF: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

pub(super) async fn all(courier: &Courier, findings: &mut Findings<'_>) {
    let (good, taken) = judged_letter(courier, || courier.good()).await;
    // A replay of what was not taken is no replay.
    findings.push(if taken.is_taken() {
        Box::pin(replayed(courier, &good)).await
    } else {
        REPLAYED.found(Verdict::Untold, format!("not told: the first time {}", taken.told()))
    });
    let again = in_the_end(courier, || courier.signed(Letter { attempt: 2, ..good.clone() })).await;
    findings.push(DUPLICATE.must_take(if taken.is_taken() { &again } else { &taken }));
    findings.push(Box::pin(at_once(courier)).await);
    findings.push(REFLECTED.must_refuse_each(&[
        ("with a sign that no nonce has:", in_the_end(courier, || reflected(courier, with_a_strange_sign)).await),
        ("longer than any nonce:", in_the_end(courier, || reflected(courier, too_long)).await),
    ]));
    findings.push(out_of_order(courier).await);
    if !courier.tells_of_one_order() {
        findings.push(never_first(courier).await);
    }
}

/// A request that is none of a callback. Method and path are not signed: as one's own request, with one's own secret, it could be sent to the server
/// by whoever sees it. So its nonce is one that the server takes from nobody, for its signs or for its length. A receiver that refuses both for that passes,
/// however it goes on: nothing that the server would take may show it.
fn reflected(courier: &Courier, nonce_of: fn(&str) -> String) -> Letter {
    let good = courier.good();
    let nonce = nonce_of(good.nonce.trim_start_matches(RESERVED_NONCE_PREFIX));
    courier.with_signature(Letter { nonce, ..good })
}

fn with_a_strange_sign(nonce: &str) -> String {
    format!("{nonce}~")
}

fn too_long(nonce: &str) -> String {
    nonce.chars().cycle().take(NONCE_CHARS_MAX + 1).collect()
}

/// The same once more, and with its signature as others write it: a receiver that knows requests by that header does not know them again.
async fn replayed(courier: &Courier, good: &Letter) -> Finding {
    let encoding = courier.encoding();
    let other = match encoding {
        Encoding::Hex => Encoding::Base64,
        Encoding::Base64 => Encoding::Hex,
    };
    let again = || Letter { event_id: courier.good().event_id, ..good.clone() };
    let otherwise = Letter { signature: good.signature.as_deref().map(|it| respelled(it, encoding)), ..again() };
    let encoded = courier.spelled(again(), other, |_| {});
    let next = Letter {
        signature: Some(courier.signature_of_a_stranger(good)),
        signature_next: good.signature.clone(),
        ..again()
    };
    REPLAYED.must_refuse_each(&[
        ("as it was:", in_the_end(courier, again).await),
        ("its signature spelled otherwise:", in_the_end(courier, || otherwise.clone()).await),
        ("in the other encoding:", in_the_end(courier, || encoded.clone()).await),
        ("in Signature-Next:", in_the_end(courier, || next.clone()).await),
    ])
}

/// Another text that a lenient reader takes for the same signature: hex in upper case, Base64 with a bit under its padding.
fn respelled(signature: &str, encoding: Encoding) -> String {
    match (encoding, signature.strip_suffix("==").and_then(|rest| rest.split_at_checked(rest.len() - 1))) {
        // Its last character carries two bits, the upper ones of six: A, Q, g or w.
        (Encoding::Base64, Some((rest, last))) => {
            let next: String = last.chars().map(|it| char::from_u32(u32::from(it) + 1).unwrap_or(it)).collect();
            format!("{rest}{next}==")
        }
        _ => signature.to_ascii_uppercase(),
    }
}

/// Whoever takes none of them is too busy to be told apart; and so is whoever has judged one alone.
fn once_at_most(reactions: &[Reaction]) -> Finding {
    let count = |is: fn(&Reaction) -> bool| reactions.iter().filter(|reaction| is(reaction)).count();
    let (taken, late) = (count(Reaction::is_taken), count(Reaction::is_late));
    let (unreached, busy) = (count(Reaction::is_unreached), count(Reaction::is_busy));
    let judged = reactions.len() - unreached - busy;
    let verdict = if taken > 1 || late > 0 {
        Verdict::Fail
    } else if unreached > 0 || judged < JUDGED_MIN {
        Verdict::Untold
    } else if taken == 0 {
        Verdict::Advice
    } else {
        Verdict::Pass
    };
    let mut said = vec![format!("{taken} of {} taken", reactions.len())];
    let more = [(late, "got no answer in time"), (unreached, "did not reach the receiver"), (busy, "put off")];
    said.extend(more.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")));
    let finding = REPLAYED_AT_ONCE.found(verdict, said.join(", "));
    if taken <= 1 && late > 0 { Finding { why: HANGS, ..finding } } else { finding }
}

async fn at_once(courier: &Courier) -> Finding {
    let copies = || copies(courier);
    let (mut letters, mut reactions) = all_at_once(courier, copies()).await;
    // Where some were put off for another reason, nobody knows what would have become of them: once more, after a pause.
    for pause in PUT_OFF {
        if !reactions.iter().any(Reaction::is_busy)
            || reactions.iter().filter(|reaction| reaction.is_taken()).count() > 1
        {
            break;
        }
        tokio::time::sleep(pause).await;
        (letters, reactions) = all_at_once(courier, copies()).await;
    }
    // Where as many different ones are not put off, it is for the nonce that these were: somebody else has it in hand. What becomes of them is seen later.
    let is_for_the_nonce = reactions.iter().any(Reaction::is_busy) && {
        let different = std::array::from_fn(|_| courier.good());
        !all_at_once(courier, different).await.1.iter().any(Reaction::is_busy)
    };
    if is_for_the_nonce {
        for (letter, reaction) in letters.iter().zip(&mut reactions).filter(|(_, reaction)| reaction.is_busy()) {
            *reaction = until_judged(async || courier.bring(letter).await).await;
        }
    }
    once_at_most(&reactions)
}

/// One request under several event ids.
fn copies(courier: &Courier) -> [Letter; AT_ONCE] {
    let one = courier.good();
    std::array::from_fn(|_| Letter { event_id: courier.good().event_id, ..one.clone() })
}

async fn all_at_once(courier: &Courier, letters: [Letter; AT_ONCE]) -> ([Letter; AT_ONCE], [Reaction; AT_ONCE]) {
    let [a, b, c, d] = letters.each_ref().map(|letter| courier.bring(letter));
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    (letters, [a, b, c, d])
}

/// The later one may be put off until the earlier one has come.
async fn out_of_order(courier: &Courier) -> Finding {
    let order = courier.order();
    let letter = |status| courier.letter(courier.body(&order, status).to_bytes());
    let first = letter(PaymentStatus::Process);
    let second = Letter { sequence: Some(2), ..letter(PaymentStatus::Paid) };
    let early = in_the_end(courier, || courier.signed(second.clone())).await;
    let first = in_the_end(courier, || courier.signed(first.clone())).await;
    let again = in_the_end(courier, || courier.signed(Letter { attempt: 2, ..second.clone() })).await;
    let is_answered = early.is_taken() || early.is_not_taken();
    let verdict = if first.is_taken() && again.is_taken() && is_answered {
        Verdict::Pass
    } else if [&early, &first, &again].into_iter().any(Reaction::is_unreached)
        || [&first, &again].into_iter().any(Reaction::is_busy)
    {
        Verdict::Untold
    } else {
        Verdict::Fail
    };
    OUT_OF_ORDER.found(
        verdict,
        format!("the second {}; the first {}; the second again {}", early.told(), first.told(), again.told()),
    )
}

/// The first one is given up, or waits for somebody to send it again: nothing but the second comes.
async fn never_first(courier: &Courier) -> Finding {
    let second = Letter { sequence: Some(2), ..courier.good() };
    let early = courier.bring(&second).await;
    if !early.is_not_taken() {
        return NEVER_FIRST.had_better_take(&early);
    }
    let again = in_the_end(courier, || courier.signed(Letter { attempt: 2, ..second.clone() })).await;
    // Whoever puts it off for ever does so for the first one's sake.
    let finding = match &again {
        Reaction::Busy { .. } => NEVER_FIRST.found(Verdict::Advice, ""),
        _ => NEVER_FIRST.had_better_take(&again),
    };
    Finding { came: format!("the second {}; the second again {}", early.told(), again.told()), ..finding }
}

#[cfg(test)]
mod tests;
