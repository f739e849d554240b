//! Instants in milliseconds, and the civil times that fee rules are written in.

use jiff::civil::{DateTime, date};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use thiserror::Error;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// This instant moved by so many milliseconds; saturates.
    #[must_use]
    pub const fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// Why a rule's date is refused, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DateRefused {
    /// Not `yyyy-MM-dd HH:mm:ss`: a digit or a separator is missing.
    #[error("must have the form yyyy-MM-dd HH:mm:ss")]
    Form,
    /// Digits that name no moment (02-30, 24:00:00, :60), or a time in a gap or fold of the zone.
    #[error("names no single moment in the time zone of the rules")]
    NoSuchMoment,
}

/// The zone that `effective_date` and `due_date` are written in: UTC unless the deployment says otherwise.
#[derive(Clone, Debug)]
pub struct RuleZone(TimeZone);

impl RuleZone {
    /// UTC.
    pub const fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// A zone by its IANA name, from the tables compiled in.
    pub fn named(name: &str) -> Option<Self> {
        if name == "UTC" {
            return Some(Self::utc());
        }
        TimeZone::get(name).ok().map(Self)
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
            AmbiguousOffset::Gap { .. } | AmbiguousOffset::Fold { .. } => Err(DateRefused::NoSuchMoment),
        }
    }

    /// Writes `yyyy-MM-dd HH:mm:ss`; parts of a second are cut. Instants beyond the years 1 to 9999 are shown as the nearest within.
    pub fn format(&self, at: UnixMillis) -> String {
        let seconds = at.0.div_euclid(1_000) + i64::from(self.0.to_offset(nearest_timestamp(at)).seconds());
        let first = date(1, 1, 1).at(0, 0, 0, 0).duration_since(EPOCH).as_secs();
        let last = date(9999, 12, 31).at(23, 59, 59, 0).duration_since(EPOCH).as_secs();
        let civil = EPOCH.saturating_add(SignedDuration::from_secs(seconds.clamp(first, last)));
        civil.strftime("%Y-%m-%d %H:%M:%S").to_string()
    }
}

/// 1970-01-01T00:00:00Z, without its zone.
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);

fn nearest_timestamp(at: UnixMillis) -> Timestamp {
    let ms = at.0.clamp(Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
}

/// An instant as RFC 3339 writes it, with any offset; parts of a millisecond are cut. None: it names no instant.
pub fn parse_rfc3339(text: &str) -> Option<UnixMillis> {
    // What jiff takes beyond it: blanks in place of `T`, and names of zones behind.
    let form = text.as_bytes().get(10).is_some_and(|b| b.eq_ignore_ascii_case(&b'T')) && !text.contains('[');
    let at: Timestamp = text.parse().ok().filter(|_| form)?;
    Some(UnixMillis(at.as_millisecond()))
}

/// ISO 8601 / RFC 3339 in UTC with milliseconds: `2026-01-02T00:00:00.000Z`. For instants of ours, not for dates of rules.
pub fn rfc3339(at: UnixMillis) -> String {
    format!("{:.3}", nearest_timestamp(at))
}
