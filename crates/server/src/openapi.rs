//! Both APIs as OpenAPI 3.1, made of the code that answers.
//!
//! `docs/openapi/*.json` are these documents as files; a test compares them, and one more finds every route in them.

use std::collections::BTreeSet;

use axum::http::Method;
use countersign_protocol::code::Code;
use countersign_store::contract::Role;
use serde_json::Value;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Document, PathItem, Ref, RefOr, Required, Response, Server};
use utoipa::{Modify, OpenApi, ToSchema as _};

use crate::operator::doors;
use crate::operator::{
    ProblemDocument, applications, attempts, audit, audit_chain, callbacks, causes, convert_orders, delivery, events,
    evidence, fee_rules, health, master_key, merchants, nodes, payment_orders, rates, redeliveries, requests,
    retention, secrets, statements, tokens, what_if,
};

mod answers;
mod bounds;
mod merchant;
mod required;
mod rules;

use answers::{Listener, put_headers};
pub use merchant::merchant;

/// Names are shown under the default prefix; a deployment may set another.
const PREFIX: &str = "X-Service-";
/// It asks for an `Idempotency-Key` in vain: nothing is written, and the answer of a second call is another one.
const NOTHING_TO_REPEAT: &str = "/operator/v1/audit/verify";

/// The version of both APIs.
const API_VERSION: &str = "1.0.0";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Countersign operator API",
        version = "1.0.0",
        description = "Provisioning and the daily business of a Countersign deployment. Lists are paged by `limit` and `after`; \
            refusals are problem documents (RFC 9457) with the `code` and `label` of the merchant API; write calls take an `Idempotency-Key`. \
            See docs/OPERATOR-API.md."
    ),
    paths(
        merchants::create_institution, merchants::list_institutions, merchants::create_merchant, merchants::list, merchants::show, merchants::update, merchants::create_sub_account,
        merchants::list_sub_accounts, applications::create, applications::list, applications::show, applications::update,
        callbacks::show, callbacks::pause, callbacks::resume, callbacks::test, callbacks::failing, secrets::rotate, secrets::list, secrets::revoke, secrets::retire, secrets::use_for_callbacks, convert_orders::create, convert_orders::list, convert_orders::show, convert_orders::advance, rates::put, rates::list, rates::show,
        payment_orders::list, payment_orders::show, payment_orders::advance, statements::show, evidence::export, evidence::key,
        events::emit, events::list, causes::list, events::show, attempts::show, events::redeliver, redeliveries::start, redeliveries::list, redeliveries::show, redeliveries::outcomes, redeliveries::stop, fee_rules::list, what_if::show, audit::list, audit_chain::heads, audit_chain::lines, audit_chain::verify,
        nodes::list, delivery::show, delivery::release, master_key::show, master_key::rewrap, requests::show, retention::show, tokens::create, tokens::list, tokens::show, tokens::revoke,
        health::alive, health::ready, health::metrics,
    ),
    components(schemas(ProblemDocument)),
    modifiers(&Everywhere),
    security(("bearer" = [])),
)]
struct Operators;

/// What every call under the base has in common.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, document: &mut Document) {
        document.servers = Some(vec![Server::new("/")]);
        if let Some(components) = document.components.as_mut() {
            let bearer =
                HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An operator token")).build();
            components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        }
        let needless = needless_bodies(document);
        let refusing = refusing_viewers();
        for (path, item) in &mut document.paths.paths {
            for (operation, writes) in operations(item) {
                if path.starts_with(crate::operator::BASE) {
                    complete(operation, writes);
                    if refusing.contains(&(path.clone(), writes)) {
                        add(operation, &[Code::RoleNotAllowed]);
                    }
                } else {
                    add(operation, &OF_ANY_CALL);
                }
                if writes && path != NOTHING_TO_REPEAT {
                    take_key(operation);
                }
                describe(operation, path);
                if let Some(RefOr::T(body)) = &mut operation.request_body
                    && refers_to(body, &needless)
                {
                    body.required = Some(Required::False);
                }
            }
        }
        bounds::put(document, &rules::of_operators(), &rules::of_operators_parameters());
        required::put(document);
    }
}

/// Bodies of which no single member has to be there, and yet one of two has.
const EITHER: [&str; 1] = ["RedeliverRequest"];

/// The schemas of bodies that may be left out, since nothing in them has to be there: a call without a body is read as one with `{}`.
fn needless_bodies(document: &Document) -> Vec<String> {
    let schemas = document.components.iter().flat_map(|components| &components.schemas);
    let of_options =
        schemas.filter(|(_, schema)| matches!(schema, RefOr::T(Schema::Object(object)) if object.required.is_empty()));
    let of_options = of_options.filter(|(name, _)| !EITHER.contains(&name.as_str()));
    of_options.map(|(name, _)| format!("#/components/schemas/{name}")).collect()
}

fn refers_to(body: &RequestBody, schemas: &[String]) -> bool {
    body.content.values().any(|content| match content {
        RefOr::T(Content { schema: Some(RefOr::Ref(to)), .. }) => schemas.contains(&to.ref_location),
        RefOr::T(_) | RefOr::Ref(_) => false,
    })
}

