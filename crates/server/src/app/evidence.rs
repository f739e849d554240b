//! Evidence of a payment order: gathered from the rows, line by line, and signed with the deployment's own key.
//!
//! What is read before the first line is small and is read until it fits together: the order, its moves, which callbacks there are. Callbacks
//! and the bytes of their attempts are read one at a time while the lines go out, so a file is never whole in memory. A file that breaks off has
//! no head, and is refused by whoever checks it.

use std::sync::Arc;
use std::time::Duration;

use countersign_domain::payment_order::PrepayId;
use countersign_store::batch::{Conflict, Guard, Write};
use countersign_store::contract::CommitError;
use countersign_store::{Store as _, StoreError};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::concurrency_limit::{ConcurrencyLimit, ConcurrencyPermit};
use super::error::AppError;
use super::master_key::{self, MASTER_KEY_ID};
use super::sealed::EVIDENCE;
use super::{Actor, App, Deed};
use crate::chance::Chance;
use crate::evidence::{Chain, Entry, Header, SigningKey};
use crate::vault::Vault;

mod callbacks;
mod order;

use callbacks::KeptCallbacks;
use order::Snapshot;

/// Files that one node makes at once for one token, and two more for all.
const AT_ONCE_MAX: usize = 4;
/// How long a line waits for a caller who does not read.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// Lines that are ready before they are asked for.
const AHEAD: usize = 4;
/// How often something is read or made anew because of others.
const TRIES_MAX: usize = 10;

/// Who may make a file now.
pub fn exports() -> ConcurrencyLimit {
    ConcurrencyLimit::new(AT_ONCE_MAX, AT_ONCE_MAX + 2, "files of evidence")
}

/// A line of a file on its way.
#[derive(Debug)]
pub struct FileLine {
    /// Its text, with its end.
    pub text: String,
    /// Whether it is the head, behind which nothing comes. A file that ends before it has broken off.
    pub is_last: bool,
}

/// Lines of a file, or why there are no more.
pub type FileLines = mpsc::Receiver<Result<FileLine, AppError>>;

/// The key of a deployment that begins, and what its setting shall hold.
pub fn new_key(vault: &Vault, chance: &Chance) -> (SigningKey, String) {
    let (seed, _, setting) = EVIDENCE.make(vault, chance);
    (SigningKey::new(&seed), setting)
}

/// Sees that a deployment has its key before anything is done, also one that was initialised by a program that did not make it: a backup from before
/// the first evidence would lack it, and what is restored of it make another, so that two keys would vouch for one deployment.
pub async fn begin(app: &App) {
    if let Err(error) = key(app, &Actor::system()).await {
        tracing::warn!(%error, "The key that signs evidence could not be made, or not be read; it is tried again when it is asked for");
    }
}

