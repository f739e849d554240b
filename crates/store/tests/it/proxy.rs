//! Stands between a store and its database, and breaks connections at the worst moment.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

/// What happens to the next commit that comes by; then to those after it nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Nothing.
    Never,
    /// The connection breaks before the database hears of it.
    BeforeCommit,
    /// The connection breaks when the database has done it, before its answer arrives.
    AfterCommit,
    /// As [`Break::AfterCommit`], and from then on nobody gets through.
    AfterCommitForGood,
    /// Nobody gets through.
    Closed,
}

/// A proxy; its connections live as long as the runtime.
#[derive(Debug)]
pub struct Proxy {
    folder: tempfile::TempDir,
    mode: Arc<Mutex<Break>>,
}

/// `COMMIT` as a simple query, as it goes over the line.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
/// What the database says when it is done.
const COMMITTED: &[u8] = b"COMMIT\0";

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

impl Proxy {
    /// Before the database in `to`.
    pub fn before(to: PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).expect("listens");
        let mode = Arc::new(Mutex::new(Break::Never));
        let proxy = Self { folder, mode: Arc::clone(&mode) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *mode.lock().expect("no panic under it") == Break::Closed {
                    continue;
                }
                let server = UnixStream::connect(to.join(".s.PGSQL.5432")).await.expect("the cluster answers");
                tokio::spawn(pass(client, server, Arc::clone(&mode)));
            }
        });
        proxy
    }

    pub fn set(&self, mode: Break) {
        *self.mode.lock().expect("no panic under it") = mode;
    }

    pub fn mode(&self) -> Break {
        *self.mode.lock().expect("no panic under it")
    }

    /// The database's address through this proxy.
    pub fn url(&self, of: &str) -> String {
        let name = of.rsplit('/').next().expect("a name");
        let folder = self.folder.path().to_str().expect("a temporary folder is UTF-8").replace('/', "%2F");
        format!("postgres://postgres@{folder}/{name}")
    }
}

/// Passes bytes both ways until one side ends or it is time to break.
async fn pass(mut client: UnixStream, mut server: UnixStream, mode: Arc<Mutex<Break>>) -> std::io::Result<()> {
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut ends_with_the_answer = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let bytes = &asked[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                if let Some(at) = find(bytes, COMMIT) {
                    let now = std::mem::replace(&mut *mode.lock().expect("no panic under it"), Break::Never);
                    match now {
                        Break::Never => {}
                        Break::BeforeCommit => return server.write_all(&bytes[..at]).await,
                        Break::AfterCommit => ends_with_the_answer = true,
                        Break::AfterCommitForGood | Break::Closed => {
                            *mode.lock().expect("no panic under it") = Break::Closed;
                            ends_with_the_answer = now == Break::AfterCommitForGood;
                            if !ends_with_the_answer {
                                return Ok(());
                            }
                        }
                    }
                }
                server.write_all(bytes).await?;
            }
            read = server.read(&mut answered) => {
                let bytes = &answered[..read?];
                if bytes.is_empty() || (ends_with_the_answer && find(bytes, COMMITTED).is_some()) {
                    return Ok(());
                }
                client.write_all(bytes).await?;
            }
        }
    }
}