/// The operations of a path, and whether each one changes anything.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (&mut Operation, bool)> {
    let reads = item.get.as_mut().map(|operation| (operation, false));
    let writes = [&mut item.post, &mut item.patch, &mut item.put, &mut item.delete];
    reads.into_iter().chain(writes.into_iter().filter_map(Option::as_mut).map(|operation| (operation, true)))
}

/// What any call can be refused with, also one that needs no token.
const OF_ANY_CALL: [Code; 4] =
    [Code::InvalidParameter, Code::HeadersTooLarge, Code::InternalError, Code::ServiceUnavailable];

fn complete(operation: &mut Operation, writes: bool) {
    add(operation, &OF_ANY_CALL);
    add(operation, &[Code::Unauthenticated, Code::RateLimited]);
    if writes {
        add(operation, &[Code::BodyTooLarge, Code::UnsupportedContentType]);
    }
    // A part of the path that cannot be read names nothing.
    let is_in_path =
        |parameter: &RefOr<Parameter>| matches!(parameter, RefOr::T(known) if known.parameter_in == ParameterIn::Path);
    if operation.parameters.iter().flatten().any(is_in_path) {
        add(operation, &[Code::NotFound]);
    }
}

fn take_key(operation: &mut Operation) {
    let key = ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("1 to 255 visible ASCII characters. The same key with the same body answers as the first time, secrets null; kept for 24 hours."))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build();
    operation.parameters.get_or_insert_default().push(key.into());
    add(operation, &[Code::IdempotencyKeyReused]);
}

fn add(operation: &mut Operation, codes: &[Code]) {
    for code in codes {
        let status = code.http_status().to_string();
        operation.responses.responses.entry(status).or_insert_with(|| RefOr::T(Response::new("")));
    }
}

/// Says of each answer what it is; every refusal is a problem document.
fn describe(operation: &mut Operation, path: &str) {
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        if status == "200" {
            "Done".clone_into(&mut response.description);
            continue;
        }
        response.description = codes_of(status, path);
        response.content.clear();
        let document = Content::new(Some(Ref::from_schema_name(ProblemDocument::name())));
        response.content.insert("application/problem+json".to_owned(), document.into());
    }
}

/// The codes that the operator API answers a call of this path with, by their status.
fn codes_of(status: &str, path: &str) -> String {
    let codes = [
        Code::InvalidParameter,
        Code::InvalidAmount,
        Code::InvalidCurrency,
        Code::Unauthenticated,
        Code::RoleNotAllowed,
        Code::NotFound,
        Code::OrderNotFound,
        Code::SubMerchantNotFound,
        Code::AlreadyExists,
        Code::InvalidOrderStatus,
        Code::IdempotencyKeyReused,
        Code::SecretInUse,
        Code::BodyTooLarge,
        Code::UnsupportedContentType,
        Code::RateLimited,
        Code::HeadersTooLarge,
        Code::InternalError,
        Code::ServiceUnavailable,
    ];
    let of_status: Vec<String> = codes
        .iter()
        .filter(|code| code.http_status().to_string() == status && may_be(**code, path))
        .map(ToString::to_string)
        .collect();
    of_status.join(", ")
}

/// Whether a call of this path may be refused with this code: some belong to few calls.
fn may_be(code: Code, path: &str) -> bool {
    match code {
        Code::SecretInUse => path.ends_with("/retire"),
        Code::OrderNotFound => path.contains("-orders/"),
        Code::InvalidAmount | Code::InvalidCurrency => path.starts_with(crate::operator::BASE),
        _ => true,
    }
}

/// The calls that refuse a viewer: their paths, and whether they change anything.
fn refusing_viewers() -> BTreeSet<(String, bool)> {
    let refusing = doors().into_iter().filter(|door| door.role != Role::Viewer);
    refusing.map(|door| (door.path(), door.method != Method::GET)).collect()
}

/// The merchant API under the header prefix of a deployment.
pub fn merchant_under(prefix: &str) -> Value {
    let mut document = json(&merchant());
    if prefix != PREFIX {
        rename(&mut document, prefix);
    }
    document
}

/// In every text: names of headers stand in descriptions, too.
fn rename(part: &mut Value, prefix: &str) {
    match part {
        Value::String(text) if text.contains(PREFIX) => *text = text.replace(PREFIX, prefix),
        Value::Array(parts) => parts.iter_mut().for_each(|part| rename(part, prefix)),
        Value::Object(fields) => {
            let old = std::mem::take(fields);
            fields.extend(old.into_iter().map(|(name, mut part)| {
                rename(&mut part, prefix);
                (name.replace(PREFIX, prefix), part)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn json(document: &Document) -> Value {
    serde_json::to_value(document).expect("a document serializes")
}

/// The operator API.
pub fn operator() -> Document {
    operators(PREFIX)
}

/// The operator API under the header prefix of a deployment.
pub fn operator_under(prefix: &str) -> Value {
    json(&operators(prefix))
}

fn operators(prefix: &str) -> Document {
    let mut document = Operators::openapi();
    put_headers(&mut document, Listener::Operator, prefix);
    document
}

#[cfg(test)]
mod tests;
