//! Stands between a store and its database, and breaks connections at the worst moment.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};

/// What happens to the next commit that comes by; then to those after it nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Nothing.
    Never,
    /// The connection breaks before the database hears of it.
    BeforeCommit,
    /// As [`Break::BeforeCommit`], and so does the next one that asks for the fate: when it has been answered.
    BeforeCommitAndFate,
    /// The second half of that.
    Fate,
    /// The store sees the connection break before the database hears of the commit; the database sees nothing.
    HalfOpen,
    /// The transaction stands still after its `BEGIN`, and the store sees the connection break in the commit. [`Proxy::let_go`] lets
    /// the transaction go on.
    Late,
    /// The connection breaks when the database has done it, before its answer arrives.
    AfterCommit,
    /// As [`Break::AfterCommit`], and from then on nobody gets through.
    AfterCommitForGood,
    /// As [`Break::BeforeCommit`], and from then on nobody gets through.
    BeforeCommitForGood,
    /// The database does it, and the store hears that there was an error, of this severity.
    Saying(&'static str),
    /// Nobody gets through.
    Closed,
    /// From a `BEGIN` to its `COMMIT` no answer of the database arrives.
    Mute,
    /// From the first message with these words on no answer of the database arrives.
    Silent(&'static str),
}

/// A proxy; its connections live as long as the runtime.
#[derive(Debug)]
pub struct Proxy {
    folder: tempfile::TempDir,
    shared: Shared,
    late: tokio::sync::Mutex<mpsc::UnboundedReceiver<bool>>,
}

/// What its connections share.
#[derive(Clone, Debug)]
struct Shared {
    mode: Arc<Mutex<Break>>,
    go: Arc<Notify>,
    /// Whether a late transaction committed.
    committed: mpsc::UnboundedSender<bool>,
}

impl Shared {
    fn mode(&self) -> Break {
        *self.mode.lock().expect("no panic under it")
    }

    fn set(&self, mode: Break) {
        *self.mode.lock().expect("no panic under it") = mode;
    }
}

/// `BEGIN` and `COMMIT` as simple queries, as they go over the line.
const BEGIN: &[u8] = b"Q\0\0\0\x0aBEGIN\0";
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";
/// What the database says when it is done, or has not done it.
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";
const ROLLED_BACK: &[u8] = b"C\0\0\0\x0dROLLBACK\0";
/// Part of the statement that asks for a fate, and of no other about marks; and what the database says to it.
const ASKS_FATE: [&[u8]; 2] = [b"commit_mark", b"ON CONFLICT"];
const INSERTED: &[u8] = b"INSERT 0 1\0";

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

fn has(bytes: &[u8], pattern: &[u8]) -> bool {
    find(bytes, pattern).is_some()
}

impl Proxy {
    /// Before the database in `to`.
    pub fn before(to: PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).expect("listens");
        let (committed, late) = mpsc::unbounded_channel();
        let shared = Shared { mode: Arc::new(Mutex::new(Break::Never)), go: Arc::default(), committed };
        let proxy = Self { folder, shared: shared.clone(), late: tokio::sync::Mutex::new(late) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.mode() == Break::Closed {
                    continue;
                }
                let server = UnixStream::connect(to.join(".s.PGSQL.5432")).await.expect("the cluster answers");
                tokio::spawn(pass(client, server, shared.clone()));
            }
        });
        proxy
    }

    pub fn set(&self, mode: Break) {
        self.shared.set(mode);
    }

    pub fn mode(&self) -> Break {
        self.shared.mode()
    }

    /// Lets the late transaction go on, and says whether it committed.
    pub async fn let_go(&self) -> bool {
        self.shared.go.notify_one();
        self.late.lock().await.recv().await.expect("a transaction is late")
    }

    /// The database's address through this proxy.
    pub fn url(&self, of: &str) -> String {
        let name = of.rsplit('/').next().expect("a name");
        let folder = self.folder.path().to_str().expect("a temporary folder is UTF-8").replace('/', "%2F");
        format!("postgres://postgres@{folder}/{name}")
    }
}

/// The rest of a transaction that stands still: everything that the store sends after its `BEGIN`, and then the connection breaks for it.
async fn late(
    mut client: UnixStream,
    mut server: UnixStream,
    mut held: Vec<u8>,
    shared: Shared,
) -> std::io::Result<()> {
    let (mut bytes, mut asked) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    while !has(&held, COMMIT) {
        tokio::select! {
            read = client.read(&mut asked) => held.extend(&asked[..read?]),
            read = server.read(&mut bytes) => {
                let read = read?;
                client.write_all(&bytes[..read]).await?;
            }
        }
    }
    drop(client);
    shared.go.notified().await;
    server.write_all(&held).await?;
    let mut said = Vec::new();
    while !has(&said, COMMITTED) && !has(&said, ROLLED_BACK) {
        let read = server.read(&mut bytes).await?;
        assert_ne!(read, 0, "the database answers");
        said.extend(&bytes[..read]);
    }
    shared.committed.send(has(&said, COMMITTED)).map_err(std::io::Error::other)
}

