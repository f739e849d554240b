//! Files that are there whole or not at all: they have another name until they are whole and on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const MODE: u32 = 0o600;
const SUFFIX: &str = "unfinished";

/// A file without its name. Dropped, it is gone.
#[derive(Debug)]
pub struct UnfinishedFile {
    file: File,
    at: PathBuf,
    name: PathBuf,
}

/// The name of a file that is not whole yet, or of what belongs to one: `what` behind its own.
pub fn beside(file: &Path, what: &str) -> io::Result<PathBuf> {
    let name = file.file_name();
    let name =
        name.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, format!("{} names no file", file.display())))?;
    let mut name = name.to_owned();
    name.push(format!(".{what}"));
    Ok(file.with_file_name(name))
}

/// Whether a file of this name was left behind by a process that was cut off.
pub fn is_unfinished(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|end| end == SUFFIX)
}

impl UnfinishedFile {
    /// Begins a file that only its owner may read. What a run before has left in its place is removed. One process at a time: see to it.
    pub fn begin(name: &Path) -> io::Result<Self> {
        Self::at(beside(name, SUFFIX)?, name)
    }

    /// The same where other processes may be making it, too.
    pub fn begin_with_others(name: &Path) -> io::Result<Self> {
        Self::at(beside(name, &format!("{}.{SUFFIX}", std::process::id()))?, name)
    }

    fn at(at: PathBuf, name: &Path) -> io::Result<Self> {
        remove(&at)?;
        // New, or not at all: root does not follow a link, nor wait for a pipe, that whoever has the folder has put there.
        let file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&at)?;
        Ok(Self { file, at, name: name.to_owned() })
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name, which nobody has; `AlreadyExists` where somebody has it.
    pub fn name_new(self) -> io::Result<()> {
        self.file.sync_all()?;
        give_name(&self.at, &self.name)?;
        sync_folder_of(&self.name)
    }

    /// Gives it its name, in the place of whatever file has it.
    pub fn replace(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.at, &self.name)?;
        sync_folder_of(&self.name)
    }
}

impl Write for UnfinishedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // It may have its name by now, and whoever failed tells why.
        let _ = fs::remove_file(&self.at);
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Gives a file that is whole its name, which nobody has.
pub fn give_name(unfinished: &Path, to: &Path) -> io::Result<()> {
    // A link, not a rename: it never replaces a file that is there.
    give_name_by(|from, to| fs::hard_link(from, to), unfinished, to)
}

fn give_name_by(link: impl FnOnce(&Path, &Path) -> io::Result<()>, unfinished: &Path, to: &Path) -> io::Result<()> {
    match link(unfinished, to) {
        Ok(()) => {
            // It is there by its name, so all is done; the other name does no harm.
            let _ = fs::remove_file(unfinished);
            Ok(())
        }
        // Not every file system has links. There only a lock keeps others away from the name.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) && !to.exists() => {
            fs::rename(unfinished, to)
        }
        Err(error) => Err(error),
    }
}

/// Whether an open file still has the name that it was opened by. Whoever removed it meanwhile may have made another one: then a lock of this one
/// keeps nobody out.
pub fn still_has_name(file: &File, name: &Path) -> bool {
    let which = |of: io::Result<fs::Metadata>| of.map(|of| (of.dev(), of.ino())).ok();
    let own = which(file.metadata());
    own.is_some() && own == which(fs::metadata(name))
}

/// The folder that a file is in.
pub fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts the names of a file's folder on stable storage.
pub fn sync_folder_of(file: &Path) -> io::Result<()> {
    File::open(folder_of(file))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_are_no_links_a_name_is_given_all_the_same_and_never_taken_away() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        fs::write(&one, "1").expect("it can be written");
        fs::write(&two, "2").expect("it can be written");
        give_name(&one, &two).expect_err("somebody has the name");
        assert_eq!(fs::read(&two).expect("it is there"), b"2");
        let refuses = |_: &Path, _: &Path| Err(ErrorKind::PermissionDenied.into());
        give_name_by(refuses, &one, &two).expect_err("somebody has the name");
        assert_eq!(fs::read(&two).expect("it is there"), b"2");
        let three = folder.path().join("three");
        give_name_by(refuses, &one, &three).expect("nobody has it");
        assert!(!one.exists() && three.exists());
    }

    #[test]
    fn a_file_that_was_removed_or_replaced_has_its_name_no_more() {
        let folder = tempfile::tempdir().expect("a folder");
        let (name, link) = (folder.path().join("lock"), folder.path().join("link"));
        let opened = File::create(&name).expect("is made");
        fs::hard_link(&name, &link).expect("links");
        assert!(still_has_name(&opened, &name) && still_has_name(&opened, &link));
        fs::remove_file(&name).expect("is removed");
        assert!(!still_has_name(&opened, &name), "nobody has it");
        File::create(&name).expect("is made");
        assert!(!still_has_name(&opened, &name) && still_has_name(&opened, &link), "another one has it");
    }

    #[test]
    fn a_file_has_its_name_when_it_is_whole_and_else_nothing_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let (name, victim) = (folder.path().join("cursor"), folder.path().join("victim"));
        let names = || {
            let entries = fs::read_dir(folder.path()).expect("is read");
            let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
            names.sort();
            names
        };
        let begun = |text: &str| {
            let mut file = UnfinishedFile::begin(&name).expect("begins");
            file.write_all(text.as_bytes()).expect("is written");
            assert!(!name.exists() || fs::read_to_string(&name).expect("is read") != text);
            file
        };
        drop(begun("0"));
        assert!(names().is_empty());
        begun("1").name_new().expect("nobody has the name");
        begun("2").name_new().expect_err("somebody has it");
        assert_eq!((fs::read_to_string(&name).expect("is read").as_str(), names().len()), ("1", 1));
        // What lies in the way is removed, and no link is followed.
        fs::write(&victim, "mine").expect("is written");
        std::os::unix::fs::symlink(&victim, beside(&name, SUFFIX).expect("a name")).expect("links");
        begun("3").replace().expect("takes its place");
        assert_eq!(fs::read_to_string(&name).expect("is read"), "3");
        assert_eq!((fs::read_to_string(&victim).expect("is read").as_str(), names().len()), ("mine", 2));
        assert!(is_unfinished("master.key.unfinished") && !is_unfinished("unfinished") && !is_unfinished("master.key"));
    }
}
