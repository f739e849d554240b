//! The headers of answers.

use utoipa::openapi::header::{Header, HeaderBuilder};
use utoipa::openapi::schema::{Object, ObjectBuilder, Type};
use utoipa::openapi::{OpenApi as Document, Ref, RefOr, Response};

use super::{PREFIX, operations};
use crate::merchant::SCHEME;

/// Whose answers they are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    Merchant,
    Operator,
}

const REQUEST_ID: &str = "RequestId";
const RETRY_AFTER: &str = "RetryAfter";
const AUTHENTICATE: &str = "Authenticate";

/// Says of each answer which headers it has beside those of HTTP.
pub fn put_headers(document: &mut Document, listener: Listener) {
    let components = document.components.get_or_insert_default();
    let mut define = |name: &str, header: Header| components.headers.insert(name.to_owned(), header.into());
    define(REQUEST_ID, header(Type::String, "Finds this request in the log"));
    define(RETRY_AFTER, header(Type::Integer, "Seconds after which to repeat the request"));
    let scheme = match listener {
        Listener::Merchant => SCHEME,
        Listener::Operator => "Bearer",
    };
    define(AUTHENTICATE, header(Type::String, &format!("`{scheme}`, as HTTP demands of a 401")));
    for item in document.paths.paths.values_mut() {
        for (operation, _) in operations(item) {
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else { continue };
                put(response, &format!("{PREFIX}Request-Id"), REQUEST_ID);
                match status.as_str() {
                    "401" => put(response, "WWW-Authenticate", AUTHENTICATE),
                    "429" | "503" => put(response, "Retry-After", RETRY_AFTER),
                    _ => {}
                }
            }
        }
    }
}

fn header(kind: Type, about: &str) -> Header {
    let schema: Object = ObjectBuilder::new().schema_type(kind).build();
    HeaderBuilder::new().schema(Some(schema)).description(Some(about)).build()
}

fn put(response: &mut Response, name: &str, defined: &str) {
    let defined = Ref::new(format!("#/components/headers/{defined}"));
    response.headers.insert(name.to_owned(), RefOr::Ref(defined));
}
