//! From raw bytes to a caller with a right: the contract's checks in the contract's order.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use countersign_domain::time::UnixMillis;
use countersign_protocol::code::Code;
use countersign_protocol::endpoint::{Endpoint, RequestRefused};
use countersign_protocol::headers::{Header, SignedHeaders};
use countersign_protocol::sentence::of_header;
use countersign_store::Store;
use countersign_store::contract::{ClaimKey, Claimed, MerchantKind, MerchantRow};
use hyper::http::request::Parts;

use super::answer::{Failure, NonceFate};
use super::timestamps::{from_before_crash, from_before_memory, in_own_time, in_time};
use super::{Edge, REFUSAL_GRID, REFUSAL_GRID_UNREAD, Trace};
use crate::app::actor::Right;
use crate::app::callers::{Ask, Authenticated, KnownApplication, Refused};
use crate::app::concurrency_limit::ConcurrencyPermit;
use crate::app::error::AppError;
use crate::app::{Actor, App, forgotten_nonces};

/// Of a ClientId or a merchant's name in the log, in characters.
const NAME_CHARS_KEPT: usize = 64;

/// A request as it came: its head and its raw body.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Method, path, query, headers.
    pub head: &'a Parts,
    /// The bytes that were signed.
    pub body: &'a [u8],
    /// What the names of its signed headers begin with, in small letters; none before they are read.
    pub prefix: Option<&'a str>,
}

impl<'a> Input<'a> {
    /// The raw query; empty where there is none.
    pub fn query(&self) -> &'a str {
        self.head.uri.query().unwrap_or("")
    }
}

/// A request whose form, age, signature, nonce and identity were checked, in that order. Only this module makes one.
#[derive(Debug)]
pub struct Signed<'a, T> {
    caller: Arc<KnownApplication>,
    acts_for: Option<MerchantRow>,
    claim: &'a ClaimKey,
    trace: &'a Trace,
    request: T,
}

impl<T> Signed<'_, T> {
    /// What is asked.
    pub fn request(&self) -> &T {
        &self.request
    }

    /// The application that signed.
    pub fn application(&self) -> &KnownApplication {
        &self.caller
    }

    /// The institution whose fee rules this is about; `MerchantId` was found to name it.
    pub fn institution(&self) -> &MerchantRow {
        &self.caller.merchant
    }

    /// Whose orders this is about: the caller's own merchant, or the sub-account it acts for.
    pub fn owner(&self) -> &MerchantRow {
        self.acts_for.as_ref().unwrap_or(&self.caller.merchant)
    }

    /// Keeps a place until the caller has read the answer.
    pub fn hold(&self, place: Box<ConcurrencyPermit>) {
        // There is one answer.
        let _ = self.trace.place.set(place);
    }

    /// The nonce, to be used up in the same batch as the effect.
    pub fn claim(&self) -> &ClaimKey {
        self.claim
    }

    /// Who did it, for the audit log.
    pub fn actor(&self) -> Actor {
        let acts_for = self.acts_for.as_ref().map(|sub| sub.merchant_id.as_str());
        Actor {
            name: name_of(&self.caller.application.client_id, &self.caller.merchant.merchant_id, acts_for),
            source: self.trace.source.map(|s| crate::source::text(s).into_owned()).unwrap_or_default(),
            request_id: self.trace.request_id.clone(),
            right: Some(Right::Signature { application: self.caller.clone(), acts_for: self.acts_for.clone() }),
        }
    }
}

/// One signed operation: how its request is read and what answers it.
pub trait Operation {
    /// Which endpoint.
    const ENDPOINT: Endpoint;
    /// Its request.
    type Request: Send;

