//! How much of answers is kept. Merchants decide how long theirs are, and the disk is everybody's: what goes beyond a small part of each answer is
//! bounded for each application.

use countersign_domain::ids::ApplicationNo;
use countersign_store::attempt_log::AttemptBytes;

use crate::app::byte_quotas::ByteQuotas;

/// Of a head, and of a body, this much is kept in any case, in bytes.
const ALWAYS_BYTES: usize = 1024;

/// What the answers of all applications may take.
#[derive(Debug, Default)]
pub(super) struct AnswerQuotas(ByteQuotas);

impl AnswerQuotas {
    /// Of what went over the wire in an attempt, what is kept. Answers of an ordinary length cost neither a look nor a lock.
    pub(super) fn of(&self, application: ApplicationNo, mut bytes: AttemptBytes) -> AttemptBytes {
        let beyond = |part: &[u8]| part.len().saturating_sub(ALWAYS_BYTES);
        if !self.0.has_room_for(application, beyond(&bytes.answer_head) + beyond(&bytes.answer_body)) {
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
        let quotas = AnswerQuotas::default();
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
        let quotas = AnswerQuotas::default();
        for _ in 0..100_000 {
            assert!(!quotas.of(ApplicationNo(1), answer(400, 60)).is_cut);
        }
        assert!(quotas.0.known() == 0, "and leave no trace");
    }
}
