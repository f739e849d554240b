//! The file that remembers the last event that was taken.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::datadir;
use crate::whole_file::UnfinishedFile;

const LOCK_MODE: u32 = 0o600;
/// As many links as the system follows from one name.
const LINKS_MAX: usize = 40;
/// What a cursor may have; its one line has some 50 bytes.
const BYTES_MAX: u64 = 4 * 1024;

/// The cursor in the file, a seq and whose it is; none where there is no file yet. Each application counts its events by itself, so another one's
/// would pass events over without a word.
pub(super) fn remembered(file: &Path, client_id: &str) -> anyhow::Result<Option<i64>> {
    let text = match read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("the cursor {} cannot be read", file.display())),
    };
    let mut words = text.split_whitespace();
    let seq = words.next().and_then(|seq| seq.parse::<i64>().ok()).filter(|seq| *seq >= 0);
    match (seq, words.next(), words.next()) {
        (Some(seq), None, None) => bail!(
            "the cursor {} does not say whose it is: if it is that of {client_id}, remove it and say --after {seq}",
            file.display()
        ),
        (Some(seq), Some(of), None) if of == client_id => Ok(Some(seq)),
        (Some(_), Some(of), None) => {
            bail!("the cursor {} is that of {of}, and this is {client_id}: name another file", file.display())
        }
        _ => bail!("the cursor {} holds no seq; remove it, and say --after", file.display()),
    }
}

/// Refuses what is no cursor before it is opened: a pipe is waited for without end, and a device read without end.
pub(super) fn demand_fit(file: &Path) -> anyhow::Result<()> {
    if let Some(is) = datadir::other_than_file(file) {
        bail!("the cursor {} is {is}: name a regular file", file.display());
    }
    let bytes = fs::metadata(file).map_or(0, |metadata| metadata.len());
    if bytes > BYTES_MAX {
        bail!(
            "the cursor {} has {bytes} bytes, and a cursor has at most {BYTES_MAX}: name another file",
            file.display()
        );
    }
    Ok(())
}

/// What is in it, which may be more than its size says: files of the system have none.
fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The file itself, by the one name that all its names come to. Also where it is not there yet: a link to it waits for it.
pub(super) fn behind_links(name: &Path) -> PathBuf {
    let folder_of = |file: &Path| file.parent().map_or_else(PathBuf::new, Path::to_owned);
    let mut file = name.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&file) else {
            let folder = folder_of(&file);
            let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
            let whole = fs::canonicalize(folder).ok().zip(file.file_name()).map(|(folder, name)| folder.join(name));
            return whole.unwrap_or(file);
        };
        file = folder_of(&file).join(target);
    }
    // Links that lead in a circle: whoever opens it is told.
    name.to_owned()
}

/// Takes the cursor for this process, by a lock on a file beside it: the cursor itself is replaced with each event.
pub(super) fn locked(cursor: &Path) -> anyhow::Result<File> {
    let mut beside = cursor.as_os_str().to_owned();
    beside.push(".lock");
    let unlocked = || format!("the cursor cannot be locked: {}", Path::new(&beside).display());
    if let Some(is) = datadir::other_than_file(Path::new(&beside)) {
        bail!("{} is {is}: name another file", unlocked());
    }
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(LOCK_MODE).open(&beside);
    let file = file.with_context(unlocked)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "the cursor {} is in use by another `countersign listen`: stop that one first, or name another file",
            cursor.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).with_context(unlocked),
    }
}

/// Replaces the file whole: a cut leaves the old cursor or the new one.
pub(super) fn remember(file: &Path, seq: i64, client_id: &str) -> anyhow::Result<()> {
    let write = || {
        let mut new = UnfinishedFile::begin(file)?;
        writeln!(new, "{seq} {client_id}")?;
        new.replace()
    };
    write().with_context(|| format!("the cursor {} cannot be written", file.display()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_no_cursor_is_refused_before_it_is_opened() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        let made = Command::new("mkfifo").arg(path("pipe")).status().expect("runs");
        assert!(made.success());
        std::os::unix::fs::symlink("/dev/zero", path("link")).expect("links");
        let said = |file: &Path| {
            let judged = demand_fit(file).and_then(|()| remembered(file, "app_1"));
            judged.map_err(|error| format!("{error:#}"))
        };
        for (file, is) in [(path("pipe"), "a pipe"), (path("link"), "a device"), (path("."), "a folder")] {
            let wanted = format!("the cursor {} is {is}: name a regular file", file.display());
            assert_eq!(said(&file), Err(wanted));
        }
        let file = path("cursor");
        fs::write(&file, format!("{:<4095}\n", "7 app_1")).expect("is written");
        assert_eq!(said(&file), Ok(Some(7)));
        fs::write(&file, format!("{:<4096}\n", "7 app_1")).expect("is written");
        let wanted =
            format!("the cursor {} has 4097 bytes, and a cursor has at most 4096: name another file", file.display());
        assert_eq!(said(&file), Err(wanted));
        assert_eq!(said(&path("nothing")), Ok(None));
        fs::write(&file, "7\n").expect("is written");
        let wanted = format!(
            "the cursor {} does not say whose it is: if it is that of app_1, remove it and say --after 7",
            file.display()
        );
        assert_eq!(said(&file), Err(wanted), "it may be another application's");
    }

    #[test]
    fn the_lock_is_no_pipe_that_is_waited_for() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lock = folder.path().join("cursor.lock");
        assert!(Command::new("mkfifo").arg(&lock).status().expect("runs").success());
        let said = locked(&folder.path().join("cursor")).map_err(|error| format!("{error:#}"));
        let wanted = format!("the cursor cannot be locked: {} is a pipe: name another file", lock.display());
        assert_eq!(said.map(|_| ()), Err(wanted));
    }

    #[test]
    fn all_names_of_a_cursor_come_to_one_whether_it_is_there_yet_or_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, path(name)).expect("links");
        fs::create_dir(path("kept")).expect("is made");
        link("kept/cursor", "one");
        link("one", "two");
        link("kept", "folder");
        link("circle", "circle");
        let wanted = fs::canonicalize(path("kept")).expect("is there").join("cursor");
        for is_there in [false, true] {
            if is_there {
                fs::write(path("kept/cursor"), "1").expect("is written");
            }
            for name in ["one", "two", "folder/cursor", "kept/../two"] {
                assert_eq!(behind_links(&path(name)), wanted, "{name} {is_there}");
            }
        }
        assert_eq!(behind_links(&path("circle")), path("circle"));
        assert_eq!(behind_links(&path("nowhere/cursor")), path("nowhere/cursor"));
    }
}
