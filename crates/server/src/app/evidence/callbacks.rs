//! The callbacks about an order, each with its attempts and what went over the wire.

use countersign_domain::delivery::Outcome;
use countersign_domain::ids::SortedId;
use countersign_protocol::sentence::of_field;
use countersign_store::Store as _;
use countersign_store::attempt_log::AttemptBytes;
use countersign_store::contract::{Asker, AttemptRow, Cursor, EventFilter, EventRow};
use countersign_store::payment_order::PaymentOrderRow;

use super::order::Snapshot;
use super::{App, AppError, Out, Stopped, TRIES_MAX};
use crate::app::events::public_id;
use crate::app::payment_orders::LOOKED_MAX;
use crate::chance::hex;
use crate::digest::sha256;
use crate::evidence::{At, Attempt, CALLBACKS_MAX, Callback, Entry, Octets, Wire};

/// Events that are read at a time; only their ids are kept.
const PAGE: u32 = 20;

/// Which callbacks there are still.
pub(super) struct KeptCallbacks {
    /// Their numbers among those of the order, in their order, and which events they are. Events are listed by numbers that were drawn before they
    /// were written, which two nodes, or two requests at once, may have done the other way round.
    numbered: Vec<(i64, SortedId)>,
}

/// The events about an order that are kept, read until none that is written meanwhile is missed.
pub(super) async fn list(app: &App, row: &PaymentOrderRow) -> Result<KeptCallbacks, AppError> {
    for _ in 0..TRIES_MAX {
        let mut numbered = all(app, row).await?;
        numbered.sort_unstable();
        if numbered.iter().zip(numbered.iter().skip(1)).all(|((one, _), (next, _))| one + 1 == *next) {
            return Ok(KeptCallbacks { numbered });
        }
    }
    Err(AppError::Busy)
}

async fn all(app: &App, row: &PaymentOrderRow) -> Result<Vec<(i64, SortedId)>, AppError> {
    let biz_id = row.order.prepay_id.to_string();
    let (mut numbered, mut after) = (Vec::new(), None);
    loop {
        let filter = EventFilter { client_id: Some(row.client_id.clone()), biz_id: Some(biz_id.clone()), state: None };
        let page = app.store.events(filter, Cursor { after, limit: PAGE }, LOOKED_MAX).await?;
        numbered.extend(page.events.iter().map(|event| (event.sequence, event.event_id)));
        if numbered.len() > CALLBACKS_MAX {
            let more = format!("has more than {CALLBACKS_MAX} callbacks, which no file of evidence holds");
            let why = of_field("prepay_id", more);
            return Err(AppError::InvalidParameter(why));
        }
        let Some(next) = page.next else { return Ok(numbered) };
        after = Some(next);
    }
}

impl KeptCallbacks {
    /// Each, in their order.
    pub(super) fn events(&self) -> impl Iterator<Item = SortedId> {
        self.numbered.iter().map(|(_, event)| *event)
    }

    /// Callbacks that are no longer kept: the first ones go first. Where none is left, each move had one, and there may have been more.
    pub(super) fn freed(&self, of: &Snapshot) -> Option<Entry> {
        let moved = i64::try_from(of.moves.len()).unwrap_or(i64::MAX);
        let first = self.numbered.first().map(|(sequence, _)| *sequence);
        let (through_sequence, is_at_least) = first.map_or((moved, true), |first| (first - 1, false));
        (through_sequence > 0).then_some(Entry::CallbacksFreed { through_sequence, is_at_least })
    }
}

/// A callback with all its attempts.
pub(super) async fn write(app: &App, event: SortedId, out: &mut Out<'_>) -> Result<(), Stopped> {
    let (event, attempts) = read(app, event).await?;
    let id = public_id(event.event_id);
    out.entry(Entry::Callback(Callback {
        event_id: id.clone(),
        event_seq: event.seq,
        sequence: event.sequence,
        biz_type: event.biz_type,
        biz_status: event.biz_status,
        created_at: At(event.created_at),
        state: event.state.name().to_owned(),
        attempts: event.attempts,
        body_sha256: hex(&sha256(&event.body)),
        body: Octets::of(&event.body),
    }))
    .await?;
    for attempt in &attempts {
        let bytes = app.store.attempt_bytes(event.tenant, event.no, attempt.attempt, attempt.at).await?;
        out.entry(Entry::Attempt(Box::new(entry(&id, attempt, bytes.as_ref())))).await?;
    }
    Ok(())
}

/// An event and its attempts, read until they are of one moment.
async fn read(app: &App, event: SortedId) -> Result<(EventRow, Vec<AttemptRow>), AppError> {
    for _ in 0..TRIES_MAX {
        let gone = || AppError::NotFound("a callback was freed while it was to be read: ask again".to_owned());
        let (event, attempts) = app.store.event(Asker::Operator, event).await?.ok_or_else(gone)?;
        if usize::try_from(event.attempts) == Ok(attempts.len()) {
            return Ok((event, attempts));
        }
    }
    Err(AppError::Busy)
}

/// What is kept of the bytes of an attempt. Without a connection nothing went out; over one a request may have, also where it ended before an answer.
const fn wire_of(row: &AttemptRow, bytes: Option<&AttemptBytes>) -> Wire {
    match (bytes, row.phases.reused, row.phases.total_us) {
        (Some(_), ..) => Wire::Kept,
        (None, Some(_), _) => Wire::NotKept,
        (None, None, Some(_)) => Wire::NothingSent,
        // Of a program that did not note connections.
        (None, None, None) => match row.outcome {
            Outcome::RefusedAddress | Outcome::DnsFailed | Outcome::TlsFailed => Wire::NothingSent,
            Outcome::Delivered
            | Outcome::ConnectFailed
            | Outcome::Timeout
            | Outcome::HttpStatus
            | Outcome::Unreadable
            | Outcome::Fail => Wire::NotKept,
        },
    }
}

fn entry(event_id: &str, row: &AttemptRow, bytes: Option<&AttemptBytes>) -> Attempt {
    let wire = wire_of(row, bytes);
    let answer = bytes.filter(|bytes| !bytes.answer_head.is_empty());
    Attempt {
        event_id: event_id.to_owned(),
        attempt: row.attempt,
        at: At(row.at),
        outcome: row.outcome.name().to_owned(),
        http_status: row.http_status,
        duration_ms: row.duration_ms,
        address: row.address.clone(),
        detail: row.detail.clone(),
        dns_us: row.phases.dns_us,
        connect_us: row.phases.connect_us,
        tls_us: row.phases.tls_us,
        first_byte_us: row.phases.first_byte_us,
        total_us: row.phases.total_us,
        reused: row.phases.reused,
        wire,
        sent_head: bytes.filter(|bytes| !bytes.sent_head.is_empty()).map(|bytes| Octets::of(&bytes.sent_head)),
        answer_head: answer.map(|bytes| Octets::of(&bytes.answer_head)),
        answer_body: answer.map(|bytes| Octets::of(&bytes.answer_body)),
        answer_body_bytes: answer.map(|bytes| bytes.answer_length),
        answer_body_is_cut: answer.is_some_and(|bytes| bytes.is_cut),
    }
}
