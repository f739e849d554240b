//! Both APIs as documents, and their viewer, which needs nothing from outside.
//!
//! A document takes some milliseconds and megabytes to make, and hardly any process is ever asked for one: it is made at the first question.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::map_response;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::Value;
use utoipa_swagger_ui::{Config, SwaggerUi, Url};

use super::frame::no_such_path;
use super::problem::Problem;
use crate::openapi;

/// Makes the document of an API under a header prefix.
type Make = fn(&str) -> Value;

/// The methods that the viewer calls.
const NO_METHODS: [&str; 0] = [];
const MERCHANT: &str = "/openapi/merchant.json";
const OPERATOR: &str = "/openapi/operator.json";

/// The routes of documents and viewer, under the header prefix of the deployment.
pub(super) fn routes(prefix: &str) -> Router {
    let urls = [Url::with_primary("Merchant API", MERCHANT, true), Url::new("Operator API", OPERATOR)];
    // The validator's badge would be asked for at an address outside.
    // Nor does it call anything: the merchant API is at another listener, and its calls have to be signed.
    let config = Config::new(urls).validator_url("none").supported_submit_methods(NO_METHODS);
    let viewer: Router = SwaggerUi::new("/docs").config(config).into();
    // The viewer says 404 with nothing behind it to whoever asks for a file that it has not.
    let viewer = viewer.layer(map_response(async |answer: Response| match answer.status() {
        StatusCode::NOT_FOUND => no_such_path().await.into_response(),
        _ => answer,
    }));
    let documents: [(&str, Make); 2] = [(MERCHANT, openapi::merchant_under), (OPERATOR, openapi::operator_under)];
    documents.into_iter().fold(viewer, |router, (path, make)| {
        let document = Arc::new(Document { prefix: prefix.to_owned(), make, kept: OnceLock::new() });
        router.route(path, get(move || document.clone().answer()))
    })
}

struct Document {
    prefix: String,
    make: Make,
    kept: OnceLock<Bytes>,
}

impl Document {
    async fn answer(self: Arc<Self>) -> Response {
        // Away from the threads that answer calls.
        let bytes = tokio::task::spawn_blocking(move || self.bytes()).await;
        bytes.map_or_else(
            |_| Problem::internal().into_response(),
            |bytes| ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
        )
    }

    fn bytes(&self) -> Bytes {
        let made = || Bytes::from((self.make)(&self.prefix).to_string());
        self.kept.get_or_init(made).clone()
    }
}
