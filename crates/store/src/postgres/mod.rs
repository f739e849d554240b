//! The store of many nodes: PostgreSQL 15 or newer. Reads are pipelined, writes go in groups, claims of nonces in groups of their own.
//!
//! Invariant: `commit` answers after the database has made the change durable (`synchronous_commit` is `on` or stronger).
//! Invariant: a caller reads its own acknowledged writes.
//! Invariant: of two nodes that use one nonce, one is refused.

#[macro_use]
mod columns;

mod address;
mod alone;
mod attempt_log;
mod audit_gaps;
mod backlog;
mod backlog_texts;
mod commit_answers;
mod commit_lane;
mod conversion;
mod convert_texts;
mod dial;
mod durability;
mod elsewhere;
mod event_list;
mod event_texts;
mod fault;
mod group;
mod heartbeat_texts;
mod hosts;
mod identity_texts;
mod incumbent;
mod limits;
mod looks;
mod marks;
pub(crate) mod moving;
mod nodes;
mod nonces;
mod options;
mod paid_order;
mod payment_order;
mod payment_sql;
mod pipeline;
mod plan;
mod pooled;
mod public_ids;
mod purge;
mod queries;
mod rare_jobs;
mod readers;
mod redelivery;
mod redelivery_texts;
mod rights;
mod room;
mod rows;
mod schema;
mod served;
mod session;
mod settler;
mod signals;
pub(crate) mod snapshot;
mod statements;
mod survey;
#[cfg(test)]
mod tenancy;
mod tls;
mod unopened;
mod writer_connections;
mod writers;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;
use tokio::sync::{Mutex as FairMutex, broadcast};
use tokio::task::AbortHandle;

use crate::asker::Asker;
use crate::attempt_log::{AttemptBytes, OldBytes, OldEvents, TooOld};
use crate::batch::{Batch, Committed};
use crate::chain::{ChainHead, ChainKey, ChainLine, ChainPlace};
use crate::contract::{
    ApplicationFilter, ApplicationView, AttemptRow, AuditKey, AuditRow, ClaimKey, Claimed, CommitError, Cursor,
    EventFilter, EventRow, IdempotencyRow, MerchantKind, MerchantRow, OwedRow, Pending, Portion, RuleFilter, RulePage,
    SealedSecret, Store, StoreError, TokenRow, TurningRow,
};
use crate::earlier_event::may_walk_far;
use crate::event_list::EventPage;
use crate::nodes::{DirectoryChanges, NodeId, NodeRow, Signal, Tend, Tended};
use crate::redelivery::{Counted, Fared, Redeliveries, RedeliveryRow, Span, Walked};
use dial::Dial;
use nodes::Aside;
use nonces::Nonces;
use queries::Found;
use readers::Readers;
use signals::Herald;
use writer_connections::WriterConnections;
use writers::{Writers, answered};

pub use dial::why_not_usable;
pub use durability::{Durability, ServerState, Share};
pub use elsewhere::Elsewhere;
pub use incumbent::{NotedOffice, Office};
pub use options::PostgresOptions;

/// Lists that are read at once, of each [`Asker`].
const LISTS_MAX: usize = 2;

/// A store in a PostgreSQL database, shared with any number of other nodes. Dropping it ends its connections.
#[derive(Debug)]
pub struct PostgresStore {
    dial: Arc<Dial>,
    readers: Readers,
    /// By [`Asker`].
    lists: Box<[Readers; Asker::COUNT]>,
    nonces: Arc<Nonces>,
    writers: Writers,
    /// What lines of the audit log are linked with.
    chain: Arc<OnceLock<ChainKey>>,
    /// Heartbeats and the clock.
    heart: Box<Aside>,
    /// Changes of the directory.
    watch: Box<Aside>,
    herald: Arc<Herald>,
    /// Where what is heard goes; made by whoever asks first.
    heard: OnceLock<broadcast::Sender<Signal>>,
    /// Ends what would go on for ever.
    endless: Mutex<Vec<AbortHandle>>,
    /// For what is done now and then.
    house: Box<FairMutex<WriterConnections>>,
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        for task in self.endless.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }
}

