//! When a certificate ends: the one date of X.509 that operators ask for, read without the rest of it.

use countersign_domain::time::{RuleZone, UnixMillis};

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The last instant that a certificate in DER is good for; none where it cannot be read.
pub fn ends_at(certificate: &[u8]) -> Option<UnixMillis> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (inside, _) = element(whole, SEQUENCE)?;
    let (_, first, rest) = any(inside)?;
    // Serial number, algorithm and issuer come before the dates; a version before them, where it is not the first.
    let mut rest = if first == VERSION { any(rest)?.2 } else { rest };
    for _ in 0..2 {
        rest = any(rest)?.2;
    }
    let (dates, _) = element(rest, SEQUENCE)?;
    let (_, _, rest) = any(dates)?;
    let (text, kind, _) = any(rest)?;
    instant(std::str::from_utf8(text).ok()?, kind)
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
    use countersign_domain::time::rfc3339;

    use super::*;

    fn made(year: i32) -> Vec<u8> {
        let mut wanted = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        wanted.not_after = rcgen::date_time_ymd(year, 3, 4);
        let key = rcgen::KeyPair::generate().expect("a key");
        wanted.self_signed(&key).expect("signed").der().to_vec()
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_ways_of_writing_years() {
        for year in [2027, 2049, 2050, 2999] {
            let end = ends_at(&made(year)).expect("read");
            assert_eq!(rfc3339(end), format!("{year}-03-04T00:00:00.000Z"));
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end() {
        let whole = made(2030);
        for length in 0..whole.len() {
            let _ = ends_at(&whole[..length]);
        }
        for bytes in [&b""[..], b"0", &[0x30, 0x84, 0, 0, 0, 1, 0], &[0x30, 0x83], &whole[4..]] {
            assert_eq!(ends_at(bytes), None);
        }
    }
}
