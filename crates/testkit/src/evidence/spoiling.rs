//! Ways of spoiling a file of lines, each with the lines that may be named for it.

use std::ops::RangeInclusive;

use crate::dice::Dice;

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One byte becomes another.
    Change,
    /// One byte is put in.
    Insert,
    /// One byte is taken out.
    Delete,
    /// The file ends earlier, behind a whole line.
    Truncate,
    /// The file ends earlier, in the middle of a line.
    Tear,
    /// Two lines change places.
    Swap,
    /// A line comes twice.
    Double,
    /// A line is taken out.
    Remove,
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 8] =
        [Self::Change, Self::Insert, Self::Delete, Self::Truncate, Self::Tear, Self::Swap, Self::Double, Self::Remove];

    /// What is done.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Change => "one byte changed",
            Self::Insert => "one byte put in",
            Self::Delete => "one byte taken out",
            Self::Truncate => "cut off behind a line",
            Self::Tear => "cut off within a line",
            Self::Swap => "two lines swapped",
            Self::Double => "a line twice",
            Self::Remove => "a line taken out",
        }
    }
}

/// A spoiled file.
#[derive(Clone, Debug)]
pub struct Spoiled {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The lines that may be named, from 1. For a byte that was changed or taken out: the one that it was in.
    pub lines: RangeInclusive<u64>,
}

/// Spoils a good file.
pub fn spoil(way: Way, good: &[u8], dice: &mut Dice) -> Spoiled {
    let lines: Vec<&[u8]> = good.split_inclusive(|byte| *byte == b'\n').collect();
    let at = dice.below(good.len());
    let line = good[..at].split(|byte| *byte == b'\n').count() - 1;
    let of_byte = |bytes: Vec<u8>, last: usize| Spoiled { bytes, lines: number(line)..=number(last) };
    let any = u8::try_from(dice.below(255)).expect("less than 255");
    match way {
        Way::Change => {
            let mut bytes = good.to_vec();
            bytes[at] = bytes[at].wrapping_add(1 + any);
            of_byte(bytes, line)
        }
        Way::Insert => {
            let mut bytes = good.to_vec();
            let at = at + 1;
            bytes.insert(at, any);
            // Behind the end of a line it begins the next one.
            of_byte(bytes, line + 1)
        }
        Way::Delete => {
            let mut bytes = good.to_vec();
            bytes.remove(at);
            of_byte(bytes, line)
        }
        Way::Truncate => {
            let kept = dice.below(lines.len());
            Spoiled { bytes: lines[..kept].concat(), lines: number(kept)..=number(kept) }
        }
        Way::Tear => {
            // Not at the end of a line: that would be the way before.
            let at = if at == 0 || good[at - 1] == b'\n' { at + 1 } else { at };
            of_byte(good[..at].to_vec(), line)
        }
        Way::Swap => {
            let (one, other) = two(lines.len(), dice);
            let mut swapped = lines;
            swapped.swap(one, other);
            Spoiled { bytes: swapped.concat(), lines: number(one)..=number(one) }
        }
        Way::Double => {
            let bytes = [&lines[..=line], &lines[line..]].concat().concat();
            Spoiled { bytes, lines: number(line + 1)..=number(line + 1) }
        }
        Way::Remove => {
            let bytes = [&lines[..line], &lines[line + 1..]].concat().concat();
            Spoiled { bytes, lines: number(line)..=number(line) }
        }
    }
}

/// A line as people count.
fn number(line: usize) -> u64 {
    line as u64 + 1
}

/// Two different ones, the smaller first.
fn two(count: usize, dice: &mut Dice) -> (usize, usize) {
    let one = dice.below(count);
    let other = (one + 1 + dice.below(count - 1)) % count;
    (one.min(other), one.max(other))
}
