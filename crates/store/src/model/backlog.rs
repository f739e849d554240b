//! What waits in the model, and what the dead ones died of.

use std::collections::BTreeMap;

use countersign_domain::delivery::DeliveryState;
use countersign_domain::ids::{ApplicationNo, TenantNo};
use countersign_domain::lanes::LaneSet;

use super::ModelStore;
use super::page;
use super::state::State;
use crate::backlog::{Backlog, Backlogs, DeadRow, NodeBacklog, WithDead};
use crate::contract::{Cursor, EventRow, StoreError};

impl Backlogs for ModelStore {
    async fn backlog(&self, tenant: TenantNo, of: ApplicationNo, most: u32) -> Result<Backlog, StoreError> {
        Ok(self.state().backlog(tenant, of, most))
    }

    async fn dead(&self, of: Option<(TenantNo, ApplicationNo)>, cursor: Cursor) -> Result<Vec<DeadRow>, StoreError> {
        Ok(self.state().dead(of, &cursor))
    }

    async fn with_dead(
        &self,
        after: Option<(TenantNo, ApplicationNo)>,
        limit: u32,
    ) -> Result<Vec<WithDead>, StoreError> {
        let state = self.state();
        let dead = state.events.values().filter(|e| e.state == DeliveryState::Dead);
        let found: BTreeMap<(TenantNo, ApplicationNo), &str> =
            dead.map(|e| ((e.tenant, e.application), e.client_id.as_str())).collect();
        let left = found.into_iter().filter(|(of, _)| after.is_none_or(|after| *of > after));
        let row = |((tenant, application), client_id): (_, &str)| WithDead {
            tenant,
            application,
            client_id: client_id.to_owned(),
        };
        Ok(page(left.map(row), limit))
    }

    async fn place_of(&self, client_id: &str) -> Result<Option<(TenantNo, ApplicationNo)>, StoreError> {
        let state = self.state();
        Ok(state.applications.values().find(|a| a.client_id == client_id).map(|a| (a.tenant, a.no)))
    }

    async fn waiting(&self, _: LaneSet, most: u32) -> Result<NodeBacklog, StoreError> {
        let state = self.state();
        let counted = |asked| page(state.events.values().filter(|e| e.state == asked), most);
        let (pending, dead) = (counted(DeliveryState::Pending), counted(DeliveryState::Dead));
        Ok(NodeBacklog {
            pending: i64::try_from(pending.len()).unwrap_or(i64::MAX),
            oldest_pending: pending.first().map(|e| e.created_at),
            dead: i64::try_from(dead.len()).unwrap_or(i64::MAX),
        })
    }
}

impl State {
    pub(super) fn backlog(&self, tenant: TenantNo, of: ApplicationNo, most: u32) -> Backlog {
        let own = |e: &&EventRow| (e.tenant, e.application) == (tenant, of);
        let counted = |is_one: fn(DeliveryState) -> bool| {
            page(self.events.values().filter(own).filter(|e| is_one(e.state)), most)
        };
        let open = counted(|state| !state.is_over());
        let dead = counted(|state| state == DeliveryState::Dead);
        Backlog {
            open: i64::try_from(open.len()).unwrap_or(i64::MAX),
            oldest_open: open.first().map(|e| e.created_at),
            dead: i64::try_from(dead.len()).unwrap_or(i64::MAX),
        }
    }

    pub(super) fn dead(&self, of: Option<(TenantNo, ApplicationNo)>, cursor: &Cursor) -> Vec<DeadRow> {
        let asked = |e: &&EventRow| {
            e.state == DeliveryState::Dead
                && of.is_none_or(|of| (e.tenant, e.application) == of)
                && cursor.after.is_none_or(|after| e.no.0 < after)
        };
        let with_last = |e: &EventRow| {
            let last = self.attempts.get(&e.no)?.iter().find(|attempt| attempt.attempt == e.attempts)?;
            Some(DeadRow {
                no: e.no,
                tenant: e.tenant,
                client_id: e.client_id.clone(),
                event_id: e.event_id,
                seq: e.seq,
                biz_id: e.biz_id.clone(),
                created_at: e.created_at,
                outcome: last.outcome,
                http_status: last.http_status,
                detail: last.detail.clone(),
            })
        };
        page(self.events.values().rev().filter(asked).filter_map(with_last), cursor.limit)
    }
}
