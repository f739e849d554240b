//! A server whose disk is full, and then is not: in a name space of its own, so that nobody else's is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{Deployment, Server, binary};

/// A server on a disk of six MiB, of which it may fill two.
#[derive(Debug)]
pub struct Cramped {
    /// The server.
    pub server: Server,
    /// What it says.
    pub log: PathBuf,
    flag: PathBuf,
}

impl Cramped {
    /// Starts it with its data in `folder`.
    pub fn start(folder: &Path) -> Result<Self> {
        let deployment = Deployment::init(&folder.join("data"))?;
        let (log, flag) = (folder.join("log"), folder.join("room"));
        let script = format!(
            "set -e; cp -a {data} {data}.was; mount -t tmpfs -o size=6m,mode=700 tmpfs {data}; cp -a {data}.was/. {data}
             head -c 4194304 /dev/zero >{data}/filler
             (while [ ! -e {flag} ] && kill -0 $$; do sleep 0.05; done; rm -f {data}/filler) </dev/null >/dev/null 2>&1 &
             exec {program} serve --data {data} --listen 127.0.0.1:0 --operator-listen 127.0.0.1:0 2>{log}",
            data = deployment.data.display(),
            flag = flag.display(),
            log = log.display(),
            program = binary().display()
        );
        let mut command = Command::new("unshare");
        // As a user of one's own, where one is not root.
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
        let server = deployment.serve_as(command)?;
        Ok(Self { server, log, flag })
    }

    /// Takes away what fills the disk.
    pub fn make_room(&self) -> Result<()> {
        std::fs::write(&self.flag, "").context("a flag is put up")
    }
}
