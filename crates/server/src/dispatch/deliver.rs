//! What happens to one taken event: may it go now, with which key, to where; then the attempt.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use countersign_domain::delivery::patience;
use countersign_domain::ids::{EventNo, prefix};
use countersign_domain::lanes::{Fence, Lane};
use countersign_domain::time::UnixMillis;
use countersign_protocol::callback::callback_nonce_behind;
use countersign_protocol::headers::HeaderNames;
use countersign_protocol::signing::{Encoding, encode_signature_behind};
use countersign_store::contract::{EventRow, SignatureEncoding};
use countersign_store::{Store, StoreError};
use hyper::body::Bytes;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::attempt::{self, Letter};
use super::faults::Lack;
use super::lineup::Waited;
use super::meters::Meters;
use super::{Dispatcher, Ended, FAULT_MS, RECHECK_MS, SAID_EVERY};
use crate::app::callers::{CallbackKeys, KnownApplication, LiveKey};

/// The names of the headers that are sent.
#[derive(Debug)]
pub(super) struct CallbackHeaders {
    timestamp: HeaderName,
    nonce: HeaderName,
    signature: HeaderName,
    signature_next: HeaderName,
    event_id: HeaderName,
    attempt: HeaderName,
    sequence: HeaderName,
}

impl CallbackHeaders {
    pub(super) fn new(names: &HeaderNames) -> Self {
        let name = |text: &str| HeaderName::from_bytes(text.as_bytes()).expect("a checked prefix makes header names");
        Self {
            timestamp: name(&names.timestamp),
            nonce: name(&names.nonce),
            signature: name(&names.signature),
            signature_next: name(&names.signature_next),
            event_id: name(&names.event_id),
            attempt: name(&names.attempt),
            sequence: name(&names.sequence),
        }
    }

    /// What is signed and sent, under its names, in the order in which it goes out.
    pub(super) fn in_order<T>(&self, of: Parts<T>) -> [Option<(&HeaderName, T)>; 7] {
        [
            of.signature.map(|value| (&self.signature, value)),
            of.signature_next.map(|value| (&self.signature_next, value)),
            Some((&self.timestamp, of.timestamp)),
            Some((&self.nonce, of.nonce)),
            Some((&self.event_id, of.event_id)),
            Some((&self.attempt, of.attempt)),
            of.sequence.map(|value| (&self.sequence, value)),
        ]
    }
}

/// The values of one callback's headers. Only by hand is one sent that lacks a signature or its number.
#[derive(Debug)]
pub(crate) struct Parts<T> {
    pub(crate) signature: Option<T>,
    pub(crate) signature_next: Option<T>,
    pub(crate) timestamp: T,
    pub(crate) nonce: T,
    pub(crate) event_id: T,
    pub(crate) attempt: T,
    pub(crate) sequence: Option<T>,
}

/// The values of headers, one behind the other in one piece of memory.
struct Values(String);

impl Values {
    /// Writes one more behind the others, and says where it stands.
    fn put(&mut self, value: impl FnOnce(&mut String)) -> Range<usize> {
        let from = self.0.len();
        value(&mut self.0);
        from..self.0.len()
    }

    /// A number, or something else that shows as digits, letters and signs.
    fn show(&mut self, value: fmt::Arguments<'_>) -> Range<usize> {
        self.put(|text| text.write_fmt(value).expect("a text takes everything"))
    }

    fn headers<const N: usize>(self, parts: [Option<(&HeaderName, Range<usize>)>; N]) -> HeaderMap {
        let text = Bytes::from(self.0);
        // With those that every request of ours has.
        let mut headers = HeaderMap::with_capacity(12);
        for (name, at) in parts.into_iter().flatten() {
            let value = HeaderValue::from_maybe_shared(text.slice(at));
            headers.insert(name, value.expect("digits, letters and signs of ASCII are a header value"));
        }
        headers
    }
}