    /// Reads the request. The signature was right, so what it says may be told.
    fn parse(input: Input<'_>) -> Result<Self::Request, RequestRefused>;

    /// Answers with the whole envelope. An operation that changes something has used the nonce up in its batch.
    fn handle(
        app: &Arc<App>,
        signed: &Signed<'_, Self::Request>,
    ) -> impl Future<Output = Result<Vec<u8>, Failure>> + Send;
}

impl Edge {
    /// The whole way of a signed request.
    pub(super) async fn signed<O: Operation>(&self, trace: &mut Trace, input: Input<'_>) -> Result<Vec<u8>, Failure> {
        let fields = input.head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        // The fee-rule operations do not use On-Behalf-Of: whatever it says is ignored.
        let fields = fields.filter(|(name, _)| !(O::ENDPOINT.is_institution_only() && name.ends_with("on-behalf-of")));
        let headers = self.settings.prefixes.parse(fields).map_err(|r| Failure::new(r.code(), r.to_string()))?;
        let now = self.app.clock.now();
        trace.client_id = beginning(headers.client_id);
        trace.drift_ms = Some(now.0 - headers.timestamp_ms);
        in_time(now, headers.timestamp_ms, self.app.policy.timestamp_tolerance_ms)?;
        let caller = self.prove(trace, &headers, input.body, now).await?;
        trace.merchant_id.clone_from(&caller.merchant.merchant_id);
        let claim = ClaimKey {
            tenant: caller.application.tenant,
            application: caller.application.no,
            nonce: headers.nonce.to_owned(),
            stamped_at: UnixMillis(headers.timestamp_ms),
        };
        // A lower limit of the application's own is checked after the signature, so that it tells a stranger nothing.
        let in_own_time = in_own_time(&caller.application, now, headers.timestamp_ms);
        if let Err(failure) = self.reserve(&claim, now).await {
            in_own_time?;
            if failure.code == Code::NonceReused {
                trace.nonce_first_stamped = self.app.store.first_stamped(&claim).map(|at| at.0);
            }
            trace.refused_through = forgotten_nonces::all_refused_through(&self.app, now).map(|through| through.0);
            return Err(failure);
        }
        let reservation = Reservation { app: &self.app, claim: &claim, is_decided: false };
        let outcome = match within_rate(&self.app, &caller).and(in_own_time) {
            // The signature was right, so the nonce is used up all the same, unless it is 429.
            Err(failure) => Err(failure),
            Ok(()) => self.admitted::<O>(trace, caller, &headers, &claim, input).await,
        };
        let outcome = self.decide_nonce(&claim, O::ENDPOINT, outcome).await;
        reservation.decided();
        outcome
    }

    async fn prove(
        &self,
        trace: &mut Trace,
        headers: &SignedHeaders<'_>,
        body: &[u8],
        now: UnixMillis,
    ) -> Result<Arc<KnownApplication>, Failure> {
        let is_over = trace.source.is_some_and(|source| self.failed.is_over(source));
        let ask = if is_over { Ask::Nobody } else { Ask::TheStore };
        let is_unproved = AtomicBool::new(false);
        let look_up = self.failed.look_up(trace.source, &is_unproved);
        let found = self.app.authenticate(headers, body, now, ask, &is_unproved).await;
        look_up.ended();
        match found? {
            Authenticated::Yes(caller) => Ok(caller),
            Authenticated::No(Refused { why: refusal, merchant_id }, _) => {
                // For the log, which says whom to enable.
                trace.merchant_id = merchant_id;
                if trace.source.is_some_and(|source| !self.failed.one_more(source)) {
                    return Err(over_budget(refusal.name(), REFUSAL_GRID));
                }
                let sentence = "the ClientId or the signature is not right; sign timestamp, nonce and raw body with the Payment API Secret";
                let failure = Failure::new(Code::InvalidSignature, sentence).because(refusal.name());
                Err(Failure { grid: Some(REFUSAL_GRID), ..failure })
            }
            Authenticated::NotLookedUp => Err(over_budget("over_budget", REFUSAL_GRID_UNREAD)),
        }
    }

    /// Takes the nonce in memory: a replay ends here, before anything is done.
    async fn reserve(&self, claim: &ClaimKey, now: UnixMillis) -> Result<(), Failure> {
        match self.app.store.reserve(claim).await? {
            Claimed::Fresh => Ok(()),
            Claimed::Used => Err(reused()),
            Claimed::TooOld => {
                let limit_ms = self.app.policy.timestamp_tolerance_ms;
                let horizon = forgotten_nonces::horizon(&self.app.store).filter(|horizon| *horizon >= now);
                let is_trouble = forgotten_nonces::refused_through(&self.app.store, now, limit_ms).is_some();
                Err(from_before_memory(now, claim.stamped_at.0, limit_ms, horizon, is_trouble))
            }
            Claimed::Unknowable => {
                let limit_ms = self.app.policy.timestamp_tolerance_ms;
                Err(from_before_crash(forgotten_nonces::unknowable_through(&self.app.store, now, limit_ms)))
            }
            Claimed::InDoubt => Err(AppError::OutcomeUnknown.into()),
        }
    }

    /// Identity, body, and then the operation itself.
    async fn admitted<O: Operation>(
        &self,
        trace: &mut Trace,
        caller: Arc<KnownApplication>,
        headers: &SignedHeaders<'_>,
        claim: &ClaimKey,
        input: Input<'_>,
    ) -> Result<Vec<u8>, Failure> {
        let acts_for = self.identity(trace, O::ENDPOINT, &caller, headers).await?;
        let prefix = Some(self.settings.prefixes.all()[headers.prefix_index].prefix.as_str());
        let request = O::parse(Input { prefix, ..input }).map_err(|r| Failure::new(r.code, r.sentence))?;
        let signed = Signed { caller, acts_for, claim, trace, request };
        let outcome = O::handle(&self.app, &signed).await;
        outcome.map_err(|failure| {
            if failure.code != Code::OrderNotFound {
                return failure;
            }
            let on_behalf_of = self.settings.prefixes.all()[headers.prefix_index].display(Header::OnBehalfOf);
            let may_act = signed.caller.merchant.kind == MerchantKind::Institution;
            let hint = (may_act && signed.acts_for.is_none()).then_some(on_behalf_of.as_str());
            Failure { sentence: no_order(O::ENDPOINT, signed.acts_for.is_some(), hint), ..failure }
        })
    }

