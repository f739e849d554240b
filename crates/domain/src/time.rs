//! Instants in milliseconds, and the civil times that fee rules are written in.

use std::fmt;

use jiff::civil::{Date, DateTime, Time, date};
use jiff::fmt::rfc2822::DateTimePrinter;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub i64);

/// How far, in ms, the clocks of a ready node and of its database may be apart. What is farther ahead of now was made by a clock that was ahead.
pub const CLOCKS_APART_MS_MAX: i64 = 1_000;

impl UnixMillis {
    /// This instant moved by so many milliseconds; saturates.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// Why a rule's date is refused, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DateRefused {
    /// Not `yyyy-MM-dd HH:mm:ss`: a digit or a separator is missing.
    #[error("must have the form yyyy-MM-dd HH:mm:ss")]
    Form,
    /// Digits that no calendar or clock shows: 02-30, 24:00:00, :60.
    #[error("there is no such date or time of day")]
    NoSuchMoment,
    /// In a gap of the zone, which is named.
    #[error("is skipped by a change of clocks in {0}; choose a time before or after it")]
    Skipped(String),
    /// In a fold of the zone, which is named.
    #[error("happens twice in {0}, where clocks are set back; choose a time before or after both")]
    Twice(String),
}

/// The zone that `effective_date` and `due_date` are written in: UTC unless the deployment says otherwise.
#[derive(Clone, Debug)]
pub struct RuleZone(TimeZone);

impl RuleZone {
    /// UTC.
    pub const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// A zone by its IANA name in any case, from the tables compiled in.
    pub fn named(name: &str) -> Option<Self> {
        // jiff knows one zone more than IANA, of CLDR: `Etc/Unknown`, which has no name.
        TimeZone::get(name).ok().filter(|zone| zone.iana_name().is_some()).map(Self)
    }

    /// Reads `yyyy-MM-dd HH:mm:ss`, seconds precision.
    pub fn parse(&self, text: &str) -> Result<UnixMillis, DateRefused> {
        let bytes = text.as_bytes();
        let form = bytes.len() == 19
            && bytes.iter().enumerate().all(|(i, b)| match i {
                4 | 7 => *b == b'-',
                10 => *b == b' ',
                13 | 16 => *b == b':',
                _ => b.is_ascii_digit(),
            });
        if !form {
            return Err(DateRefused::Form);
        }
        // jiff reads :60 as :59 without a word.
        if &text[17..] == "60" || text.starts_with("0000") {
            return Err(DateRefused::NoSuchMoment);
        }
        let civil = DateTime::strptime("%Y-%m-%d %H:%M:%S", text).map_err(|_| DateRefused::NoSuchMoment)?;
        match self.0.to_ambiguous_timestamp(civil).offset() {
            // By hand: a jiff timestamp ends a day early, and 9999-12-31 23:59:59 is how many people write "never".
            AmbiguousOffset::Unambiguous { offset } => {
                let seconds = civil.duration_since(EPOCH).as_secs() - i64::from(offset.seconds());
                Ok(UnixMillis(seconds * 1_000))
            }
            AmbiguousOffset::Gap { .. } => Err(DateRefused::Skipped(self.name().to_owned())),
            AmbiguousOffset::Fold { .. } => Err(DateRefused::Twice(self.name().to_owned())),
        }
    }

    /// The day that an instant is part of.
    pub fn day(&self, at: UnixMillis) -> Day {
        Day(self.civil(at).date())
    }

    /// When a month begins and when it is over: the first instant of its first day and of the next month's.
    pub fn month(&self, month: Month) -> (UnixMillis, UnixMillis) {
        let begin = |first: Date| {
            let zoned = first.to_zoned(self.0.clone()).map(|zoned| zoned.timestamp().as_millisecond());
            UnixMillis(zoned.expect("months end before the last day of the calendar"))
        };
        let next = month.0.first_of_month().saturating_add(jiff::Span::new().months(1));
        (begin(month.0), begin(next))
    }

    /// Writes `yyyy-MM-dd HH:mm:ss`; parts of a second are cut. Instants beyond the years 1 to 9999 are shown as the nearest within.
    pub fn format(&self, at: UnixMillis) -> String {
        self.civil(at).strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    fn civil(&self, at: UnixMillis) -> DateTime {
        let seconds = at.0.div_euclid(1_000) + i64::from(self.0.to_offset(nearest_timestamp(at)).seconds());
        let first = date(1, 1, 1).at(0, 0, 0, 0).duration_since(EPOCH).as_secs();
        let last = date(9999, 12, 31).at(23, 59, 59, 0).duration_since(EPOCH).as_secs();
        EPOCH.saturating_add(SignedDuration::from_secs(seconds.clamp(first, last)))
    }

    /// The zone's name as IANA writes it.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }
}

/// A civil day. It is written `2026-10-31`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(Date);

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The first month that is read.
pub const MONTH_MIN: &str = "1970-01";
/// The last month that is read: the instant at which a month is over has to exist.
pub const MONTH_MAX: &str = "9998-12";

/// A civil month, by its first day. It is written `2026-10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(Date);

impl Month {
    /// Reads `yyyy-MM`, from [`MONTH_MIN`] to [`MONTH_MAX`].
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        let (year, month) =
            text.split_once('-').filter(|(y, m)| y.len() == 4 && m.len() == 2 && digits(y) && digits(m))?;
        let year = year.parse().ok().filter(|year| (1970..=9998).contains(year))?;
        Date::new(year, month.parse().ok()?, 1).ok().map(Self)
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0.year(), self.0.month())
    }
}