impl PostgresStore {
    /// Whether a lane has been at one piece of work for so long that it stands still. What it is at may still be done.
    pub fn is_stalled(&self) -> bool {
        self.writers.longest_work() > self.readers.limits().work()
    }

    /// Waits until a task that writes has ended by a panic. From then on it stays so.
    pub async fn panicked(&self) {
        self.writers.panicked().await;
    }

    /// Connects, brings the schema up to date, and starts the lanes on the current runtime.
    ///
    /// `Unfit`: an address that is none, another program's or a newer schema, a server too old, an unfinished move. `Unavailable`: cannot be reached now.
    pub async fn open(options: PostgresOptions) -> Found<Self> {
        let dial = Arc::new(Dial::of(&options)?.within(options.second).that_tells());
        let (key, horizon) = Box::pin(made_fit(&dial, options.window_key)).await?;
        let nonces = Arc::new(Nonces::new(key, horizon));
        let herald = Arc::new(Herald::default());
        let calling = tokio::spawn(Arc::clone(&herald).run(Arc::clone(&dial))).abort_handle();
        let chain = Arc::new(OnceLock::new());
        let writers = Writers::start(&options, &dial, &nonces, &herald, &chain);
        Ok(Self {
            readers: Readers::new(Arc::clone(&dial), options.readers),
            lists: Box::new(std::array::from_fn(|_| Readers::in_turns(Arc::clone(&dial), LISTS_MAX))),
            heart: Box::new(Aside::new(Arc::clone(&dial))),
            watch: Box::new(Aside::new(Arc::clone(&dial))),
            house: Box::new(FairMutex::new(WriterConnections::new(Arc::clone(&dial), purge::HOUSE))),
            dial,
            nonces,
            writers,
            chain,
            herald,
            heard: OnceLock::new(),
            endless: Mutex::new(vec![calling]),
        })
    }

    /// Where lists are read.
    fn lists(&self, asker: Asker) -> &Readers {
        &self.lists[asker as usize]
    }
}

/// Refuses a database that a node cannot work with, brings its schema up to date, and gives the key of nonce hashes and the horizon: all over one
/// connection, since each takes a server some milliseconds to begin.
async fn made_fit(dial: &Dial, new_key: [u8; 16]) -> Found<([u8; 16], i64)> {
    let session = pooled::refuse_shared(dial).await?;
    // What a step makes now is the role's own.
    rights::demand(dial, &session).await?;
    let session = schema::up_to_date(dial, session).await?;
    moving::refuse_unfinished(dial, &session).await?;
    dial.in_time(dial.settle(session.client())).await?;
    dial.in_time(purge::begin(session.client(), new_key)).await
}

