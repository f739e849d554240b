//! The signed API that merchants call, and the callbacks that they receive.

use std::collections::BTreeSet;

use countersign_protocol::callback::CallbackBody;
use countersign_protocol::code::{self, Code};
use countersign_protocol::endpoint::{
    Endpoint, convert, convert_currency, convert_order, convert_order_list, convert_pair, convert_preview, events,
    order_close, order_create, order_list, order_native, order_query, rule_list, rule_query, rule_upgrade, time,
};
use countersign_protocol::headers::Header;
use serde_json::Value;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem, PathsBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ComponentsBuilder, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Content, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response, ResponseBuilder,
    Server,
};
use utoipa::{IntoParams, ToSchema};

use super::answers::{Listener, put_headers};
use super::merchant_words::{about, summary};
use super::{API_VERSION, PREFIX, bounds, defaults, either, examples, failures, groups, operations, rules};

const JSON: &str = "application/json";

type Schemas = Vec<(String, RefOr<Schema>)>;

/// The merchant API.
pub fn merchant() -> OpenApi {
    let answered: BTreeSet<Code> = Endpoint::ALL.iter().flat_map(|endpoint| codes(*endpoint)).collect();
    let mut schemas: Schemas = answered.iter().copied().map(failure).collect();
    let mut paths = PathsBuilder::new();
    for endpoint in Endpoint::ALL {
        // Two endpoints share a path: `path` merges the methods.
        paths = paths.path(endpoint.path(), PathItem::new(method(*endpoint), operation(*endpoint, &mut schemas)));
    }
    let webhooks =
        PathsBuilder::new().path("callback", PathItem::new(HttpMethod::Post, callback(&mut schemas))).build();
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("Countersign merchant API")
        .version(API_VERSION)
        .description(Some(description()))
        .license(Some(license))
        .build();
    let components = ComponentsBuilder::new()
        .schemas_from_iter(schemas)
        .security_scheme(CLIENT_ID, scheme(Header::ClientId.suffix(), "The application's ClientId"))
        .security_scheme(
            SN,
            scheme(Header::ClientIdAlias.suffix(), "Another name of the same header, of which one is sent"),
        )
        .security_scheme(SIGNATURE, scheme(Header::Signature.suffix(), SIGNED))
        .build();
    let mut document = OpenApiBuilder::new()
        .info(info)
        .servers(Some([Server::new("/")]))
        .tags(Some(groups::of_merchants()))
        .paths(paths)
        .webhooks(Some(webhooks))
        .components(Some(components))
        .build();
    for endpoint in Endpoint::ALL {
        let item = document.paths.paths.get_mut(endpoint.path()).expect("it was put there");
        for (operation, _) in
            operations(item).filter(|(known, _)| known.operation_id.as_deref() == Some(endpoint.name()))
        {
            failures::refuse(operation, &codes(*endpoint), |codes| (JSON, Content::new(Some(one_of(codes)))));
        }
    }
    failures::put_examples(document.components.get_or_insert_default(), answered.into_iter(), Listener::Merchant);
    bounds::put(&mut document, &rules::of_merchants(), &rules::of_merchants_parameters());
    defaults::put(&mut document, &defaults::of_merchants(), &defaults::of_merchants_parameters());
    either::put_merchants(&mut document);
    super::required::put(&mut document);
    examples::put(&mut document, Listener::Merchant);
    put_headers(&mut document, Listener::Merchant);
    document
}

const CLIENT_ID: &str = "clientId";
const SN: &str = "sn";
const SIGNATURE: &str = "signature";
const SIGNED: &str = "HMAC-SHA512 with the Payment API Secret over timestamp, nonce and raw body, each followed by LF: 128 hex digits or Base64";

fn scheme(suffix: &str, about: &str) -> SecurityScheme {
    SecurityScheme::ApiKey(ApiKey::Header(ApiKeyValue::with_description(format!("{PREFIX}{suffix}"), about.to_owned())))
}

