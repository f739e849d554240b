//! The signed API that merchants call, and the callbacks that they receive.

use std::collections::BTreeMap;

use countersign_protocol::callback::CallbackBody;
use countersign_protocol::code::{self, Code};
use countersign_protocol::endpoint::{
    Endpoint, convert, convert_currency, convert_order, convert_pair, convert_preview, events, order_close,
    order_create, order_native, order_query, rule_list, rule_query, rule_upgrade, time,
};
use countersign_protocol::headers::Header;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem, PathsBuilder,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, ComponentsBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Content, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response, ResponseBuilder,
    Server,
};
use utoipa::{IntoParams, ToSchema};

use super::answers::{Listener, put_headers};
use super::{API_VERSION, PREFIX, bounds, rules};

const FAILURE: &str = "Failure";
const JSON: &str = "application/json";

type Schemas = Vec<(String, RefOr<Schema>)>;

/// The merchant API.
pub fn merchant() -> OpenApi {
    let mut schemas: Schemas = vec![(FAILURE.to_owned(), failure())];
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
        .paths(paths)
        .webhooks(Some(webhooks))
        .components(Some(components))
        .build();
    bounds::put(&mut document, &rules::of_merchants(), &rules::of_merchants_parameters());
    super::required::put(&mut document);
    put_headers(&mut document, Listener::Merchant, PREFIX);
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
    let rows =
        merchant_codes().map(|code| format!("| {} | {} | {} |\n", code.http_status(), code.code(), code.label()));
    format!(
        "Requests are signed with HMAC-SHA512 over `TIMESTAMP LF NONCE LF BODY LF`; every answer is one envelope. See docs/PROTOCOL.md.\n\n\
         | HTTP | code | label |\n|---|---|---|\n{}",
        rows.collect::<String>()
    )
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
        | Endpoint::ConvertPreview
        | Endpoint::Convert
        | Endpoint::OrderCreate
        | Endpoint::OrderNative
        | Endpoint::OrderQuery
        | Endpoint::OrderClose => HttpMethod::Post,
    }
}

/// One line for the list of operations.
const fn summary(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Time => "The server's time",
        Endpoint::RuleUpgrade => "Update the fee rule of a sub-account: a new version",
        Endpoint::RuleCreate => "Create the first fee rule of a sub-account",
        Endpoint::RuleQuery => "The fee rule of a sub-account that is in force at an instant",
        Endpoint::RuleList => "The fee rules of all sub-accounts",
        Endpoint::ConvertOrder => "Query a convert order",
        Endpoint::ConvertCurrency => "Currencies that can be converted",
        Endpoint::ConvertPair => "What a currency can be converted into, or from",
        Endpoint::ConvertPreview => "A price for a conversion, and a quote that holds it",
        Endpoint::Convert => "Carry a quote out: a convert order",
        Endpoint::OrderCreate => "Create a payment order, or find the one with this trade number",
        Endpoint::OrderNative => "The same for a payment by a personal QR code",
        Endpoint::OrderQuery => "Query a payment order by either number",
        Endpoint::OrderClose => "Close a pending payment order",
        Endpoint::Events => "Past events of the application, delivered or not",
    }
}

fn operation(endpoint: Endpoint, schemas: &mut Schemas) -> OperationBuilder {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(endpoint.name()))
        .summary(Some(summary(endpoint)))
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
    let mut by_status: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for code in codes(endpoint) {
        by_status.entry(code.http_status()).or_default().push(format!("{} {}", code.code(), code.label()));
    }
    for (status, codes) in by_status {
        operation = operation.response(status.to_string(), refusal(&codes.join(", ")));
    }
    operation
}

const fn tag(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Time => "Time",
        Endpoint::RuleUpgrade | Endpoint::RuleCreate | Endpoint::RuleQuery | Endpoint::RuleList => "Fee rules",
        Endpoint::ConvertOrder
        | Endpoint::ConvertCurrency
        | Endpoint::ConvertPair
        | Endpoint::ConvertPreview
        | Endpoint::Convert => "Convert orders",
        Endpoint::OrderCreate | Endpoint::OrderNative | Endpoint::OrderQuery | Endpoint::OrderClose => "Payment orders",
        Endpoint::Events => "Events",
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
        Endpoint::ConvertCurrency => list(text().into()),
        Endpoint::ConvertPair => list(refer::<convert_pair::Convertible>(schemas)),
        Endpoint::ConvertPreview => refer::<convert_preview::Response>(schemas),
        Endpoint::OrderCreate => refer::<order_create::Response>(schemas),
        Endpoint::OrderNative => refer::<order_native::Response>(schemas),
        Endpoint::OrderQuery => refer::<order_query::Response>(schemas),
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
        | Endpoint::ConvertPreview
        | Endpoint::Convert
        | Endpoint::OrderCreate
        | Endpoint::OrderNative
        | Endpoint::OrderQuery
        | Endpoint::OrderClose => Vec::new(),
    }
}

fn headers(endpoint: Endpoint) -> Vec<Parameter> {
    if !endpoint.is_signed() {
        return Vec::new();
    }
    let mut headers = vec![
        header(Header::Timestamp, Required::True, "Unix milliseconds, 13 digits"),
        header(Header::Nonce, Required::True, "1 to 64 of A-Z a-z 0-9 . _ -, good once; not beginning with `callback`"),
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
        Endpoint::Time | Endpoint::RuleList | Endpoint::ConvertCurrency => &[],
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
    let envelope = envelope("SUCCESS", data)
        .description(Some(format!("`code` is {}, `label` and `errorMessage` are empty", code::SUCCESS)));
    ResponseBuilder::new().description("SUCCESS").content(JSON, Content::new(Some(envelope))).build()
}

fn refusal(codes: &str) -> Response {
    ResponseBuilder::new().description(codes).content(JSON, Content::new(Some(Ref::from_schema_name(FAILURE)))).build()
}

fn failure() -> RefOr<Schema> {
    let null = ObjectBuilder::new().schema_type(Type::Null);
    Schema::from(
        envelope("FAIL", Schema::from(null).into()).description(Some("An operation that was refused or failed")),
    )
    .into()
}

fn envelope(status: &str, data: RefOr<Schema>) -> ObjectBuilder {
    let status = text().enum_values(Some([status]));
    let mut envelope = ObjectBuilder::new().schema_type(Type::Object).property("status", status);
    for (name, about) in [("code", "Six digits"), ("label", "The code's name"), ("errorMessage", "What to change")] {
        envelope = envelope.property(name, text().description(Some(about)));
    }
    envelope = envelope.property("data", data);
    for name in ["status", "code", "label", "errorMessage", "data"] {
        envelope = envelope.required(name);
    }
    envelope
}

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
        .securities(Some(security(false)))
        .request_body(Some(RequestBodyBuilder::new().content(JSON, body).required(Some(Required::True)).build()))
        .response("200", answer);
    for parameter in [
        header(Header::Timestamp, Required::True, "Unix milliseconds of this attempt"),
        header(Header::Nonce, Required::True, "Begins with `callback`, new for each attempt"),
        header(Header::Signature, Required::True, "HMAC-SHA512 as on requests"),
        header(Header::SignatureNext, Required::False, "By the other secret, while two are live"),
        header(Header::EventId, Required::True, "The same on every attempt"),
        header(Header::Attempt, Required::True, "1, 2, ..."),
        header(Header::Sequence, Required::True, "1, 2, ... per bizId"),
    ] {
        operation = operation.parameter(parameter);
    }
    operation
}
