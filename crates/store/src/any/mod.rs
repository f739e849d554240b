//! One store of several kinds, so that the server needs no type parameter.

mod health;

use countersign_domain::conversion::{Pair, Quote};
use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::ids::{ApplicationNo, EventNo, MerchantNo, OrderId, SortedId, TenantNo};
use countersign_domain::lanes::LaneSet;
use countersign_domain::payment_order::PrepayId;
use countersign_domain::rules::{RuleHead, RuleVersion};
use countersign_domain::time::UnixMillis;
use tokio::sync::broadcast;

use crate::attempt_log::{AttemptBytes, BytesPlace, OldBytes, OldEvents, OldRows, OldStretch, TooOld};
use crate::backlog::{Backlog, Backlogs, DeadRow, NodeBacklog, WithDead};
use crate::batch::{Batch, Committed};
use crate::chain::{ChainHead, ChainKey, ChainLine, ChainPlace};
use crate::contract::{
    ApplicationFilter, ApplicationView, Asker, AttemptRow, AuditKey, AuditRow, ClaimKey, Claimed, CommitError, Cursor,
    EventFilter, EventRow, IdempotencyRow, MerchantKind, MerchantRow, OwedRow, Pending, Portion, RuleFilter, RulePage,
    SealedSecret, Store, StoreError, TokenRow, TurningRow,
};
use crate::conversion::{ConvertMove, ConvertOrderFilter, ConvertOrderPage, ConvertStore, RateRow};
use crate::event_list::EventPage;
use crate::model::ModelStore;
use crate::nodes::{DirectoryChanges, NodeId, NodeRow, Signal, Tend, Tended};
use crate::paid_order::{PaidOrder, PaidOrders, PaidSpan};
use crate::payment_order::{
    ExpiredFirst, OrderName, PaymentMoveRow, PaymentOrderFilter, PaymentOrderPage, PaymentOrderRow, PaymentOrders,
    Received,
};
use crate::postgres::PostgresStore;
use crate::redelivery::{Counted, Fared, Redeliveries, RedeliveryRow, Span, Walked};
use crate::sqlite::SqliteStore;

/// The store that a deployment was started with.
#[derive(Debug)]
pub enum AnyStore {
    /// A file on this machine.
    Sqlite(SqliteStore),
    /// A database that many nodes share.
    Postgres(PostgresStore),
    /// In memory; forgets everything when the process ends. For tests.
    Model(ModelStore),
}

/// One call, on whichever store it is.
macro_rules! either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            AnyStore::Sqlite($store) => $call,
            AnyStore::Postgres($store) => $call,
            AnyStore::Model($store) => $call,
        }
    };
}

pub(crate) use either;

impl ConvertStore for AnyStore {
    async fn rate(&self, pair: &Pair) -> Result<Option<RateRow>, StoreError> {
        either!(self, s => s.rate(pair).await)
    }

    async fn rates(&self, page: Cursor<String>) -> Result<Vec<RateRow>, StoreError> {
        either!(self, s => s.rates(page).await)
    }

    async fn quote(&self, tenant: TenantNo, of: MerchantNo, quote_id: &str) -> Result<Option<Quote>, StoreError> {
        either!(self, s => s.quote(tenant, of, quote_id).await)
    }

    async fn convert_request(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        client_req_id: &str,
    ) -> Result<Option<ConvertOrder>, StoreError> {
        either!(self, s => s.convert_request(tenant, of, client_req_id).await)
    }

    async fn convert_orders(
        &self,
        asker: Asker,
        filter: ConvertOrderFilter,
        page: Cursor<OrderId>,
        looked_max: u32,
    ) -> Result<ConvertOrderPage, StoreError> {
        either!(self, s => s.convert_orders(asker, filter, page, looked_max).await)
    }

    async fn convert_moves(&self, tenant: TenantNo, order: OrderId) -> Result<Vec<ConvertMove>, StoreError> {
        either!(self, s => s.convert_moves(tenant, order).await)
    }
}

impl PaymentOrders for AnyStore {
    async fn payment_order(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        name: OrderName,
    ) -> Result<Option<PaymentOrderRow>, StoreError> {
        either!(self, s => s.payment_order(tenant, merchant, name).await)
    }