/// The deployment's key. Where there is none it is made: of two nodes that make one at once, one is kept.
pub async fn key(app: &App, actor: &Actor) -> Result<SigningKey, AppError> {
    for _ in 0..TRIES_MAX {
        if let Some(seed) = EVIDENCE.read(&app.vault, &app.store).await? {
            return Ok(SigningKey::new(&seed));
        }
        // Another node may have begun to seal under another master key.
        master_key::look(app).await?;
        let (seed, sealed_by, setting) = EVIDENCE.make(&app.vault, &app.chance);
        let key = SigningKey::new(&seed);
        let public = key.public();
        let after = json!({ "public_key": public.to_hex() }).to_string();
        let line = actor.records(Deed {
            tenant: None,
            at: app.clock.now(),
            action: "evidence.make_key",
            subject: &public.id(),
            before: String::new(),
            after,
        });
        let writes = vec![
            Write::Guard(Guard::Setting { name: MASTER_KEY_ID.to_owned(), value: sealed_by }),
            Write::MoveSetting { name: EVIDENCE.setting.to_owned(), from: None, to: setting },
            line,
        ];
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => return Ok(key),
            // Another node was first: its key counts.
            Err(CommitError::Conflict(Conflict::Moved(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(AppError::Busy)
}

/// Begins a file. Who takes it is in the audit log before its first line goes out.
pub async fn export(app: &Arc<App>, id: PrepayId, actor: &Actor) -> Result<FileLines, AppError> {
    let place = app.exports.take(&actor.name)?;
    let snapshot = order::snapshot(app, id).await?;
    let key = key(app, actor).await?;
    let callbacks = callbacks::list(app, &snapshot.row).await?;
    let header = order::header(app, &snapshot, &key, actor).await?;
    let after =
        json!({ "status": snapshot.row.order.status.name(), "revision": snapshot.row.order.revision }).to_string();
    let line = actor.records(Deed {
        tenant: Some(snapshot.row.tenant),
        at: app.clock.now(),
        action: "evidence.export",
        subject: &id.to_string(),
        before: String::new(),
        after,
    });
    app.store.commit(actor.batch(vec![line])).await?;
    let (lines, taken) = mpsc::channel(AHEAD);
    let file = File { app: app.clone(), header, snapshot, key, callbacks, lines, _place: place };
    tokio::spawn(file.write());
    Ok(taken)
}

/// A file on its way.
struct File {
    app: Arc<App>,
    header: Header,
    snapshot: Snapshot,
    key: SigningKey,
    callbacks: KeptCallbacks,
    lines: mpsc::Sender<Result<FileLine, AppError>>,
    _place: ConcurrencyPermit,
}

/// Why no more lines are made.
enum Stopped {
    /// Nobody reads them.
    Unread,
    /// Something could not be read.
    Failed(AppError),
}

impl From<AppError> for Stopped {
    fn from(error: AppError) -> Self {
        Self::Failed(error)
    }
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl File {
    async fn write(self) {
        if let Err(Stopped::Failed(error)) = self.write_lines().await {
            let _ = timeout(READ_WITHIN, self.lines.send(Err(error))).await;
        }
    }

    async fn write_lines(&self) -> Result<(), Stopped> {
        let mut out = Out { chain: Chain::default(), lines: &self.lines };
        out.entry(Entry::Header(self.header.clone())).await?;
        for entry in order::entries(&self.app, &self.snapshot)? {
            out.entry(entry).await?;
        }
        if let Some(freed) = self.callbacks.freed(&self.snapshot) {
            out.entry(freed).await?;
        }
        for event in self.callbacks.events() {
            callbacks::write(&self.app, event, &mut out).await?;
        }
        let head = out.chain.close(&self.header, &self.key);
        out.line(FileLine { text: head, is_last: true }).await
    }
}

/// Where entries go.
struct Out<'l> {
    chain: Chain,
    lines: &'l mpsc::Sender<Result<FileLine, AppError>>,
}

impl Out<'_> {
    async fn entry(&mut self, entry: Entry) -> Result<(), Stopped> {
        let text = self.chain.append(entry);
        self.line(FileLine { text, is_last: false }).await
    }

    async fn line(&self, line: FileLine) -> Result<(), Stopped> {
        match timeout(READ_WITHIN, self.lines.send(Ok(line))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Stopped::Unread),
        }
    }
}

#[cfg(test)]
mod tests {
    use countersign_store::testing::Tampering;

    use super::*;
    use crate::app::audit_log::{self, Which};
    use crate::app::fixtures::{Deployment, nobody};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_deployment_has_its_key_from_the_beginning_so_that_every_backup_has_it() {
        let deployment = Deployment::on_sqlite().await.in_real_time();
        // Nobody has asked for evidence yet, nor served it.
        let restored = deployment.restored().await;
        let mut keys = Vec::new();
        for deployment in [&deployment, &restored] {
            let app = deployment.open().await;
            keys.push(key(&app, &nobody()).await.expect("is there").public().to_hex());
            Deployment::close(&app);
        }
        assert_eq!(keys[0], keys[1]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_deployment_of_a_program_that_made_no_key_gets_it_at_its_next_start_once() {
        let deployment = Deployment::on_postgres().await;
        deployment.database().tamper(Tampering::TakeEvidenceKey).await;
        for _ in 0..2 {
            let app = deployment.open().await;
            assert!(app.store.setting(EVIDENCE.setting).await.expect("reads").is_some());
            let which = Which { action: Some("evidence.make_key".to_owned()), ..Which::default() };
            let lines = audit_log::list(&app, &which, None, 9).await.expect("reads").rows;
            assert_eq!(lines.len(), 1, "{lines:?}");
            Deployment::close(&app);
        }
    }
}
