//! What became of the proof that a request is an application's, and what it has cost.

use std::sync::Arc;

use super::KnownApplication;

/// Why a signature was refused. All look alike outside; the log tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureRefusal {
    /// No application has this ClientId.
    UnknownClient,
    /// The application is disabled.
    Disabled,
    /// The application's merchant is disabled.
    MerchantDisabled,
    /// The institution over the application's sub-account is disabled.
    InstitutionDisabled,
    /// No live secret gives this signature.
    WrongSignature,
    /// It has neither form of a signature.
    UnreadableSignature,
}

impl SignatureRefusal {
    /// Its name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownClient => "unknown_client",
            Self::Disabled => "disabled",
            Self::MerchantDisabled => "merchant_disabled",
            Self::InstitutionDisabled => "institution_disabled",
            Self::WrongSignature => "wrong_signature",
            Self::UnreadableSignature => "unreadable_signature",
        }
    }
}

/// What became of the proof.
#[derive(Debug)]
pub enum Authenticated {
    /// It is this application's request.
    Yes(Arc<KnownApplication>),
    /// It is not proved.
    No(Refused, Cost),
    /// It is not proved by what is kept, and nothing was read.
    NotLookedUp,
}

/// Why a request is not proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For the log only.
    pub why: SignatureRefusal,
    /// The `merchant_id` of who is disabled, or of whose application is; else empty.
    pub merchant_id: String,
}

/// What a refusal has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Look-ups in the store.
    pub look_ups: usize,
    /// Sealed secrets that were opened and made ready to sign.
    pub opened: usize,
    /// HMACs.
    pub hmacs: usize,
}

/// Whether the store may be asked about a caller whom what is kept does not prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// As for everybody.
    TheStore,
    /// Their address has used its budget up.
    Nobody,
}
