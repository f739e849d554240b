//! Lines of the last requests that were refused, in memory, so that an operator can ask why.

use std::collections::VecDeque;
use std::sync::PoisonError;

use super::LogSink;

/// Lines of refused requests that are kept in memory to be explained, and the longest that is kept.
pub const REFUSED_KEPT_MAX: usize = 1_000;
const REFUSED_BYTES_MAX: usize = 1_024;

/// Oldest first.
pub(super) type Lines = VecDeque<Box<[u8]>>;

impl LogSink {
    /// Keeps the line of a refused request for [`LogSink::refused`]; the oldest one goes.
    pub(super) fn keep_refused(&self, line: &[u8]) {
        if line.len() > REFUSED_BYTES_MAX {
            return;
        }
        let mut refused = self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() == REFUSED_KEPT_MAX {
            refused.pop_front();
        }
        refused.push_back(line.into());
    }

    /// The line of a request that this process refused, if it is among the last of them.
    pub fn refused(&self, request_id: &str) -> Option<Vec<u8>> {
        let refused = self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = refused.iter().rev();
        lines.find(|line| names(line, request_id)).map(|line| line.to_vec())
    }
}

/// Whether a line is that of a request with this id.
pub fn names(line: &[u8], request_id: &str) -> bool {
    let named = format!("\"request_id\":\"{request_id}\"");
    line.windows(named.len()).any(|window| window == named.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io;

    use countersign_domain::time::UnixMillis;

    use super::super::RequestLine;
    use super::*;

    #[test]
    fn of_refused_requests_the_last_are_kept_and_found_by_their_id() {
        let (sink, _guard) = LogSink::start(io::sink()).expect("a thread starts");
        let told = |no: usize, status: u16| {
            let request_id = format!("r{no}");
            RequestLine {
                at: UnixMillis(1),
                request_id: &request_id,
                listener: "merchant",
                method: "GET",
                path: "/",
                status,
                code: "400021",
                reason: "",
                sentence: "",
                client_id: "c",
                merchant_id: "",
                on_behalf_of: "",
                source: "",
                drift_ms: None,
                nonce_first_stamped: Some(77),
                refused_through: Some(78),
                duration_us: 1,
            }
            .write(&sink);
        };
        told(0, 200);
        for no in 1..=REFUSED_KEPT_MAX + 1 {
            told(no, 401);
        }
        for gone in ["r0", "r1", "r"] {
            assert_eq!(sink.refused(gone), None, "{gone}");
        }
        for kept in [2, REFUSED_KEPT_MAX + 1] {
            let line = sink.refused(&format!("r{kept}")).expect("it is kept");
            let line: serde_json::Value = serde_json::from_slice(&line).expect("a line is JSON");
            assert_eq!((&line["nonce_first_stamped"], &line["refused_through"]), (&77.into(), &78.into()));
        }
    }
}
