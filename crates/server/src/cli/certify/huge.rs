//! What a receiver does with more than any callback has: whether it outlives it, and whether it stops before it has read it all.
//!
//! From outside nobody sees what a receiver holds in its memory. What shows is when it answers: whoever has taken all of a body before
//! it says a word had no bound that this body is above. Buffers on the way take some MB at most, so one that stops early never gets all.

use std::time::Duration;

use super::super::courier::pieces::{Length, Pieces, Sent};
use super::super::courier::{Courier, Letter, Reaction};
use super::catalogue::HUGE;
use super::patience::{in_the_end, until_judged};
use super::{Finding, Verdict};

const MIB: usize = 1024 * 1024;
/// A body that no genuine callback has, and several times what buffers on the way can hold.
const BYTES: usize = 16 * MIB;
const PIECES: usize = 64;
/// An answer that is under way gets here before the rest has gone: in the 200 ms that it may take from the other side of the earth
/// some 2 MiB go out at most.
const PAUSE: Duration = Duration::from_millis(25);

/// Each has receivers that have a bound for the other alone.
const FORMS: [(&str, Length); 2] = [("with its length", Length::Stated), ("in chunks", Length::Unstated)];

pub(super) async fn found(courier: &Courier) -> Finding {
    let mut came = Vec::with_capacity(FORMS.len());
    for (form, length) in FORMS {
        let pieces = Pieces { count: PIECES, pause: PAUSE, length };
        let mut sent = Sent::Before(0);
        let bring = async || {
            let letter = Letter { body: vec![b'x'; BYTES], ..courier.good() };
            let (reaction, so_far) = courier.bring_in_pieces(&letter, pieces).await;
            sent = so_far;
            reaction
        };
        let reaction = until_judged(bring).await;
        came.push((form, reaction, sent));
    }
    let alive = in_the_end(courier, || courier.good()).await;
    judged(&came, &alive)
}

/// Closing the connection on it is a good answer; being gone afterwards is not, unless it was before. What was put off each time says nothing: it
/// may have come from a limit that lets others have all of it.
fn judged(came: &[(&str, Reaction, Sent)], alive: &Reaction) -> Finding {
    let is_any = |is: fn(&Reaction) -> bool| came.iter().any(|(_, reaction, _)| is(reaction));
    let was_away = alive.is_unreached() && came.iter().all(|(_, reaction, _)| reaction.is_unreached());
    let verdict = if is_any(Reaction::is_taken) {
        Verdict::Fail
    } else if was_away || alive.is_busy() {
        Verdict::Untold
    } else if !alive.is_taken() {
        Verdict::Fail
    } else if is_any(Reaction::is_unreached) || is_any(Reaction::is_busy) {
        Verdict::Untold
    } else if came.iter().all(|(_, _, sent)| is_bounded(*sent)) {
        Verdict::Pass
    } else {
        Verdict::Advice
    };
    let told = came.iter().map(|(form, reaction, sent)| match reaction {
        Reaction::Unreached(_) => format!("{form}: {}", reaction.told()),
        Reaction::Taken { .. }
        | Reaction::NotTaken(_)
        | Reaction::Busy { .. }
        | Reaction::Silent(_)
        | Reaction::Late(_) => {
            format!("{form}: {}, when {} had been sent", reaction.told(), amount(*sent))
        }
    });
    let told = told.collect::<Vec<_>>().join("; ");
    HUGE.found(verdict, format!("{told}; the good one after it {}", alive.told()))
}

/// Whether it stopped before it had all. Whoever neither answers nor closes has not shown it.
const fn is_bounded(sent: Sent) -> bool {
    match sent {
        Sent::Before(bytes) => bytes < BYTES,
        Sent::Unheard(_) => false,
    }
}

