//! How much of answers is kept. Merchants decide how long theirs are, and the disk is everybody's: what goes beyond a small part of each answer is
//! bounded for each application.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use countersign_domain::ids::ApplicationNo;
use countersign_store::attempt_log::AttemptBytes;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Of a head, and of a body, this much is kept in any case, in bytes.
const ALWAYS_BYTES: usize = 1024;
/// What an application's answers may go beyond that, in bytes: in a second, and all at once.
const FURTHER_BYTES_PER_S: NonZeroU32 = NonZeroU32::new(4 * 1024).expect("not 0");
const FURTHER_BYTES_AT_ONCE: NonZeroU32 = NonZeroU32::new(4 * 1024 * 1024).expect("not 0");
/// With so many applications those whose quota is whole again are forgotten.
const KNOWN_MAX: usize = 10_000;
/// Long answers between two looks whether any can be forgotten.
const LOOK_EACH: u64 = 1_024;

/// What the answers of all applications may take.
#[derive(Debug)]
pub(super) struct AnswerQuotas {
    further: DefaultKeyedRateLimiter<i64>,
    long_answers: AtomicU64,
}

impl AnswerQuotas {
    pub(super) fn new() -> Self {
        let quota = Quota::per_second(FURTHER_BYTES_PER_S).allow_burst(FURTHER_BYTES_AT_ONCE);
        Self { further: RateLimiter::keyed(quota), long_answers: AtomicU64::new(0) }
    }

    /// Of what went over the wire in an attempt, what is kept. Answers of an ordinary length cost neither a look nor a lock.
    pub(super) fn of(&self, application: ApplicationNo, mut bytes: AttemptBytes) -> AttemptBytes {
        let beyond = |part: &[u8]| part.len().saturating_sub(ALWAYS_BYTES);
        let further = u32::try_from(beyond(&bytes.answer_head) + beyond(&bytes.answer_body)).unwrap_or(u32::MAX);
        let Some(further) = NonZeroU32::new(further) else { return bytes };
        // A look at all of them for each would cost more than it saves where none of them can be forgotten yet.
        let is_time_to_look = self.long_answers.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EACH);
        if is_time_to_look && self.further.len() >= KNOWN_MAX {
            self.further.retain_recent();
        }
        if !matches!(self.further.check_key_n(&application.0, further), Ok(Ok(()))) {
            bytes.answer_head.truncate(ALWAYS_BYTES);
            bytes.answer_body.truncate(ALWAYS_BYTES);
            bytes.is_cut = true;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(head: usize, body: usize) -> AttemptBytes {
        AttemptBytes {
            sent_head: vec![b's'; 700],
            answer_head: vec![b'h'; head],
            answer_body: vec![b'b'; body],
            answer_length: 99,
            is_cut: false,
        }
    }

    fn lengths(kept: &AttemptBytes) -> (usize, usize, usize, bool) {
        (kept.sent_head.len(), kept.answer_head.len(), kept.answer_body.len(), kept.is_cut)
    }

    #[test]
    fn large_answers_of_an_application_are_cut_once_they_are_many() {
        let quotas = AnswerQuotas::new();
        let keep = |no, head, body| lengths(&quotas.of(ApplicationNo(no), answer(head, body)));
        // How many are kept whole before one is not, and what that one is cut to.
        let until_cut = |head, body| {
            let kept = std::iter::repeat_with(|| keep(1, head, body));
            let mut kept = kept.enumerate().skip_while(|(_, kept)| *kept == (700, head, body, false));
            kept.next().expect("goes on for ever")
        };
        // Each goes 46 KiB beyond.
        let (whole, cut) = until_cut(32 * 1024, 16 * 1024);
        assert!(whole >= 89, "{whole}");
        assert_eq!(cut, (700, 1024, 1024, true));
        assert_eq!(until_cut(32 * 1024, 300).1, (700, 1024, 300, true));
        assert_eq!(until_cut(300, 16 * 1024).1, (700, 300, 1024, true));
        assert_eq!(keep(1, 1024, 1024), (700, 1024, 1024, false), "an ordinary one is kept whole");
        assert_eq!(keep(2, 32 * 1024, 16 * 1024), (700, 32 * 1024, 16 * 1024, false), "nobody pays for another");
    }

    #[test]
    fn many_ordinary_answers_are_kept_whole() {
        let quotas = AnswerQuotas::new();
        for _ in 0..100_000 {
            assert!(!quotas.of(ApplicationNo(1), answer(400, 60)).is_cut);
        }
        assert!(quotas.further.is_empty(), "and leave no trace");
    }
}
