//! The checks of a receiver: what each sends, and what goes wrong with a receiver that does otherwise.

use super::super::courier::Reaction;
use super::{Finding, Verdict};

/// Characters of the longest name.
pub(super) const NAME_CHARS_MAX: usize = 18;

/// What is known about a check before it is done.
#[derive(Clone, Copy)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) sent: &'static str,
    pub(super) why: &'static str,
}

impl Check {
    pub(super) fn found(self, verdict: Verdict, came: impl Into<String>) -> Finding {
        Finding { check: self.name, verdict, sent: self.sent, came: came.into(), why: self.why, mistake: None }
    }

    pub(super) fn must_take(self, reaction: &Reaction) -> Finding {
        let verdict = match reaction {
            _ if reaction.is_delivered() => Verdict::Pass,
            // It was asked again, and was busy each time.
            Reaction::Busy { .. } | Reaction::Unreached(_) => Verdict::Untold,
            Reaction::Taken { .. } | Reaction::NotTaken(_) | Reaction::Silent(_) | Reaction::Late(_) => Verdict::Fail,
        };
        self.found(verdict, reaction.told())
    }

    pub(super) fn must_refuse(self, reaction: &Reaction) -> Finding {
        self.refused(std::slice::from_ref(reaction), reaction.told())
    }

    /// What is wrong with one that was not refused in time is another thing than with one that was taken.
    fn refused(self, reactions: &[Reaction], came: String) -> Finding {
        let finding = self.found(refused(reactions), came);
        if reactions.iter().any(Reaction::is_taken) || !reactions.iter().any(Reaction::is_late) {
            return finding;
        }
        Finding { why: HANGS, ..finding }
    }

    /// Each of them, under a name of its own.
    pub(super) fn must_refuse_each(self, reactions: &[(&str, Reaction)]) -> Finding {
        let all: Vec<Reaction> = reactions.iter().map(|(_, reaction)| reaction.clone()).collect();
        let told = match all.split_first() {
            Some((first, rest)) if !rest.is_empty() && rest.iter().all(|other| other == first) => {
                format!("all {}: {}", all.len(), first.told())
            }
            _ => {
                let each = reactions.iter().map(|(what, reaction)| format!("{what} {}", reaction.told()));
                each.collect::<Vec<_>>().join("; ")
            }
        };
        self.refused(&all, told)
    }

    pub(super) fn had_better_take(self, reaction: &Reaction) -> Finding {
        let verdict = match reaction {
            Reaction::Taken { .. } => Verdict::Pass,
            Reaction::Busy { .. } | Reaction::Unreached(_) => Verdict::Untold,
            Reaction::NotTaken(_) | Reaction::Silent(_) | Reaction::Late(_) => Verdict::Advice,
        };
        self.found(verdict, reaction.told())
    }
}

/// Of a receiver that gives a bad callback no answer in time.
pub(super) const HANGS: &str = "a verifier refuses at once: whoever hangs on what nobody signed lets anybody hold its workers, and may have believed it";

/// Where none of them may be taken. What did not reach the receiver was not refused by it, nor what it has put off each time, nor what it has not answered.
pub(super) fn refused(reactions: &[Reaction]) -> Verdict {
    if reactions.iter().any(|reaction| reaction.is_taken() || reaction.is_late()) {
        Verdict::Fail
    } else if reactions.iter().any(|reaction| reaction.is_unreached() || reaction.is_busy()) {
        Verdict::Untold
    } else {
        Verdict::Pass
    }
}

