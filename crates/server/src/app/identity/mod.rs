//! Who is who: institutions, merchants, sub-accounts, their applications and secrets.

mod applications;
mod callbacks;
mod fee_rules;
mod merchants;
mod secrets;

pub(crate) use applications::no_application;
pub use applications::{
    ApplicationChange, EndpointChange, MadeApplication, NewApplication, Set, create_application, find_application,
    list_applications, update_application,
};
pub use callbacks::{Switch, switch_callbacks};
pub use fee_rules::{RulePlace, SeenVersion, rule_versions};
pub use merchants::{
    Listed, MerchantChange, NewMerchant, Standing, create_merchant, find_merchant, find_sub_account, institution_over,
    institutions_over, list_merchants, update_merchant,
};
pub use secrets::{
    InUse, LIVE_SECRETS_MAX, MadeSecret, OVERLAP_S_DEFAULT, OVERLAP_S_MAX, RETIRE_QUIET_MS, SecretChange, SeenSecret,
    list_secrets, retire_secret, revoke_secret, rotate_secret, seen_secret, use_for_callbacks,
};

use countersign_store::contract::{MerchantKind, SignatureEncoding, Vocabulary};

/// A kind's name in answers.
pub const fn kind_name(kind: MerchantKind) -> &'static str {
    match kind {
        MerchantKind::Institution => "institution",
        MerchantKind::Merchant => "merchant",
        MerchantKind::SubAccount => "sub_account",
    }
}

/// A kind by its name.
pub fn kind_from_name(name: &str) -> Option<MerchantKind> {
    let all = [MerchantKind::Institution, MerchantKind::Merchant, MerchantKind::SubAccount];
    all.into_iter().find(|kind| kind_name(*kind) == name)
}

/// An encoding's name in requests and answers.
pub const fn encoding_name(encoding: SignatureEncoding) -> &'static str {
    match encoding {
        SignatureEncoding::Hex => "hex",
        SignatureEncoding::Base64 => "base64",
    }
}

/// An encoding by its name.
pub fn encoding_from_name(name: &str) -> Option<SignatureEncoding> {
    [SignatureEncoding::Hex, SignatureEncoding::Base64].into_iter().find(|e| encoding_name(*e) == name)
}

/// A vocabulary's name in requests and answers.
pub const fn vocabulary_name(vocabulary: Vocabulary) -> &'static str {
    match vocabulary {
        Vocabulary::Standard => "standard",
        Vocabulary::Family => "family",
    }
}

/// A vocabulary by its name.
pub fn vocabulary_from_name(name: &str) -> Option<Vocabulary> {
    [Vocabulary::Standard, Vocabulary::Family].into_iter().find(|v| vocabulary_name(*v) == name)
}
