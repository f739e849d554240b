//! The data folder: who may read it, the master key in it, and the lock that keeps a second server out.

use std::fs::{DirBuilder, DirEntry, File, FileType, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use countersign_domain::time::{UnixMillis, parse_rfc3339, rfc3339};
use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::chance::{Chance, hex};
use crate::vault::MASTER_KEY_BYTES;
use crate::whole_file::{UnfinishedFile, folder_of, is_unfinished, still_has_name, sync_folder_of};

mod refused;

pub use refused::DataRefused;

/// A master key, wiped when dropped.
pub type MasterKey = Zeroizing<[u8; MASTER_KEY_BYTES]>;

/// The file whose lock says that a process has the folder.
const LOCK: &str = "lock";
const DATABASE: &str = "countersign.db";
const MASTER_KEY: &str = "master.key";
/// Where a node notes which server of a shared database it has served with.
pub const TIMELINE: &str = "database.timeline";
/// Where it is noted when the last good backup was begun.
pub const BACKUP: &str = "backup.last";
/// As much is written to see whether the disk has room: a file without content needs none.
const TRIED_BYTES: usize = 4_096;
/// What we lay into a data folder, or whoever makes a file system, beside the database and journals.
const OURS: [&str; 9] =
    [LOCK, MASTER_KEY, "node.id", "audit.chain", TIMELINE, BACKUP, "restoring", "demo.log", "lost+found"];
/// How the names of the others begin.
const OURS_BEGIN: [&str; 2] = [DATABASE, "nonces-"];
const FOLDER_MODE: u32 = 0o700;
const KEY_MODE: u32 = 0o600;
const SECRET_FILE_BYTES_MAX: usize = 2048;

/// A data folder that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataDir {
    path: PathBuf,
}

/// The data folder is this process's until this is dropped.
#[derive(Debug)]
pub struct DataLock {
    _file: File,
    /// The folder itself, too: whoever takes a lock for stale removes its file. Not every network's file system locks folders.
    _folder: Option<File>,
}