impl Dispatcher {
    pub(super) async fn deliver(&self, event: EventRow, fence: Fence, waited: Waited) -> Ended {
        // Before all that may change while the store is asked: where the callback goes, who signs it, and what time it is.
        let order = self.must_wait_for(&event, self.app.clock.now()).await;
        let known = self.app.known_application(&event.client_id).await;
        let now = self.app.clock.now();
        let known = match known {
            Ok(Some(known)) => known,
            Ok(None) => {
                tracing::error!(event.id = %event.event_id, client_id = %event.client_id, "A callback's application is not there");
                return Ended::Waits { until: now.plus_ms(FAULT_MS) };
            }
            Err(error) => {
                tracing::error!(%error, client_id = %event.client_id, "A callback's application cannot be read; its callbacks wait");
                return Ended::ApplicationWaits { until: now.plus_ms(RECHECK_MS) };
            }
        };
        let Some(url) = known.application.callback_url.as_deref().filter(|_| known.goes_out) else {
            return Box::pin(self.hold(&event, fence)).await;
        };
        match order {
            Ok(None) => {}
            Ok(Some(behind)) => return Box::pin(self.defer(&event, fence, behind, now)).await,
            Err(error) => {
                tracing::warn!(%error, event.id = %event.event_id, "Whether a callback is next in order could not be read");
                return Ended::Waits { until: now.plus_ms(RECHECK_MS) };
            }
        }
        let CallbackKeys { signing: Some(signing), next } = known.callback_keys(now) else {
            if self.unsigned.is_new(event.application) {
                tracing::warn!(client_id = %event.client_id, "No live secret signs this application's callbacks; they wait");
            }
            return Ended::ApplicationWaits { until: now.plus_ms(RECHECK_MS) };
        };
        self.unsigned.signs(event.application);
        let letter = self.letter(&event, &known, signing, next, now);
        // The last look before something leaves: the process may have been stopped for longer than the lease.
        if !self.leases.holds(Lane::of(event.application), fence, Instant::now()) {
            return Ended::Again;
        }
        let report = attempt::make(&self.connector, url, letter, self.settings.deadline, now).await;
        if let Some(lack) = report.lack {
            return self.lacking(&event, lack, &report.detail);
        }
        self.meters.begins(&event, waited, now);
        self.attempts.fetch_add(1, Ordering::SeqCst);
        self.record(&event, fence, &known, url, (now, report)).await
    }

    /// There was no file, no memory, no address of our own, no look-up or no proxy for a connection. That is no attempt, and says nothing of the endpoint: its callbacks wait.
    fn lacking(&self, event: &EventRow, lack: Lack, detail: &str) -> Ended {
        Meters::lacks();
        if lack == Lack::Room {
            // What is kept for later attempts is of use now.
            self.connector.keep_none();
        }
        if let Some(times) = self.lacks.due(SAID_EVERY) {
            tracing::warn!(
                times,
                client_id = %event.client_id,
                "Callbacks wait, since this process has no file, no memory, no address, no look-up or no proxy for a connection: {detail}"
            );
        }
        // Not this one event alone: the next one would lack the same at once.
        Ended::ApplicationWaits { until: self.app.clock.now().plus_ms(RECHECK_MS) }
    }

    /// Signs the event's bytes afresh.
    pub(super) fn letter(
        &self,
        event: &EventRow,
        known: &Arc<KnownApplication>,
        signing: &LiveKey,
        next: Option<&LiveKey>,
        now: UnixMillis,
    ) -> Letter {
        let encoding = match known.application.callback_encoding {
            SignatureEncoding::Hex => Encoding::Hex,
            SignatureEncoding::Base64 => Encoding::Base64,
        };
        // Room for two signatures and all else.
        let mut values = Values(String::with_capacity(448));
        let timestamp = values.show(format_args!("{:013}", now.0));
        let nonce = values.put(|text| callback_nonce_behind(text, self.app.chance.bits128()));
        let mut sign = |key: &LiveKey| {
            let text = &values.0;
            let signature = key.key.sign(&text[timestamp.clone()], &text[nonce.clone()], &event.body);
            values.put(|text| encode_signature_behind(text, &signature, encoding))
        };
        let (signature, signature_next) = (Some(sign(signing)), next.map(sign));
        let event_id = values.show(format_args!("{}{}", prefix::EVENT, event.event_id));
        let attempt = values.show(format_args!("{}", event.attempts + 1));
        let sequence = Some(values.show(format_args!("{}", event.sequence)));
        let parts = Parts { signature, signature_next, timestamp, nonce, event_id, attempt, sequence };
        let headers = values.headers(self.headers.in_order(parts));
        Letter { headers, body: Bytes::copy_from_slice(&event.body) }
    }

    /// The earlier event of its bizId that a callback lets go first; none where it may go now.
    async fn must_wait_for(&self, event: &EventRow, now: UnixMillis) -> Result<Option<EventNo>, StoreError> {
        if event.sequence <= 1 || now >= self.patience(event, now) {
            return Ok(None);
        }
        self.app.store.open_before(event).await
    }

    /// How long a callback waits for earlier ones.
    pub(super) fn patience(&self, event: &EventRow, now: UnixMillis) -> UnixMillis {
        let waits_until = event.due_at.filter(|_| event.behind.is_some());
        patience(event.created_at, waits_until, self.settings.order_hold_ms, now)
    }
}
