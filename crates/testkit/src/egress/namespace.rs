//! A network of the run's own, with no way out: the program starts itself again in a new network namespace and a new mount namespace. There
//! the loopback device owns every address that there is, and the C library asks the run's own name server.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The name server's address in there; its port is 53.
pub const RESOLVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 53));

/// As root, and as somebody who becomes root in there only.
const WAYS: [&str; 2] = ["-nm", "-Urnm"];
const NO_NETWORK: &str = "no network of its own can be made on this machine, so nothing was tried and nothing is shown";

/// What the C library reads in there in place of the machine's files.
const FILES: [(&str, &str); 3] = [
    ("/etc/resolv.conf", "nameserver 127.0.0.53\noptions timeout:3 attempts:1\n"),
    ("/etc/nsswitch.conf", "hosts: files dns\n"),
    ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"),
];

/// Which network this process is in.
pub fn network() -> Result<String> {
    let name = fs::read_link("/proc/self/ns/net").context("this system does not say which network a process is in")?;
    Ok(name.to_string_lossy().into_owned())
}

/// Runs this program again as `inside NETWORK WHAT` in namespaces of its own; NETWORK is the one it must not be in. Fails where none can be made.
pub fn enter(what: &str) -> Result<ExitStatus> {
    let mut refusals = Vec::new();
    for way in WAYS {
        let tried = Command::new("unshare").args([way, "--", "true"]).stdin(Stdio::null()).output();
        match tried {
            Ok(out) if out.status.success() => {
                let own = std::env::current_exe()?;
                return Ok(Command::new("unshare")
                    .args([way, "--"])
                    .arg(own)
                    .args(["inside", &network()?, what])
                    .status()?);
            }
            Ok(out) => refusals.push(String::from_utf8_lossy(&out.stderr).trim().to_owned()),
            Err(error) => refusals.push(format!("unshare: {error}")),
        }
    }
    bail!("{NO_NETWORK}: {}", refusals.join("; "))
}

/// Makes the network what the run needs, once the process is in it, and shows that nothing leads out. `outside`: the network it came from.
/// `folder` must stay for as long as the process does.
pub fn prepare(outside: &str, folder: &Path) -> Result<()> {
    let ours = network()?;
    ensure!(ours != outside, "{NO_NETWORK}: this is {ours} still, the network of the machine");
    ip("link set lo up")?;
    ip("route add local 0.0.0.0/0 dev lo")?;
    ip("-6 route add local ::/0 dev lo").context("the run needs IPv6")?;
    for (line, about) in
        [("-o link show up", "device"), ("route show table all", "route"), ("-6 route show table all", "route")]
    {
        let shown = ip(line)?;
        let leads_out = |entry: &&str| !(entry.contains(" dev lo ") || entry.contains(": lo:"));
        let out = shown.lines().find(leads_out);
        ensure!(out.is_none(), "{NO_NETWORK}: there is a {about} that may lead out of it: {}", out.unwrap_or_default());
    }
    for (place, text) in FILES {
        let file = folder.join(place.trim_start_matches('/').replace('/', "-"));
        fs::write(&file, text)?;
        // Where a machine has no such file the C library does what the file would say, but for the name server's.
        if Path::new(place).exists() || place.ends_with("resolv.conf") {
            bind(&file, Path::new(place))?;
        }
    }
    let daemon = Path::new("/var/run/nscd");
    if daemon.exists() {
        let nothing = folder.join("no-daemon");
        fs::create_dir(&nothing)?;
        bind(&nothing, daemon)?;
    }
    Ok(())
}

/// Puts one file or folder in the place of another, for this process and its children.
fn bind(file: &Path, place: &Path) -> Result<()> {
    let out = Command::new("mount").arg("--bind").args([file, place]).output().context("mount could not be started")?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(
        out.status.success(),
        "{NO_NETWORK}: {} cannot be put in the place of another: {}",
        place.display(),
        said.trim()
    );
    Ok(())
}

/// `ip` with these words; what it prints.
fn ip(words: &str) -> Result<String> {
    let places = ["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip"].map(PathBuf::from);
    let program = places
        .into_iter()
        .find(|place| place.exists())
        .context("`ip` is not installed: the package iproute2 has it")?;
    let out = Command::new(program).args(words.split(' ')).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{NO_NETWORK}: `ip {words}`: {}", said.trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