fn io(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> DataRefused + use<> {
    let path = path.to_path_buf();
    move |source| DataRefused::Io { path, what, source }
}

impl DataDir {
    /// Makes the folder, readable by its owner only; one that is there already is closed to others, unless something else lives there.
    pub fn create(path: &Path) -> Result<Self, DataRefused> {
        make_folders(path, sync_folder_of)?;
        let data = Self::open(path)?;
        // The files in it are the database and its log: whoever may enter may read them.
        if data.is_open_to_others()? {
            if let Some(other) = data.something_else()? {
                return Err(DataRefused::IsOfOthers { path: path.to_path_buf(), other });
            }
            let closed = std::fs::Permissions::from_mode(FOLDER_MODE);
            std::fs::set_permissions(path, closed).map_err(io(path, "is open to others and cannot be closed"))?;
        }
        Ok(data)
    }

    /// A folder that must be there.
    pub fn open(path: &Path) -> Result<Self, DataRefused> {
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Ok(Self { path: path.to_path_buf() }),
            Ok(_) => Err(DataRefused::NotAFolder(path.to_path_buf())),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(DataRefused::NoFolder(path.to_path_buf())),
            Err(error) => Err(io(path, "cannot be read")(error)),
        }
    }

    /// A folder that need not be there.
    pub fn named(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    /// Refuses a folder that everybody may enter: whoever reads the files in it reads the database.
    pub fn demand_closed(&self) -> Result<(), DataRefused> {
        let mode = self.mode()?;
        if is_open_to_everybody(mode) {
            return Err(DataRefused::FolderIsOpen { path: self.path.clone(), mode });
        }
        Ok(())
    }

    /// Whether anybody but the owner may enter the folder.
    pub fn is_open_to_others(&self) -> Result<bool, DataRefused> {
        let metadata = std::fs::metadata(&self.path).map_err(io(&self.path, "cannot be read"))?;
        Ok(metadata.mode() & 0o077 != 0)
    }

    /// A name in the folder that neither we nor the making of a file system put there. We make no links.
    fn something_else(&self) -> Result<Option<String>, DataRefused> {
        let names = std::fs::read_dir(&self.path).map_err(io(&self.path, "cannot be read"))?;
        let is_ours = |name: &str| {
            OURS.contains(&name) || OURS_BEGIN.iter().any(|begin| name.starts_with(begin)) || is_unfinished(name)
        };
        let something_else = |entry: DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().is_ok_and(|it| it.is_symlink()) {
                return Some(format!("the link {name}"));
            }
            (!is_ours(&name)).then_some(name)
        };
        Ok(names.filter_map(Result::ok).find_map(something_else))
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the SQLite database is.
    pub fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Where the master key is, unless the settings say otherwise.
    pub fn master_key(&self) -> PathBuf {
        self.path.join(MASTER_KEY)
    }

    /// Which node this folder makes of whoever serves it: 16 random bytes, made at the first start. On the disk when this returns.
    pub fn node_id(&self, chance: &Chance) -> Result<[u8; 16], DataRefused> {
        let path = self.path.join("node.id");
        match std::fs::read_to_string(&path) {
            Ok(text) => parse_hex(text.trim()).ok_or(DataRefused::NotANodeId(path)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let mut id = [0; 16];
                chance.fill(&mut id);
                write_new(&path, &hex(&id))?;
                Ok(id)
            }
            Err(error) => Err(io(&path, "cannot be read")(error)),
        }
    }

    /// Where the fingerprint of the key of the audit log's chain is, as this node has seen it.
    pub fn chain_key_file(&self) -> PathBuf {
        self.path.join("audit.chain")
    }

    /// That fingerprint; none before the first start.
    pub fn chain_key_seen(&self) -> Result<Option<String>, DataRefused> {
        let path = self.chain_key_file();
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io(&path, "cannot be read")(error)),
        }
    }

    /// Notes it. On the disk when this returns.
    pub fn note_chain_key(&self, fingerprint: &str) -> Result<(), DataRefused> {
        write_new(&self.chain_key_file(), fingerprint)
    }

    /// Forgets it, where the folder becomes that of another deployment.
    pub fn forget_chain_key(&self) -> Result<(), DataRefused> {
        remove(&self.chain_key_file())
    }

    /// Where it is noted which server of a shared database took the writes when this node last served.
    pub fn timeline_file(&self) -> PathBuf {
        self.path.join(TIMELINE)
    }

    /// Its cluster and timeline; none before the first start.
    pub fn timeline_seen(&self) -> Result<Option<(String, u64)>, DataRefused> {
        let path = self.timeline_file();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            // A command may name no folder, or one that is not there, or another's.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(_) if std::fs::metadata(self.path.join(std::path::Component::CurDir)).is_err() => return Ok(None),
            Err(error) => return Err(io(&path, "cannot be read")(error)),
        };
        let read = text.trim_end().split_once(' ').and_then(|(cluster, timeline)| {
            Some((cluster.to_owned(), timeline.parse().ok()?)).filter(|_| !cluster.is_empty())
        });
        read.map(Some).ok_or(DataRefused::NotATimeline(path))
    }

    /// Notes them in the place of what was noted before. On the disk when this returns.
    pub fn note_timeline(&self, cluster: &str, timeline: u64) -> Result<(), DataRefused> {
        let path = self.timeline_file();
        let file = unfinished(&path, &format!("{cluster} {timeline}"))?;
        file.replace().map_err(io(&path, "cannot be made"))
    }

    /// Notes when a good backup was begun, in the place of what was noted before; of several at once, in the end, one. On the disk when this returns.
    pub fn note_backup(&self, taken_at: UnixMillis) -> Result<(), DataRefused> {
        let path = self.path.join(BACKUP);
        let file = UnfinishedFile::begin_with_others(&path).map_err(io(&path, "cannot be made"))?;
        written(file, &path, &rfc3339(taken_at))?.replace().map_err(io(&path, "cannot be made"))
    }

    /// Forgets it, where the folder becomes that of another deployment.
    pub fn forget_backup(&self) -> Result<(), DataRefused> {
        remove(&self.path.join(BACKUP))
    }

    /// When the last good backup was begun that is noted here.
    pub fn backup_noted(&self) -> Result<Option<UnixMillis>, DataRefused> {
        let path = self.path.join(BACKUP);
        match std::fs::read_to_string(&path) {
            Ok(text) => parse_rfc3339(text.trim_end()).map(Some).ok_or(DataRefused::NotABackupTime(path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io(&path, "cannot be read")(error)),
        }
    }

    /// The permission bits of the folder.
    pub fn mode(&self) -> Result<u32, DataRefused> {
        mode_of(&self.path)
    }

    /// Writes a file in the folder, as every server does, and removes it.
    pub fn takes_files(&self) -> Result<(), DataRefused> {
        let tried = UnfinishedFile::begin(&self.path.join(LOCK)).and_then(|mut file| {
            file.write_all(&[0; TRIED_BYTES])?;
            // Some file systems look for room only now.
            file.file().sync_all()
        });
        match tried {
            // Somebody else tries just this.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            tried => tried.map_err(io(&self.path, "takes no files")),
        }
    }

    /// Whether a process has taken the folder. Looked at without making anything in it.
    pub fn is_locked(&self) -> Result<bool, DataRefused> {
        let path = self.path.join(LOCK);
        match File::open(&path) {
            Ok(file) => match file.try_lock_shared() {
                Ok(()) => Ok(false),
                Err(TryLockError::WouldBlock) => Ok(true),
                Err(TryLockError::Error(error)) => Err(io(&path, "cannot be locked")(error)),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(io(&path, "cannot be opened")(error)),
        }
    }

    /// Makes the folder, takes it for this process, and does something in it. Where that is refused, a folder that was made for it goes again,
    /// and in one that was there the lock.
    pub async fn make_for<T>(path: &Path, work: impl AsyncFnOnce(&Self) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let is_new = !path.exists();
        let data = Self::create(path)?;
        let lock = data.path.join(LOCK);
        let had_lock = lock.exists();
        let _lock = data.lock()?;
        let done = work(&data).await;
        match (done.is_err(), is_new) {
            (true, true) => data.unmake(),
            (true, false) if !had_lock => drop(std::fs::remove_file(lock)),
            (true | false, _) => {}
        }
        done
    }

    /// Takes back a folder that was made for nothing: it goes where nothing but the lock is in it.
    fn unmake(&self) {
        let lock = self.path.join(LOCK);
        let is_bare = |entries: std::fs::ReadDir| entries.flatten().all(|entry| entry.path() == lock);
        if std::fs::read_dir(&self.path).is_ok_and(is_bare) {
            // What cannot be removed is as good as empty.
            let _ = std::fs::remove_file(&lock);
            let _ = std::fs::remove_dir(&self.path);
        }
    }

    /// Takes the folder for this process. The lock ends with the process, however that ends.
    pub fn lock(&self) -> Result<DataLock, DataRefused> {
        let path = self.path.join(LOCK);
        let open = |is_new: bool| OpenOptions::new().create_new(is_new).write(true).mode(KEY_MODE).open(&path);
        let file = match open(true) {
            Ok(file) => {
                belong_to_owner_of(&path, &file);
                file
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                open(false).map_err(io(&path, "cannot be opened"))?
            }
            Err(error) => return Err(io(&path, "cannot be opened")(error)),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(DataRefused::Locked(self.path.clone())),
            Err(TryLockError::Error(error)) => return Err(io(&path, "cannot be locked")(error)),
        }
        // Whoever had it may have removed it between the two: then another one has that name, or nobody.
        if !still_has_name(&file, &path) {
            return Err(DataRefused::Locked(self.path.clone()));
        }
        let folder = File::open(&self.path).map_err(io(&self.path, "cannot be opened"))?;
        match folder.try_lock() {
            Ok(()) => Ok(DataLock { _file: file, _folder: Some(folder) }),
            Err(TryLockError::WouldBlock) => Err(DataRefused::Locked(self.path.clone())),
            Err(TryLockError::Error(_)) => Ok(DataLock { _file: file, _folder: None }),
        }
    }
}

/// The permission bits of a file or folder.
pub fn mode_of(path: &Path) -> Result<u32, DataRefused> {
    std::fs::metadata(path).map(|metadata| metadata.mode() & 0o777).map_err(io(path, "cannot be read"))
}

/// What stands where a file should; none: a file, as itself or behind a link.
fn no_file(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        _ => Some("a device"),
    }
}