/// Who is let in: whoever names an application and signs. Nobody has to where nothing is signed.
fn security(is_signed: bool) -> Vec<SecurityRequirement> {
    const NO_SCOPES: [&str; 0] = [];
    let named = |by| SecurityRequirement::new(by, NO_SCOPES).add(SIGNATURE, NO_SCOPES);
    if is_signed { vec![named(CLIENT_ID), named(SN)] } else { Vec::new() }
}

fn description() -> String {
    format!("{}\n{}", include_str!("info/merchant.md"), failures::table(merchant_codes(), Listener::Merchant))
}

fn merchant_codes() -> impl Iterator<Item = Code> {
    Code::ALL.iter().copied().filter(|code| !code.is_operator_only())
}

fn method(endpoint: Endpoint) -> HttpMethod {
    match endpoint {
        Endpoint::Time
        | Endpoint::RuleQuery
        | Endpoint::ConvertOrder
        | Endpoint::ConvertCurrency
        | Endpoint::ConvertPair
        | Endpoint::Events => HttpMethod::Get,
        Endpoint::RuleUpgrade
        | Endpoint::RuleCreate
        | Endpoint::RuleList
        | Endpoint::ConvertOrderList
        | Endpoint::ConvertPreview
        | Endpoint::Convert
        | Endpoint::OrderCreate
        | Endpoint::OrderNative
        | Endpoint::OrderQuery
        | Endpoint::OrderList
        | Endpoint::OrderClose => HttpMethod::Post,
    }
}

fn operation(endpoint: Endpoint, schemas: &mut Schemas) -> OperationBuilder {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(endpoint.name()))
        .summary(Some(summary(endpoint)))
        .description(Some(about(endpoint)))
        .tag(tag(endpoint))
        .securities(Some(security(endpoint.is_signed())))
        .response("200", answer(data(endpoint, schemas)));
    for parameter in headers(endpoint).into_iter().chain(query(endpoint)) {
        operation = operation.parameter(parameter);
    }
    if let Some(body) = body(endpoint, schemas) {
        let body =
            RequestBodyBuilder::new().content(JSON, Content::new(Some(body))).required(Some(Required::True)).build();
        operation = operation.request_body(Some(body));
    }
    operation
}

const fn tag(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Time => groups::TIME,
        Endpoint::RuleUpgrade | Endpoint::RuleCreate | Endpoint::RuleQuery | Endpoint::RuleList => groups::FEE_RULES,
        Endpoint::ConvertOrder
        | Endpoint::ConvertOrderList
        | Endpoint::ConvertCurrency
        | Endpoint::ConvertPair
        | Endpoint::ConvertPreview
        | Endpoint::Convert => groups::CONVERT_ORDERS,
        Endpoint::OrderCreate
        | Endpoint::OrderNative
        | Endpoint::OrderQuery
        | Endpoint::OrderList
        | Endpoint::OrderClose => groups::PAYMENT_ORDERS,
        Endpoint::Events => groups::EVENTS,
    }
}

/// A reference to `T`, which is put among the schemas with all that it refers to.
fn refer<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
    Ref::from_schema_name(T::name()).into()
}

/// A list of such.
fn list(of: RefOr<Schema>) -> RefOr<Schema> {
    Schema::from(ArrayBuilder::new().items(of).build()).into()
}

