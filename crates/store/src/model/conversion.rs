//! Rates, quotes and requests of the model.

use std::collections::BTreeMap;

use countersign_domain::conversion::{Pair, Quote};
use countersign_domain::convert_order::ConvertOrder;
use countersign_domain::ids::{MerchantNo, OrderId, TenantNo};
use countersign_domain::time::UnixMillis;

use super::state::{State, guard, parent};
use super::{ModelStore, page};
use crate::batch::{Conflict, Key};
use crate::contract::{Asker, CommitError, Cursor, StoreError};
use crate::conversion::{
    ConvertMove, ConvertOrderFilter, ConvertOrderPage, ConvertStore, ConvertWrite, QUOTES_FORGOTTEN_MAX, RateRow,
    order_page,
};

/// Every row of them, by its key.
#[derive(Clone, Debug, Default)]
pub(super) struct Conversions {
    rates: BTreeMap<String, RateRow>,
    quotes: BTreeMap<(MerchantNo, String), (TenantNo, Quote)>,
    requests: BTreeMap<(MerchantNo, String), OrderId>,
    /// The states that each order came to.
    moves: BTreeMap<OrderId, Vec<ConvertMove>>,
}

impl Conversions {
    /// Appends to an order's history.
    pub(super) fn came_to(&mut self, order: &ConvertOrder, at: UnixMillis) {
        let came_to = ConvertMove { revision: order.revision, status: order.status, at };
        self.moves.entry(order.order_id).or_default().push(came_to);
    }
}

impl State {
    pub(super) fn convert(&mut self, write: &ConvertWrite) -> Result<(), CommitError> {
        match write {
            ConvertWrite::PutRate(row) => {
                let key = row.pair.to_string();
                let stored = self.conversions.rates.get(&key);
                let (revision, stale_told) = stored.map_or((0, 0), |stored| (stored.revision, stored.stale_told));
                guard(revision == row.revision - 1, || Conflict::Moved(Key::Rate(key.clone())))?;
                self.conversions.rates.insert(key, RateRow { stale_told, ..row.clone() });
                Ok(())
            }
            ConvertWrite::TellStale { pair, revision } => {
                let key = pair.to_string();
                let stored = self.conversions.rates.get_mut(&key);
                let found = stored.filter(|row| row.revision == *revision && row.stale_told < *revision);
                let moved = || CommitError::Conflict(Conflict::Moved(Key::Rate(key)));
                found.ok_or_else(moved)?.stale_told = *revision;
                Ok(())
            }
            ConvertWrite::AddQuote { tenant, merchant, quote, ended_before } => {
                let key = (*merchant, quote.quote_id.clone());
                let taken = self.conversions.quotes.contains_key(&key);
                guard(!taken, || Conflict::Taken(Key::Quote(quote.quote_id.clone())))?;
                parent(self.is_of(*merchant, *tenant), "a merchant")?;
                self.forget_quotes(*tenant, *ended_before);
                self.conversions.quotes.insert(key, (*tenant, quote.clone()));
                Ok(())
            }
            ConvertWrite::Execute { tenant, merchant, client_req_id, order } => {
                self.execute((*tenant, *merchant), client_req_id, order)
            }
        }
    }

    fn forget_quotes(&mut self, tenant: TenantNo, ended_before: UnixMillis) {
        let old = self.conversions.quotes.iter().filter(|(_, (of, q))| *of == tenant && q.expires_at < ended_before);
        let mut old: Vec<_> = old.map(|((of, id), (_, q))| (q.expires_at, *of, id.clone())).collect();
        old.sort();
        for (_, of, id) in old.into_iter().take(QUOTES_FORGOTTEN_MAX) {
            self.conversions.quotes.remove(&(of, id));
        }
    }

    pub(super) fn is_unused(&self, tenant: TenantNo, merchant: MerchantNo, quote_id: &str) -> bool {
        let quote = self.conversions.quotes.get(&(merchant, quote_id.to_owned()));
        quote.is_some_and(|(of, quote)| *of == tenant && quote.order.is_none())
    }