/// What stands at a path where a file should; none: a file, or nothing that can be looked at.
pub fn other_than_file(path: &Path) -> Option<&'static str> {
    std::fs::metadata(path).ok().and_then(|metadata| no_file(metadata.file_type()))
}

/// Whether permission bits let anybody but the owner in.
pub const fn is_open_to_others(mode: u32) -> bool {
    mode & 0o077 != 0
}

/// Whether permission bits let everybody in.
pub const fn is_open_to_everybody(mode: u32) -> bool {
    mode & 0o007 != 0
}

/// Whether a file is one of systemd's credentials: their folder is the process's own, and their mode shows a group that there is not.
fn is_credential(path: &Path, credentials: Option<&Path>) -> bool {
    let folder = |path: &Path| path.canonicalize().ok();
    credentials.is_some_and(|of| path.parent().and_then(folder).is_some_and(|at| folder(of) == Some(at)))
}

/// Reads a master key file that only its owner may read. `credentials`: the folder where systemd has put files for this process.
pub fn read_key(path: &Path, credentials: Option<&Path>) -> Result<MasterKey, DataRefused> {
    if std::fs::metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Err(DataRefused::NoKey(path.to_path_buf()));
    }
    let text = read_secret(path, credentials, "the master key file")?;
    parse_key(&text, &format!("the file {}", path.display()))
}