fn data(endpoint: Endpoint, schemas: &mut Schemas) -> RefOr<Schema> {
    match endpoint {
        Endpoint::Time => refer::<time::Response>(schemas),
        Endpoint::RuleUpgrade | Endpoint::RuleCreate => refer::<rule_upgrade::Response>(schemas),
        Endpoint::RuleQuery => refer::<rule_query::Response>(schemas),
        Endpoint::RuleList => refer::<rule_list::Response>(schemas),
        Endpoint::ConvertOrder | Endpoint::Convert => refer::<convert_order::Response>(schemas),
        Endpoint::ConvertOrderList => refer::<convert_order_list::Response>(schemas),
        Endpoint::ConvertCurrency => list(text().into()),
        Endpoint::ConvertPair => list(refer::<convert_pair::Convertible>(schemas)),
        Endpoint::ConvertPreview => refer::<convert_preview::Response>(schemas),
        Endpoint::OrderCreate => refer::<order_create::Response>(schemas),
        Endpoint::OrderNative => refer::<order_native::Response>(schemas),
        Endpoint::OrderQuery => refer::<order_query::Response>(schemas),
        Endpoint::OrderList => refer::<order_list::Response>(schemas),
        Endpoint::OrderClose => refer::<order_close::Response>(schemas),
        Endpoint::Events => refer::<events::Response>(schemas),
    }
}

