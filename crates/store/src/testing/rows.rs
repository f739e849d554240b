//! Whole rows with nothing special about them; who wants something else of one says so with `..`.

use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_domain::money::Amount;
use countersign_domain::time::UnixMillis;
use rust_decimal::Decimal;

use crate::contract::{
    ApplicationRow, EndpointSettings, MerchantKind, MerchantRow, SecretRow, SignatureEncoding, Vocabulary,
};

/// A merchant of a tenant, whose base rate and fee are 0.
pub fn merchant(no: MerchantNo, merchant_id: &str, tenant: TenantNo, kind: MerchantKind) -> MerchantRow {
    MerchantRow {
        no,
        merchant_id: merchant_id.to_owned(),
        tenant,
        kind,
        name: merchant_id.to_owned(),
        base_r: Decimal::ZERO,
        base_f: Amount::ZERO,
        user_id: no.0,
        enabled: true,
        revision: 1,
        created_at: UnixMillis(1),
    }
}

/// An application of a merchant, without an endpoint.
pub fn application(no: ApplicationNo, client_id: &str, merchant: MerchantNo, tenant: TenantNo) -> ApplicationRow {
    ApplicationRow {
        no,
        client_id: client_id.to_owned(),
        tenant,
        merchant,
        name: client_id.to_owned(),
        enabled: true,
        callback_url: None,
        callback_enabled: true,
        callback_gone_at: None,
        callback_encoding: SignatureEncoding::Hex,
        callback_vocabulary: Vocabulary::Standard,
        timestamp_tolerance_ms: None,
        tolerance_before_ms: None,
        tolerance_raised_at: None,
        rate_limit_per_s: None,
        endpoint: EndpointSettings::default(),
        revision: 1,
        created_at: UnixMillis(1),
    }
}

/// A secret of an application, which signs no callbacks and stays.
pub fn secret(secret_id: &str, application: ApplicationNo) -> SecretRow {
    SecretRow {
        secret_id: secret_id.to_owned(),
        application,
        key_id: "k1".to_owned(),
        sealed: vec![1, 2, 3],
        fingerprint: "0123456789abcdef".to_owned(),
        last4: "abcd".to_owned(),
        signs_callbacks: false,
        created_at: UnixMillis(1),
        not_after: None,
        revoked_at: None,
        last_used_at: None,
    }
}