    /// `MerchantId` and `On-Behalf-Of`. They are not signed, so they never widen rights.
    async fn identity(
        &self,
        trace: &mut Trace,
        endpoint: Endpoint,
        caller: &KnownApplication,
        headers: &SignedHeaders<'_>,
    ) -> Result<Option<MerchantRow>, Failure> {
        let own = &caller.merchant;
        let names = &self.settings.prefixes.all()[headers.prefix_index];
        let not_allowed =
            |header, why: &str| Failure::new(Code::MerchantNotAllowed, of_header(names.display(header), why));
        if endpoint.is_institution_only() {
            let Some(named) = headers.merchant_id else {
                let why = "is missing; it names the institution";
                return Err(Failure::new(Code::InvalidParameter, of_header(names.display(Header::MerchantId), why)));
            };
            if own.kind != MerchantKind::Institution {
                let sentence = "only a key of an institution itself may manage its fee rules, and this key is not an institution's";
                return Err(Failure::new(Code::MerchantNotAllowed, sentence));
            }
            if named != own.merchant_id {
                return Err(not_allowed(Header::MerchantId, "must be the institution that this key belongs to"));
            }
            return Ok(None);
        }
        if headers.merchant_id.is_some_and(|named| named != own.merchant_id && named != caller.tenant_id) {
            let why = "must be the merchant of this key or its institution, where it is sent";
            return Err(not_allowed(Header::MerchantId, why));
        }
        let Some(named) = headers.on_behalf_of else { return Ok(None) };
        trace.on_behalf_of = beginning(named);
        if endpoint == Endpoint::Events {
            let why = "does not work here: events belong to the application that signs";
            return Err(not_allowed(Header::OnBehalfOf, why));
        }
        if own.kind != MerchantKind::Institution {
            let why = "is for keys of an institution itself; this key acts for its own merchant alone, so leave it out";
            return Err(not_allowed(Header::OnBehalfOf, why).because("acts_for_itself_alone"));
        }
        acted_for(own, self.app.store.merchant(named).await?)
            .map(Some)
            .map_err(|reason| not_allowed(Header::OnBehalfOf, NO_SUB_ACCOUNT).because(reason))
    }

    /// A request whose signature was right has used its nonce up, whatever the answer; only 429 and 503 leave it open.
    async fn decide_nonce(
        &self,
        claim: &ClaimKey,
        endpoint: Endpoint,
        outcome: Result<Vec<u8>, Failure>,
    ) -> Result<Vec<u8>, Failure> {
        let fate = match &outcome {
            // The batch of the change has it.
            Ok(_) if endpoint.changes() => NonceFate::Leave,
            Ok(_) => NonceFate::Settle,
            Err(failure) => failure.nonce,
        };
        match fate {
            NonceFate::Leave => outcome,
            NonceFate::Release => {
                self.app.store.release(claim);
                outcome
            }
            NonceFate::Settle => match self.app.store.settle(claim.clone()).await {
                Ok(Claimed::Fresh) => outcome,
                // Outside its application's own limit it is told so, whoever has taken the nonce.
                Ok(Claimed::Used | Claimed::TooOld | Claimed::Unknowable) => match outcome {
                    Err(failure) if failure.code == Code::TimestampOutOfRange => Err(failure),
                    _ => Err(reused()),
                },
                // It counts as used: the caller sends a new one.
                Ok(Claimed::InDoubt) => Err(Failure {
                    nonce: NonceFate::Leave,
                    ..Failure::new(
                        Code::InternalError,
                        "outcome unknown, but nothing was changed: repeat the request with a new nonce",
                    )
                }),
                Err(error) => {
                    self.app.store.release(claim);
                    Err(error.into())
                }
            },
        }
    }
}

/// A nonce taken for a request that is being worked on. A request that is cut off leaves what was not used open: its client, who got no
/// answer, may send it again. What a batch or a settlement has taken is theirs, and stays.
struct Reservation<'a> {
    app: &'a App,
    claim: &'a ClaimKey,
    is_decided: bool,
}

