//! `POST /rate/commission_rule`: the first fee rule of a sub-account. Fields and data as the upgrade's.

use serde::{Deserialize, Serialize};

use super::RequestRefused;
use super::rule_upgrade;
pub use super::rule_upgrade::Response;
use crate::body::Fields;

/// HTTP method.
pub const METHOD: &str = "POST";
/// Path.
pub const PATH: &str = "/rate/commission_rule";

/// What is asked for: the upgrade's fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Request(pub rule_upgrade::Request);

impl Request {
    /// Reads a body. `config_id` is one unknown field among others here.
    pub fn parse(body: &[u8]) -> Result<Self, RequestRefused> {
        rule_upgrade::Request::from_fields(&Fields::parse(body)?).map(Self)
    }

    /// The body that asks for it.
    pub fn to_body(&self) -> Vec<u8> {
        self.0.to_body()
    }
}