fn amount(sent: Sent) -> String {
    let (Sent::Before(bytes) | Sent::Unheard(bytes)) = sent;
    if bytes >= BYTES {
        return format!("all {} MiB", BYTES / MIB);
    }
    format!("{}.{} of {} MiB", bytes / MIB, bytes % MIB * 10 / MIB, BYTES / MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Sent = Sent::Before(BYTES);
    const PART: Sent = Sent::Before(BYTES - 1);

    fn refusal() -> Reaction {
        Reaction::NotTaken("status 413".to_owned())
    }

    fn closing() -> Reaction {
        Reaction::Silent("broke off".to_owned())
    }

    fn late() -> Reaction {
        Reaction::Late("the deadline passed".to_owned())
    }

    fn taken() -> Reaction {
        Reaction::Taken { took: Duration::ZERO }
    }

    fn unreached() -> Reaction {
        Reaction::Unreached("refused".to_owned())
    }

    fn busy() -> Reaction {
        Reaction::Busy { what: "status 503".to_owned(), retry_after: None }
    }

    #[test]
    fn whoever_has_all_before_it_answers_is_advised_and_who_stops_before_it_passes() {
        let verdict = |one: (Reaction, Sent), other: (Reaction, Sent), alive: Reaction| {
            judged(&[("a", one.0, one.1), ("b", other.0, other.1)], &alive).verdict
        };
        let table = [
            ((refusal(), PART), (refusal(), PART), taken(), Verdict::Pass),
            ((closing(), PART), (refusal(), Sent::Before(0)), taken(), Verdict::Pass),
            ((refusal(), ALL), (refusal(), PART), taken(), Verdict::Advice),
            ((refusal(), PART), (refusal(), ALL), taken(), Verdict::Advice),
            ((closing(), ALL), (closing(), ALL), taken(), Verdict::Advice),
            ((refusal(), PART), (late(), Sent::Unheard(MIB)), taken(), Verdict::Advice),
            ((taken(), PART), (refusal(), ALL), taken(), Verdict::Fail),
            ((refusal(), PART), (unreached(), Sent::Before(0)), taken(), Verdict::Untold),
            ((refusal(), ALL), (unreached(), Sent::Before(0)), taken(), Verdict::Untold),
            ((refusal(), PART), (refusal(), PART), refusal(), Verdict::Fail),
            ((refusal(), ALL), (refusal(), ALL), unreached(), Verdict::Fail),
            ((refusal(), ALL), (unreached(), Sent::Before(0)), unreached(), Verdict::Fail),
            ((unreached(), Sent::Before(0)), (unreached(), Sent::Before(0)), unreached(), Verdict::Untold),
            ((busy(), PART), (busy(), PART), taken(), Verdict::Untold),
            ((busy(), PART), (refusal(), PART), taken(), Verdict::Untold),
            ((busy(), PART), (refusal(), ALL), taken(), Verdict::Untold),
            ((busy(), PART), (taken(), PART), taken(), Verdict::Fail),
            ((busy(), PART), (refusal(), PART), refusal(), Verdict::Fail),
            ((busy(), PART), (refusal(), PART), unreached(), Verdict::Fail),
            ((refusal(), PART), (refusal(), PART), busy(), Verdict::Untold),
            ((refusal(), PART), (taken(), PART), busy(), Verdict::Fail),
        ];
        for (row, (one, other, alive, wanted)) in table.into_iter().enumerate() {
            assert_eq!(verdict(one, other, alive), wanted, "row {row}");
        }
    }

    #[test]
    fn what_came_says_how_much_had_been_sent() {
        let came = [
            ("with its length", refusal(), Sent::Before(BYTES / 4 + MIB / 2)),
            ("in chunks", closing(), ALL),
            ("again", unreached(), Sent::Before(0)),
        ];
        assert_eq!(
            judged(&came, &taken()).came,
            "with its length: not taken: status 413, when 4.5 of 16 MiB had been sent; \
             in chunks: no answer: broke off, when all 16 MiB had been sent; again: not reached: refused; \
             the good one after it taken: SUCCESS after 0 ms"
        );
        assert_eq!([PART, Sent::Unheard(BYTES)].map(amount), ["15.9 of 16 MiB", "all 16 MiB"]);
    }
}