    fn execute(
        &mut self,
        (tenant, merchant): (TenantNo, MerchantNo),
        client_req_id: &str,
        order: &ConvertOrder,
    ) -> Result<(), CommitError> {
        let taken = self.orders.contains_key(&order.order_id);
        guard(!taken, || Conflict::Taken(Key::ConvertOrder(order.order_id)))?;
        parent(self.is_of(merchant, tenant), "a merchant")?;
        let request = (merchant, client_req_id.to_owned());
        let taken = self.conversions.requests.contains_key(&request);
        guard(!taken, || Conflict::Taken(Key::ConvertRequest(client_req_id.to_owned())))?;
        let quote = self.conversions.quotes.get_mut(&(merchant, order.quote_id.clone()));
        let moved = || CommitError::Conflict(Conflict::Moved(Key::Quote(order.quote_id.clone())));
        let (_, quote) = quote.filter(|(of, quote)| *of == tenant && quote.order.is_none()).ok_or_else(moved)?;
        quote.order = Some(order.order_id);
        self.conversions.requests.insert(request, order.order_id);
        self.insert_order(tenant, merchant, order)
    }
}

impl ConvertStore for ModelStore {
    async fn rate(&self, pair: &Pair) -> Result<Option<RateRow>, StoreError> {
        Ok(self.state().conversions.rates.get(&pair.to_string()).cloned())
    }

    async fn rates(&self, cursor: Cursor<String>) -> Result<Vec<RateRow>, StoreError> {
        let state = self.state();
        let rows = state.conversions.rates.iter();
        let behind = rows.filter(|(pair, _)| cursor.after.as_ref().is_none_or(|after| *pair > after));
        Ok(page(behind.map(|(_, row)| row.clone()), cursor.limit))
    }

    async fn quote(&self, tenant: TenantNo, of: MerchantNo, quote_id: &str) -> Result<Option<Quote>, StoreError> {
        let state = self.state();
        let found = state.conversions.quotes.get(&(of, quote_id.to_owned()));
        Ok(found.filter(|(owner, _)| *owner == tenant).map(|(_, quote)| quote.clone()))
    }

    async fn convert_request(
        &self,
        tenant: TenantNo,
        of: MerchantNo,
        client_req_id: &str,
    ) -> Result<Option<ConvertOrder>, StoreError> {
        let state = self.state();
        let found = state.conversions.requests.get(&(of, client_req_id.to_owned())).filter(|_| state.is_of(of, tenant));
        Ok(found.and_then(|order| state.orders.get(order)).map(|(_, order)| order.clone()))
    }

    async fn convert_orders(
        &self,
        _asker: Asker,
        filter: ConvertOrderFilter,
        cursor: Cursor<OrderId>,
        looked_max: u32,
    ) -> Result<ConvertOrderPage, StoreError> {
        let state = self.state();
        let before = |id: &OrderId| cursor.after.is_none_or(|after| *id < after);
        let owned = |owner: &MerchantNo| filter.of.is_none_or(|(tenant, of)| *owner == of && state.is_of(of, tenant));
        let led_to = || state.orders.iter().rev().filter(|(id, (owner, _))| before(id) && owned(owner));
        let looked_max = if filter.is_bounded() { looked_max as usize } else { usize::MAX };
        let is_meant = |order: &ConvertOrder| filter.status.is_none_or(|status| order.status == status);
        let found = led_to().take(looked_max).filter(|(_, (_, order))| is_meant(order)).take(cursor.limit as usize + 1);
        let named = |(_, (owner, order)): (&OrderId, &(MerchantNo, ConvertOrder))| {
            let merchant_id = state.merchants.get(owner).map(|owner| owner.merchant_id.clone());
            (merchant_id.unwrap_or_default(), order.clone())
        };
        let edge = led_to().nth(looked_max).map(|(id, _)| *id);
        Ok(order_page(found.map(named).collect(), cursor.limit, edge))
    }

    async fn convert_moves(&self, tenant: TenantNo, order: OrderId) -> Result<Vec<ConvertMove>, StoreError> {
        let state = self.state();
        let owner = state.orders.get(&order).map(|(owner, _)| *owner);
        let own = owner.is_some_and(|owner| state.is_of(owner, tenant));
        Ok(state.conversions.moves.get(&order).filter(|_| own).cloned().unwrap_or_default())
    }
}
