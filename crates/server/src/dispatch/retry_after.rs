//! `Retry-After`: seconds, or an HTTP date.

use countersign_domain::time::UnixMillis;

const DAY_MS: i64 = 86_400_000;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// How long to wait from `now`, in ms, never negative. None where the value is neither form; the caller clamps it.
pub(super) fn retry_after_ms(value: &[u8], now: UnixMillis) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        // More digits than a number holds is still a number of seconds.
        return Some(text.parse::<i64>().unwrap_or(i64::MAX).saturating_mul(1_000));
    }
    http_date(text).map(|at| at.saturating_sub(now.0).max(0))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that is sent today. The name of the day is not checked.
fn http_date(text: &str) -> Option<i64> {
    let (_, date) = text.split_once(", ")?;
    let parts: Vec<&str> = date.split(' ').collect();
    let [day, month, year, time, "GMT"] = parts[..] else { return None };
    let month = MONTHS.iter().position(|m| *m == month)? + 1;
    let [hour, minute, second] = time.split(':').collect::<Vec<_>>()[..] else { return None };
    let (day, hour) = (number(day, 2, 31)?, number(hour, 2, 23)?);
    let (minute, second) = (number(minute, 2, 59)?, number(second, 2, 60)?);
    let days = days_since_1970(number(year, 4, 9_999)?, i64::try_from(month).ok()?, day);
    Some(days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1_000)
}

fn number(text: &str, digits: usize, max: i64) -> Option<i64> {
    let form = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    form.then(|| text.parse().ok()).flatten().filter(|n| *n <= max)
}

/// Days of the Gregorian calendar; years are counted from March, so that the leap day is the last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (153 * month + 2) / 5 + day
        - 719_469
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
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
        ] {
            assert_eq!(retry_after_ms(value.as_bytes(), now), wanted, "{value}");
        }
        assert_eq!(retry_after_ms(&[0xff], now), None);
    }

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        for (date, days) in [
            ((1970, 1, 1), 0),
            ((1970, 12, 31), 364),
            ((2000, 2, 29), 11_016),
            ((2000, 3, 1), 11_017),
            ((2026, 1, 1), 20_454),
        ] {
            assert_eq!(days_since_1970(date.0, date.1, date.2), days, "{date:?}");
        }
    }
}
