//! The words that stand for our enums in rows.

use countersign_domain::delivery::Schedule;
use countersign_domain::ids::TenantNo;

use crate::contract::{AuditKey, MerchantKind, Role, SignatureEncoding, Vocabulary};

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
