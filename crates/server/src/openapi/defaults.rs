//! What counts where nothing is said.

use countersign_protocol::endpoint::{convert_order_list, events, order_list, rule_list};
use serde_json::{Value, json};
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{OpenApi as Document, RefOr};

use super::bounds::{each_property, named};
use super::operations;
use crate::app::identity::OVERLAP_S_DEFAULT;
use crate::operator::paging::LIMIT_DEFAULT;
use crate::operator::redeliveries::RATE_DEFAULT;
use crate::operator::tokens::LIFE_DAYS_DEFAULT;

/// A schema or a path (one that is empty is any), a property or a parameter of it, and its value.
pub type Standing = (&'static str, &'static str, Value);

/// Of the merchant document's properties.
pub fn of_merchants() -> Vec<Standing> {
    vec![
        ("RuleListRequest", "pageNum", json!(1)),
        ("RuleListRequest", "pageSize", json!(rule_list::PAGE_SIZE_DEFAULT)),
        ("RuleRequest", "f_markup", json!(0)),
        ("ConvertOrderListRequest", "limit", json!(convert_order_list::LIMIT_DEFAULT)),
        ("PaymentOrderListRequest", "limit", json!(order_list::LIMIT_DEFAULT)),
    ]
}

/// Of the merchant document's parameters.
pub fn of_merchants_parameters() -> Vec<Standing> {
    vec![(events::PATH, "after", json!(0)), (events::PATH, "limit", json!(events::LIMIT_DEFAULT))]
}

/// Of the operator document's properties.
pub fn of_operators() -> Vec<Standing> {
    vec![
        ("RotationRequest", "overlap_s", json!(OVERLAP_S_DEFAULT)),
        ("TokenRequest", "life_days", json!(LIFE_DAYS_DEFAULT)),
        ("ConvertOrderRequest", "status", json!(1)),
        ("RedeliverRequest", "state", json!("dead")),
        ("RedeliverRequest", "rate_per_s", json!(RATE_DEFAULT)),
        ("RedeliverRequest", "preview", json!(false)),
        ("RedeliverRequest", "all_applications", json!(false)),
        ("VerifyRequest", "more_heads", json!(false)),
    ]
}

/// Of the operator document's parameters.
pub fn of_operators_parameters() -> Vec<Standing> {
    vec![("", "limit", json!(LIMIT_DEFAULT)), ("", "format", json!("csv")), ("", "f_markup", json!("0"))]
}

/// Says them. What one is of must be there.
pub fn put(document: &mut Document, properties: &[Standing], parameters: &[Standing]) {
    for (ruled, name, value) in parameters {
        let mut is_there = false;
        for (path, item) in &mut document.paths.paths {
            if !ruled.is_empty() && path != ruled {
                continue;
            }
            for (operation, _) in operations(item) {
                named(operation, name, false).for_each(|schema| is_there |= stands(schema, value));
            }
        }
        assert!(is_there, "{ruled} has no parameter {name}");
    }
    let schemas = &mut document.components.get_or_insert_default().schemas;
    for (schema, property, value) in properties {
        let found = schemas.get_mut(*schema).unwrap_or_else(|| panic!("no schema {schema}"));
        let mut is_there = false;
        each_property(found, &mut |name, of| is_there |= name == *property && stands(of, value));
        assert!(is_there, "{schema} has no {property}");
    }
}

fn stands(schema: &mut RefOr<Schema>, value: &Value) -> bool {
    let RefOr::T(Schema::Object(object)) = schema else { return false };
    object.default = Some(value.clone());
    true
}
