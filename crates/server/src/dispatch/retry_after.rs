//! `Retry-After`: seconds, or an HTTP date.

use countersign_domain::time::{UnixMillis, utc_second, utc_year};

const DAY_MS: i64 = 86_400_000;
const YEAR_MS: i64 = 365 * DAY_MS;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// How long to wait from `now`, in ms, never negative. None where the value is neither form; the caller clamps it.
pub(super) fn retry_after_ms(value: &[u8], now: UnixMillis) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than a number holds is still a number of seconds.
        return Some(text.parse::<i64>().unwrap_or(i64::MAX).saturating_mul(1_000));
    }
    http_date(text, now).map(|at| at.saturating_sub(now.0).max(0))
}

/// In the form that is sent today, `Sun, 06 Nov 1994 08:49:37 GMT`, or one of the two old ones that count as well (RFC 9110, 5.6.7):
/// `Sunday, 06-Nov-94 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994`. The name of the day is not checked.
fn http_date(text: &str, now: UnixMillis) -> Option<i64> {
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        [name, day, month, year, time, "GMT"] if name.ends_with(',') => {
            date(number(year, 4, 9_999)?, month, number(day, 2, 31)?, time)
        }
        [name, date, time, "GMT"] if name.ends_with(',') => {
            let [day, month, year] = date.split('-').collect::<Vec<_>>()[..] else { return None };
            of_any_century(number(year, 2, 99)?, month, number(day, 2, 31)?, time, now)
        }
        [_, month, "", day, time, year] => date(number(year, 4, 9_999)?, month, number(day, 1, 9)?, time),
        [_, month, day, time, year] => date(number(year, 4, 9_999)?, month, number(day, 2, 31)?, time),
        _ => None,
    }
}

fn date(year: i64, month: &str, day: i64, time: &str) -> Option<i64> {
    let month = i64::try_from(MONTHS.iter().position(|m| *m == month)? + 1).ok()?;
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>()[..] else { return None };
    let time = [number(hour, 2, 23)?, number(minute, 2, 59)?, number(second, 2, 60)?];
    utc_second([year, month, day], time).map(|at| at.0)
}

/// A year of two digits is never more than 50 years ahead.
fn of_any_century(year: i64, month: &str, day: i64, time: &str, now: UnixMillis) -> Option<i64> {
    let at = |century: i64| date(century * 100 + year, month, day, time);
    let century = utc_year(now).div_euclid(100);
    [century + 1, century, century - 1].into_iter().filter_map(at).find(|at| at.saturating_sub(now.0) <= 50 * YEAR_MS)
}

fn number(text: &str, digits: usize, max: i64) -> Option<i64> {
    let form = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    form.then(|| text.parse().ok()).flatten().filter(|n| *n <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_table() {
        let now = UnixMillis(784_111_770_000); // 1994-11-06T08:49:30Z
        for (value, wanted) in [
            ("0", Some(0)),
            ("120", Some(120_000)),
            (" 7 ", Some(7_000)),
            ("99999999999999999999999", Some(i64::MAX)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7_000)),
            ("Sun, 06 Nov 1994 08:49:30 GMT", Some(0)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("Mon, 07 Nov 1994 08:49:30 GMT", Some(DAY_MS)),
            ("-1", None),
            ("1.5", None),
            ("", None),
            ("soon", None),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 6 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Foo 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 24:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:60 GMT", Some(30_000)),
            ("Wed, 01 Mar 1995 08:49:30 GMT", Some(115 * DAY_MS)),
            ("Wed, 29 Feb 1995 08:49:30 GMT", None),
            ("Thu, 29 Feb 1996 08:49:30 GMT", Some(480 * DAY_MS)),
            ("Wed, 31 Jun 1995 08:49:30 GMT", None),
            ("Wed, 00 Jun 1995 08:49:30 GMT", None),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(252_618_189_029_000)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(7_000)),
            ("Saturday, 05-Nov-94 08:49:37 GMT", Some(0)),
            ("Monday, 06-Nov-95 08:49:30 GMT", Some(365 * DAY_MS)),
            ("Monday, 06-Nov-06 08:49:30 GMT", Some((12 * 365 + 3) * DAY_MS)),
            ("Monday, 06-Nov-50 08:49:30 GMT", Some(0)),
            ("Sunday, 06-Nov-1994 08:49:37 GMT", None),
            ("Sunday, 06-11-94 08:49:37 GMT", None),
            ("Sunday, 06-Nov-94 08:49:37", None),
            ("Sun Nov  6 08:49:37 1994", Some(7_000)),
            ("Wed Nov 16 08:49:30 1994", Some(10 * DAY_MS)),
            ("Sun Nov 6 08:49:37 1994", None),
            ("Sun Nov  6 08:49:37 94", None),
            ("Sun Nov  6 08:49:37 1994 GMT", None),
        ] {
            assert_eq!(retry_after_ms(value.as_bytes(), now), wanted, "{value}");
        }
        assert_eq!(retry_after_ms(&[0xff], now), None);
    }
}
