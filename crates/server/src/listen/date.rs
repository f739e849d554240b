//! The `Date` of answers. The HTTP library keeps one by itself, which does not go back with the clock; merchants may set theirs by it.

use std::cell::RefCell;

use countersign_domain::time::{UnixMillis, http_date};
use hyper::header::HeaderValue;

thread_local! {
    /// What was written last, and for which second since 1970.
    static LAST: RefCell<Option<(i64, HeaderValue)>> = const { RefCell::new(None) };
}

/// The value of `Date` (RFC 9110, section 6.6.1) at an instant. Written once for each second and thread.
pub(super) fn date(now: UnixMillis) -> HeaderValue {
    let second = now.0.div_euclid(1_000);
    LAST.with_borrow_mut(|last| match last {
        Some((of, value)) if *of == second => value.clone(),
        Some(_) | None => {
            let value = HeaderValue::try_from(http_date(now)).expect("a date is ASCII");
            *last = Some((second, value.clone()));
            value
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_the_instant_wherever_the_clock_was_before() {
        for (ms, wanted) in [
            (784_111_777_999, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (1_790_000_000_000, "Mon, 21 Sep 2026 14:13:20 GMT"),
            (784_111_778_000, "Sun, 06 Nov 1994 08:49:38 GMT"),
            (784_111_777_000, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (i64::MAX, "Thu, 30 Dec 9999 22:00:00 GMT"),
        ] {
            assert_eq!(date(UnixMillis(ms)), wanted);
            assert_eq!(date(UnixMillis(ms)), wanted, "and again");
        }
    }
}
