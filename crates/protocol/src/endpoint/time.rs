//! `GET /v1/time`: the server's time, for clients whose clock is not to be trusted. Unsigned.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// HTTP method.
pub const METHOD: &str = "GET";
/// Path.
pub const PATH: &str = "/v1/time";

/// The server's time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TimeResponse)]
pub struct Response {
    /// Unix milliseconds, UTC.
    #[serde(rename = "serverTime")]
    pub server_time: i64,
}
