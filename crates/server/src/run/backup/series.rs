//! Backups in a folder of their own, one after the other, each named by its time, and the removal of old ones.
//!
//! Invariant: what is removed has been read as a backup that a restore takes, of this deployment's master key, and older than as many of the same kind as
//! are to be kept.

use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use countersign_domain::time::{UnixMillis, rfc3339};

use super::{Trailer, read_trailer};

const PREFIX: &str = "countersign-";
const SUFFIX: &str = ".backup";
/// `2026-12-01T16-18-00`.
const TIME_CHARS: usize = 19;

/// The file of a backup that begins now, in `folder`.
pub fn file_in(folder: &Path, now: UnixMillis) -> PathBuf {
    // Colons are no part of a name everywhere.
    let time: String = rfc3339(now).chars().take(TIME_CHARS).collect::<String>().replace(':', "-");
    folder.join(format!("{PREFIX}{time}Z{SUFFIX}"))
}

/// Whether a name is one that [`file_in`] makes.
fn is_ours(name: &str) -> bool {
    let time = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
    let is_like = |(at, byte): (usize, u8)| match at {
        4 | 7 | 13 | 16 => byte == b'-',
        10 => byte == b'T',
        TIME_CHARS => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    time.is_some_and(|time| time.len() == TIME_CHARS + 1 && time.bytes().enumerate().all(is_like))
}

/// What became of older backups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thinned {
    /// Removed, the newest first.
    pub removed: Vec<PathBuf>,
    /// Named as backups of the series, and left alone: broken, unreadable, or under another master key.
    pub left_alone: Vec<PathBuf>,
}

/// Keeps `keep` good backups of the folder, of which `made` is one, and removes the good ones that are older. Nothing is removed for a broken one.
pub fn thin(folder: &Path, made: &Path, of_made: &Trailer, keep: NonZeroUsize) -> anyhow::Result<Thinned> {
    let mut thinned = Thinned::default();
    if of_made.broken.is_some() {
        return Ok(thinned);
    }
    let mut others = named_as_backups(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    others.retain(|other| other != made);
    // Their names are their times.
    others.sort_unstable_by(|one, other| other.cmp(one));
    let mut good = 1;
    for other in others {
        let is_good = read_trailer(&other)
            .is_ok_and(|trailer| trailer.broken.is_none() && trailer.master_key_id == of_made.master_key_id);
        match is_good {
            false => thinned.left_alone.push(other),
            true if good < keep.get() => good += 1,
            true => match std::fs::remove_file(&other) {
                // Whoever made another backup at the same time has removed it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => {
                    removed.with_context(|| format!("{} cannot be removed", other.display()))?;
                    thinned.removed.push(other);
                }
            },
        }
    }
    Ok(thinned)
}

/// Regular files with such names; no links.
fn named_as_backups(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut named = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_ours) && entry.file_type()?.is_file() {
            named.push(entry.path());
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_the_time_and_only_such_names_are_ours() {
        let file = file_in(Path::new("/backup"), UnixMillis(1_796_141_880_123));
        assert_eq!(file, Path::new("/backup/countersign-2026-12-01T16-18-00Z.backup"));
        assert!(is_ours("countersign-2026-12-01T16-18-00Z.backup"));
        for other in [
            "countersign-2026-12-01T16-18-00Z.backup.lock",
            "countersign-2026-12-01T16-18-00Z",
            "countersign-2026-12-01T16:18:00Z.backup",
            "countersign-2026-12-01.backup",
            "countersign-latest.backup",
            "my-countersign-2026-12-01T16-18-00Z.backup",
            "2026-12-01",
        ] {
            assert!(!is_ours(other), "{other}");
        }
    }
}
