//! The patterns of the documents: anchored, of characters, classes, groups and repetitions, which every tool reads alike.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

/// So often, and what.
struct Piece(usize, usize, Atom);

enum Atom {
    /// A character of one of these ranges.
    Class(Vec<(char, char)>),
    /// One of these rows.
    Group(Vec<Vec<Piece>>),
}

/// Whether a text is of this form, from its beginning to its end.
pub fn matches(pattern: &str, text: &str) -> bool {
    let inner = pattern.strip_prefix('^').and_then(|rest| rest.strip_suffix('$'));
    let mut rest = inner.unwrap_or_else(|| panic!("{pattern} is not anchored")).chars().peekable();
    let rows = rows(&mut rest);
    assert!(rest.next().is_none(), "{pattern} has a bracket too many");
    let text: Vec<char> = text.chars().collect();
    ends(&Atom::Group(rows), &text, 0).contains(&text.len())
}

fn rows(rest: &mut Peekable<Chars<'_>>) -> Vec<Vec<Piece>> {
    let mut rows = vec![Vec::new()];
    while let Some(c) = rest.next_if(|c| *c != ')') {
        let atom = match c {
            '|' => {
                rows.push(Vec::new());
                continue;
            }
            '(' => {
                let inner = self::rows(rest);
                assert_eq!(rest.next(), Some(')'), "a group ends");
                Atom::Group(inner)
            }
            '[' => Atom::Class(class(rest)),
            '\\' => one(rest.next().expect("a character follows")),
            '?' | '*' | '+' | '{' | '.' | '^' | '$' => panic!("{c} is not expected here"),
            c => one(c),
        };
        let (least, most) = repetition(rest);
        rows.last_mut().expect("there is one").push(Piece(least, most, atom));
    }
    rows
}

fn one(c: char) -> Atom {
    Atom::Class(vec![(c, c)])
}

fn class(rest: &mut Peekable<Chars<'_>>) -> Vec<(char, char)> {
    let chars: Vec<char> = rest.by_ref().take_while(|c| *c != ']').collect();
    let mut ranges = Vec::new();
    let mut left = &chars[..];
    loop {
        match left {
            [first, '-', last, more @ ..] => {
                ranges.push((*first, *last));
                left = more;
            }
            [c, more @ ..] => {
                ranges.push((*c, *c));
                left = more;
            }
            [] => return ranges,
        }
    }
}

fn repetition(rest: &mut Peekable<Chars<'_>>) -> (usize, usize) {
    match rest.next_if(|c| matches!(c, '?' | '*' | '+' | '{')) {
        None => (1, 1),
        Some('?') => (0, 1),
        Some('*') => (0, usize::MAX),
        Some('+') => (1, usize::MAX),
        Some(_) => {
            let bounds: String = rest.by_ref().take_while(|c| *c != '}').collect();
            let number = |text: &str| text.parse().expect("a number");
            bounds.split_once(',').map_or_else(
                || (number(&bounds), number(&bounds)),
                |(least, most)| (number(least), if most.is_empty() { usize::MAX } else { number(most) }),
            )
        }
    }
}

/// Where it may end that begins here.
fn ends(atom: &Atom, text: &[char], from: usize) -> BTreeSet<usize> {
    match atom {
        Atom::Class(ranges) => {
            let fits = text.get(from).is_some_and(|c| ranges.iter().any(|(first, last)| (first..=last).contains(&c)));
            fits.then_some(from + 1).into_iter().collect()
        }
        Atom::Group(rows) => rows.iter().flat_map(|row| row_ends(row, text, from)).collect(),
    }
}

fn row_ends(row: &[Piece], text: &[char], from: usize) -> BTreeSet<usize> {
    row.iter().fold(BTreeSet::from([from]), |starts, Piece(least, most, atom)| {
        let mut reached = if *least == 0 { starts.clone() } else { BTreeSet::new() };
        let mut now = starts;
        for times in 1..=*most {
            now = now.iter().flat_map(|start| ends(atom, text, *start)).collect();
            if now.is_empty() {
                break;
            }
            if times >= *least {
                reached.extend(&now);
            }
        }
        reached
    })
}

#[test]
fn a_pattern_fits_what_it_describes_and_nothing_else() {
    for (pattern, fits, others) in [
        ("^[A-Z0-9]{2,4}_[A-Z]+$", &["GT_U", "GT12_USDT"][..], &["G_U", "GT_", "gt_U", "GT12A_U", "GT_U "][..]),
        (r"^([0-9]+(\.[0-9]{1,2})?)?$", &["", "1", "1.25"], &[".", "1.", "1.234", "1x5"]),
        ("^callback[A-Za-z0-9._-]{0,3}$", &["callback", "callback.-_"], &["callbac", "callbackabcd"]),
        (
            "^(19[7-9][0-9]|[2-8][0-9]{3}|9[0-8][0-9]{2}|99[0-8][0-9]|999[0-8])-(0[1-9]|1[0-2])$",
            &["1970-01", "2026-12", "9899-01", "9989-01", "9998-12"],
            &["1969-01", "2026-13", "9999-01"],
        ),
        ("^[!-~]{3}$", &["!a~"], &["a b", "ab"]),
    ] {
        for text in fits {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for text in others {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
