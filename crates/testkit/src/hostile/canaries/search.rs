//! Finds secrets in bytes, in every form that a program might have given them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::ReadDir;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use anyhow::{Context as _, Result};

/// No needle is shorter: what is would be found by chance.
const NEEDLE_BYTES_MIN: usize = 8;
/// Digits of a secret's begin, and of its end, that are enough to be found.
const PART: usize = 24;

/// How often a folder is looked at whose files come and go.
const LOOKS_MAX: usize = 3;

/// One form of one secret.
#[derive(Debug)]
struct Needle {
    secret: usize,
    form: &'static str,
    bytes: Vec<u8>,
}

/// What is looked for.
#[derive(Debug, Default)]
pub struct Needles {
    all: Vec<Needle>,
    /// Made of all of them when the first bytes are searched.
    searcher: OnceLock<AhoCorasick>,
    secrets: usize,
}

/// A secret that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Its number, in the order of [`Needles::add`].
    pub secret: usize,
    /// In which form.
    pub form: &'static str,
    /// Where in the bytes.
    pub at: usize,
}

impl Needles {
    /// Looks for this text, too; `sk_` and the like before it are left out, since what follows is the secret.
    pub fn add(&mut self, text: &str) -> usize {
        let core = text.rsplit('_').next().unwrap_or(text);
        let number = self.secrets;
        self.secrets += 1;
        for part in parts(core) {
            self.put(number, forms(part.as_bytes()));
            if let Some(bytes) = from_hex(part) {
                // Of what was written in hex, the bytes as well.
                self.put(number, binary_forms(&bytes));
            }
        }
        number
    }

    /// How many secrets are looked for.
    pub const fn len(&self) -> usize {
        self.secrets
    }

    /// Whether nothing is looked for.
    pub const fn is_empty(&self) -> bool {
        self.secrets == 0
    }

    fn put(&mut self, secret: usize, forms: Vec<(&'static str, Vec<u8>)>) {
        let long = forms.into_iter().filter(|(_, bytes)| bytes.len() >= NEEDLE_BYTES_MIN);
        self.all.extend(long.map(|(form, bytes)| Needle { secret, form, bytes }));
        self.searcher.take();
    }

    /// Everything that is found in `bytes`, in the order in which it ends.
    pub fn find(&self, bytes: &[u8]) -> Vec<Hit> {
        let searcher = self.searcher.get_or_init(|| {
            let needles = self.all.iter().map(|needle| &needle.bytes);
            AhoCorasick::new(needles).expect("there are fewer needles than it can number")
        });
        let hits = searcher.find_overlapping_iter(bytes).map(|found| {
            let needle = &self.all[found.pattern().as_usize()];
            Hit { secret: needle.secret, form: needle.form, at: found.start() }
        });
        hits.collect()
    }

    /// Everything that is found in the files under `folder`, and how many bytes they have. Files of these names are left out.
    pub fn find_under(&self, folder: &Path, but: &[&str]) -> Result<(Vec<String>, u64)> {
        let mut look = Look { needles: self, but, is_live: false, gone: 0, found: BTreeSet::new() };
        let size = look.at(std::fs::read_dir(folder).with_context(|| folder.display().to_string())?)?;
        Ok((look.found.into_iter().collect(), size))
    }

    /// The same where somebody works: a running PostgreSQL has files that come and go, its own and those of databases that are dropped
    /// meanwhile. What has gone is passed over; and since it may have gone to another name, all is looked at again, [`LOOKS_MAX`] times at
    /// the most.
    pub fn find_where_somebody_works(&self, folder: &Path) -> Result<(Vec<String>, u64)> {
        let mut look = Look { needles: self, but: &[], is_live: true, gone: 0, found: BTreeSet::new() };
        let mut size = 0;
        for _ in 0..LOOKS_MAX {
            let gone = look.gone;
            size = look.at(std::fs::read_dir(folder).with_context(|| folder.display().to_string())?)?;
            if look.gone == gone {
                break;
            }
        }
        Ok((look.found.into_iter().collect(), size))
    }
}

/// A look at the files of a folder.
struct Look<'a> {
    needles: &'a Needles,
    but: &'a [&'a str],
    /// Whether files may go meanwhile.
    is_live: bool,
    /// How many have.
    gone: usize,
    found: BTreeSet<String>,
}