impl Reservation<'_> {
    fn decided(mut self) {
        self.is_decided = true;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        // After a panic the answer is 500, and the nonce is used up.
        if !self.is_decided && !std::thread::panicking() {
            self.app.store.release(self.claim);
        }
    }
}

/// 429 where the application has used its rate up.
fn within_rate(app: &App, caller: &KnownApplication) -> Result<(), Failure> {
    caller.within_rate().map_err(|seconds| {
        let limit = caller.application.rate_limit_per_s.unwrap_or(app.policy.rate_limit_per_s);
        let requests = if limit == 1 { "request" } else { "requests" };
        let sentence = format!("this application may send {limit} {requests} a second, and has sent more; slow down");
        Failure { retry_after_s: Some(seconds), ..Failure::new(Code::RateLimited, sentence) }
    })
}

/// 429 where an address has used its budget up.
fn over_budget(reason: &'static str, grid: Duration) -> Failure {
    let sentence = "too many requests from this address had a ClientId or a signature that is not right; see that yours are, wait, and send it again";
    Failure { grid: Some(grid), ..Failure::new(Code::RateLimited, sentence).because(reason) }
}

/// What is said of an order that is not there, or somebody else's, in the words of the operation. `hint`: the header that a key of an institution
/// leaves out.
fn no_order(endpoint: Endpoint, acts_for: bool, hint: Option<&str>) -> String {
    let whose = if acts_for { "this sub-account" } else { "this merchant" };
    let which = if endpoint == Endpoint::ConvertOrder {
        format!("no convert order of {whose} has this orderId")
    } else {
        format!(
            "no payment order of {whose} has this prepayId or merchantTradeNo (where both are sent, both must be of one order)"
        )
    };
    hint.map_or_else(|| which.clone(), |header| format!("{which}; for one of a sub-account send {header}"))
}

/// As much of a name as the log keeps.
fn beginning(name: &str) -> String {
    let end = name.char_indices().nth(NAME_CHARS_KEPT).map_or(name.len(), |(end, _)| end);
    name[..end].to_owned()
}

/// Who does it, for the audit log: both parties where one acts for another.
fn name_of(client_id: &str, own: &str, acts_for: Option<&str>) -> String {
    acts_for.map_or_else(
        || format!("application:{client_id}"),
        |sub| format!("application:{client_id} merchant:{own} on_behalf_of:{sub}"),
    )
}

fn reused() -> Failure {
    Failure {
        nonce: NonceFate::Leave,
        ..Failure::new(Code::NonceReused, "this nonce was used before; send a new one with every request")
    }
}

/// What is said of an On-Behalf-Of that names none: the same whether it is unknown, another's or disabled.
const NO_SUB_ACCOUNT: &str = "must be a sub-account of this key's institution that is not disabled";

/// The sub-account of `institution` that was found by the name in On-Behalf-Of, or why it is none, for the log.
fn acted_for(institution: &MerchantRow, found: Option<MerchantRow>) -> Result<MerchantRow, &'static str> {
    match found {
        None => Err("on_behalf_of_unknown"),
        Some(sub) if sub.kind != MerchantKind::SubAccount || sub.tenant != institution.tenant => {
            Err("on_behalf_of_foreign")
        }
        Some(sub) if !sub.enabled => Err("on_behalf_of_disabled"),
        Some(sub) => Ok(sub),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_log_names_both_parties_where_one_acts_for_another() {
        assert_eq!(name_of("app_1", "10001", None), "application:app_1");
        let both = name_of("app_1", "10001", Some("10002"));
        assert_eq!(both, "application:app_1 merchant:10001 on_behalf_of:10002");
    }

    #[test]
    fn an_order_that_is_not_there_is_told_in_the_words_of_the_operation_and_of_the_key() {
        let both = "has this prepayId or merchantTradeNo (where both are sent, both must be of one order)";
        for (endpoint, acts_for, hint, said) in [
            (Endpoint::ConvertOrder, false, None, "no convert order of this merchant has this orderId".to_owned()),
            (Endpoint::ConvertOrder, true, None, "no convert order of this sub-account has this orderId".to_owned()),
            (Endpoint::OrderQuery, false, None, format!("no payment order of this merchant {both}")),
            (
                Endpoint::OrderClose,
                false,
                Some("X-On-Behalf-Of"),
                format!("no payment order of this merchant {both}; for one of a sub-account send X-On-Behalf-Of"),
            ),
        ] {
            assert_eq!(no_order(endpoint, acts_for, hint), said);
        }
    }

    #[test]
    fn a_long_name_is_cut_between_two_characters() {
        assert_eq!(beginning("app_1"), "app_1");
        assert_eq!(beginning(&"é".repeat(64)), "é".repeat(64));
        assert_eq!(beginning(&"é".repeat(65)), "é".repeat(64));
    }
}