    async fn payment_order_owner(&self, id: PrepayId) -> Result<Option<(MerchantRow, PaymentOrderRow)>, StoreError> {
        either!(self, s => s.payment_order_owner(id).await)
    }

    async fn payment_order_moves(&self, tenant: TenantNo, id: PrepayId) -> Result<Vec<PaymentMoveRow>, StoreError> {
        either!(self, s => s.payment_order_moves(tenant, id).await)
    }

    async fn payment_order_received(
        &self,
        tenant: TenantNo,
        merchant: MerchantNo,
        id: PrepayId,
    ) -> Result<Option<Received>, StoreError> {
        either!(self, s => s.payment_order_received(tenant, merchant, id).await)
    }

    async fn payment_orders(
        &self,
        asker: Asker,
        filter: PaymentOrderFilter,
        now: UnixMillis,
        page: Cursor<PrepayId>,
        looked_max: u32,
    ) -> Result<PaymentOrderPage, StoreError> {
        either!(self, s => s.payment_orders(asker, filter, now, page, looked_max).await)
    }

    async fn payment_orders_expired(
        &self,
        lanes: LaneSet,
        now: UnixMillis,
        first: ExpiredFirst,
        limit: u32,
    ) -> Result<Vec<Result<PaymentOrderRow, StoreError>>, StoreError> {
        either!(self, s => s.payment_orders_expired(lanes, now, first, limit).await)
    }
}

impl Backlogs for AnyStore {
    async fn backlog(&self, tenant: TenantNo, of: ApplicationNo, most: u32) -> Result<Backlog, StoreError> {
        either!(self, s => s.backlog(tenant, of, most).await)
    }

    async fn dead(&self, of: Option<(TenantNo, ApplicationNo)>, page: Cursor) -> Result<Vec<DeadRow>, StoreError> {
        either!(self, s => s.dead(of, page).await)
    }

    async fn with_dead(
        &self,
        after: Option<(TenantNo, ApplicationNo)>,
        limit: u32,
    ) -> Result<Vec<WithDead>, StoreError> {
        either!(self, s => s.with_dead(after, limit).await)
    }

    async fn place_of(&self, client_id: &str) -> Result<Option<(TenantNo, ApplicationNo)>, StoreError> {
        either!(self, s => s.place_of(client_id).await)
    }

    async fn waiting(&self, lanes: LaneSet, most: u32) -> Result<NodeBacklog, StoreError> {
        either!(self, s => s.waiting(lanes, most).await)
    }
}

impl OldRows for AnyStore {
    async fn old_bytes_of(
        &self,
        asker: Asker,
        tenant: TenantNo,
        begun_before: UnixMillis,
        page: Cursor<BytesPlace>,
    ) -> Result<OldStretch<BytesPlace>, StoreError> {
        either!(self, s => s.old_bytes_of(asker, tenant, begun_before, page).await)
    }

    async fn old_events_of(
        &self,
        asker: Asker,
        of: (TenantNo, ApplicationNo),
        old: TooOld,
        page: Cursor,
    ) -> Result<OldStretch<i64>, StoreError> {
        either!(self, s => s.old_events_of(asker, of, old, page).await)
    }
}

impl PaidOrders for AnyStore {
    async fn paid_orders(&self, span: PaidSpan, page: Cursor<PrepayId>) -> Result<Vec<PaidOrder>, StoreError> {
        either!(self, s => s.paid_orders(span, page).await)
    }

    async fn paid_orders_settle(&self) -> Result<bool, StoreError> {
        either!(self, s => s.paid_orders_settle().await)
    }
}

