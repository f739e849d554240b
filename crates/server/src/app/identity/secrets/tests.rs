//! In which order secrets are written.

use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_store::contract::{EndpointSettings, SignatureEncoding, Vocabulary};

use super::*;

fn secret(secret_id: &str) -> SecretRow {
    SecretRow {
        secret_id: secret_id.to_owned(),
        application: ApplicationNo(1),
        sealed: Vec::new(),
        key_id: "k".to_owned(),
        fingerprint: "f".to_owned(),
        last4: "last".to_owned(),
        signs_callbacks: false,
        created_at: UnixMillis(1),
        not_after: None,
        revoked_at: None,
        last_used_at: None,
    }
}

#[test]
fn secrets_are_written_in_the_order_in_which_their_uses_are_noted() {
    let application = ApplicationRow {
        no: ApplicationNo(1),
        client_id: "app_1".to_owned(),
        tenant: TenantNo(1),
        merchant: MerchantNo(1),
        name: "n".to_owned(),
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
    };
    let newest_first = ["sec_3", "sec_2", "sec_1"].map(secret).to_vec();
    let order: Vec<String> = changed(&application, newest_first)
        .into_iter()
        .filter_map(|write| if let Write::UpdateSecret(row) = write { Some(row.secret_id) } else { None })
        .collect();
    assert_eq!(order, ["sec_1", "sec_2", "sec_3"]);
}
