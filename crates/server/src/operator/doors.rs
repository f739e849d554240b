//! Every door of the operator API, and which role opens it.

use std::sync::Arc;

use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use countersign_store::contract::Role::{self, Operator, Security, Viewer};

use super::{
    BASE, Desk, applications, attempts, audit, audit_chain, callbacks, causes, convert_orders, delivery, events,
    evidence, fee_rules, frame, master_key, merchants, nodes, payment_orders, rates, redeliveries, requests, retention,
    secrets, statements, tokens, what_if,
};

/// One method of one path.
#[derive(Clone, Debug)]
pub struct Door {
    /// The method.
    pub method: Method,
    /// The path under [`BASE`], with `{names}`.
    pub under: &'static str,
    /// The least role.
    pub role: Role,
    pub(super) handler: MethodRouter<Arc<Desk>>,
}

impl Door {
    /// The whole path.
    pub fn path(&self) -> String {
        format!("{BASE}{}", self.under)
    }
}

/// All of them. What changes who may do something, and everything about secrets and where callbacks go, is for the role security.
pub fn doors() -> Vec<Door> {
    [of_identities(), of_money(), of_events(), of_house()].into_iter().flatten().collect()
}

const fn door(method: Method, under: &'static str, role: Role, handler: MethodRouter<Arc<Desk>>) -> Door {
    Door { method, under, role, handler }
}

/// Institutions, merchants, applications and their secrets.
fn of_identities() -> Vec<Door> {
    vec![
        door(Method::POST, "/institutions", Security, post(merchants::create_institution)),
        door(Method::GET, "/institutions", Viewer, get(merchants::list_institutions)),
        door(Method::POST, "/merchants", Security, post(merchants::create_merchant)),
        door(Method::GET, "/merchants", Viewer, get(merchants::list)),
        door(Method::GET, "/merchants/{merchant_id}", Viewer, get(merchants::show)),
        door(Method::PATCH, "/merchants/{merchant_id}", Security, patch(merchants::update)),
        door(Method::POST, "/institutions/{merchant_id}/sub-accounts", Security, post(merchants::create_sub_account)),
        door(Method::GET, "/institutions/{merchant_id}/sub-accounts", Viewer, get(merchants::list_sub_accounts)),
        door(Method::POST, "/merchants/{merchant_id}/applications", Security, post(applications::create)),
        door(Method::GET, "/applications", Viewer, get(applications::list)),
        door(Method::GET, "/applications/{client_id}", Viewer, get(applications::show)),
        door(Method::PATCH, "/applications/{client_id}", Security, patch(applications::update)),
        door(Method::GET, "/applications/{client_id}/callbacks", Viewer, get(callbacks::show)),
        door(Method::POST, "/applications/{client_id}/callbacks/pause", Operator, post(callbacks::pause)),
        door(Method::POST, "/applications/{client_id}/callbacks/resume", Operator, post(callbacks::resume)),
        door(Method::POST, "/applications/{client_id}/callbacks/test", Operator, post(callbacks::test)),
        door(Method::GET, "/callbacks/failing", Viewer, get(callbacks::failing)),
        door(Method::POST, "/applications/{client_id}/secrets", Security, post(secrets::rotate)),
        door(Method::GET, "/applications/{client_id}/secrets", Viewer, get(secrets::list)),
        door(Method::DELETE, "/applications/{client_id}/secrets/{secret_id}", Security, delete(secrets::revoke)),
        door(Method::POST, "/applications/{client_id}/secrets/{secret_id}/retire", Security, post(secrets::retire)),
        door(
            Method::POST,
            "/applications/{client_id}/secrets/{secret_id}/use-for-callbacks",
            Security,
            post(secrets::use_for_callbacks),
        ),
    ]
}

