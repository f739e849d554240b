//! The two dates of a certificate, which operators ask for: read from X.509 without the rest of it.

use std::fmt;

use countersign_domain::time::{RuleZone, UnixMillis, rfc3339};

/// So long before the end of a certificate people are told of it.
const SOON_MS: i64 = 14 * 86_400_000;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Between which instants a certificate is good, both included. None: a date that cannot be read, which is not judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dates {
    /// The first.
    pub from: Option<UnixMillis>,
    /// The last.
    pub end: Option<UnixMillis>,
}

/// What people are told of the dates of a certificate that is in use or about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// It is not good before this.
    Early(UnixMillis),
    /// It is good for a few more days, until this.
    EndsSoon(UnixMillis),
    /// It was good until this.
    Ended(UnixMillis),
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Early(from) => write!(
                f,
                "is not valid before {}, and clients that check it refuse it until then: put one that is valid now into its files",
                rfc3339(*from)
            ),
            Self::EndsSoon(end) => write!(f, "ends at {}: put a new one into its files", rfc3339(*end)),
            Self::Ended(end) => write!(
                f,
                "ended at {}, and clients that check it refuse it: put a new one into its files",
                rfc3339(*end)
            ),
        }
    }
}

impl Dates {
    /// Those of a certificate in DER.
    pub fn of(certificate: &[u8]) -> Self {
        let Some(dates) = validity(certificate) else { return Self::default() };
        let [from, end] = dates.map(|(text, kind)| instant(std::str::from_utf8(text).ok()?, kind));
        Self { from, end }
    }

    /// What there is to tell at this instant.
    pub fn concern(self, now: UnixMillis) -> Option<Concern> {
        match self {
            Self { end: Some(end), .. } if now > end => Some(Concern::Ended(end)),
            Self { from: Some(from), .. } if now < from => Some(Concern::Early(from)),
            Self { end: Some(end), .. } if now >= end.plus_ms(-SOON_MS) => Some(Concern::EndsSoon(end)),
            Self { .. } => None,
        }
    }

    /// Whether the certificate is good at this instant, as far as its dates go.
    pub fn hold(self, now: UnixMillis) -> bool {
        matches!(self.concern(now), None | Some(Concern::EndsSoon(_)))
    }
}

/// The first and the last date of a certificate in DER as they are written, each with its kind.
fn validity(certificate: &[u8]) -> Option<[(&[u8], u8); 2]> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (inside, _) = element(whole, SEQUENCE)?;
    let (_, first, rest) = any(inside)?;
    // Serial number, algorithm and issuer come before the dates; a version before them, where it is not the first.
    let mut rest = if first == VERSION { any(rest)?.2 } else { rest };
    for _ in 0..2 {
        rest = any(rest)?.2;
    }
    let (dates, _) = element(rest, SEQUENCE)?;
    let (from, from_kind, rest) = any(dates)?;
    let (end, end_kind, _) = any(rest)?;
    Some([(from, from_kind), (end, end_kind)])
}

/// `YYMMDDhhmmssZ`, years from 1950 to 2049, or `YYYYMMDDhhmmssZ`.
fn instant(text: &str, kind: u8) -> Option<UnixMillis> {
    let (year, rest) = match kind {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let century = if year < "50" { "20" } else { "19" };
            (format!("{century}{year}"), rest)
        }
        GENERALIZED_TIME => text.split_at_checked(4).map(|(year, rest)| (year.to_owned(), rest))?,
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2);
    let date = format!("{year}-{}-{} {}:{}:{}", two(0)?, two(2)?, two(4)?, two(6)?, two(8)?);
    RuleZone::utc().parse(&date).ok()
}

/// The content of an element of this kind, and what follows it.
fn element(bytes: &[u8], kind: u8) -> Option<(&[u8], &[u8])> {
    any(bytes).filter(|(_, found, _)| *found == kind).map(|(content, _, rest)| (content, rest))
}

/// The content of the first element, its kind, and what follows it.
fn any(bytes: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        // How many bytes the length has: no certificate needs more than three.
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((content, *kind, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(from: i32, end: i32) -> Vec<u8> {
        let mut wanted = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        wanted.not_before = rcgen::date_time_ymd(from, 1, 2);
        wanted.not_after = rcgen::date_time_ymd(end, 3, 4);
        let key = rcgen::KeyPair::generate().expect("a key");
        wanted.self_signed(&key).expect("signed").der().to_vec()
    }

    #[test]
    fn the_dates_of_a_certificate_are_read_in_both_ways_of_writing_years() {
        for (from, end) in [(1950, 1999), (2026, 2027), (2000, 2049), (2049, 2050), (2050, 2999)] {
            let dates = Dates::of(&made(from, end));
            assert_eq!(dates.from.map(rfc3339), Some(format!("{from}-01-02T00:00:00.000Z")));
            assert_eq!(dates.end.map(rfc3339), Some(format!("{end}-03-04T00:00:00.000Z")));
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_dates_and_is_not_judged() {
        let whole = made(2020, 2030);
        for length in 0..whole.len() {
            let _ = Dates::of(&whole[..length]);
        }
        for bytes in [&b""[..], b"0", &[0x30, 0x84, 0, 0, 0, 1, 0], &[0x30, 0x83], &whole[4..]] {
            assert_eq!(Dates::of(bytes), Dates::default());
        }
        assert_eq!(Dates::default().concern(UnixMillis(0)), None);
    }

    #[test]
    fn both_dates_are_part_of_the_time_that_a_certificate_is_good_for() {
        let dates = Dates::of(&made(2026, 2027));
        let (from, end) = (dates.from.expect("is read"), dates.end.expect("is read"));
        for (now, concern, holds) in [
            (from.plus_ms(-1), Some(Concern::Early(from)), false),
            (from, None, true),
            (end.plus_ms(-SOON_MS - 1), None, true),
            (end.plus_ms(-SOON_MS), Some(Concern::EndsSoon(end)), true),
            (end, Some(Concern::EndsSoon(end)), true),
            (end.plus_ms(1), Some(Concern::Ended(end)), false),
        ] {
            assert_eq!((dates.concern(now), dates.hold(now)), (concern, holds), "{}", rfc3339(now));
        }
    }

    #[test]
    fn what_is_past_is_told_as_past() {
        let at = UnixMillis(0);
        for (concern, words) in [
            (Concern::Early(at), "is not valid before 1970-01-01T00:00:00.000Z, and"),
            (Concern::EndsSoon(at), "ends at 1970-01-01T00:00:00.000Z:"),
            (Concern::Ended(at), "ended at 1970-01-01T00:00:00.000Z, and"),
        ] {
            assert!(concern.to_string().starts_with(words), "{concern}");
        }
    }
}
