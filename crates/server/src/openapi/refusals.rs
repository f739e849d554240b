//! Which refusals a call of the operator API may meet: those of all calls, and its own.

use countersign_protocol::code::Code;
use countersign_store::contract::Role;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};

/// It asks for an `Idempotency-Key` in vain: nothing is written, and the answer of a second call is another one.
const NOTHING_TO_REPEAT: &str = "verify_audit";

/// A call as the listener sees it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The id of its operation.
    pub id: &'a str,
    /// Whether it may change anything, and so may have a body.
    pub writes: bool,
    /// The least role; none: it needs no token.
    pub role: Option<Role>,
    /// Whether its path names something.
    pub names_something: bool,
}

impl<'a> Call<'a> {
    pub fn of(operation: &'a Operation, writes: bool, role: Option<Role>) -> Self {
        let is_in_path = |parameter: &RefOr<Parameter>| matches!(parameter, RefOr::T(known) if known.parameter_in == ParameterIn::Path);
        let names_something = operation.parameters.iter().flatten().any(is_in_path);
        Self { id: operation.operation_id.as_deref().unwrap_or_default(), writes, role, names_something }
    }

    /// Whether the same key may be sent again.
    pub fn takes_key(&self) -> bool {
        self.writes && self.id != NOTHING_TO_REPEAT
    }

    /// All that it may be refused with.
    pub fn codes(&self) -> Vec<Code> {
        let mut codes =
            vec![Code::InvalidParameter, Code::HeadersTooLarge, Code::InternalError, Code::ServiceUnavailable];
        match self.role {
            None => {}
            Some(Role::Viewer) => codes.extend([Code::Unauthenticated, Code::RateLimited]),
            Some(Role::Operator | Role::Security) => {
                codes.extend([Code::Unauthenticated, Code::RateLimited, Code::RoleNotAllowed]);
            }
        }
        if self.writes {
            codes.extend([Code::BodyTooLarge, Code::UnsupportedContentType]);
        }
        if self.takes_key() {
            codes.push(Code::IdempotencyKeyReused);
        }
        // A part of the path that cannot be read names nothing.
        if self.names_something {
            codes.push(Code::NotFound);
        }
        codes.extend_from_slice(own(self.id));
        codes.sort_unstable();
        codes.dedup();
        codes
    }
}

/// What belongs to the call itself. A new call decides about it here.
fn own(id: &str) -> &'static [Code] {
    match id {
        "create_institution" | "create_merchant" | "create_sub_account" | "rotate_secret" => &[Code::AlreadyExists],
        "retire_secret" | "rewrap_master_key" => &[Code::SecretInUse],
        "create_convert_order" => &[Code::AlreadyExists, Code::InvalidAmount, Code::InvalidCurrency],
        "show_convert_order" | "show_payment_order" | "export_evidence" => &[Code::OrderNotFound],
        "move_convert_order" => &[Code::OrderNotFound, Code::InvalidOrderStatus],
        "move_payment_order" => &[Code::OrderNotFound, Code::InvalidOrderStatus, Code::InvalidAmount],
        "list_payment_orders" => &[Code::NotFound, Code::InvalidAmount],
        "redeliver_event" | "redeliver_events" | "stop_redelivery" | "test_callback" => {
            &[Code::NotFound, Code::InvalidOrderStatus]
        }
        "list_fee_rules" | "try_fee_rule" => &[Code::SubMerchantNotFound],
        // A filter, or the body, names somebody.
        "list_applications"
        | "list_convert_orders"
        | "list_dead_causes"
        | "list_audit"
        | "get_statement"
        | "emit_event" => &[Code::NotFound],
        "create_application"
        | "create_token"
        | "explain_request"
        | "export_audit"
        | "list_audit_heads"
        | "list_events"
        | "list_failing_callbacks"
        | "list_institutions"
        | "list_merchants"
        | "list_nodes"
        | "list_rates"
        | "list_redeliveries"
        | "list_secrets"
        | "list_sub_accounts"
        | "list_tokens"
        | "pause_callbacks"
        | "put_rate"
        | "release_delivery"
        | "resume_callbacks"
        | "revoke_secret"
        | "revoke_token"
        | "show_application"
        | "show_attempt"
        | "show_callbacks"
        | "show_delivery"
        | "show_event"
        | "show_evidence_key"
        | "show_master_key"
        | "show_merchant"
        | "show_rate"
        | "show_redelivery"
        | "show_redelivery_outcomes"
        | "show_retention"
        | "show_token"
        | "update_application"
        | "update_merchant"
        | "use_secret_for_callbacks"
        | "verify_audit"
        | "healthz"
        | "readyz"
        | "metrics" => &[],
        _ => panic!("nobody has said what {id} is refused with"),
    }
}
