//! Both APIs as OpenAPI 3.1, made of the code that answers.
//!
//! `docs/openapi/*.json` are these documents as files; a test compares them, and one more finds every route in them.

use std::collections::BTreeMap;

use axum::http::Method;
use countersign_protocol::code::Code;
use countersign_store::contract::Role;
use serde_json::Value;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, OpenApi as Document, PathItem, Ref, RefOr, Required, Server};
use utoipa::{Modify, OpenApi, ToSchema as _};

use crate::app::operators::role_name;
use crate::operator::doors;
use crate::operator::{
    ProblemDocument, applications, attempts, audit, audit_chain, callbacks, causes, convert_orders, delivery, events,
    evidence, fee_rules, health, master_key, merchants, nodes, payment_orders, rates, redeliveries, requests,
    retention, secrets, statements, tokens, what_if,
};

mod answers;
mod bounds;
mod defaults;
mod either;
mod examples;
mod failures;
mod groups;
mod merchant;
mod merchant_words;
mod refusals;
mod required;
mod rules;

use answers::{Listener, put_headers};
pub use merchant::merchant;
use refusals::Call;

/// Names are shown under the default prefix; a deployment may set another.
const PREFIX: &str = "X-Service-";

/// The version of both APIs.
const API_VERSION: &str = "1.0.0";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Countersign operator API",
        version = "1.0.0",
        description = include_str!("openapi/info/operator.md"),
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

/// What all calls have in common.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, document: &mut Document) {
        document.servers = Some(vec![Server::new("/")]);
        document.tags = Some(groups::of_operators());
        if let Some(about) = &mut document.info.description {
            about.push('\n');
            // Of no call: it is what a path says to another method.
            about.push_str(&failures::table(operator_codes().chain([Code::MethodNotAllowed]), Listener::Operator));
        }
        let needless = needless_bodies(document);
        let roles = roles();
        for (path, item) in &mut document.paths.paths {
            for (operation, writes) in operations(item) {
                complete(operation, writes, roles.get(&(path.clone(), writes)).copied());
                if let Some(RefOr::T(body)) = &mut operation.request_body
                    && refers_to(body, &needless)
                {
                    body.required = Some(Required::False);
                }
            }
        }
        let components = document.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("An operator token")).build();
        components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
        failures::put_examples(components, operator_codes(), Listener::Operator);
        bounds::put(document, &rules::of_operators(), &rules::of_operators_parameters());
        defaults::put(document, &defaults::of_operators(), &defaults::of_operators_parameters());
        either::put_operators(document);
        required::put(document);
        examples::put(document, Listener::Operator);
    }
}

/// What calls of the operator API are refused with, one or another of them.
fn operator_codes() -> impl Iterator<Item = Code> {
    const OF_MERCHANTS: [Code; 12] = [
        Code::InvalidSignature,
        Code::TimestampOutOfRange,
        Code::InvalidNonce,
        Code::NonceReused,
        Code::DuplicateTradeNo,
        Code::MerchantNotAllowed,
        Code::QuoteExpired,
        Code::FeeRuleExists,
        Code::InvalidRulePeriod,
        Code::ConfigIdNotAccepted,
        Code::MethodNotAllowed,
        Code::EventsGone,
    ];
    Code::ALL.iter().copied().filter(|code| !OF_MERCHANTS.contains(code))
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

/// The least role of each call: its path, and whether it changes anything.
fn roles() -> BTreeMap<(String, bool), Role> {
    doors().into_iter().map(|door| ((door.path(), door.method != Method::GET), door.role)).collect()
}

/// The key, the refusals and the role of a call; none: it needs no token.
fn complete(operation: &mut Operation, writes: bool, role: Option<Role>) {
    let call = Call::of(operation, writes, role);
    let (takes_key, codes) = (call.takes_key(), call.codes());
    if takes_key {
        operation.parameters.get_or_insert_default().push(key().into());
    }
    failures::refuse(operation, &codes, |_| {
        ("application/problem+json", Content::new(Some(Ref::from_schema_name(ProblemDocument::name()))))
    });
    headline(operation);
    if let Some(role) = role {
        let needs = format!("Needs the role `{}`{}.", role_name(role), or_more(role));
        let about = operation.description.get_or_insert_default();
        about.push_str(if about.is_empty() { "" } else { "\n\n" });
        about.push_str(&needs);
    }
    if let Some(RefOr::T(done)) = operation.responses.responses.get_mut("200") {
        "Done".clone_into(&mut done.description);
    }
}

/// The roles that may do what this one may, in words.
const fn or_more(role: Role) -> &'static str {
    match role {
        Role::Viewer => ", which every token has",
        Role::Operator => " or `security`",
        Role::Security => "",
    }
}

/// A summary is the first sentence, without its point; what follows is the description.
fn headline(operation: &mut Operation) {
    let all = [operation.summary.take(), operation.description.take()].into_iter().flatten().collect::<Vec<_>>();
    let all = all.join(" ").replace('\n', " ");
    let (first, rest) = all.split_once(". ").unwrap_or((all.trim_end_matches('.'), ""));
    operation.summary = Some(first.to_owned());
    operation.description = (!rest.is_empty()).then(|| rest.to_owned());
}

fn key() -> Parameter {
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("1 to 255 visible ASCII characters. The same key with the same body answers as the first time, secrets null; kept for 24 hours."))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

/// The merchant API under the header prefix of a deployment.
pub fn merchant_under(prefix: &str) -> Value {
    under(prefix, &merchant())
}

/// The operator API under the header prefix of a deployment.
pub fn operator_under(prefix: &str) -> Value {
    under(prefix, &operator())
}

fn under(prefix: &str, document: &Document) -> Value {
    let mut document = json(document);
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
    let mut document = Operators::openapi();
    put_headers(&mut document, Listener::Operator);
    document
}

#[cfg(test)]
mod tests;