impl Look<'_> {
    fn at(&mut self, entries: ReadDir) -> Result<u64> {
        let mut size = 0;
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            if self.but.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            let Some(kind) = self.there(entry.file_type(), &path)? else { continue };
            if kind.is_dir() {
                if let Some(below) = self.there(std::fs::read_dir(&path), &path)? {
                    size += self.at(below)?;
                }
            } else if kind.is_file()
                && let Some(bytes) = self.there(std::fs::read(&path), &path)?
            {
                size += bytes.len() as u64;
                let place = path.display();
                let hits = self.needles.find(&bytes).into_iter();
                self.found
                    .extend(hits.map(|hit| format!("{place}: secret {} as {} at {}", hit.secret, hit.form, hit.at)));
            }
        }
        Ok(size)
    }

    /// What was read of `path`; none where it has gone, and may.
    fn there<T>(&mut self, read: std::io::Result<T>, path: &Path) -> Result<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(error) if self.is_live && error.kind() == ErrorKind::NotFound => {
                self.gone += 1;
                Ok(None)
            }
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }
}

/// What is looked for of a secret: whoever has cut it somewhere has left its begin or its end.
fn parts(core: &str) -> Vec<&str> {
    if core.len() <= PART {
        return vec![core];
    }
    let (begin, end) = (core.get(..PART), core.get(core.len() - PART..));
    begin.into_iter().chain(end).collect()
}

/// Every form of a text.
pub fn forms(text: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let escaped = text.iter().fold(String::new(), |mut all, byte| {
        let _ = write!(all, "\\u{byte:04x}");
        all
    });
    let percent = text.iter().fold(String::new(), |mut all, byte| {
        let _ = write!(all, "%{byte:02X}");
        all
    });
    let wide = text.iter().flat_map(|byte| [*byte, 0]).collect();
    let listed = text.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut all = binary_forms(text);
    all.extend([
        ("JSON escapes", escaped.clone().into_bytes()),
        ("JSON escapes in capitals", escaped.to_uppercase().replace("\\U", "\\u").into_bytes()),
        ("percent signs", percent.into_bytes()),
        ("UTF-16", wide),
        ("a list of bytes", listed.join(", ").into_bytes()),
        ("a list of bytes without blanks", listed.join(",").into_bytes()),
    ]);
    all
}