/// Conversions, payment orders, and what is told of them.
fn of_money() -> Vec<Door> {
    vec![
        door(Method::POST, "/merchants/{merchant_id}/convert-orders", Operator, post(convert_orders::create)),
        door(Method::GET, "/convert-orders", Viewer, get(convert_orders::list)),
        door(Method::GET, "/convert-orders/{order_id}", Viewer, get(convert_orders::show)),
        door(Method::PATCH, "/convert-orders/{order_id}", Operator, patch(convert_orders::advance)),
        door(Method::PUT, "/rates/{pair}", Operator, put(rates::put)),
        door(Method::GET, "/rates", Viewer, get(rates::list)),
        door(Method::GET, "/rates/{pair}", Viewer, get(rates::show)),
        door(Method::GET, "/payment-orders", Viewer, get(payment_orders::list)),
        door(Method::GET, "/payment-orders/{prepayId}", Viewer, get(payment_orders::show)),
        door(Method::PATCH, "/payment-orders/{prepayId}", Operator, patch(payment_orders::advance)),
        door(Method::GET, "/statements", Viewer, get(statements::show)),
        door(
            Method::GET,
            "/payment-orders/{prepayId}/evidence",
            Operator,
            get(evidence::export).head(frame::only_get).fallback(frame::only_get),
        ),
        door(Method::GET, "/evidence/key", Viewer, get(evidence::key)),
    ]
}

/// Events, redeliveries and fee rules.
fn of_events() -> Vec<Door> {
    vec![
        door(Method::POST, "/events", Operator, post(events::emit)),
        door(Method::GET, "/events", Viewer, get(events::list)),
        door(Method::GET, "/events/dead-causes", Viewer, get(causes::list)),
        door(Method::GET, "/events/{event_id}", Viewer, get(events::show)),
        door(Method::GET, "/events/{event_id}/attempts/{attempt}", Operator, get(attempts::show)),
        door(Method::POST, "/events/{event_id}/redeliver", Operator, post(events::redeliver)),
        door(Method::POST, "/events/redeliver", Operator, post(redeliveries::start)),
        door(Method::GET, "/redeliveries", Viewer, get(redeliveries::list)),
        door(Method::GET, "/redeliveries/{redelivery_id}", Viewer, get(redeliveries::show)),
        door(Method::GET, "/redeliveries/{redelivery_id}/outcomes", Viewer, get(redeliveries::outcomes)),
        door(Method::POST, "/redeliveries/{redelivery_id}/stop", Operator, post(redeliveries::stop)),
        door(Method::GET, "/fee-rules", Viewer, get(fee_rules::list)),
        door(Method::GET, "/fee-rules/what-if", Viewer, get(what_if::show)),
    ]
}

/// What happened, and the house itself.
fn of_house() -> Vec<Door> {
    vec![
        door(Method::GET, "/audit", Viewer, get(audit::list)),
        door(Method::GET, "/audit/heads", Viewer, get(audit_chain::heads)),
        door(Method::GET, "/audit/lines", Viewer, get(audit_chain::lines)),
        door(Method::POST, "/audit/verify", Viewer, post(audit_chain::verify)),
        door(Method::GET, "/requests/{request_id}", Viewer, get(requests::show)),
        door(Method::GET, "/retention", Viewer, get(retention::show)),
        door(Method::GET, "/nodes", Viewer, get(nodes::list)),
        door(Method::GET, "/delivery", Viewer, get(delivery::show)),
        door(Method::POST, "/delivery/release", Security, post(delivery::release)),
        door(Method::GET, "/master-key", Viewer, get(master_key::show)),
        door(Method::POST, "/master-key/rewrap", Security, post(master_key::rewrap)),
        door(Method::POST, "/tokens", Security, post(tokens::create)),
        door(Method::GET, "/tokens", Viewer, get(tokens::list)),
        door(Method::GET, "/tokens/{token_id}", Viewer, get(tokens::show)),
        door(Method::DELETE, "/tokens/{token_id}", Security, delete(tokens::revoke)),
    ]
}
