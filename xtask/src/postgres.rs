//! The PostgreSQL that tests start for themselves must be on the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::ensure;

/// Where Debian puts the programs of each version, in a folder named after it.
const DEBIAN: &str = "/usr/lib/postgresql";
const OTHERS: [&str; 3] = ["/usr/local/bin", "/usr/local/pgsql/bin", "/usr/bin"];
const VERSION_MIN: u32 = 15;

/// Debian's package, and the settings under which its installation asks nothing and starts no server of its own.
const PACKAGE: &str = "postgresql-15";
const INSTALL: &str = "export DEBIAN_FRONTEND=noninteractive; mkdir -p /etc/postgresql-common/createcluster.d && \
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/countersign-tests.conf; \
    apt-get update -q && apt-get install -qy --no-install-recommends";

/// Sees to it that the tests find PostgreSQL: installs Debian's package where it is missing and that is allowed.
pub fn provide() -> anyhow::Result<()> {
    if is_there() {
        return Ok(());
    }
    eprintln!("--> PostgreSQL {VERSION_MIN} is not on this machine: installing Debian's package {PACKAGE}");
    let script = format!("{INSTALL} {PACKAGE}");
    let as_root = may_be_root_by_sudo();
    let mut command = if as_root { Command::new("sudo") } else { Command::new("sh") };
    let command = if as_root { command.args(["-n", "sh", "-c", &script]) } else { command.args(["-c", &script]) };
    let installed = Path::new("/usr/bin/apt-get").exists() && command.status().is_ok_and(|status| status.success());
    ensure!(
        installed && is_there(),
        "the tests start a PostgreSQL {VERSION_MIN} or newer of their own, and it could not be installed here: install the package {PACKAGE} and try again"
    );
    Ok(())
}

/// Whether somebody who is not root may run programs as root without being asked for a password.
fn may_be_root_by_sudo() -> bool {
    let quiet = |command: &mut Command| {
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    !quiet(Command::new("sh").args(["-c", "[ \"$(id -u)\" = 0 ]"])) && quiet(Command::new("sudo").args(["-n", "true"]))
}

fn is_there() -> bool {
    let versions = std::fs::read_dir(DEBIAN)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_new_enough(&entry.file_name().to_string_lossy()));
    let mut folders: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin")).collect();
    folders.extend(OTHERS.map(PathBuf::from));
    folders.iter().any(|folder| folder.join("initdb").exists() && folder.join("postgres").exists())
}

/// Whether a folder of [`DEBIAN`] holds a version that will do.
fn is_new_enough(name: &str) -> bool {
    name.parse::<u32>().is_ok_and(|version| version >= VERSION_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_15_will_not_do() {
        assert!(is_new_enough("15") && is_new_enough("17"));
        assert!(!is_new_enough("13") && !is_new_enough("9.6") && !is_new_enough("") && !is_new_enough("common"));
    }
}