/// Every form of bytes that are no text.
fn binary_forms(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let hex = |upper: bool| {
        let digits = bytes.iter().fold(String::new(), |mut all, byte| {
            let _ = write!(all, "{byte:02x}");
            all
        });
        if upper { digits.to_uppercase().into_bytes() } else { digits.into_bytes() }
    };
    let mut all = vec![("it is", bytes.to_vec()), ("hex", hex(false)), ("HEX", hex(true))];
    for (form, alphabet) in [("Base64", BASE64), ("Base64 for URLs", BASE64_URL)] {
        all.extend((0..3).map(|offset| (form, base64_at(bytes, offset, alphabet))));
    }
    all
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The letters of Base64 that depend on `bytes` alone, where `offset` unknown bytes stand before them.
fn base64_at(bytes: &[u8], offset: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let bit = |at: usize| {
        let byte = bytes[at / 8 - offset];
        byte >> (7 - at % 8) & 1
    };
    let (first, end) = ((offset * 8).div_ceil(6), (offset + bytes.len()) * 8 / 6);
    let letter = |n: usize| (0..6).fold(0, |value, k| value << 1 | bit(n * 6 + k));
    (first..end).map(|n| alphabet[usize::from(letter(n))]).collect()
}

/// The bytes of a text that is hex and nothing else.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0 && digits.len() >= 2 * NEEDLE_BYTES_MIN)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    const SECRET: &str = "sk_0123456789abcdef0123456789abcdeffedcba9876543210fedcba9876543210";

    fn found(haystack: &[u8]) -> Vec<&'static str> {
        let mut needles = Needles::default();
        needles.add(SECRET);
        let mut forms: Vec<_> = needles.find(haystack).into_iter().map(|hit| hit.form).collect();
        forms.dedup();
        forms
    }

    #[test]
    fn a_secret_is_found_in_every_form_wherever_it_stands() {
        let core = &SECRET[3..];
        for (form, bytes) in forms(core.as_bytes()) {
            let haystack = [b"{\"x\":\"".to_vec(), bytes, b"\"}".to_vec()].concat();
            assert!(found(&haystack).contains(&form), "{form}");
        }
        for cut in [&SECRET[..64], &SECRET[..30], &SECRET[40..], &core[1..]] {
            assert!(!found(cut.as_bytes()).is_empty(), "cut to {cut}");
        }
        assert_eq!(found(&SECRET.as_bytes()[..26]), [""; 0], "23 digits are no secret");
    }

    #[test]
    fn base64_is_found_in_all_three_alignments() {
        // Worked out by `base64`: a, aa and aaa before the secret.
        for text in [
            "YXNrXzAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=",
            "YWFza18wMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZmZlZGNiYTk4NzY1NDMyMTBmZWRjYmE5ODc2NTQzMjEw",
            "YWFhc2tfMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWZmZWRjYmE5ODc2NTQzMjEwZmVkY2JhOTg3NjU0MzIxMA==",
        ] {
            assert!(found(text.as_bytes()).contains(&"Base64"), "{text}");
        }
    }

    #[test]
    fn the_bytes_behind_a_secret_in_hex_are_found_too() {
        let bytes = from_hex(&SECRET[3..]).expect("hex");
        assert!(found(&[&[1, 2, 3][..], &bytes].concat()).contains(&"it is"));
    }

    #[test]
    fn files_are_searched_with_those_in_folders_below() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("below")).expect("made");
        std::fs::write(folder.path().join("below/file"), format!("x{SECRET}")).expect("written");
        std::fs::write(folder.path().join("left.out"), SECRET).expect("written");
        let mut needles = Needles::default();
        needles.add(SECRET);
        let (found, size) = needles.find_under(folder.path(), &["left.out"]).expect("read");
        assert!(
            found.len() == 4 && found.iter().all(|one| one.contains("below/file")) && size == 68,
            "{found:?} {size}"
        );
    }

    /// Files and folders that are made and taken away all the time, as a running database does.
    #[test]
    fn a_file_that_goes_meanwhile_is_passed_over_and_told_where_none_should_go() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("stays"), SECRET).expect("written");
        let mut needles = Needles::default();
        needles.add(SECRET);
        let (rounds, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (mut looks, mut strict) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let works = scope.spawn(|| {
                let below = folder.path().join("below");
                while !over.load(Ordering::Relaxed) {
                    std::fs::create_dir(&below).expect("made");
                    for n in 0..20 {
                        std::fs::write(below.join(n.to_string()), SECRET).expect("written");
                    }
                    std::fs::remove_dir_all(&below).expect("taken away");
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            let has_gone = |looks: &[Result<_>]| looks.iter().any(Result::is_err);
            let end = Instant::now() + Duration::from_secs(30);
            while !works.is_finished()
                && Instant::now() < end
                && (rounds.load(Ordering::Relaxed) < 100 || !has_gone(&strict))
            {
                looks.push(needles.find_where_somebody_works(folder.path()));
                strict.push(needles.find_under(folder.path(), &[]));
            }
            over.store(true, Ordering::Relaxed);
        });
        for look in looks {
            let (found, size) = look.expect("what goes is passed over");
            assert!(found.len() >= 4 && size >= 67, "{found:?} {size}");
        }
        assert!(strict.iter().any(Result::is_err), "none has gone in {} looks", strict.len());
        assert!(needles.find_where_somebody_works(&folder.path().join("nowhere")).is_err(), "no folder at all is told");
    }
}