/// Reads until the database ends the connection.
async fn half_open(client: UnixStream, mut server: UnixStream) -> std::io::Result<()> {
    drop(client);
    let mut bytes = vec![0; 1 << 16];
    while server.read(&mut bytes).await? > 0 {}
    Ok(())
}

/// An error as the database sends it.
fn error(severity: &str) -> Vec<u8> {
    let fields = format!("S{severity}\0V{severity}\0C58030\0Mcould not fdatasync file\0\0");
    let length = i32::try_from(fields.len() + 4).expect("short").to_be_bytes();
    [b"E".as_slice(), &length, fields.as_bytes()].concat()
}

/// What becomes of a connection when a commit passes.
enum AtCommit {
    GoesOn,
    /// It ends with the commit's answer; in its place the server is made to say this.
    Answer(Option<&'static str>),
    /// The commit does not arrive, and the connection ends.
    Cut,
    HalfOpen,
    Gone,
}

/// How it is to break now, and from now on.
fn at_commit(shared: &Shared) -> AtCommit {
    let now = shared.mode();
    shared.set(Break::Never);
    match now {
        Break::Never | Break::Late | Break::Mute => AtCommit::GoesOn,
        Break::Fate | Break::Silent(_) => {
            shared.set(now);
            AtCommit::GoesOn
        }
        Break::BeforeCommit => AtCommit::Cut,
        Break::BeforeCommitAndFate => {
            shared.set(Break::Fate);
            AtCommit::Cut
        }
        Break::HalfOpen => AtCommit::HalfOpen,
        Break::AfterCommit => AtCommit::Answer(None),
        Break::Saying(severity) => AtCommit::Answer(Some(severity)),
        Break::BeforeCommitForGood => {
            shared.set(Break::Closed);
            AtCommit::Cut
        }
        Break::AfterCommitForGood => {
            shared.set(Break::Closed);
            AtCommit::Answer(None)
        }
        Break::Closed => {
            shared.set(Break::Closed);
            AtCommit::Gone
        }
    }
}

/// Passes bytes both ways until one side ends or it is time to break.
async fn pass(mut client: UnixStream, mut server: UnixStream, shared: Shared) -> std::io::Result<()> {
    let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut ends_with_the_answer = false;
    let mut says = None;
    let mut ends_with_the_fate = false;
    let mut is_mute = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let bytes = &asked[..read?];
                if bytes.is_empty() {
                    return Ok(());
                }
                if let Some(at) = find(bytes, BEGIN) {
                    if shared.mode() == Break::Late {
                        shared.set(Break::Never);
                        let (first, rest) = bytes.split_at(at + BEGIN.len());
                        server.write_all(first).await?;
                        return late(client, server, rest.to_vec(), shared).await;
                    }
                    is_mute = shared.mode() == Break::Mute;
                }
                is_mute |= matches!(shared.mode(), Break::Silent(from) if has(bytes, from.as_bytes()));
                if shared.mode() == Break::Fate && ASKS_FATE.iter().all(|part| has(bytes, part)) {
                    ends_with_the_fate = true;
                }
                if let Some(at) = find(bytes, COMMIT) {
                    is_mute = false;
                    match at_commit(&shared) {
                        AtCommit::GoesOn => {}
                        AtCommit::Answer(said) => {
                            ends_with_the_answer = true;
                            says = said;
                        }
                        AtCommit::Cut => return server.write_all(&bytes[..at]).await,
                        AtCommit::HalfOpen => {
                            server.write_all(&bytes[..at]).await?;
                            return half_open(client, server).await;
                        }
                        AtCommit::Gone => return Ok(()),
                    }
                }
                server.write_all(bytes).await?;
            }
            read = server.read(&mut answered), if !is_mute => {
                let bytes = &answered[..read?];
                if ends_with_the_fate && has(bytes, INSERTED) {
                    shared.set(Break::Never);
                    return Ok(());
                }
                if ends_with_the_answer && let Some(at) = find(bytes, COMMITTED) {
                    if let Some(severity) = says {
                        client.write_all(&[&bytes[..at], &error(severity)].concat()).await?;
                    }
                    return Ok(());
                }
                if bytes.is_empty() {
                    return Ok(());
                }
                client.write_all(bytes).await?;
            }
        }
    }
}
