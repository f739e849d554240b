//! The store of one machine: a SQLite file, one writer thread with group commit, readers with kept snapshots.
//!
//! Invariant: `commit` answers after the log is on stable storage (`synchronous=FULL`).
//! Invariant: a caller reads its own acknowledged writes.

mod answers;
mod apply;
mod attempt_log;
mod audit_gaps;
mod backlog;
mod checkpoint;
mod conversion;
pub(crate) mod copying;
mod event_list;
mod fault;
mod faults;
mod guards;
mod heads;
mod identities;
mod journal;
mod lost_sync;
pub(crate) mod moving;
mod nonces;
mod open;
mod options;
mod owed;
mod paid_order;
mod payment_order;
mod presence;
mod public_ids;
mod purge;
mod queries;
mod readers;
mod redelivery;
mod rows;
mod schema;
mod secrets;
mod statements;
mod turning;
mod writer;
mod writes;

use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;
use tokio::sync::broadcast;

use crate::asker::Asker;
use crate::attempt_log::{AttemptBytes, OldBytes, OldEvents, TooOld};
use crate::batch::{Batch, Committed};
use crate::chain::{ChainHead, ChainKey, ChainLine, ChainPlace};
use crate::check::well_formed;
use crate::contract::{
    ApplicationFilter, ApplicationView, AttemptRow, AuditKey, AuditRow, ClaimKey, Claimed, CommitError, Cursor,
    EventFilter, EventRow, IdempotencyRow, MerchantKind, MerchantRow, OwedRow, Pending, Portion, RuleFilter, RulePage,
    SealedSecret, Store, StoreError, TokenRow, TurningRow,
};
use crate::earlier_event::may_walk_far;
use crate::event_list::EventPage;
use crate::nodes::{DirectoryChanges, NodeId, NodeRow, Signal, Tend, Tended};
use crate::panicked::Panicked;
use crate::redelivery::{Counted, Fared, Redeliveries, RedeliveryRow, Span, Walked};
use crate::steps::SchemaState;
use crate::work_clock::WorkClock;
use lost_sync::LostSync;
use nonces::{Hold, MarkNeed, Nonces};
use presence::Presence;
use queries::Found;
use readers::Readers;
use writer::{Message, Task};

pub use copying::Revival;
pub use moving::MoveMark;
pub use options::SqliteOptions;

/// Nonces deleted in one transaction, so that other batches go between.
const NONCES_PER_DELETE: u32 = 2000;
/// More than a transaction takes on a disk that is busy, and less than the writer waits for a lock of another program.
const STALLED_AFTER: Duration = Duration::from_secs(3);
/// So many rows are read on the thread that asks for them.
const ROWS_READ_HERE: usize = 512;

