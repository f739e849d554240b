//! `GET /rate/commission_rule`: the rule of a sub-account that is in force now, or at the end of a second.

use std::sync::Arc;

use countersign_protocol::endpoint::rule_query::Request;
use countersign_protocol::endpoint::{Endpoint, RequestRefused};
use countersign_store::contract::{ListedRule, RuleRecord};

use super::answer::{Failure, success};
use super::rules::{date, record};
use super::signed::{Input, Signed};
use crate::app::{App, rules};

/// `query_time` names a second, and periods begin and end with one; only what is made begins within. Whoever has just made a rule and asks about this
/// very second is shown it, so the question is about the second's last millisecond.
const TO_THE_END_OF_A_SECOND_MS: i64 = 999;

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::RuleQuery;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.query())
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let asked = signed.request();
        let at = asked.query_time.as_deref().map(|t| date(app, "query_time", t)).transpose()?;
        let at = at.map(|second| second.plus_ms(TO_THE_END_OF_A_SECOND_MS));
        let version = rules::in_force(app, signed.institution(), &asked.sub_merchant_id, at).await?;
        let sub_merchant_id = asked.sub_merchant_id.clone();
        let found = RuleRecord { sub_merchant_id, rule: version.map_or(ListedRule::None, ListedRule::InForce) };
        success(&record(app, signed.institution(), &found))
    }
}
