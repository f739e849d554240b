//! Backups in a folder of their own, one after the other, each named by its time, and the removal of old ones.
//!
//! Invariant: what is removed says of itself that it is a good backup under this master key, is older than the new one, and older than as many good ones as
//! are to be kept beside that; and the newest of those has been read whole. One process at a time removes.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use countersign_domain::time::{UnixMillis, rfc3339};
use serde::Serialize;

use super::{NameLock, Trailer, open_lock, read_trailer, remove, sum};
use crate::whole_file::beside;

const PREFIX: &str = "countersign-";
const SUFFIX: &str = ".backup";
/// `2026-12-01T16-18-00`.
const TIME_CHARS: usize = 19;
/// The file whose lock says that a process removes old backups.
const LOCK: &str = "countersign.lock";

/// The file of a backup that begins now, in `folder`. Where there is one of that second, the next second's.
pub fn file_in(folder: &Path, now: UnixMillis) -> PathBuf {
    let file = |at: UnixMillis| {
        // Colons are no part of a name everywhere.
        let time: String = rfc3339(at).chars().take(TIME_CHARS).collect::<String>().replace(':', "-");
        folder.join(format!("{PREFIX}{time}Z{SUFFIX}"))
    };
    let is_free = |file: &PathBuf| !file.exists() && !beside(file, "lock").is_ok_and(|lock| lock.exists());
    let mut seconds = (0..60).map(|second| file(now.plus_ms(second * 1_000)));
    seconds.find(is_free).unwrap_or_else(|| file(now))
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
    /// Removed, the newest first; and what was left of backups that were cut off.
    pub removed: Vec<PathBuf>,
    /// Named as backups of the series, and neither counted nor removed.
    pub left_alone: Vec<LeftAlone>,
}

/// A file that is named as a backup of the series, and left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftAlone {
    /// Which.
    pub file: PathBuf,
    /// Why: "it is broken".
    pub why: &'static str,
}

/// Keeps `keep` good backups of the folder, of which `made` is one in any case, and removes the good ones that are older. Nothing is removed for a broken one.
pub fn thin(folder: &Path, made: &Path, of_made: &Trailer, keep: u32) -> anyhow::Result<Thinned> {
    let mut thinned = Thinned::default();
    if of_made.broken.is_some() || of_made.master_key_id.is_empty() {
        return Ok(thinned);
    }
    // Until it is dropped. Whoever comes meanwhile waits, and sees what is left.
    let _alone = alone_in(folder)?;
    let unreadable = || format!("{} cannot be read", folder.display());
    let (mut others, cut_off) = named_as_backups(folder).with_context(unreadable)?;
    for file in cut_off {
        thinned.removed.extend(clear(&file));
    }
    others.retain(|other| other != made);
    // Their names are their times.
    others.sort_unstable_by(|one, other| other.cmp(one));
    let (mut good, mut is_proved) = (1, false);
    for file in others {
        match why_left(&file, made, of_made) {
            Err(why) => thinned.left_alone.push(LeftAlone { file, why }),
            Ok(of_file) if good < keep => {
                // Read whole, a day after it was written: it is what is left if the new one should be no good.
                if is_proved || is_whole(&file, &of_file) {
                    (good, is_proved) = (good + 1, true);
                } else {
                    thinned.left_alone.push(LeftAlone { file, why: "it is not what was written" });
                }
            }
            Ok(_) => {
                ensure!(is_proved || is_whole(made, of_made), "{} is not what was written", made.display());
                is_proved = true;
                match std::fs::remove_file(&file) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    removed => {
                        removed.with_context(|| format!("{} cannot be removed", file.display()))?;
                        thinned.removed.push(file);
                    }
                }
            }
        }
    }
    Ok(thinned)
}

/// The folder is this process's to remove files in until the file is dropped.
fn alone_in(folder: &Path) -> anyhow::Result<File> {
    let path = folder.join(LOCK);
    let file = open_lock(&path).and_then(|file| file.lock().map(|()| file));
    file.with_context(|| format!("{} cannot be locked", path.display()))
}

/// What a good backup that may be removed says of itself; else why it neither counts nor goes.
fn why_left(file: &Path, made: &Path, of_made: &Trailer) -> Result<Trailer, &'static str> {
    if file > made {
        return Err("its name is later than that of the new one: a clock was ahead, or another backup ended meanwhile");
    }
    let trailer = read_trailer(file).map_err(|_| "it is no backup that can be read")?;
    if trailer.broken.is_some() {
        return Err("it is broken");
    }
    if trailer.master_key_id != of_made.master_key_id {
        return Err("it is under another master key");
    }
    Ok(trailer)
}

/// Whether the bytes of a backup are those that were written.
fn is_whole(file: &Path, trailer: &Trailer) -> bool {
    let found = File::open(file).and_then(|file| sum(&mut BufReader::new(file), trailer.bytes, |_| Ok(())));
    found.is_ok_and(|found| found == trailer.sha256)
}

/// Clears away what a backup that was cut off has left, unless it is under way.
fn clear(file: &Path) -> Option<PathBuf> {
    let _lock = NameLock::take(file).ok()?;
    let unfinished = beside(file, "unfinished").ok()?;
    let was_there = unfinished.exists();
    remove(&unfinished);
    was_there.then_some(unfinished)
}

/// Regular files with such names, no links; and the names of those that were not finished.
fn named_as_backups(folder: &Path) -> std::io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut named, mut cut_off) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|_| entry.file_type().is_ok_and(|it| it.is_file())) else { continue };
        let of_unfinished = name.strip_suffix(".unfinished").or_else(|| name.strip_suffix(".lock"));
        if is_ours(name) {
            named.push(entry.path());
        } else if let Some(of) = of_unfinished.filter(|of| is_ours(of)) {
            cut_off.push(folder.join(of));
        }
    }
    Ok((named, cut_off))
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
