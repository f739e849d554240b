//! `POST /rate/commission_rule`: the first version of a sub-account's fee rule.

use std::sync::Arc;

use countersign_protocol::endpoint::rule_create::Request;
use countersign_protocol::endpoint::{Endpoint, RequestRefused};

use super::answer::Failure;
use super::rules::{Wanted, change};
use super::signed::{Input, Signed};
use crate::app::App;
use crate::app::rules::Making;

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::RuleCreate;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.body)
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let asked = &signed.request().0;
        let wanted = Wanted {
            making: Making::Create,
            sub_merchant_id: &asked.sub_merchant_id,
            r_markup: asked.r_markup,
            f_markup: asked.f_markup,
            effective_date: &asked.effective_date,
            due_date: asked.due_date.as_deref(),
        };
        change(app, signed, wanted).await
    }
}