impl Store for AnyStore {
    async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        either!(self, s => s.commit(batch).await)
    }

    async fn commit_each(&self, batches: Vec<Batch>) -> Vec<Result<Committed, CommitError>> {
        either!(self, s => s.commit_each(batches).await)
    }

    async fn reserve(&self, claim: &ClaimKey) -> Result<Claimed, StoreError> {
        either!(self, s => s.reserve(claim).await)
    }

    async fn settle(&self, claim: ClaimKey) -> Result<Claimed, StoreError> {
        either!(self, s => s.settle(claim).await)
    }

    fn first_stamped(&self, claim: &ClaimKey) -> Option<UnixMillis> {
        either!(self, s => s.first_stamped(claim))
    }

    fn release(&self, claim: &ClaimKey) {
        either!(self, s => s.release(claim));
    }

    async fn purge_nonces(&self, horizon: UnixMillis) -> Result<(), StoreError> {
        either!(self, s => s.purge_nonces(horizon).await)
    }

    async fn application(&self, client_id: &str) -> Result<Option<ApplicationView>, StoreError> {
        either!(self, s => s.application(client_id).await)
    }

    async fn application_revision(&self, client_id: &str) -> Result<Option<i64>, StoreError> {
        either!(self, s => s.application_revision(client_id).await)
    }

    async fn applications(
        &self,
        asker: Asker,
        filter: ApplicationFilter,
        page: Cursor,
    ) -> Result<Vec<ApplicationView>, StoreError> {
        either!(self, s => s.applications(asker, filter, page).await)
    }

    async fn secrets_not_under(
        &self,
        key_id: &str,
        after: Option<String>,
        limit: u32,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        either!(self, s => s.secrets_not_under(key_id, after, limit).await)
    }

    async fn merchant(&self, merchant_id: &str) -> Result<Option<MerchantRow>, StoreError> {
        either!(self, s => s.merchant(merchant_id).await)
    }

    async fn merchants(
        &self,
        tenant: Option<TenantNo>,
        kind: Option<MerchantKind>,
        page: Cursor,
    ) -> Result<Vec<MerchantRow>, StoreError> {
        either!(self, s => s.merchants(tenant, kind, page).await)
    }

    async fn token(&self, digest: &[u8; 32]) -> Result<Option<TokenRow>, StoreError> {
        either!(self, s => s.token(digest).await)
    }

    async fn token_by_id(&self, token_id: &str) -> Result<Option<TokenRow>, StoreError> {
        either!(self, s => s.token_by_id(token_id).await)
    }

    async fn tokens(&self, page: Cursor<String>) -> Result<Vec<TokenRow>, StoreError> {
        either!(self, s => s.tokens(page).await)
    }

    async fn secret_uses(&self, of: ApplicationNo, since_minute: i64) -> Result<Vec<(String, i64)>, StoreError> {
        either!(self, s => s.secret_uses(of, since_minute).await)
    }

    async fn rule_head(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        as_of: Option<UnixMillis>,
    ) -> Result<Option<RuleHead>, StoreError> {
        either!(self, s => s.rule_head(tenant, of, as_of).await)
    }

    async fn rule_versions(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        page: Cursor,
    ) -> Result<Vec<RuleVersion>, StoreError> {
        either!(self, s => s.rule_versions(tenant, of, page).await)
    }

    async fn rule_page(
        &self,
        tenant: TenantNo,
        filter: RuleFilter,
        now: UnixMillis,
        offset: u64,
        limit: u32,
    ) -> Result<RulePage, StoreError> {
        either!(self, s => s.rule_page(tenant, filter, now, offset, limit).await)
    }

    async fn convert_order(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        order: OrderId,
    ) -> Result<Option<ConvertOrder>, StoreError> {
        either!(self, s => s.convert_order(tenant, of, order).await)
    }

    async fn convert_order_owner(&self, order: OrderId) -> Result<Option<(MerchantRow, ConvertOrder)>, StoreError> {
        either!(self, s => s.convert_order_owner(order).await)
    }

    async fn owed(&self, lanes: LaneSet, page: Cursor<ApplicationNo>) -> Result<Vec<OwedRow>, StoreError> {
        either!(self, s => s.owed(lanes, page).await)
    }

    async fn pending_of(&self, portion: Portion) -> Result<Pending, StoreError> {
        either!(self, s => s.pending_of(portion).await)
    }

    async fn open_before(&self, event: &EventRow) -> Result<Option<EventNo>, StoreError> {
        either!(self, s => s.open_before(event).await)
    }

    async fn turning(
        &self,
        lanes: LaneSet,
        page: Cursor<(TenantNo, ApplicationNo)>,
    ) -> Result<Vec<TurningRow>, StoreError> {
        either!(self, s => s.turning(lanes, page).await)
    }

    async fn event(&self, asker: Asker, event_id: SortedId) -> Result<Option<(EventRow, Vec<AttemptRow>)>, StoreError> {
        either!(self, s => s.event(asker, event_id).await)
    }

    async fn attempt_bytes(
        &self,
        tenant: TenantNo,
        event: EventNo,
        attempt: i64,
        at: UnixMillis,
    ) -> Result<Option<AttemptBytes>, StoreError> {
        either!(self, s => s.attempt_bytes(tenant, event, attempt, at).await)
    }

    async fn old_bytes(
        &self,
        asker: Asker,
        begun_before: UnixMillis,
        most: u32,
        page: Cursor<TenantNo>,
    ) -> Result<Vec<OldBytes>, StoreError> {
        either!(self, s => s.old_bytes(asker, begun_before, most, page).await)
    }

    async fn old_events(
        &self,
        asker: Asker,
        old: TooOld,
        most: u32,
        page: Cursor<(TenantNo, ApplicationNo)>,
    ) -> Result<Vec<OldEvents>, StoreError> {
        either!(self, s => s.old_events(asker, old, most, page).await)
    }

    async fn events(&self, filter: EventFilter, page: Cursor, looked_max: u32) -> Result<EventPage, StoreError> {
        either!(self, s => s.events(filter, page, looked_max).await)
    }

    async fn events_after(
        &self,
        tenant: TenantNo,
        of: ApplicationNo,
        after: i64,
        limit: u32,
    ) -> Result<Vec<EventRow>, StoreError> {
        either!(self, s => s.events_after(tenant, of, after, limit).await)
    }

    async fn sought(&self, span: Span) -> Result<Vec<(EventNo, i64)>, StoreError> {
        either!(self, s => s.sought(span).await)
    }

    async fn count_sought(&self, span: Span) -> Result<Counted, StoreError> {
        either!(self, s => s.count_sought(span).await)
    }

    async fn fared(&self, walked: Walked) -> Result<Fared, StoreError> {
        either!(self, s => s.fared(walked).await)
    }

    async fn redeliveries(&self, which: Redeliveries, limit: u32) -> Result<Vec<RedeliveryRow>, StoreError> {
        either!(self, s => s.redeliveries(which, limit).await)
    }

    async fn remembered(&self, scope: &str, key: &str) -> Result<Option<IdempotencyRow>, StoreError> {
        either!(self, s => s.remembered(scope, key).await)
    }

    async fn audit(&self, page: Cursor<AuditKey>) -> Result<Vec<AuditRow>, StoreError> {
        either!(self, s => s.audit(page).await)
    }

    fn chain_audit(&self, key: ChainKey) {
        either!(self, s => s.chain_audit(key));
    }

    async fn audit_chain(&self, page: Cursor<ChainPlace>) -> Result<Vec<ChainLine>, StoreError> {
        either!(self, s => s.audit_chain(page).await)
    }

    async fn audit_heads(&self, page: Cursor) -> Result<Vec<ChainHead>, StoreError> {
        either!(self, s => s.audit_heads(page).await)
    }

    async fn setting(&self, name: &str) -> Result<Option<String>, StoreError> {
        either!(self, s => s.setting(name).await)
    }

    async fn ping(&self) -> Result<Option<String>, StoreError> {
        either!(self, s => s.ping().await)
    }

    fn is_shared(&self) -> bool {
        either!(self, s => s.is_shared())
    }

    async fn tend_lanes(&self, tend: Tend) -> Result<Tended, StoreError> {
        either!(self, s => s.tend_lanes(tend).await)
    }

    async fn nodes(&self, lease_ms: i64, most: u32) -> Result<Vec<NodeRow>, StoreError> {
        either!(self, s => s.nodes(lease_ms, most).await)
    }

    async fn database_time(&self) -> Result<Option<UnixMillis>, StoreError> {
        either!(self, s => s.database_time().await)
    }

    async fn directory_changes(&self, after: i64, node: NodeId) -> Result<DirectoryChanges, StoreError> {
        either!(self, s => s.directory_changes(after, node).await)
    }

    fn announce(&self, lanes: LaneSet) {
        either!(self, s => s.announce(lanes));
    }

    fn signals(&self) -> Option<broadcast::Receiver<Signal>> {
        either!(self, s => s.signals())
    }
}