/// The beginning of a small file that only its owner may read. `what`: its name in a refusal.
pub fn read_secret(
    path: &Path,
    credentials: Option<&Path>,
    what: &'static str,
) -> Result<Zeroizing<String>, DataRefused> {
    // Before it is opened: that of a pipe waits for whoever writes to it.
    let metadata = std::fs::metadata(path).map_err(io(path, "cannot be read"))?;
    if let Some(is) = no_file(metadata.file_type()) {
        return Err(DataRefused::NotAFile { what, path: path.to_path_buf(), is });
    }
    let mode = metadata.mode() & 0o777;
    let is_only_shown = mode & 0o077 == 0o040 && is_credential(path, credentials);
    if is_open_to_others(mode) && !is_only_shown {
        return Err(DataRefused::KeyIsOpen { what, path: path.to_path_buf(), mode });
    }
    // It never grows: what was read stands in one place, and is wiped there.
    let mut text = Zeroizing::new(String::with_capacity(2 * SECRET_FILE_BYTES_MAX));
    let file = File::open(path).map_err(io(path, "cannot be read"))?;
    file.take(SECRET_FILE_BYTES_MAX as u64).read_to_string(&mut text).map_err(io(path, "cannot be read"))?;
    Ok(text)
}

/// Makes a master key and writes it to a new file that only its owner may read; it is on the disk when this returns.
pub fn make_key(path: &Path, chance: &Chance) -> Result<MasterKey, DataRefused> {
    let mut key = MasterKey::default();
    chance.fill(key.as_mut_slice());
    write_new(path, &Zeroizing::new(hex(key.as_slice())))?;
    Ok(key)
}

/// Writes a line to a new file that only its owner may read; it is on the disk when this returns.
fn write_new(path: &Path, text: &str) -> Result<(), DataRefused> {
    // A half-written key would stand in the way of every later `init`.
    unfinished(path, text)?.name_new().map_err(io(path, "cannot be made"))
}

/// Makes a folder with those around it, and has the name of each that was made put on stable storage: what is in a folder is there only with
/// its name.
fn make_folders(path: &Path, mut sync: impl FnMut(&Path) -> std::io::Result<()>) -> Result<(), DataRefused> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => DataRefused::NotAFolder(path.to_path_buf()),
        _ => io(path, "cannot be made")(error),
    })?;
    for folder in missing {
        match sync(folder) {
            // Around it is one that may be written and not be read: nothing can be asked of that.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            synced => synced.map_err(io(folder, "cannot be put on the disk"))?,
        }
    }
    Ok(())
}

/// Removes a file that need not be there.
fn remove(path: &Path) -> Result<(), DataRefused> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io(path, "cannot be removed")(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A line in a file that has no name yet.
fn unfinished(path: &Path, text: &str) -> Result<UnfinishedFile, DataRefused> {
    written(UnfinishedFile::begin(path).map_err(io(path, "cannot be made"))?, path, text)
}

fn written(mut file: UnfinishedFile, path: &Path, text: &str) -> Result<UnfinishedFile, DataRefused> {
    belong_to_owner_of(path, file.file());
    file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(io(path, "cannot be written"))?;
    Ok(file)
}

/// Root makes files for whoever has the folder: the service could not read one of root's. Where root may not give them away (a container without that
/// right, a network's file system), they stay as they were made.
fn belong_to_owner_of(path: &Path, file: &File) {
    let owner = |of: std::io::Result<std::fs::Metadata>| of.map(|of| (of.uid(), of.gid())).ok();
    let (folder, own) = (owner(std::fs::metadata(folder_of(path))), owner(file.metadata()));
    if let Some((uid, gid)) = folder.filter(|_| geteuid().is_root() && folder != own) {
        let _ = fchown(file, Some(uid), Some(gid));
    }
}

pub(crate) fn parse_key(text: &str, origin: &str) -> Result<MasterKey, DataRefused> {
    let key = Zeroizing::new(parse_hex::<MASTER_KEY_BYTES>(text.trim()));
    (*key).map(MasterKey::new).ok_or_else(|| DataRefused::NotAKey(origin.to_owned()))
}

/// Reads two hex digits for each byte.
fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = digit(pair[0]).zip(digit(pair[1]))?;
        *byte = high << 4 | low;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests;