fn body(endpoint: Endpoint, schemas: &mut Schemas) -> Option<RefOr<Schema>> {
    match endpoint {
        Endpoint::RuleUpgrade | Endpoint::RuleCreate => Some(refer::<rule_upgrade::Request>(schemas)),
        Endpoint::RuleList => Some(refer::<rule_list::Request>(schemas)),
        Endpoint::OrderCreate | Endpoint::OrderNative => Some(refer::<order_create::Request>(schemas)),
        Endpoint::OrderQuery | Endpoint::OrderClose => Some(refer::<order_query::Request>(schemas)),
        Endpoint::OrderList => Some(refer::<order_list::Request>(schemas)),
        Endpoint::ConvertOrderList => Some(refer::<convert_order_list::Request>(schemas)),
        Endpoint::ConvertPreview => Some(refer::<convert_preview::Body<'_>>(schemas)),
        Endpoint::Convert => Some(refer::<convert::Request>(schemas)),
        Endpoint::Time
        | Endpoint::RuleQuery
        | Endpoint::ConvertOrder
        | Endpoint::ConvertCurrency
        | Endpoint::ConvertPair
        | Endpoint::Events => None,
    }
}

fn query(endpoint: Endpoint) -> Vec<Parameter> {
    let place = || Some(ParameterIn::Query);
    match endpoint {
        Endpoint::RuleQuery => rule_query::Request::into_params(place),
        Endpoint::ConvertOrder => convert_order::Request::into_params(place),
        Endpoint::Events => events::Request::into_params(place),
        Endpoint::ConvertCurrency => convert_currency::Request::into_params(place),
        Endpoint::ConvertPair => convert_pair::Request::into_params(place),
        Endpoint::Time
        | Endpoint::RuleUpgrade
        | Endpoint::RuleCreate
        | Endpoint::RuleList
        | Endpoint::ConvertOrderList
        | Endpoint::ConvertPreview
        | Endpoint::Convert
        | Endpoint::OrderCreate
        | Endpoint::OrderNative
        | Endpoint::OrderQuery
        | Endpoint::OrderList
        | Endpoint::OrderClose => Vec::new(),
    }
}

fn headers(endpoint: Endpoint) -> Vec<Parameter> {
    if !endpoint.is_signed() {
        return Vec::new();
    }
    let mut headers = vec![
        header(Header::Timestamp, Required::True, "Unix milliseconds, 13 digits"),
        header(
            Header::Nonce,
            Required::True,
            "1 to 64 of A-Z a-z 0-9 . _ -, good once per ClientId; one that begins with `callback` is refused",
        ),
    ];
    let merchant = if endpoint.is_institution_only() { Required::True } else { Required::False };
    headers.push(header(Header::MerchantId, merchant, "The main merchant that the key belongs to"));
    if !endpoint.is_institution_only() && endpoint != Endpoint::Events {
        headers.push(header(Header::OnBehalfOf, Required::False, "A sub-account of the institution that asks"));
    }
    headers
}

fn header(header: Header, required: Required, about: &str) -> Parameter {
    ParameterBuilder::new()
        .name(format!("{PREFIX}{}", header.suffix()))
        .parameter_in(ParameterIn::Header)
        .required(required)
        .description(Some(about))
        .schema(Some(text()))
        .build()
}

/// The nonce of a callback: no request has such a one.
const CALLBACK_NONCE: &str = "^callback[A-Za-z0-9._-]{0,56}$";

/// Hex digits, or Base64.
const SIGNATURE_FORM: &str = "^([0-9a-f]{128}|[A-Za-z0-9+/]{86}==)$";

fn form(mut header: Parameter, pattern: &str) -> Parameter {
    header.schema = Some(text().pattern(Some(pattern)).into());
    header
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// The refusals of an operation.
fn codes(endpoint: Endpoint) -> Vec<Code> {
    let mut codes =
        vec![Code::InvalidParameter, Code::BodyTooLarge, Code::HeadersTooLarge, Code::UnsupportedContentType];
    codes.extend([Code::InternalError, Code::ServiceUnavailable]);
    if endpoint.is_signed() {
        codes.extend([Code::InvalidSignature, Code::TimestampOutOfRange, Code::InvalidNonce, Code::NonceReused]);
        codes.extend([Code::RateLimited, Code::MerchantNotAllowed]);
    }
    codes.extend_from_slice(match endpoint {
        Endpoint::Time
        | Endpoint::RuleList
        | Endpoint::ConvertOrderList
        | Endpoint::OrderList
        | Endpoint::ConvertCurrency => &[],
        Endpoint::RuleUpgrade => &[Code::SubMerchantNotFound, Code::InvalidRulePeriod, Code::ConfigIdNotAccepted][..],
        Endpoint::RuleCreate => &[Code::SubMerchantNotFound, Code::InvalidRulePeriod, Code::FeeRuleExists],
        Endpoint::RuleQuery => &[Code::SubMerchantNotFound, Code::InvalidRulePeriod],
        Endpoint::ConvertOrder | Endpoint::OrderQuery => &[Code::OrderNotFound],
        Endpoint::OrderCreate | Endpoint::OrderNative => {
            &[Code::DuplicateTradeNo, Code::InvalidAmount, Code::InvalidCurrency]
        }
        Endpoint::OrderClose => &[Code::OrderNotFound, Code::InvalidOrderStatus],
        Endpoint::ConvertPair => &[Code::InvalidCurrency],
        Endpoint::ConvertPreview => &[Code::InvalidCurrency, Code::InvalidAmount],
        Endpoint::Convert => &[Code::InvalidCurrency, Code::InvalidAmount, Code::QuoteExpired, Code::DuplicateTradeNo],
        Endpoint::Events => &[Code::EventsGone],
    });
    codes.sort_unstable();
    codes
}

/// The envelope around `data`.
fn answer(data: RefOr<Schema>) -> Response {
    let envelope =
        envelope(["SUCCESS", code::SUCCESS, ""], data).property("errorMessage", word("").description(Some("Empty")));
    ResponseBuilder::new().description("SUCCESS").content(JSON, Content::new(Some(envelope))).build()
}

/// Its refusal with one of these codes.
fn one_of(codes: &[Code]) -> RefOr<Schema> {
    let mut refusals = codes.iter().map(|code| Ref::from_schema_name(failure_name(*code)));
    match refusals.next() {
        Some(only) if codes.len() == 1 => only.into(),
        first => {
            let either = first.into_iter().chain(refusals).fold(OneOfBuilder::new(), OneOfBuilder::item);
            Schema::OneOf(either.build()).into()
        }
    }
}

/// The label as schemas are named: `InvalidParameter`.
fn failure_name(code: Code) -> String {
    let words = code.label().split('_');
    words.flat_map(|word| [word[..1].to_owned(), word[1..].to_ascii_lowercase()]).collect()
}

/// The envelope of a refusal with this code.
fn failure(code: Code) -> (String, RefOr<Schema>) {
    // Not by its type: a common generator makes a class of that, which is not there, and in some languages no client at all.
    let null = ObjectBuilder::new().schema_type(SchemaType::AnyValue);
    let null = Schema::from(null.extensions(Some([("const", Value::Null)].into_iter().collect())));
    let envelope = envelope(["FAIL", code.code(), code.label()], null.into())
        .property("errorMessage", text().description(Some("What to change")))
        .description(Some(failures::what_to_do(code, Listener::Merchant)));
    (failure_name(code), Schema::from(envelope).into())
}

/// What stands in it for certain: `status`, `code` and `label`.
fn envelope([status, code, label]: [&str; 3], data: RefOr<Schema>) -> ObjectBuilder {
    let mut envelope = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("status", word(status))
        .property("code", word(code))
        .property("label", word(label))
        .property("data", data);
    for name in ["status", "code", "label", "errorMessage", "data"] {
        envelope = envelope.required(name);
    }
    envelope
}

/// A text that is always the same.
fn word(word: &str) -> ObjectBuilder {
    text().enum_values(Some([word]))
}

const GONE: &str = "The endpoint is gone: all callbacks of the application are disabled until the operator enables them, and its events wait. Do not answer so to a single event.";
const EVENT_ID: &str = "The same on every attempt. Not signed: for questions to the operator, not to know repeats by";

/// What the merchant's own endpoint is sent, and what it answers.
fn callback(schemas: &mut Schemas) -> OperationBuilder {
    let acknowledgement = ObjectBuilder::new()
        .schema_type(Type::Object)
        .property("returnCode", text().enum_values(Some(["SUCCESS", "FAIL"])))
        .property("returnMessage", text())
        .required("returnCode");
    let answer = ResponseBuilder::new()
        .description("Processed, where `returnCode` is SUCCESS; anything else is sent again later")
        .content(JSON, Content::new(Some(acknowledgement)))
        .build();
    let body = Content::new(Some(refer::<CallbackBody>(schemas)));
    let mut operation = OperationBuilder::new()
        .operation_id(Some("callback"))
        .summary(Some("A callback to the merchant's endpoint"))
        .description(Some(
            "Verify the signature over the raw body, as of requests, before anything else; that the nonce begins with `callback`, and was not taken \
             before; that the timestamp is within 5 minutes of your clock. Answer within 15 seconds (a deployment may set another time). Anything but 2xx with `returnCode` SUCCESS comes \
             again by the schedule, with the same body, signed afresh, but for 410. An event may arrive more than once: know it by `bizType`, `bizId` and \
             `bizStatus`, which are signed. Before you deliver goods query the order: only its answer PAID counts.",
        ))
        .tag(groups::CALLBACKS)
        .securities(Some(security(false)))
        .request_body(Some(RequestBodyBuilder::new().content(JSON, body).required(Some(Required::True)).build()))
        .response("200", answer)
        .response("410", ResponseBuilder::new().description(GONE).build());
    for parameter in [
        form(header(Header::Timestamp, Required::True, "Unix milliseconds of this attempt"), bounds::TIMESTAMP),
        form(header(Header::Nonce, Required::True, "Begins with `callback`, new for each attempt"), CALLBACK_NONCE),
        form(header(Header::Signature, Required::True, "HMAC-SHA512 as on requests"), SIGNATURE_FORM),
        form(header(Header::SignatureNext, Required::False, "By the other secret, while two are live"), SIGNATURE_FORM),
        header(Header::EventId, Required::True, EVENT_ID),
        form(header(Header::Attempt, Required::True, "1, 2, ..."), bounds::COUNT),
        form(header(Header::Sequence, Required::True, "1, 2, ... per bizId"), bounds::COUNT),
    ] {
        operation = operation.parameter(parameter);
    }
    operation
}
