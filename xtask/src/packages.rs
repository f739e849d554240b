//! The programs that tests start for themselves must be on the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::ensure;

/// Where Debian puts the programs of each version, in a folder named after it.
const DEBIAN: &str = "/usr/lib/postgresql";
const OTHERS: [&str; 3] = ["/usr/local/bin", "/usr/local/pgsql/bin", "/usr/bin"];
const VERSION_MIN: u32 = 15;

/// A program that tests start, and where it comes from.
pub struct Needed {
    what: &'static str,
    /// Debian's package.
    package: &'static str,
    is_there: fn() -> bool,
}

const NEEDED: [Needed; 6] = [
    Needed { what: "PostgreSQL 15 or newer", package: "postgresql-15", is_there: postgres_is_there },
    Needed { what: "PgBouncer", package: "pgbouncer", is_there: pgbouncer_is_there },
    Needed { what: "haproxy", package: "haproxy", is_there: haproxy_is_there },
    Needed { what: "nginx", package: "nginx-light", is_there: nginx_is_there },
    Needed { what: "ip", package: "iproute2", is_there: ip_is_there },
    Needed { what: "strace", package: "strace", is_there: || Path::new("/usr/bin/strace").exists() },
];

/// What single commands start beside these.
pub const SLOWHTTPTEST: Needed =
    Needed { what: "slowhttptest", package: "slowhttptest", is_there: || Path::new("/usr/bin/slowhttptest").exists() };
/// The same.
pub const TESTSSL: Needed =
    Needed { what: "testssl.sh", package: "testssl.sh", is_there: || Path::new("/usr/bin/testssl").exists() };

/// The settings under which an installation asks nothing and makes no cluster of its own.
const INSTALL: &str = "export DEBIAN_FRONTEND=noninteractive; mkdir -p /etc/postgresql-common/createcluster.d && \
    echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.d/countersign-tests.conf; \
    apt-get update -q && apt-get install -qy --no-install-recommends";

/// Sees to it that the tests find what they start: installs Debian's packages where something is missing and that is allowed.
pub fn provide() -> anyhow::Result<()> {
    provide_all(NEEDED.iter())
}

/// What a command needs on the machine beside what builds it.
pub enum Needs {
    Nothing,
    /// What the tests start.
    Tests,
    /// The same, and one program more.
    TestsAnd(&'static Needed),
}

impl Needs {
    /// Sees to it, as [`provide`] does.
    pub fn provide(&self) -> anyhow::Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Tests => provide(),
            Self::TestsAnd(one) => provide_all(NEEDED.iter().chain([*one])),
        }
    }
}

fn provide_all<'a>(all: impl Iterator<Item = &'a Needed>) -> anyhow::Result<()> {
    for needed in all.filter(|needed| !(needed.is_there)()) {
        let Needed { what, package, is_there } = needed;
        eprintln!("--> {what} is not on this machine: installing Debian's package {package}");
        ensure!(
            install(package) && is_there(),
            "the tests start a {what} of their own, and it could not be installed here: install the package {package} and try again"
        );
    }
    Ok(())
}

fn install(package: &str) -> bool {
    let script = format!("{INSTALL} {package}");
    let as_root = may_be_root_by_sudo();
    let mut command = if as_root { Command::new("sudo") } else { Command::new("sh") };
    let command = if as_root { command.args(["-n", "sh", "-c", &script]) } else { command.args(["-c", &script]) };
    Path::new("/usr/bin/apt-get").exists() && command.status().is_ok_and(|status| status.success())
}

/// Where Debian and people who build it themselves put it; tests look there, too.
fn haproxy_is_there() -> bool {
    ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"].iter().any(|path| Path::new(path).exists())
}

fn pgbouncer_is_there() -> bool {
    ["/usr/sbin/pgbouncer", "/usr/local/bin/pgbouncer"].iter().any(|path| Path::new(path).exists())
}

fn nginx_is_there() -> bool {
    ["/usr/sbin/nginx", "/usr/local/sbin/nginx"].iter().any(|path| Path::new(path).exists())
}

fn ip_is_there() -> bool {
    ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"].iter().any(|path| Path::new(path).exists())
}

/// Whether somebody who is not root may run programs as root without being asked for a password.
fn may_be_root_by_sudo() -> bool {
    let quiet = |command: &mut Command| {
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    !quiet(Command::new("sh").args(["-c", "[ \"$(id -u)\" = 0 ]"])) && quiet(Command::new("sudo").args(["-n", "true"]))
}

fn postgres_is_there() -> bool {
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