/// A store in a SQLite file. Dropping it ends its threads; [`SqliteStore::close`] also makes the next start free of doubt.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    nonces: Arc<Nonces>,
    presence: Arc<Presence>,
    readers: Arc<Readers>,
    queue: SyncSender<Message>,
    work: Arc<WorkClock>,
    lost_sync: Arc<LostSync>,
    /// What lines of the audit log are linked with.
    chain: Arc<OnceLock<ChainKey>>,
    /// Empty once the writer has ended, for whatever reason.
    writer_alive: Weak<()>,
    panicked: Panicked,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl SqliteStore {
    /// Opens the file, makes it where there is none, and brings its schema up to date. One process at a time: see to it.
    ///
    /// `Unfit`: not ours, newer than this program, changed schema steps, SQLite too old. `Unavailable`: cannot be opened now.
    pub fn open(path: &Path, options: SqliteOptions) -> Found<Self> {
        open::open(path, options)
    }

    /// Waits until a thread that writes has ended by a panic. From then on it stays so.
    pub async fn panicked(&self) {
        self.panicked.told().await;
    }

    /// Where the schema of a file stands, without changing it. `Unfit` as [`SqliteStore::open`].
    pub fn schema_state(path: &Path) -> Found<SchemaState> {
        schema::state(path)
    }

    /// Brings the schema of a file up to date, makes the file where there is none, and opens nothing.
    pub fn migrate(path: &Path) -> Found<SchemaState> {
        lost_sync::recover(path)?;
        schema::migrate(&mut open::connect(path, 5000)?)
    }

    /// What a file says of a move of its deployment, without changing it: whoever serves it all the same calls
    /// [`SqliteStore::take_back`] before.
    pub fn move_mark(path: &Path) -> Found<Option<MoveMark>> {
        moving::mark(path)
    }

    /// A deployment setting of a file, without changing it; none also where there is no schema yet.
    pub fn peek(path: &Path, name: &str) -> Found<Option<String>> {
        moving::peek(path, name)
    }

    /// Takes a deployment back from a move: one that was begun is no longer, and no database will ever be taken for its copy. The mark of
    /// a finished one stays.
    pub fn take_back(path: &Path) -> Found<()> {
        moving::take_back(path)
    }

    /// Finishes what waits, ends the threads, and puts the nonce journal on stable storage, so that even after a reboot of the
    /// machine every nonce is known. Everything asked later is `Unavailable`.
    pub fn close(&self) -> Found<()> {
        if !self.end_threads() {
            return Ok(());
        }
        self.nonces.close()?;
        self.lost_sync.check()?;
        // A new file in its place would say that there never was a deployment.
        self.presence.check_database()?;
        open::note_clean_end(&self.path)
    }

    /// Whether the writer has been at one transaction for so long that it stands still: the disk does not sync, or another program holds the
    /// file. What it is at may still be done.
    pub fn is_stalled(&self) -> bool {
        self.work.age() > STALLED_AFTER
    }

    /// Ends the threads. Whether this call has ended them, and none of them had panicked.
    fn end_threads(&self) -> bool {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        if threads.is_empty() {
            return false;
        }
        // Fails only if the writer is gone already.
        drop(self.queue.send(Message::Stop));
        let panicked = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        self.nonces.stop();
        self.readers.close();
        panicked == 0
    }

    /// Hands a task to the writer and waits for its answer.
    async fn write(&self, task: Task) -> answers::Answer {
        writer::send(&self.queue, task)?.answer().await
    }

    /// Sees to it that the replay mark covers a timestamp.
    async fn cover(&self, stamped_at: UnixMillis) -> Found<()> {
        match self.nonces.mark_need(stamped_at.0) {
            MarkNeed::Nothing => Ok(()),
            MarkNeed::Soon(mark) => {
                // Nobody waits for it; if it cannot be queued, whoever comes above the mark raises it.
                drop(writer::send(&self.queue, Task::RaiseMark(mark)));
                Ok(())
            }
            MarkNeed::First(mark) => self.write(Task::RaiseMark(mark)).await.map(|_| ()).map_err(store_error),
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// For tasks that have no guard.
fn store_error(error: CommitError) -> StoreError {
    match error {
        CommitError::Store(error) => error,
        CommitError::Conflict(_) | CommitError::Unknown => StoreError::Unavailable(error.to_string()),
    }
}

impl Store for SqliteStore {
    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        well_formed(&batch)?;
        self.write(Task::commit(batch, &self.chain)).await.map(|done| done.committed)
    }

    async fn commit_each(&self, batches: Vec<Batch>) -> Vec<Result<Committed, CommitError>> {
        let checked = batches.into_iter().map(|batch| match well_formed(&batch) {
            Ok(_) => Ok(Task::commit(batch, &self.chain)),
            Err(error) => Err(error.into()),
        });
        let mut answers = Vec::new();
        for sent in writer::send_each(&self.queue, checked) {
            answers.push(match sent {
                Ok(waiting) => waiting.answer().await.map(|done| done.committed),
                Err(error) => Err(error),
            });
        }
        answers
    }

    async fn reserve(&self, claim: &ClaimKey) -> Found<Claimed> {
        let claimed = self.nonces.reserve(claim);
        if claimed == Claimed::Fresh {
            // Also where the caller goes away while it waits.
            let hold = Hold::new(&self.nonces, claim);
            self.cover(claim.stamped_at).await?;
            hold.keep();
        }
        Ok(claimed)
    }

    async fn settle(&self, claim: ClaimKey) -> Found<Claimed> {
        self.cover(claim.stamped_at).await?;
        self.nonces.settle(&claim).await
    }

    fn first_stamped(&self, claim: &ClaimKey) -> Option<UnixMillis> {
        self.nonces.first_stamped(claim)
    }

    fn release(&self, claim: &ClaimKey) {
        self.nonces.release(claim);
    }

    async fn purge_nonces(&self, horizon: UnixMillis) -> Found<()> {
        if horizon.0 > self.nonces.horizon() {
            self.write(Task::RaiseHorizon(horizon.0)).await.map_err(store_error)?;
        }
        let nonces = Arc::clone(&self.nonces);
        let forgotten = tokio::task::spawn_blocking(move || nonces.forget()).await;
        forgotten.map_err(|error| StoreError::Unavailable(error.to_string()))??;
        loop {
            let done = self.write(Task::DeleteNonces(NONCES_PER_DELETE)).await.map_err(store_error)?;
            if !done.more_nonces {
                return Ok(());
            }
        }
    }

    async fn application(&self, client_id: &str) -> Found<Option<ApplicationView>> {
        self.readers.here(|conn| identities::application(conn, client_id))
    }

    async fn application_revision(&self, client_id: &str) -> Found<Option<i64>> {
        self.readers.here(|conn| identities::application_revision(conn, client_id))
    }

    async fn applications(&self, asker: Asker, filter: ApplicationFilter, page: Cursor) -> Found<Vec<ApplicationView>> {
        self.readers.away(asker, move |conn| identities::applications(conn, filter, &page)).await
    }

    async fn secrets_not_under(&self, key_id: &str, after: Option<String>, limit: u32) -> Found<Vec<SealedSecret>> {
        let key_id = key_id.to_owned();
        self.readers.away(Asker::Server, move |conn| secrets::not_under(conn, &key_id, after.as_deref(), limit)).await
    }

    async fn merchant(&self, merchant_id: &str) -> Found<Option<MerchantRow>> {
        self.readers.here(|conn| identities::merchant(conn, merchant_id))
    }

    async fn merchants(
        &self,
        tenant: Option<TenantNo>,
        kind: Option<MerchantKind>,
        page: Cursor,
    ) -> Found<Vec<MerchantRow>> {
        self.readers.away(Asker::Operator, move |conn| identities::merchants(conn, tenant, kind, &page)).await
    }

    async fn token(&self, digest: &[u8; 32]) -> Found<Option<TokenRow>> {
        self.readers.here(|conn| identities::token(conn, digest))
    }

    async fn token_by_id(&self, token_id: &str) -> Found<Option<TokenRow>> {
        self.readers.here(|conn| identities::token_by_id(conn, token_id))
    }

    async fn tokens(&self, page: Cursor<String>) -> Found<Vec<TokenRow>> {
        self.readers.away(Asker::Operator, move |conn| identities::tokens(conn, &page)).await
    }

    async fn secret_uses(&self, of: ApplicationNo, since_minute: i64) -> Found<Vec<(String, i64)>> {
        self.readers.here(|conn| secrets::uses(conn, of, since_minute))
    }

    async fn rule_head(&self, tenant: TenantNo, of: MerchantNo, as_of: Option<UnixMillis>) -> Found<Option<RuleHead>> {
        self.readers.here(|conn| queries::rule_head(conn, tenant, of, as_of))
    }

    async fn rule_versions(&self, tenant: TenantNo, of: MerchantNo, page: Cursor) -> Found<Vec<RuleVersion>> {
        self.readers.away(Asker::Operator, move |conn| queries::rule_versions(conn, tenant, of, &page)).await
    }

    async fn rule_page(
        &self,
        tenant: TenantNo,
        filter: RuleFilter,
        now: UnixMillis,
        offset: u64,
        limit: u32,
    ) -> Found<RulePage> {
        self.readers
            .away(Asker::Merchant, move |conn| queries::rule_page(conn, tenant, &filter, now, offset, limit))
            .await
    }

    async fn convert_order(&self, tenant: TenantNo, of: MerchantNo, order: OrderId) -> Found<Option<ConvertOrder>> {
        self.readers.here(|conn| queries::convert_order(conn, tenant, of, order))
    }

    async fn convert_order_owner(&self, order: OrderId) -> Found<Option<(MerchantRow, ConvertOrder)>> {
        self.readers.here(|conn| queries::convert_order_owner(conn, order))
    }

    async fn owed(&self, _lanes: LaneSet, page: Cursor<ApplicationNo>) -> Found<Vec<OwedRow>> {
        self.readers.away(Asker::Server, move |conn| owed::owed(conn, &page)).await
    }

    async fn pending_of(&self, portion: Portion) -> Found<Pending> {
        // Some rows are sooner read than handed to another thread.
        if portion.of.len().saturating_mul(portion.limit as usize) <= ROWS_READ_HERE {
            return self.readers.here(|conn| owed::pending_of(conn, &portion));
        }
        self.readers.away(Asker::Server, move |conn| owed::pending_of(conn, &portion)).await
    }

    async fn open_before(&self, event: &EventRow) -> Found<Option<EventNo>> {
        if may_walk_far(event) {
            let event = event.clone();
            return self.readers.away(Asker::Server, move |conn| owed::open_before(conn, &event)).await;
        }
        self.readers.here(|conn| owed::open_before(conn, event))
    }

    async fn turning(&self, _lanes: LaneSet, page: Cursor<(TenantNo, ApplicationNo)>) -> Found<Vec<TurningRow>> {
        self.readers.here(|conn| turning::turning(conn, &page))
    }

    async fn event(&self, asker: Asker, event_id: SortedId) -> Found<Option<(EventRow, Vec<AttemptRow>)>> {
        // It may have been attempted very often.
        self.readers.away(asker, move |conn| queries::event(conn, event_id)).await
    }

    async fn attempt_bytes(
        &self,
        tenant: TenantNo,
        event: EventNo,
        attempt: i64,
        at: UnixMillis,
    ) -> Found<Option<AttemptBytes>> {
        self.readers.here(|conn| attempt_log::attempt_bytes(conn, (tenant, event), attempt, at))
    }

    async fn old_bytes(
        &self,
        asker: Asker,
        begun_before: UnixMillis,
        most: u32,
        page: Cursor<TenantNo>,
    ) -> Found<Vec<OldBytes>> {
        self.readers.away(asker, move |conn| attempt_log::old_bytes(conn, begun_before, most, &page)).await
    }

    async fn old_events(
        &self,
        asker: Asker,
        old: TooOld,
        most: u32,
        page: Cursor<(TenantNo, ApplicationNo)>,
    ) -> Found<Vec<OldEvents>> {
        self.readers.away(asker, move |conn| attempt_log::old_events(conn, old, most, &page)).await
    }

    async fn events(&self, filter: EventFilter, page: Cursor, looked_max: u32) -> Found<EventPage> {
        self.readers.away(Asker::Operator, move |conn| event_list::events(conn, filter, &page, looked_max)).await
    }

    async fn events_after(&self, tenant: TenantNo, of: ApplicationNo, after: i64, limit: u32) -> Found<Vec<EventRow>> {
        self.readers.away(Asker::Merchant, move |conn| queries::events_after(conn, tenant, of, after, limit)).await
    }

    async fn sought(&self, span: Span) -> Found<Vec<(EventNo, i64)>> {
        self.readers.away(Asker::Server, move |conn| redelivery::sought(conn, &span)).await
    }

    async fn count_sought(&self, span: Span) -> Found<Counted> {
        self.readers.away(Asker::Operator, move |conn| redelivery::count(conn, &span)).await
    }

    async fn fared(&self, walked: Walked) -> Found<Fared> {
        self.readers.away(Asker::Operator, move |conn| redelivery::fared(conn, &walked)).await
    }

    async fn redeliveries(&self, which: Redeliveries, limit: u32) -> Found<Vec<RedeliveryRow>> {
        // All of them are kept for ever: a list may look at many before it has found its own.
        if matches!(which, Redeliveries::All { .. }) {
            return self.readers.away(Asker::Operator, move |conn| redelivery::list(conn, &which, limit)).await;
        }
        self.readers.here(|conn| redelivery::list(conn, &which, limit))
    }

    async fn remembered(&self, scope: &str, key: &str) -> Found<Option<IdempotencyRow>> {
        self.readers.here(|conn| queries::remembered(conn, scope, key))
    }

    async fn audit(&self, page: Cursor<AuditKey>) -> Found<Vec<AuditRow>> {
        self.readers.away(Asker::Operator, move |conn| queries::audit(conn, &page)).await
    }

    fn chain_audit(&self, key: ChainKey) {
        // The first one stays.
        drop(self.chain.set(key));
    }

    async fn audit_chain(&self, page: Cursor<ChainPlace>) -> Found<Vec<ChainLine>> {
        self.readers.away(Asker::Operator, move |conn| queries::audit_chain(conn, &page)).await
    }

    async fn audit_heads(&self, page: Cursor) -> Found<Vec<ChainHead>> {
        self.readers.away(Asker::Operator, move |conn| queries::audit_heads(conn, &page)).await
    }

    async fn setting(&self, name: &str) -> Found<Option<String>> {
        self.readers.here(|conn| queries::setting(conn, name))
    }

    async fn ping(&self) -> Found<Option<String>> {
        if self.writer_alive.strong_count() == 0 {
            return Err(writer::gone());
        }
        self.lost_sync.check()?;
        self.readers.here(schema::wrong)
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn tend_lanes(&self, tend: Tend) -> Found<Tended> {
        Ok(Tended::alone(&tend))
    }

    async fn nodes(&self, _lease_ms: i64, _most: u32) -> Found<Vec<NodeRow>> {
        Ok(Vec::new())
    }

    async fn database_time(&self) -> Found<Option<UnixMillis>> {
        Ok(None)
    }

    async fn directory_changes(&self, _after: i64, _node: NodeId) -> Found<DirectoryChanges> {
        Ok(DirectoryChanges::NONE)
    }

    fn announce(&self, _lanes: LaneSet) {}

    fn signals(&self) -> Option<broadcast::Receiver<Signal>> {
        None
    }
}
