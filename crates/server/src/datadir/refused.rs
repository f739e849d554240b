//! Why a data folder or a master key is refused.

use std::path::PathBuf;

use thiserror::Error;

/// Why the data folder or the master key cannot be used: one sentence that says what to do.
#[derive(Debug, Error)]
pub enum DataRefused {
    /// No such folder.
    #[error("there is no data folder {}: make it with `countersign init --data {}`", .0.display(), .0.display())]
    NoFolder(PathBuf),
    /// Something of that name is no folder.
    #[error("{} is not a folder", .0.display())]
    NotAFolder(PathBuf),
    /// The system refused.
    #[error("{} {what}", path.display())]
    Io {
        /// Which file or folder.
        path: PathBuf,
        /// What could not be done: "cannot be read".
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another server works on the folder.
    #[error("another countersign process, a server or a command, has the data folder {}; wait until it ends or stop it, or use another folder", .0.display())]
    Locked(PathBuf),
    /// No key file.
    #[error("the master key file {} is not there; without it nothing in this deployment can be opened: bring it back from where you keep it, or name it with --master-key FILE", .0.display())]
    NoKey(PathBuf),
    /// No file of the key before.
    #[error("the file of the master key before, {}, is not there: bring it back; or, if `countersign master-key rewrap` has said that all secrets are under the new key, take `master_key_previous_file` out of the settings", .0.display())]
    NoPreviousKey(PathBuf),
    /// Everybody may enter the folder.
    #[error("everybody on this machine may enter the data folder {} (mode {mode:03o}), where the master key or the database is: run `chmod 700 {}`", path.display(), path.display())]
    FolderIsOpen {
        /// Which folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Others may enter a folder that holds what is not ours.
    #[error("{} holds {other}, which is no part of a deployment, and others may enter it: name a new folder for the data, or run `chmod 700 {}`", path.display(), path.display())]
    IsOfOthers {
        /// Which folder.
        path: PathBuf,
        /// Something that it holds.
        other: String,
    },
    /// Others may read the key.
    #[error("{what} {} may be read by others (mode {mode:03o}): run `chmod 600 {}`", path.display(), path.display())]
    KeyIsOpen {
        /// What the file holds.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A folder has no key in it, and a pipe may never have one.
    #[error("{what} {} is {is}: name a regular file", path.display())]
    NotAFile {
        /// What the file should hold.
        what: &'static str,
        /// Which one.
        path: PathBuf,
        /// What it is.
        is: &'static str,
    },
    /// Not 32 hex digits.
    #[error("{} does not hold the name of a node: remove it, and this node gets a new one", .0.display())]
    NotANodeId(PathBuf),
    /// Not a cluster and a timeline.
    #[error("{} does not hold a cluster and a timeline of PostgreSQL: remove it, and the next start writes it anew", .0.display())]
    NotATimeline(PathBuf),
    /// Not a time.
    #[error("{} does not hold the time of a backup: remove it, and the next backup writes it anew", .0.display())]
    NotABackupTime(PathBuf),
    /// Not 64 hex digits.
    #[error("{0} does not hold a master key: 64 hex digits are wanted, such as `openssl rand -hex 32` prints")]
    NotAKey(String),
    /// The command that prints a key did not.
    #[error("{setting} {program} {what}")]
    Command {
        /// Which setting.
        setting: &'static str,
        /// The program.
        program: String,
        /// What happened; never what it printed.
        what: String,
    },
}
