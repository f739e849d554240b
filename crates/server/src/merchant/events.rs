//! `GET /v1/pay/events`: the application's own events, delivered or not, in order.

use std::sync::Arc;

use countersign_domain::time::rfc3339;
use countersign_protocol::endpoint::events::{Event, Request, Response};
use countersign_protocol::endpoint::{Endpoint, RequestRefused};

use super::answer::{Failure, success};
use super::signed::{Input, Signed};
use crate::app::{self, App};

/// The operation.
#[derive(Debug)]
pub struct Operation;

impl super::signed::Operation for Operation {
    const ENDPOINT: Endpoint = Endpoint::Events;
    type Request = Request;

    fn parse(input: Input<'_>) -> Result<Request, RequestRefused> {
        Request::parse(input.query())
    }

    async fn handle(app: &Arc<App>, signed: &Signed<'_, Request>) -> Result<Vec<u8>, Failure> {
        let asked = signed.request();
        let pulled = app::pull::pull(app, &signed.application().application, asked.after, asked.limit).await?;
        if let Some(place) = pulled.place {
            signed.hold(place);
        }
        let events = pulled
            .events
            .into_iter()
            .map(|row| Event {
                seq: row.seq,
                event_id: app::events::public_id(row.event_id),
                biz_type: row.biz_type,
                biz_id: row.biz_id,
                biz_status: row.biz_status,
                client_id: row.client_id,
                data: row.data,
                created_at: rfc3339(row.created_at),
            })
            .collect();
        success(&Response { events, next: pulled.next })
    }
}
