//! The words that stand for our enums in rows.

use countersign_domain::delivery::{DeliveryState, Schedule};
use countersign_domain::ids::{TenantNo, time_ordered};

use crate::contract::{AuditKey, EventRow, MerchantKind, Role, SignatureEncoding, Vocabulary};

/// Whether callbacks of a delivery `d` go out, in words of both dialects. As a value and not as a join: a plan that guesses how many
/// applications do has been seen to read every delivery for every event. By the delivery: it is asked of those that are open alone.
macro_rules! goes_out {
    () => {
        "(SELECT a.callback_url IS NOT NULL AND a.callback_enabled AND m.enabled AND t.enabled FROM application a \
         JOIN merchant m ON m.merchant_no = a.merchant_no JOIN merchant t ON t.merchant_no = a.tenant_no \
         WHERE a.application_no = d.application_no)"
    };
}

pub(crate) use goes_out;

/// Whether an event `e` is not waited for by a redelivery of its application that has yet to come to it: that one promised to send it again.
macro_rules! is_not_awaited {
    () => {
        "NOT EXISTS (SELECT 1 FROM redelivery r WHERE r.tenant_no = e.tenant_no AND r.application_no = e.application_no \
         AND r.state = 'running' AND r.cursor_seq < e.seq)"
    };
}

pub(crate) use is_not_awaited;

/// Numbers are drawn before their event is committed, so an earlier event of the same bizId may have a number that is later by
/// about the time of a commit, in ms.
const NUMBER_SLACK_MS: i64 = 10_000;
/// Later numbers still that are looked at, from the latest down: those of a clock that was ahead are the latest, until it has passed them.
const LATEST_LOOKED_AT: i64 = 1_000;

/// Where the numbers of events lie that may come before this one of their bizId: from, up to, and how many are looked at from the latest down.
/// The likeliest place first.
pub(crate) const fn before(event: &EventRow) -> [(i64, i64, i64); 3] {
    let latest = time_ordered(event.created_at.plus_ms(NUMBER_SLACK_MS), 0);
    let later = if latest > event.no.0 { latest } else { event.no.0 };
    [(i64::MIN, event.no.0, i64::MAX), (event.no.0, later, i64::MAX), (later, i64::MAX, LATEST_LOOKED_AT)]
}

/// Events of a bizId up to this `sequence` are soon walked over.
const SOON_WALKED: i64 = 256;

/// Whether the look for an earlier event of the same bizId may take long, so that nobody else should wait behind it.
pub(crate) const fn may_walk_far(event: &EventRow) -> bool {
    event.sequence > SOON_WALKED
}

/// Where an earlier event is looked for first where the walk may be a long one: the nearest of a bizId. Most that are open are there.
pub(crate) const fn nearest(event: &EventRow) -> (i64, i64, i64) {
    (i64::MIN, event.no.0, SOON_WALKED)
}

/// Where no near one is open and the application has at most so many open deliveries, these are looked at in place of the events of the bizId: each
/// costs about what an event does that is walked over. So a bizId with many events that are over costs no callback of its own the more.
pub(crate) const fn few_open(event: &EventRow) -> i64 {
    const MOST: i64 = 10_000;
    if event.sequence < MOST { event.sequence } else { MOST }
}

/// A condition on an event `e` with its delivery `d`: whether it stands so. What is open goes by its application, as it is now. It is one that
/// could hold of no delivery, too: else the outer join would be taken for an inner one, and a plan could begin with all deliveries.
pub(crate) const fn stands_in(state: DeliveryState) -> &'static str {
    match state {
        DeliveryState::Pending => concat!(" AND coalesce(d.state, '') IN ('pending', 'held') AND ", goes_out!()),
        DeliveryState::Held => concat!(" AND coalesce(d.state, '') IN ('pending', 'held') AND NOT ", goes_out!()),
        DeliveryState::Delivered => " AND coalesce(d.state, '') = 'delivered'",
        DeliveryState::Dead => " AND coalesce(d.state, '') = 'dead'",
    }
}

pub(crate) const fn of_kind(kind: MerchantKind) -> &'static str {
    match kind {
        MerchantKind::Institution => "institution",
        MerchantKind::Merchant => "merchant",
        MerchantKind::SubAccount => "sub_account",
    }
}

pub(crate) fn kind(word: &str) -> Option<MerchantKind> {
    let all = [MerchantKind::Institution, MerchantKind::Merchant, MerchantKind::SubAccount];
    all.into_iter().find(|kind| of_kind(*kind) == word)
}

pub(crate) const fn of_encoding(encoding: SignatureEncoding) -> &'static str {
    match encoding {
        SignatureEncoding::Hex => "hex",
        SignatureEncoding::Base64 => "base64",
    }
}

pub(crate) fn encoding(word: &str) -> Option<SignatureEncoding> {
    [SignatureEncoding::Hex, SignatureEncoding::Base64].into_iter().find(|e| of_encoding(*e) == word)
}

pub(crate) const fn of_vocabulary(vocabulary: Vocabulary) -> &'static str {
    match vocabulary {
        Vocabulary::Standard => "standard",
        Vocabulary::Family => "family",
    }
}

pub(crate) fn vocabulary(word: &str) -> Option<Vocabulary> {
    [Vocabulary::Standard, Vocabulary::Family].into_iter().find(|v| of_vocabulary(*v) == word)
}

/// A schedule as it was kept: as it is written out, and not otherwise.
pub(crate) fn schedule(kept: &str) -> Option<Schedule> {
    let delays: Vec<&str> = kept.split(", ").collect();
    Schedule::parse(&delays).ok().filter(|schedule| schedule.to_string() == kept)
}

pub(crate) const fn of_role(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
        Role::Security => "security",
    }
}

pub(crate) fn role(word: &str) -> Option<Role> {
    [Role::Viewer, Role::Operator, Role::Security].into_iter().find(|r| of_role(*r) == word)
}

/// The tenant of an audit line as it is kept: 0 is nobody's number, and here the system's.
pub(crate) const fn of_audit_tenant(tenant: Option<TenantNo>) -> i64 {
    match tenant {
        Some(tenant) => tenant.0,
        None => 0,
    }
}

/// The tenant of an audit line as it was kept.
pub(crate) const fn audit_tenant(kept: i64) -> Option<TenantNo> {
    if kept == 0 { None } else { Some(TenantNo(kept)) }
}

/// Where a page of the audit log begins: before this time, tenant and number.
pub(crate) fn of_audit_place(after: Option<AuditKey>) -> (i64, i64, i64) {
    after.map_or((i64::MAX, i64::MAX, i64::MAX), |key| (key.at.0, of_audit_tenant(key.tenant), key.no))
}