pub(super) const GOOD: Check = Check {
    name: "good",
    sent: "a callback as the server sends it",
    why: "only HTTP 2xx with a JSON object whose returnCode is exactly SUCCESS, within 15 s, counts as delivered; anything else is sent again for days, then given up; 410 disables the callbacks until the operator enables them. \
          Where the signature is what the receiver refuses, the worked example of docs/PROTOCOL.md needs no server",
};
pub(super) const PROMPTLY: Check = Check {
    name: "prompt",
    sent: "a callback as the server sends it",
    why: "the server waits 15 s in all; answer first and work afterwards, or a busy day makes every callback fail",
};
pub(super) const UNSIGNED: Check = Check {
    name: "no-signature",
    sent: "a callback without its signature header",
    why: "anybody who knows the URL could report payments that nobody made",
};
pub(super) const STRANGER: Check = Check {
    name: "wrong-secret",
    sent: "a callback signed with another secret",
    why: "anybody who knows the URL could report payments that nobody made",
};
pub(super) const UNSET_SECRET: Check = Check {
    name: "unset-secret",
    sent: "callbacks signed, in the headers Signature and Signature-Next, with what a variable that is not set becomes: an empty text, undefined, null, None",
    why: "a variable that is not set, such as that of an old secret when none is being replaced, becomes a secret that everybody knows, and anybody could report payments that nobody made; refuse to start without a secret, and leave an empty second one out",
};
pub(super) const PARTLY: Check = Check {
    name: "part-signature",
    sent: "callbacks with a signature that is right but for its first digit, right but for its last one, or right with its halves swapped",
    why: "a signature of which only a part is compared, or its digits in any order, can be found by trying, and that much sooner; compare all 64 bytes, in constant time",
};
pub(super) const SHORT: Check = Check {
    name: "short-signature",
    sent: "callbacks with a right signature that is cut: to its first half, to its first characters, to nothing",
    why: "a receiver that compares as much as was sent takes one character for a signature, which anybody guesses, or none at all; demand all 64 bytes",
};
pub(super) const WRONG_NEXT: Check = Check {
    name: "wrong-next",
    sent: "a callback signed with another secret, in the header Signature-Next, too",
    why: "anybody can send the header of a rotation; it counts only where its signature is right",
};
pub(super) const TAMPERED: Check = Check {
    name: "tampered-body",
    sent: "a callback whose amount was changed after it was signed",
    why: "whoever stands between could turn a payment of 1 into one of 1,000",
};
pub(super) const RESPACED: Check = Check {
    name: "respaced-body",
    sent: "callbacks that got something after they were signed that a reader may drop: white space within the body, before it, behind it, and a byte that is no UTF-8",
    why: "a receiver that parses the body and writes it anew, strips it, or drops what it cannot read, before it checks the signature checks its own text, not what came; verify the raw bytes",
};
pub(super) const UNUSUAL: Check = Check {
    name: "raw-bytes",
    sent: "a good callback whose JSON is spaced and escaped in an unusual, but correct way, with letters beyond ASCII, in pieces that cut letters in two",
    why: "the signature covers the bytes as they came, which are UTF-8; a receiver that parses the body and writes it anew, reads it in another charset, or makes a text of each piece by itself refuses good callbacks",
};
pub(super) const LOWER_CASE: Check = Check {
    name: "lower-case",
    sent: "a good callback whose header names are written in lower case",
    why: "letter case of header names never matters in HTTP: proxies and HTTP/2 write them in lower case, and a receiver that looks for one spelling alone refuses every callback from the day on which such a one stands before it",
};
pub(super) const RESTAMPED: Check = Check {
    name: "tampered-timestamp",
    sent: "a callback of an hour ago whose timestamp header was set to now",
    why: "whoever once recorded a callback could make it look new; sign timestamp and nonce with the body",
};
pub(super) const STALE: Check = Check {
    name: "stale",
    sent: "callbacks that were signed an hour ago and ten minutes ago",
    why: "without a look at the timestamp a recorded callback can be sent again for ever; refuse what is more than 5 minutes away",
};
pub(super) const FUTURE: Check = Check {
    name: "future",
    sent: "callbacks that are stamped an hour and ten minutes ahead",
    why: "it could be kept and sent when nonces of today are forgotten; refuse what is more than 5 minutes away",
};
pub(super) const REPLAYED: Check = Check {
    name: "replayed",
    sent: "the very same signed request again under other event ids: as it was, with its signature in another spelling, in the other encoding, in the header Signature-Next",
    why: "neither the event id nor the way in which a signature is written is covered by the signature, so remembering them does not stop a replay; remember nonces for as long as timestamps are accepted",
};
pub(super) const REPLAYED_AT_ONCE: Check = Check {
    name: "replayed-at-once",
    sent: "the very same signed request four times at the same moment, under four event ids",
    why: "a receiver that looks a nonce up and notes it later has a gap between the two, which several requests fit through; note it in one step that only the first can do, such as a unique key",
};
pub(super) const REFLECTED: Check = Check {
    name: "reflected",
    sent: "well-signed requests whose nonce does not begin with \"callback\"",
    why: "one's own requests to the API carry the same kind of signature; turned round, they would pass for callbacks",
};
pub(super) const DUPLICATE: Check = Check {
    name: "duplicate",
    sent: "an event that was taken already, as a second attempt",
    why: "an answer can be lost; the event then comes again, and a receiver that does not answer SUCCESS gets it for days. Process it once, acknowledge it each time",
};
pub(super) const OUT_OF_ORDER: Check = Check {
    name: "out-of-order",
    sent: "the second event of an order, then the first, then the second again",
    why: "after a long outage a later event can come first; a receiver that never takes it blocks the order",
};
pub(super) const NEVER_FIRST: Check = Check {
    name: "first-missing",
    sent: "the second event of an order whose first one never comes, and the same again if it was not taken",
    why: "the first event can have been given up, or wait for the operator for longer than the second waits for it; a receiver that insists on it gets none of what comes after it either, until all of that is given up, too",
};
pub(super) const UNKNOWN: Check = Check {
    name: "unknown-kind",
    sent: "a good callback of a bizType that nobody knows yet",
    why: "new kinds come with new versions; acknowledge what you do not use, or it is sent again for days",
};
pub(super) const ROTATION: Check = Check {
    name: "rotation",
    sent: "a callback signed with a secret you do not have, and with yours in the header Signature-Next",
    why: "while a secret is rotated both sign; a receiver that looks at both headers can switch at any moment of the overlap",
};
pub(super) const ROTATION_BEGINS: Check = Check {
    name: "rotation-begins",
    sent: "a callback signed with your secret, and with one you do not have in the header Signature-Next",
    why: "that is what comes from the moment in which a new secret is made; a receiver that goes by the second header alone refuses every callback of a rotation",
};
pub(super) const SLOW: Check = Check {
    name: "slow",
    sent: "a good callback whose body takes some seconds to arrive",
    why: "lines are slow at times; a limit of one or two seconds turns that into failed callbacks",
};
pub(super) const LARGE: Check = Check {
    name: "large",
    sent: "a good callback with 64 KiB of data that has many quotes: some 128 KiB, since each is escaped once more",
    why: "data has no fixed length; a receiver with a small limit, such as 100 KB, fails for the largest orders only",
};
pub(super) const HUGE: Check = Check {
    name: "huge",
    sent: "16 MiB that nobody signed, some at a time: once with their length in the head, once in chunks without one; then a good callback",
    why: "a receiver that reads all that comes before it checks anything lets anybody fill its memory, and some such requests at the same moment stop it. \
          Read up to a bound such as 1 MiB, whatever length is stated or none; beyond it answer 413 at once and leave the rest unread, and let what stands before the receiver do so, too",
};

/// The checks that mean something only for a receiver that takes good callbacks.
pub(super) const BEYOND_GOOD: &[Check] = &[
    PROMPTLY,
    UNSIGNED,
    STRANGER,
    UNSET_SECRET,
    PARTLY,
    SHORT,
    WRONG_NEXT,
    TAMPERED,
    RESPACED,
    UNUSUAL,
    LOWER_CASE,
    ROTATION,
    ROTATION_BEGINS,
    RESTAMPED,
    STALE,
    FUTURE,
    REPLAYED,
    DUPLICATE,
    REPLAYED_AT_ONCE,
    REFLECTED,
    OUT_OF_ORDER,
    NEVER_FIRST,
    UNKNOWN,
    SLOW,
    LARGE,
    HUGE,
];
