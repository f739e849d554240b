//! What has two names, and of what one of two must be there.

use std::collections::BTreeMap;

use utoipa::openapi::path::Parameter;
use utoipa::openapi::schema::{AnyOfBuilder, Object, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Deprecated, OpenApi as Document, RefOr};

use super::bounds::{AMOUNT, TRADE_NO};
use super::operations;
use super::rules::{AMOUNT_OR_NONE, TRADE_NO_OR_NONE};

/// Lists that take `status` for `state`.
const LISTS: [&str; 2] = ["list_convert_orders", "list_payment_orders"];

type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Of the merchant document: bodies of which one of two fields must be there. Other names of fields stand in descriptions alone: as fields of their own they
/// get the name of the first in many a language, and a client that fills in what is shipped sends both.
pub fn put_merchants(document: &mut Document) {
    let schemas = &mut document.components.get_or_insert_default().schemas;
    let order = object(schemas, "PaymentOrderName").clone();
    let by = ["prepayId", "merchantTradeNo"].map(|name| filled(&order, name));
    let any = by.into_iter().fold(AnyOfBuilder::new(), AnyOfBuilder::item).description(order.description);
    schemas.insert("PaymentOrderName".to_owned(), Schema::AnyOf(any.build()).into());
    let preview = object(schemas, "ConvertPreviewRequest").clone();
    let by = [("sellAmount", "buyAmount"), ("buyAmount", "sellAmount")].map(|(given, other)| {
        let mut one = filled(&preview, given);
        one.properties.insert(other.to_owned(), absent().into());
        one
    });
    let one = by.into_iter().fold(OneOfBuilder::new(), OneOfBuilder::item).description(preview.description);
    schemas.insert("ConvertPreviewRequest".to_owned(), Schema::OneOf(one.build()).into());
}

fn object<'a>(schemas: &'a Schemas, name: &str) -> &'a Object {
    match schemas.get(name) {
        Some(RefOr::T(Schema::Object(object))) => object,
        Some(_) | None => panic!("no object {name}"),
    }
}

/// The same with one field that must be there and is not empty.
fn filled(of: &Object, name: &str) -> Object {
    let mut filled = of.clone();
    filled.required.push(name.to_owned());
    filled.description = Some(format!("By `{name}`."));
    if let Some(RefOr::T(Schema::Object(field))) = filled.properties.get_mut(name) {
        (field.schema_type, field.min_length) = (SchemaType::Type(Type::String), Some(1));
        field.description = field.description.take().map(|about| about.replace(" Empty counts as absent.", ""));
        field.pattern = field.pattern.take().map(|pattern| match pattern.as_str() {
            AMOUNT_OR_NONE => AMOUNT.to_owned(),
            TRADE_NO_OR_NONE => TRADE_NO.to_owned(),
            _ => pattern,
        });
    }
    filled
}

/// A field that counts as absent.
fn absent() -> Object {
    let kinds = SchemaType::from_iter([Type::String, Type::Null]);
    ObjectBuilder::new().schema_type(kinds).max_length(Some(0)).description(Some("Absent, null or empty.")).build()
}

/// Of the operator document: parameters with two names.
pub fn put_operators(document: &mut Document) {
    for item in document.paths.paths.values_mut() {
        for (operation, _) in operations(item) {
            if !operation.operation_id.as_deref().is_some_and(|id| LISTS.contains(&id)) {
                continue;
            }
            let parameters = operation.parameters.get_or_insert_default();
            let at = parameters
                .iter()
                .position(|known| matches!(known, RefOr::T(Parameter { name, .. }) if name == "state"));
            let at = at.expect("what has another name has its own");
            let RefOr::T(mut alias) = parameters[at].clone() else { panic!("it stands in its place") };
            "status".clone_into(&mut alias.name);
            alias.description = Some("Another name of `state`: one of the two.".to_owned());
            alias.deprecated = Some(Deprecated::True);
            parameters.insert(at + 1, RefOr::T(alias));
        }
    }
}
