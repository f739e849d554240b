//! PostgreSQL's own programs: where they are, and whose processes they may be.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian puts the programs that are not for everybody's path.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The folder of PostgreSQL's programs, 15 or newer.
pub(super) fn programs() -> PathBuf {
    let version = |folder: &Path| folder.file_name()?.to_str()?.parse::<u32>().ok().filter(|version| *version >= 15);
    let debian = fs::read_dir(DEBIAN).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut debian: Vec<(u32, PathBuf)> = debian.filter_map(|path| Some((version(&path)?, path.join("bin")))).collect();
    debian.sort();
    let others = ["/usr/local/pgsql/bin", "/usr/local/bin", "/usr/bin"].map(PathBuf::from);
    let mut folders = debian.into_iter().map(|(_, folder)| folder).rev().chain(others);
    let found = folders.find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists());
    found.expect(
        "these tests need PostgreSQL 15 or newer on this machine: `cargo xtask test` installs it on Debian, or install the package postgresql-15",
    )
}

/// The user and group to run as: none unless we are root.
fn owner(of: &Path) -> Option<(u32, u32)> {
    if fs::metadata(of).expect("was just made").uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("there is a list of users");
    let entry = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    Some(entry("postgres").or_else(|| entry("nobody")).expect("there is a user to run PostgreSQL as"))
}

pub(super) fn command(program: &Path, folder: &Path, owner: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LC_ALL", "C");
    if let Some((uid, gid)) = owner {
        command.uid(uid).gid(gid);
    }
    command
}

/// Makes a folder that belongs to whoever runs the server in it, and says who that is.
pub(super) fn given_folder(folder: &Path) -> Option<(u32, u32)> {
    fs::create_dir(folder).expect("a folder for the cluster");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("is ours");
    let owner = owner(folder);
    if let Some((uid, gid)) = owner {
        std::os::unix::fs::chown(folder, Some(uid), Some(gid)).expect("is given away");
    }
    owner
}

/// Makes a cluster in `folder/d` that trusts whoever can reach it.
pub(super) fn initdb(folder: &Path, owner: Option<(u32, u32)>) {
    let made = command(&programs().join("initdb"), folder, owner)
        .args(["-N", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale", "-D", "d"])
        .output()
        .expect("initdb can be started");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
}