/// 1970-01-01T00:00:00Z, without its zone.
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

fn nearest_timestamp(at: UnixMillis) -> Timestamp {
    let ms = at.0.clamp(Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

/// An instant as RFC 3339 writes it, with any offset; parts of a millisecond are cut. Second 60 means the second after it, and is read only where UTC
/// may have a leap second: at the end of June and of December. None: the text names no instant.
pub fn parse_rfc3339(text: &str) -> Option<UnixMillis> {
    let (civil, rest) = text.split_at_checked(19)?;
    let is_form = civil.bytes().enumerate().all(|(place, byte)| match place {
        4 | 7 => byte == b'-',
        10 => byte.eq_ignore_ascii_case(&b'T'),
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    // All of it is ASCII from here on.
    if !is_form {
        return None;
    }
    let number = |from: usize, to: usize| civil[from..to].parse::<i64>().ok();
    let day = [number(0, 4)?, number(5, 7)?, number(8, 10)?];
    let time = [number(11, 13)?, number(14, 16)?, number(17, 19)?];
    let (fraction_ms, offset) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (fraction, offset) = rest.split_at(digits);
            (format!("{fraction:0<3}").get(..3)?.parse().ok().filter(|_| digits > 0)?, offset)
        }
    };
    let second = UnixMillis(utc_second(day, time)?.0 - offset_ms(offset)?);
    let is_leap = time[2] == 60;
    (!is_leap || may_follow_a_leap_second(second)).then(|| second.plus_ms(fraction_ms))
}

/// `Z`, or `+hh:mm` and `-hh:mm` of a day's hours.
fn offset_ms(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("Z") {
        return Some(0);
    }
    let (sign, hours, minutes) = match text.as_bytes() {
        [sign @ (b'+' | b'-'), h, i, b':', m, n] => (*sign, [*h, *i], [*m, *n]),
        _ => return None,
    };
    let number = |[tens, ones]: [u8; 2], below: i64| {
        let number = i64::from(tens.wrapping_sub(b'0')) * 10 + i64::from(ones.wrapping_sub(b'0'));
        (tens.is_ascii_digit() && ones.is_ascii_digit() && number < below).then_some(number)
    };
    let ms = (number(hours, 24)? * 60 + number(minutes, 60)?) * 60_000;
    Some(if sign == b'-' { -ms } else { ms })
}

/// Leap seconds are added before the first instant of July or January.
fn may_follow_a_leap_second(at: UnixMillis) -> bool {
    let civil = EPOCH.saturating_add(SignedDuration::from_millis(at.0));
    let is_first = civil.time() == Time::midnight() && civil.day() == 1;
    is_first && matches!(civil.month(), 1 | 7)
}

/// A second of UTC by its numbers, as a calendar and a clock show them: year, month, day; hour, minute, second. A leap second, 60, is
/// the one after it. None: neither shows them.
pub fn utc_second([year, month, day]: [i64; 3], [hour, minute, second]: [i64; 3]) -> Option<UnixMillis> {
    let small = |number: i64| i8::try_from(number).ok();
    let day = Date::new(i16::try_from(year).ok()?, small(month)?, small(day)?).ok()?;
    let leap = second == 60;
    let time = Time::new(small(hour)?, small(minute)?, small(if leap { 59 } else { second })?, 0).ok()?;
    let at = i64::try_from(EPOCH.duration_until(day.to_datetime(time)).as_millis()).ok()?;
    Some(UnixMillis(at + if leap { 1_000 } else { 0 }))
}

/// The year in which an instant is, in UTC.
pub fn utc_year(at: UnixMillis) -> i64 {
    nearest_timestamp(at).to_zoned(TimeZone::UTC).year().into()
}

/// ISO 8601 / RFC 3339 in UTC with milliseconds: `2026-01-02T00:00:00.000Z`. Instants beyond the year 9999 are shown as its last one.
pub fn rfc3339(at: UnixMillis) -> String {
    format!("{:.3}Z", EPOCH.saturating_add(SignedDuration::from_millis(at.0)))
}

/// The form of `Date` in HTTP (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`. Instants before 1970 are shown as its beginning.
pub fn http_date(at: UnixMillis) -> String {
    let at = nearest_timestamp(UnixMillis(at.0.max(0)));
    DateTimePrinter::new().timestamp_to_rfc9110_string(&at).expect("a year of four digits")
}
