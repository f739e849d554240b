//! `POST /rate/commission_rule/list`: an institution's rules as they are now, by page.

use std::sync::Arc;

use countersign_protocol::endpoint::rule_list::{Request, Response};
use countersign_protocol::endpoint::{Endpoint, RequestRefused, RuleStatus};
use countersign_store::contract::{RuleFilter, RuleStanding};

use super::answer::{Failure, success};
use super::rules::record;
use super::signed::{Input, Signed};
use crate::app::{App, rules};

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::RuleList;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.body)
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let asked = signed.request();
        let institution = signed.institution();
        let filter = RuleFilter {
            has_markup: asked.has_markup,
            standing: asked.status.map(standing),
            sub_merchant_id: asked.sub_merchant_id.clone(),
        };
        let offset = (asked.page_num - 1).saturating_mul(asked.page_size);
        let limit = u32::try_from(asked.page_size).unwrap_or(u32::MAX);
        let page = rules::page(app, institution, filter, offset, limit).await?;
        let total = u64::try_from(page.total).unwrap_or(0);
        success(&Response {
            records: page.records.iter().map(|listed| record(app, institution, listed)).collect(),
            total,
            size: asked.page_size,
            current: asked.page_num,
            pages: total.div_ceil(asked.page_size),
        })
    }
}

const fn standing(status: RuleStatus) -> RuleStanding {
    match status {
        RuleStatus::Effective => RuleStanding::InForce,
        RuleStatus::PendingEffective => RuleStanding::Pending,
    }
}