impl Store for PostgresStore {
    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        answered(self.writers.send(batch)?).await
    }

    async fn commit_each(&self, batches: Vec<Batch>) -> Vec<Result<Committed, CommitError>> {
        let sent: Vec<_> = batches.into_iter().map(|batch| self.writers.send(batch)).collect();
        let mut answers = Vec::with_capacity(sent.len());
        for sent in sent {
            answers.push(match sent {
                Ok(waiting) => answered(waiting).await,
                Err(error) => Err(error),
            });
        }
        answers
    }

    async fn reserve(&self, claim: &ClaimKey) -> Found<Claimed> {
        Ok(self.nonces.reserve(claim))
    }

    async fn settle(&self, claim: ClaimKey) -> Found<Claimed> {
        nonces::settle(&self.nonces, &self.writers.settling, &claim).await
    }

    fn first_stamped(&self, claim: &ClaimKey) -> Option<UnixMillis> {
        self.nonces.first_stamped(claim)
    }

    fn release(&self, claim: &ClaimKey) {
        self.nonces.release(claim);
    }

    async fn purge_nonces(&self, horizon: UnixMillis) -> Found<()> {
        purge::purge(&mut *self.house.lock().await, &self.nonces, horizon).await
    }

    async fn application(&self, client_id: &str) -> Found<Option<ApplicationView>> {
        queries::application(&self.readers, client_id).await
    }

    async fn application_revision(&self, client_id: &str) -> Found<Option<i64>> {
        queries::application_revision(&self.readers, client_id).await
    }

    async fn applications(&self, asker: Asker, filter: ApplicationFilter, page: Cursor) -> Found<Vec<ApplicationView>> {
        queries::applications(self.lists(asker), filter, &page).await
    }

    async fn secrets_not_under(&self, key_id: &str, after: Option<String>, limit: u32) -> Found<Vec<SealedSecret>> {
        queries::secrets_not_under(self.lists(Asker::Server), key_id, after.as_deref(), limit).await
    }

    async fn merchant(&self, merchant_id: &str) -> Found<Option<MerchantRow>> {
        queries::merchant(&self.readers, merchant_id).await
    }

    async fn merchants(
        &self,
        tenant: Option<TenantNo>,
        kind: Option<MerchantKind>,
        page: Cursor,
    ) -> Found<Vec<MerchantRow>> {
        queries::merchants(self.lists(Asker::Operator), tenant, kind, &page).await
    }

    async fn token(&self, digest: &[u8; 32]) -> Found<Option<TokenRow>> {
        queries::token(&self.readers, digest).await
    }

    async fn token_by_id(&self, token_id: &str) -> Found<Option<TokenRow>> {
        queries::token_by_id(&self.readers, token_id).await
    }

    async fn tokens(&self, page: Cursor<String>) -> Found<Vec<TokenRow>> {
        queries::tokens(self.lists(Asker::Operator), &page).await
    }

    async fn secret_uses(&self, of: ApplicationNo, since_minute: i64) -> Found<Vec<(String, i64)>> {
        queries::secret_uses(&self.readers, of, since_minute).await
    }

    async fn rule_head(&self, tenant: TenantNo, of: MerchantNo, as_of: Option<UnixMillis>) -> Found<Option<RuleHead>> {
        queries::rule_head(&self.readers, tenant, of, as_of).await
    }

    async fn rule_versions(&self, tenant: TenantNo, of: MerchantNo, page: Cursor) -> Found<Vec<RuleVersion>> {
        queries::rule_versions(self.lists(Asker::Operator), tenant, of, &page).await
    }

    async fn rule_page(
        &self,
        tenant: TenantNo,
        filter: RuleFilter,
        now: UnixMillis,
        offset: u64,
        limit: u32,
    ) -> Found<RulePage> {
        queries::rule_page(self.lists(Asker::Merchant), tenant, &filter, now, offset, limit).await
    }

    async fn convert_order(&self, tenant: TenantNo, of: MerchantNo, order: OrderId) -> Found<Option<ConvertOrder>> {
        queries::convert_order(&self.readers, tenant, of, order).await
    }

    async fn convert_order_owner(&self, order: OrderId) -> Found<Option<(MerchantRow, ConvertOrder)>> {
        queries::convert_order_owner(&self.readers, order).await
    }

    async fn owed(&self, lanes: LaneSet, page: Cursor<ApplicationNo>) -> Found<Vec<OwedRow>> {
        queries::owed(self.lists(Asker::Server), lanes, &page).await
    }

    async fn pending_of(&self, portion: Portion) -> Found<Pending> {
        queries::pending_of(&self.readers, &portion).await
    }

    async fn open_before(&self, event: &EventRow) -> Found<Option<EventNo>> {
        let from = if may_walk_far(event) { self.lists(Asker::Server) } else { &self.readers };
        queries::open_before(from, event).await
    }

    async fn turning(&self, lanes: LaneSet, page: Cursor<(TenantNo, ApplicationNo)>) -> Found<Vec<TurningRow>> {
        queries::turning(&self.readers, lanes, &page).await
    }

    async fn event(&self, _asker: Asker, event_id: SortedId) -> Found<Option<(EventRow, Vec<AttemptRow>)>> {
        queries::event(&self.readers, event_id).await
    }

    async fn attempt_bytes(
        &self,
        tenant: TenantNo,
        event: EventNo,
        attempt: i64,
        at: UnixMillis,
    ) -> Found<Option<AttemptBytes>> {
        attempt_log::attempt_bytes(&self.readers, (tenant, event), attempt, at).await
    }

    async fn old_bytes(
        &self,
        asker: Asker,
        begun_before: UnixMillis,
        most: u32,
        page: Cursor<TenantNo>,
    ) -> Found<Vec<OldBytes>> {
        attempt_log::old_bytes(self.lists(asker), begun_before, most, &page).await
    }

    async fn old_events(
        &self,
        asker: Asker,
        old: TooOld,
        most: u32,
        page: Cursor<(TenantNo, ApplicationNo)>,
    ) -> Found<Vec<OldEvents>> {
        attempt_log::old_events(self.lists(asker), old, most, &page).await
    }

    async fn events(&self, filter: EventFilter, page: Cursor, looked_max: u32) -> Found<EventPage> {
        event_list::events(self.lists(Asker::Operator), filter, &page, looked_max).await
    }

    async fn events_after(&self, tenant: TenantNo, of: ApplicationNo, after: i64, limit: u32) -> Found<Vec<EventRow>> {
        queries::events_after(self.lists(Asker::Merchant), tenant, of, after, limit).await
    }

    async fn sought(&self, span: Span) -> Found<Vec<(EventNo, i64)>> {
        redelivery::sought(self.lists(Asker::Server), &span).await
    }

    async fn count_sought(&self, span: Span) -> Found<Counted> {
        redelivery::count(self.lists(Asker::Operator), &span).await
    }

    async fn fared(&self, walked: Walked) -> Found<Fared> {
        redelivery::fared(self.lists(Asker::Operator), &walked).await
    }

    async fn redeliveries(&self, which: Redeliveries, limit: u32) -> Found<Vec<RedeliveryRow>> {
        let is_list = matches!(which, Redeliveries::All { .. });
        let from = if is_list { self.lists(Asker::Operator) } else { &self.readers };
        redelivery::list(from, &which, limit).await
    }

    async fn remembered(&self, scope: &str, key: &str) -> Found<Option<IdempotencyRow>> {
        queries::remembered(&self.readers, scope, key).await
    }

    async fn audit(&self, page: Cursor<AuditKey>) -> Found<Vec<AuditRow>> {
        queries::audit(self.lists(Asker::Operator), &page).await
    }

    fn chain_audit(&self, key: ChainKey) {
        // The first one stays.
        drop(self.chain.set(key));
    }

    async fn audit_chain(&self, page: Cursor<ChainPlace>) -> Found<Vec<ChainLine>> {
        queries::audit_chain(self.lists(Asker::Operator), &page).await
    }

    async fn audit_heads(&self, page: Cursor) -> Found<Vec<ChainHead>> {
        queries::audit_heads(self.lists(Asker::Operator), &page).await
    }

    async fn setting(&self, name: &str) -> Found<Option<String>> {
        queries::setting(&self.readers, name).await
    }

    async fn ping(&self) -> Found<Option<String>> {
        if self.is_stalled() {
            let slow = self.writers.longest_work();
            let why = format!("changes have waited for the database for {} s", slow.as_secs());
            return Err(StoreError::Unavailable(why));
        }
        self.writers.check()?;
        queries::ping(&self.readers).await
    }

    fn is_shared(&self) -> bool {
        true
    }

    async fn tend_lanes(&self, tend: Tend) -> Found<Tended> {
        self.heart.tend(&tend).await
    }

    async fn nodes(&self, lease_ms: i64, most: u32) -> Found<Vec<NodeRow>> {
        nodes::list(self.lists(Asker::Operator), lease_ms, most).await
    }

    async fn database_time(&self) -> Found<Option<UnixMillis>> {
        self.heart.database_time().await
    }

    async fn directory_changes(&self, after: i64, node: NodeId) -> Found<DirectoryChanges> {
        self.watch.directory_changes(after, node).await
    }

    fn announce(&self, lanes: LaneSet) {
        self.herald.due(lanes);
    }

    fn signals(&self) -> Option<broadcast::Receiver<Signal>> {
        let heard = self.heard.get_or_init(|| {
            let to = broadcast::Sender::new(signals::KEPT);
            let listening = tokio::spawn(signals::listen(Arc::clone(&self.dial), to.clone()));
            self.endless.lock().unwrap_or_else(PoisonError::into_inner).push(listening.abort_handle());
            to
        });
        Some(heard.subscribe())
    }
}
