//! What is said of a request's timestamp.

use countersign_domain::time::{UnixMillis, rfc3339};
use countersign_protocol::code::Code;
use countersign_store::contract::ApplicationRow;

use super::answer::Failure;

/// The application's own limit for a request stamped then, and when a wider one took its place, where that came later: a raised one applies to
/// what is stamped after the raise.
fn own_limit(application: &ApplicationRow, stamped_ms: i64) -> Option<(i64, Option<UnixMillis>)> {
    let before = application.tolerance_before_ms.zip(application.tolerance_raised_at);
    let judged_by_before = before.filter(|(_, raised_at)| stamped_ms <= raised_at.0);
    match (judged_by_before, application.timestamp_tolerance_ms) {
        (Some((before, raised_at)), own) if own.is_none_or(|own| before < own) => Some((before, Some(raised_at))),
        (_, own) => own.map(|ms| (ms, None)),
    }
}

/// The check of a limit that the application has itself.
pub(super) fn in_own_time(application: &ApplicationRow, now: UnixMillis, stamped_ms: i64) -> Result<(), Failure> {
    let Some((limit_ms, raised_at)) = own_limit(application, stamped_ms) else { return Ok(()) };
    let Err(refused) = in_time(now, stamped_ms, limit_ms) else { return Ok(()) };
    let Some(raised_at) = raised_at else { return Err(refused.because("own_tolerance")) };
    let sentence = format!(
        "{}; what is allowed was raised at {}, and of timestamps up to then {limit_ms} ms at most are allowed, as before: sign anew with a later one",
        apart(now, stamped_ms),
        raised_at.0
    );
    Err(Failure::new(Code::TimestampOutOfRange, sentence).because("tolerance_raised"))
}

/// Refused only when the difference is greater than the limit, in both directions.
pub(super) fn in_time(now: UnixMillis, stamped_ms: i64, limit_ms: i64) -> Result<(), Failure> {
    let drift = now.0 - stamped_ms;
    if drift.abs() <= limit_ms {
        return Ok(());
    }
    let sentence =
        format!("{}; at most {limit_ms} ms are allowed, so set the clock or use GET /v1/time", apart(now, stamped_ms));
    Err(Failure::new(Code::TimestampOutOfRange, sentence))
}

/// In time, but of what was stamped so early nobody knows any more what came: it could be a replay.
/// `horizon`: up to where nothing is taken, if that is still to come. `is_trouble`: that is more than a restore leaves behind.
pub(super) fn from_before_memory(
    now: UnixMillis,
    stamped_ms: i64,
    limit_ms: i64,
    horizon: Option<UnixMillis>,
    is_trouble: bool,
) -> Failure {
    let drift = format!("{}, which is within {limit_ms} ms", apart(now, stamped_ms));
    match horizon {
        Some(through) if is_trouble => {
            let sentence = format!(
                "{drift}, but the service takes no request that is stamped up to {}: its clock was ahead once, or was before a restore, and it \
                 cannot tell requests of that time from replays; only its operators can help",
                rfc3339(through)
            );
            Failure::new(Code::TimestampOutOfRange, sentence).because("clock_was_ahead")
        }
        Some(through) => {
            let sentence = format!(
                "{drift}, but after a restore, or after its clock was set back, the service takes no request that is stamped up to {}; send it after that, \
                 stamped and signed anew",
                rfc3339(through)
            );
            Failure::new(Code::TimestampOutOfRange, sentence).because("nonces_forgotten")
        }
        None => {
            let sentence = format!("{drift}, but nonces of that time are forgotten; send the current time");
            Failure::new(Code::TimestampOutOfRange, sentence).because("nonces_forgotten")
        }
    }
}

/// Since a crash nobody knows whether its nonce was used. `through`: up to where that is so, if it lasts longer than after any crash.
pub(super) fn from_before_crash(through: Option<UnixMillis>) -> Failure {
    let Some(through) = through else {
        let sentence = "the service has just come back and cannot tell this request from a replay; repeat it with the current time and a new nonce";
        return Failure::new(Code::ServiceUnavailable, sentence).because("stamped_before_crash");
    };
    let sentence = format!(
        "the service has come back from a crash before which its clock was ahead, and cannot tell requests that are stamped up to {} from replays; \
         only its operators can help",
        rfc3339(through)
    );
    Failure::new(Code::ServiceUnavailable, sentence).because("clock_was_ahead_before_crash")
}

fn apart(now: UnixMillis, stamped_ms: i64) -> String {
    let drift = now.0 - stamped_ms;
    let direction = if drift >= 0 { "behind" } else { "ahead of" };
    format!("the timestamp is {} ms {direction} the server's time {}", drift.abs(), now.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_is_refused_only_when_greater_than_the_limit() {
        let now = UnixMillis(1_000_000);
        for (stamped, fits) in
            [(970_000, true), (969_999, false), (1_030_000, true), (1_030_001, false), (1_000_000, true)]
        {
            assert_eq!(in_time(now, stamped, 30_000).is_ok(), fits, "{stamped}");
        }
    }

    #[test]
    fn a_refused_timestamp_says_server_time_drift_and_limit() {
        let failure = in_time(UnixMillis(1_000_000), 900_000, 30_000).expect_err("too old");
        for part in ["100000 ms behind", "1000000", "30000 ms"] {
            assert!(failure.sentence.contains(part), "{}", failure.sentence);
        }
        let day = Some(UnixMillis(86_400_000));
        for (horizon, is_trouble, parts) in [
            (day, true, ["up to 1970-01-02T00:00:00", "only its operators"]),
            (day, false, ["up to 1970-01-02T00:00:00", "after a restore, or after its clock was set back"]),
            (None, false, ["are forgotten", "send the current time"]),
        ] {
            let said = from_before_memory(UnixMillis(1_000_000), 999_000, 30_000, horizon, is_trouble).sentence;
            for part in parts.into_iter().chain(["1000 ms behind", "time 1000000", "30000 ms"]) {
                assert!(said.contains(part), "{said}");
            }
        }
    }

    #[test]
    fn after_a_crash_the_answer_says_until_when_where_that_is_not_soon() {
        let said = from_before_crash(Some(UnixMillis(86_400_000)));
        assert!(said.sentence.contains("up to 1970-01-02T00:00:00"), "{}", said.sentence);
        assert_eq!((said.code, said.reason), (Code::ServiceUnavailable, "clock_was_ahead_before_crash"));
        let soon = from_before_crash(None);
        assert!(soon.sentence.contains("repeat it with the current time"), "{}", soon.sentence);
        assert_eq!((soon.code, soon.reason), (Code::ServiceUnavailable, "stamped_before_crash"));
    }
}
