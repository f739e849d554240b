//! Reads the `Date` header of an answer: `Sun, 06 Nov 1994 08:49:37 GMT`.

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Unix milliseconds of the one form that servers send; none for anything else.
pub fn parse(text: &str) -> Option<i64> {
    let (_, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let day = digits(parts.next()?, 2, 1..=31)?;
    let month = parts.next().and_then(|name| MONTHS.iter().position(|m| *m == name))?;
    let year = digits(parts.next()?, 4, 1970..=9999)?;
    let mut clock = parts.next()?.split(':');
    let hour = digits(clock.next()?, 2, 0..=23)?;
    let minute = digits(clock.next()?, 2, 0..=59)?;
    let second = digits(clock.next()?, 2, 0..=60)?;
    if clock.next().is_some() || parts.next() != Some("GMT") || parts.next().is_some() {
        return None;
    }
    let days = days_before_year(year) + days_before_month(year, month) + day - 1;
    Some((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000)
}

fn digits(text: &str, count: usize, bounds: std::ops::RangeInclusive<i64>) -> Option<i64> {
    let form = text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|number| form && bounds.contains(number))
}

/// From 1970 on.
fn days_before_year(year: i64) -> i64 {
    let leaps = |y: i64| y / 4 - y / 100 + y / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

fn days_before_month(year: i64, month: usize) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    BEFORE[month] + i64::from(leap && month > 1)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn dates_of_answers_are_read_and_nothing_else() {
        let table = [
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777_000)),
            ("Thu, 29 Feb 2024 23:59:59 GMT", Some(1_709_251_199_000)),
            ("Fri, 01 Mar 2024 00:00:00 GMT", Some(1_709_251_200_000)),
            ("Fri, 02 Jan 2026 00:00:00 GMT", Some(1_767_312_000_000)),
            ("Mon, 01 Mar 2100 00:00:00 GMT", Some(4_107_542_400_000)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun Nov  6 08:49:37 1994", None),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 06 Nov 1994 08:49 GMT", None),
            ("Sun, 6 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 24:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT ", None),
            ("", None),
        ];
        for (text, wanted) in table {
            assert_eq!(parse(text), wanted, "{text:?}");
        }
    }
}
