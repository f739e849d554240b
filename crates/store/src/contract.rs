//! The contract that every store keeps; its named cases are in `tests/contract`.

use std::future::Future;

use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;
use thiserror::Error;
use tokio::sync::broadcast;

pub use crate::asker::Asker;
use crate::attempt_log::{AttemptBytes, OldBytes, OldEvents, TooOld};
use crate::backlog::Backlogs;
use crate::batch::{Batch, Committed, Conflict};
use crate::chain::{ChainHead, ChainKey, ChainLine, ChainPlace};
use crate::conversion::ConvertStore;
use crate::event_list::EventPage;
use crate::nodes::{DirectoryChanges, NodeId, NodeRow, Signal, Tend, Tended};
use crate::paid_order::PaidOrders;
use crate::payment_order::PaymentOrders;
use crate::redelivery::{Counted, Fared, Redeliveries, RedeliveryRow, Span, Walked};
pub use crate::rows::{
    ApplicationFilter, ApplicationRow, ApplicationView, AttemptRow, AuditKey, AuditRow, EndpointSettings, EventRow,
    IdempotencyRow, MerchantKind, MerchantRow, NewAnswer, Role, SealedSecret, SecretRow, SecretUses, SignatureEncoding,
    TokenRow, TokenUse, Uses, Vocabulary,
};
pub use crate::rule_page::{ListedRule, RuleFilter, RulePage, RuleRecord, RuleStanding};

/// One use of a nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimKey {
    /// Tenant of the application.
    pub tenant: TenantNo,
    /// Whose nonce.
    pub application: ApplicationNo,
    /// The nonce, 1 to 64 ASCII characters.
    pub nonce: String,
    /// The request's own timestamp. Equal nonces with different timestamps are one nonce.
    pub stamped_at: UnixMillis,
}

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It is yours; nobody else will get it.
    Fresh,
    /// Somebody had it before.
    Used,
    /// Stamped at or before the durable purge horizon: it cannot be known, so it is refused.
    TooOld,
    /// Stamped before a crash of the whole machine, so that it cannot be known for some seconds: say 503.
    Unknowable,
    /// The connection broke while it was taken: nobody knows whether it was. Say 500, outcome unknown; when it comes
    /// again, the store that knows is asked again.
    InDoubt,
}

/// An application with pending events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwedRow {
    /// Its tenant.
    pub tenant: TenantNo,
    /// Its number.
    pub application: ApplicationNo,
    /// When the first of them is due.
    pub due_at: UnixMillis,
}

/// Which pending events are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portion {
    /// Those of these applications.
    pub of: Vec<(TenantNo, ApplicationNo)>,
    /// Events to leave out.
    pub known: Vec<EventNo>,
    /// Of each application, the most events that were never attempted, and the most that were. The first due come first.
    pub limit: u32,
}

/// Pending events that were asked for.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// Events that can be read back.
    pub rows: Vec<EventRow>,
    /// Events that cannot be read back.
    pub unreadable: Vec<UnreadableEvent>,
}

/// A pending event that cannot be read back.
#[derive(Clone, Debug)]
pub struct UnreadableEvent {
    /// Its tenant.
    pub tenant: TenantNo,
    /// Whose callback.
    pub application: ApplicationNo,
    /// Its number.
    pub event: EventNo,
    /// Why not.
    pub error: StoreError,
}

impl Pending {
    /// One more, of this application. What names another one itself is damaged, too.
    pub(crate) fn add(
        &mut self,
        (tenant, application): (TenantNo, ApplicationNo),
        event: EventNo,
        read: Result<EventRow, StoreError>,
    ) {
        let error = match read {
            Ok(row) if (row.tenant, row.application) == (tenant, application) => return self.rows.push(row),
            Ok(_) => StoreError::Corrupt { table: "event", row: event.0.to_string() },
            Err(error) => error,
        };
        self.unreadable.push(UnreadableEvent { tenant, application, event, error });
    }

    /// All of them, or why one is missing.
    pub fn whole(self) -> Result<Vec<EventRow>, StoreError> {
        self.unreadable.into_iter().next().map_or(Ok(self.rows), |one| Err(one.error))
    }
}

/// An application with open events that are still to be held or released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurningRow {
    /// Its tenant.
    pub tenant: TenantNo,
    /// Its number.
    pub application: ApplicationNo,
    /// Its public id.
    pub client_id: String,
    /// When released events are due.
    pub due_at: UnixMillis,
}

impl TurningRow {
    /// Its place in the list.
    pub const fn place(&self) -> (TenantNo, ApplicationNo) {
        (self.tenant, self.application)
    }
}

/// Which events to list, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Only of this application.
    pub client_id: Option<String>,
    /// Only of this business id.
    pub biz_id: Option<String>,
    /// Only in this state. What is open is `Pending` where its application's callbacks go out and `Held` where they do not, however it is
    /// noted: what is to be turned is turned in portions.
    pub state: Option<DeliveryState>,
}

