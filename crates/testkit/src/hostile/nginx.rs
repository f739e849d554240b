//! A real nginx before a server, as many deployments have one: what it lets through must not be read differently behind it.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use countersign_store::testing::free_port;
use tokio::net::TcpStream;

use crate::patience::until;

/// Where Debian and people who build it themselves put it; `cargo xtask test` looks there, too.
const PROGRAMS: [&str; 2] = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"];
const PATIENCE: Duration = Duration::from_secs(20);

/// The proxy. Ended when it is dropped.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    /// Where clients call.
    pub listen: SocketAddr,
}

impl Nginx {
    /// Starts it before `behind` with its files in `folder`, and waits until it takes connections. It keeps connections to the server open,
    /// so that what one client smuggles would meet another's request.
    pub async fn start(folder: &Path, behind: SocketAddr) -> Result<Self> {
        let program = PROGRAMS.iter().find(|path| Path::new(path).exists()).context(
            "this needs nginx on this machine: `cargo xtask test` installs it on Debian, or install the package nginx-light",
        )?;
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let config = folder.join("nginx.conf");
        std::fs::write(&config, text(folder, listen, behind))?;
        let log = File::create(folder.join("nginx.out"))?;
        let child = Command::new(program)
            .arg("-c")
            .arg(&config)
            .arg("-p")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let nginx = Self { child, listen };
        until("nginx takes connections", PATIENCE, async || Ok(TcpStream::connect(listen).await.ok().map(drop)))
            .await?;
        Ok(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One process without workers, so that ending it ends everything.
fn text(folder: &Path, listen: SocketAddr, behind: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log {folder}/nginx.log;\n\
         events {{ worker_connections 1000; }}\n\
         http {{\n\
         \x20 access_log off;\n\
         \x20 client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n\
         \x20 uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
         \x20 client_max_body_size 0;\n\
         \x20 upstream server {{ server {behind}; keepalive 8; }}\n\
         \x20 server {{\n\
         \x20   listen {listen};\n\
         \x20   location / {{\n\
         \x20     proxy_pass http://server; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_request_buffering off;\n\
         \x20   }}\n\
         \x20 }}\n\
         }}\n"
    )
}