/// What the store could not do.
#[derive(Clone, Debug, Error)]
pub enum StoreError {
    /// The store is away, full or too busy; nothing was done. Say 503.
    #[error("the store cannot answer: {0}")]
    Unavailable(String),
    /// A row that cannot be read back as a value of the domain. Say 500.
    #[error("row {row} of table {table} cannot be read back")]
    Corrupt {
        /// Which table.
        table: &'static str,
        /// Which row.
        row: String,
    },
    /// The schema, the file or the program is not what it should be.
    #[error("{0}")]
    Unfit(String),
}

/// Why a batch was not applied.
#[derive(Debug, Error)]
pub enum CommitError {
    /// A guard did not hold; nothing was done.
    #[error("a guard did not hold: {0:?}")]
    Conflict(Conflict),
    /// The store could not; nothing was done.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The connection was lost in the commit: nobody knows yet whether it was done.
    #[error("the fate of the commit is unknown")]
    Unknown,
}

/// A page of a list by cursor: ask for rows after `after`, at most `limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor<K = i64> {
    /// The last one seen; none begins.
    pub after: Option<K>,
    /// At most so many.
    pub limit: u32,
}

/// What every store does. `model` is the oracle, `sqlite` the store of one machine, `postgres` that of many.
///
/// Whatever belongs to a tenant is asked for with its tenant, and is not there under another one. What an operator or the dispatcher
/// looks for without knowing whose it is goes across tenants: each such read says so.
pub trait Store: ConvertStore + PaymentOrders + PaidOrders + Backlogs + Send + Sync + 'static {
    /// Applies the batch whole, durably, or not at all.
    fn commit(&self, batch: Batch) -> impl Future<Output = Result<Committed, CommitError>> + Send;

    /// Applies each of these batches by itself, as [`Store::commit`] would, handed over at once so that they can share a group: their
    /// answers, in the same order.
    fn commit_each(&self, batches: Vec<Batch>) -> impl Future<Output = Vec<Result<Committed, CommitError>>> + Send;

    /// Takes a nonce in memory, atomically against every other request of this process: a replay is refused before any work is
    /// done. What follows is exactly one of three: a batch with its `ClaimNonce` commits; [`Store::settle`]; [`Store::release`].
    /// Costs no IO on SQLite, and no thread hop.
    fn reserve(&self, claim: &ClaimKey) -> impl Future<Output = Result<Claimed, StoreError>> + Send;

    /// Makes a reserved nonce last: for reads, and for writes that were refused. When it has answered `Fresh`, the claim
    /// survives a kill of the process (on SQLite: written to the journal, not synced). The last word: another node may have been first.
    fn settle(&self, claim: ClaimKey) -> impl Future<Output = Result<Claimed, StoreError>> + Send;

    /// The timestamp of the request that used a nonce, as far as this process knows it. For people who ask why a request was refused.
    fn first_stamped(&self, claim: &ClaimKey) -> Option<UnixMillis>;

    /// Gives a reserved nonce back, since the answer is 429 or 503.
    fn release(&self, claim: &ClaimKey);

    /// Forgets nonces stamped before `horizon`, durably noting the horizon first; from then on they are `TooOld`.
    fn purge_nonces(&self, horizon: UnixMillis) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// An application by its ClientId. Costs the same whether it is there or not, as soon as there is any.
    fn application(&self, client_id: &str) -> impl Future<Output = Result<Option<ApplicationView>, StoreError>> + Send;

    /// The revision of an application; none: there is no such. Costs the same whether it is there or not.
    fn application_revision(&self, client_id: &str) -> impl Future<Output = Result<Option<i64>, StoreError>> + Send;

    /// Applications by number. `after` is an `ApplicationNo`.
    fn applications(
        &self,
        asker: Asker,
        filter: ApplicationFilter,
        page: Cursor,
    ) -> impl Future<Output = Result<Vec<ApplicationView>, StoreError>> + Send;

    /// Secrets of all applications, revoked ones too, that are sealed under another master key than this, by their id after `after`.
    fn secrets_not_under(
        &self,
        key_id: &str,
        after: Option<String>,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<SealedSecret>, StoreError>> + Send;

    /// A merchant of any kind by its public id.
    fn merchant(&self, merchant_id: &str) -> impl Future<Output = Result<Option<MerchantRow>, StoreError>> + Send;

    /// Merchants by number, all or of one tenant, of every kind or of one. `after` is a `MerchantNo`.
    fn merchants(
        &self,
        tenant: Option<TenantNo>,
        kind: Option<MerchantKind>,
        page: Cursor,
    ) -> impl Future<Output = Result<Vec<MerchantRow>, StoreError>> + Send;

    /// An operator token by its digest.
    fn token(&self, digest: &[u8; 32]) -> impl Future<Output = Result<Option<TokenRow>, StoreError>> + Send;

    /// An operator token by its public id.
    fn token_by_id(&self, token_id: &str) -> impl Future<Output = Result<Option<TokenRow>, StoreError>> + Send;

    /// Every operator token, by id, which is the order of their making. `after` is a `token_id`.
    fn tokens(&self, page: Cursor<String>) -> impl Future<Output = Result<Vec<TokenRow>, StoreError>> + Send;

    /// How often each secret of an application was used since the beginning of a minute (counted from 1970), by id; none that was not.
    fn secret_uses(
        &self,
        application: ApplicationNo,
        since_minute: i64,
    ) -> impl Future<Output = Result<Vec<(String, i64)>, StoreError>> + Send;

    /// The last rule version of a sub-account that was made at or before `as_of` (`None`: at all), with its base.
    fn rule_head(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        as_of: Option<UnixMillis>,
    ) -> impl Future<Output = Result<Option<RuleHead>, StoreError>> + Send;

    /// All versions of a sub-account, newest first. `after` is a `version_no`.
    fn rule_versions(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        page: Cursor,
    ) -> impl Future<Output = Result<Vec<RuleVersion>, StoreError>> + Send;

    /// A page of an institution's records at `now`: by `sub_merchant_id`, then version. `offset` records are skipped.
    fn rule_page(
        &self,
        tenant: TenantNo,
        filter: RuleFilter,
        now: UnixMillis,
        offset: u64,
        limit: u32,
    ) -> impl Future<Output = Result<RulePage, StoreError>> + Send;

    /// A convert order of this merchant; another merchant's is not found by construction.
    fn convert_order(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        order: OrderId,
    ) -> impl Future<Output = Result<Option<ConvertOrder>, StoreError>> + Send;

    /// A convert order for the back end, with its owner, whoever that is.
    fn convert_order_owner(
        &self,
        order: OrderId,
    ) -> impl Future<Output = Result<Option<(MerchantRow, ConvertOrder)>, StoreError>> + Send;

    /// Applications of all tenants in these lanes that have pending events, by number. Stores of one node know no lanes: all. An application with
    /// many pending events costs the read no more than an application with one.
    fn owed(
        &self,
        lanes: LaneSet,
        page: Cursor<ApplicationNo>,
    ) -> impl Future<Output = Result<Vec<OwedRow>, StoreError>> + Send;

    /// Pending events, whether they are due or not: by application, first attempts first, then by due time and number. An event that cannot be read
    /// back takes its place in the portion and is listed in [`Pending::unreadable`], so that it does not keep the other events waiting.
    fn pending_of(&self, portion: Portion) -> impl Future<Output = Result<Pending, StoreError>> + Send;

    /// An event of the same application and `biz_id` that has a lower `sequence` and is not over (pending, or held and about to be released); where
    /// there are several, one of them. What was delivered once and is sent again by hand is not among them.
    fn open_before(&self, event: &EventRow) -> impl Future<Output = Result<Option<EventNo>, StoreError>> + Send;

    /// Applications in these lanes whose open events are still to be held or released, by tenant and number. Stores of one node know no
    /// lanes: all.
    fn turning(
        &self,
        lanes: LaneSet,
        page: Cursor<(TenantNo, ApplicationNo)>,
    ) -> impl Future<Output = Result<Vec<TurningRow>, StoreError>> + Send;

    /// An event, whoever's, with all its attempts.
    fn event(
        &self,
        asker: Asker,
        event_id: SortedId,
    ) -> impl Future<Output = Result<Option<(EventRow, Vec<AttemptRow>)>, StoreError>> + Send;

    /// What went over the wire in an attempt; none where nothing did, or where it is no longer kept. `at` is the attempt's own.
    fn attempt_bytes(
        &self,
        tenant: TenantNo,
        event: EventNo,
        attempt: i64,
        at: UnixMillis,
    ) -> impl Future<Output = Result<Option<AttemptBytes>, StoreError>> + Send;

    /// Of which tenants there are bytes of attempts that began before an instant, and how many, counted up to `most` for each.
    fn old_bytes(
        &self,
        asker: Asker,
        begun_before: UnixMillis,
        most: u32,
        page: Cursor<TenantNo>,
    ) -> impl Future<Output = Result<Vec<OldBytes>, StoreError>> + Send;

    /// How many events [`crate::Write::ForgetEvents`] would forget of the next applications that have had any, looked
    /// for among the first `most` and one more of each. An application of which none would go is among them: a page says how far the look came.
    fn old_events(
        &self,
        asker: Asker,
        old: TooOld,
        most: u32,
        page: Cursor<(TenantNo, ApplicationNo)>,
    ) -> impl Future<Output = Result<Vec<OldEvents>, StoreError>> + Send;

    /// Events of all tenants for the operator, newest first. `after` is an `EventNo`, of this same list. Where the filter asks for more than an
    /// index leads to, at most `looked_max` (1 or more) are looked at.
    fn events(
        &self,
        filter: EventFilter,
        page: Cursor,
        looked_max: u32,
    ) -> impl Future<Output = Result<EventPage, StoreError>> + Send;

    /// An application's events with `seq` greater than `after`, in order: at most `limit`, and no further one where bodies and data of those before it
    /// come to [`crate::own_events::OWN_EVENTS_BYTES_MAX`].
    fn events_after(
        &self,
        tenant: TenantNo,
        application: ApplicationNo,
        after: i64,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<EventRow>, StoreError>> + Send;

    /// Events of a stretch that are meant, at most `span.most`, in order: number and `seq`.
    fn sought(&self, span: Span) -> impl Future<Output = Result<Vec<(EventNo, i64)>, StoreError>> + Send;

    /// How many events of a stretch are meant, of the first `span.most` in it.
    fn count_sought(&self, span: Span) -> impl Future<Output = Result<Counted, StoreError>> + Send;

    /// How the events of a redelivery stand, of the first `walked.most` events in the stretch.
    fn fared(&self, walked: Walked) -> impl Future<Output = Result<Fared, StoreError>> + Send;

    /// Redeliveries, at most `limit`; of all tenants.
    fn redeliveries(
        &self,
        which: Redeliveries,
        limit: u32,
    ) -> impl Future<Output = Result<Vec<RedeliveryRow>, StoreError>> + Send;

    /// The answer kept for an idempotency key.
    fn remembered(
        &self,
        scope: &str,
        key: &str,
    ) -> impl Future<Output = Result<Option<IdempotencyRow>, StoreError>> + Send;

    /// The audit log of all tenants, newest first: by time, then tenant, then number.
    fn audit(&self, page: Cursor<AuditKey>) -> impl Future<Output = Result<Vec<AuditRow>, StoreError>> + Send;

    /// From here on lines of the audit log are linked, with this key; until then they have no link. The first key stays.
    fn chain_audit(&self, key: ChainKey);

    /// Lines of all tenants with their links. Lines of one tenant come by their number; nothing else is promised of the order.
    fn audit_chain(&self, page: Cursor<ChainPlace>) -> impl Future<Output = Result<Vec<ChainLine>, StoreError>> + Send;

    /// The ends of the chains of all tenants, by number of tenant, which `after` is too; the system's own is 0.
    fn audit_heads(&self, page: Cursor) -> impl Future<Output = Result<Vec<ChainHead>, StoreError>> + Send;

    /// A deployment setting.
    fn setting(&self, name: &str) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;

    /// Whether the store answers, and what is wrong by now with the schema that was right at the start, in words that name nobody; cheap, for readiness.
    fn ping(&self) -> impl Future<Output = Result<Option<String>, StoreError>> + Send;

    /// Whether other nodes may work on the same data. What follows is for such stores; those of one node answer for themselves.
    fn is_shared(&self) -> bool;

    /// A heartbeat: notes that the node is alive, renews what it holds with exactly this fence, takes back what it gives, and gives it
    /// free or ended lanes up to its fair share. Each taking raises the lane's fence by one. All in the database's time.
    /// Of a process whose node's id another living one has taken over nothing is noted, and it is given nothing.
    /// When it fails nothing is known of what was taken; it is free again when the lease ends.
    fn tend_lanes(&self, tend: Tend) -> impl Future<Output = Result<Tended, StoreError>> + Send;

    /// Nodes that share the store, at most `most`: those alive first, which were seen within `lease_ms`, then by their start.
    fn nodes(&self, lease_ms: i64, most: u32) -> impl Future<Output = Result<Vec<NodeRow>, StoreError>> + Send;

    /// The database's own time; none where the store has no clock but the caller's.
    fn database_time(&self) -> impl Future<Output = Result<Option<UnixMillis>, StoreError>> + Send;

    /// Applications that have changed, or whose secrets have, since the directory was at `after`. What was acknowledged before this was
    /// asked is in it. From a revision that is ahead of the directory's, nothing has changed. `node` is who asks.
    fn directory_changes(
        &self,
        after: i64,
        node: NodeId,
    ) -> impl Future<Output = Result<DirectoryChanges, StoreError>> + Send;

    /// Tells the other nodes, soon and in one go with others, that events of these lanes may be due. Nobody waits for it.
    fn announce(&self, lanes: LaneSet);

    /// What other nodes say from now on; none where there are no others. Whoever lags behind looks himself.
    fn signals(&self) -> Option<broadcast::Receiver<Signal>>;
}
