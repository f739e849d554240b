//! What the code takes of a value, said of it in the documents: every number is the constant that the check itself reads.

use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::schema::{Array, ArrayItems, Object, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{KnownFormat, OpenApi as Document, Ref, RefOr};
use utoipa::{Number, ToSchema as _};

use countersign_domain::delivery::SCHEDULE_DELAYS_MAX;
use countersign_protocol::exact::Exact;
use serde_json::Value;

use crate::operator::applications::DELAY_CHARS_MAX;

/// 1 to 64 letters, digits, `_` and `-`.
pub const ID: &str = "^[A-Za-z0-9_-]{1,64}$";
/// A currency's code.
pub const CURRENCY: &str = "^[A-Z0-9]{2,10}$";
/// An amount as a text.
pub const AMOUNT: &str = r"^[0-9]+(\.[0-9]{1,6})?$";
/// A merchant's own number of an order or a conversion.
pub const TRADE_NO: &str = "^[A-Za-z0-9_-]{1,100}$";
/// The number of a convert order.
pub const ORDER_ID: &str = "^[1-9][0-9]{0,17}$";
/// A pair of currencies.
pub const PAIR: &str = "^[A-Z0-9]{2,10}_[A-Z0-9]{2,10}$";
/// Unix milliseconds, in a header.
pub const TIMESTAMP: &str = "^[1-9][0-9]{12}$";
/// 1, 2, 3 ... in a header.
pub const COUNT: &str = "^[1-9][0-9]{0,18}$";
/// An exact number that is 0 or more, in a query.
pub const NUMBER: &str = r"^(0|[1-9][0-9]*)(\.[0-9]+)?$";
/// A date of a fee rule.
pub const RULE_DATE: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$";
const DELAY: &str = "^[0-9]+(ms|s|m|h|d)$";

/// What a value must be; where null is said to be fine it stays so.
#[derive(Clone, Debug)]
pub enum Rule {
    /// A whole number from here to there.
    Whole(i64, i64),
    /// A whole number from here on.
    AtLeast(i64),
    /// An exact number from 0 to this.
    UpTo(i64),
    /// A text of so many characters.
    Chars(usize, usize),
    /// An address of so many characters.
    Uri(usize),
    /// A text that is not empty.
    Filled,
    /// A text of this form.
    Form(&'static str),
    /// One of these texts.
    Words(Vec<&'static str>),
    /// One of these numbers.
    Codes(Vec<i64>),
    /// An instant, RFC 3339.
    Instant,
    /// A list of delays.
    Delays,
}

/// A rule of a property, or a parameter: which schema or path, which name.
pub type Ruled = (&'static str, &'static str, Rule);

impl Rule {
    fn put(&self, on: &mut RefOr<Schema>) {
        match (self, &mut *on) {
            (Self::UpTo(most), _) => *on = RefOr::T(Schema::Object(exact(on, *most))),
            (Self::Delays, RefOr::T(Schema::Array(list))) => delays(list),
            (_, RefOr::T(Schema::Object(object))) => self.put_on(object),
            (rule, _) => panic!("{rule:?} is of another kind of schema"),
        }
    }

    fn put_on(&self, object: &mut Object) {
        let may_be_null = matches!(&object.schema_type, SchemaType::Array(types) if types.contains(&Type::Null));
        let one_of = |words: Vec<Value>| words.into_iter().chain(may_be_null.then_some(Value::Null)).collect();
        match self {
            Self::Whole(min, max) => {
                (object.minimum, object.maximum) = (Some(number(*min)), Some(number(*max)));
            }
            Self::AtLeast(min) => object.minimum = Some(number(*min)),
            Self::Chars(min, max) => {
                (object.min_length, object.max_length) = ((*min > 0).then_some(*min), Some(*max));
            }
            Self::Uri(max) => {
                (object.format, object.max_length) = (Some(SchemaFormat::Custom("uri".to_owned())), Some(*max));
            }
            Self::Filled => object.min_length = Some(1),
            Self::Form(pattern) => object.pattern = Some((*pattern).to_owned()),
            Self::Words(words) => {
                object.enum_values = Some(one_of(words.iter().map(|word| (*word).into()).collect()));
            }
            Self::Codes(codes) => object.enum_values = Some(one_of(codes.iter().map(|code| (*code).into()).collect())),
            Self::Instant => object.format = Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)),
            Self::UpTo(_) | Self::Delays => panic!("{self:?} is not of a plain value"),
        }
    }
}

fn number(number: i64) -> Number {
    Number::Int(isize::try_from(number).expect("64 bits"))
}

/// An exact number in the place of a reference to what any is, which has no bounds.
fn exact(general: &RefOr<Schema>, most: i64) -> Object {
    let (about, may_be_null) = match general {
        RefOr::Ref(exact) => (exact.description.clone(), false),
        RefOr::T(Schema::OneOf(either)) => {
            let about = either.items.iter().find_map(|item| match item {
                RefOr::Ref(exact) => Some(exact.description.clone()),
                RefOr::T(_) => None,
            });
            (about.unwrap_or_default(), true)
        }
        RefOr::T(_) => panic!("it is not {}", Exact::name()),
    };
    let kind = if may_be_null { SchemaType::from_iter([Type::Number, Type::Null]) } else { Type::Number.into() };
    let about = format!("{about} An exponent, and more than 20 digits, are refused.");
    let object = ObjectBuilder::new().schema_type(kind).description(Some(about));
    object.minimum(Some(number(0))).maximum(Some(number(most))).build()
}

fn delays(list: &mut Array) {
    (list.min_items, list.max_items) = (Some(1), Some(SCHEDULE_DELAYS_MAX));
    if let ArrayItems::RefOrSchema(delay) = &mut list.items
        && let RefOr::T(Schema::Object(delay)) = delay.as_mut()
    {
        Rule::Form(DELAY).put_on(delay);
        delay.max_length = Some(DELAY_CHARS_MAX);
    }
}

/// Says all that is known of the values of a document. What a rule is of must be there.
pub fn put(document: &mut Document, properties: &[Ruled], parameters: &[Ruled]) {
    name_items(document);
    let components = document.components.get_or_insert_default();
    for schema in components.schemas.values_mut() {
        each_property(schema, &mut |name, value| {
            if let Some(rule) = by_name(name) {
                rule.put(value);
            }
        });
    }
    for (schema, property, rule) in properties {
        let found = components.schemas.get_mut(*schema).unwrap_or_else(|| panic!("no schema {schema}"));
        let mut is_there = false;
        each_property(found, &mut |name, value| {
            if name == *property {
                rule.put(value);
                is_there = true;
            }
        });
        assert!(is_there, "{schema} has no {property}");
    }
    put_on_parameters(document, parameters);
}

fn put_on_parameters(document: &mut Document, rules: &[Ruled]) {
    for (ruled, name, rule) in rules {
        let mut is_there = false;
        let paths = document.paths.paths.iter_mut().filter(|(path, _)| ruled.is_empty() || path == ruled);
        for (_, item) in paths {
            for (operation, _) in super::operations(item) {
                for parameter in named(operation, name, ruled.contains(&format!("{{{name}}}"))) {
                    rule.put(parameter);
                    is_there = true;
                }
            }
        }
        assert!(is_there, "{ruled} has no parameter {name}");
    }
}

/// The parameters of this name. Of what is in the path hardly any call says that it is malformed: it is not found. So a rule of it names its path.
pub fn named<'a>(
    operation: &'a mut Operation,
    wanted: &'a str,
    of_path: bool,
) -> impl Iterator<Item = &'a mut RefOr<Schema>> {
    use utoipa::openapi::path::ParameterIn;
    operation.parameters.iter_mut().flatten().filter_map(move |parameter| match parameter {
        RefOr::T(Parameter { name, parameter_in, schema: Some(schema), .. })
            if name == wanted && (*parameter_in == ParameterIn::Path) == of_path =>
        {
            Some(schema)
        }
        RefOr::T(_) | RefOr::Ref(_) => None,
    })
}

/// What a name says in every schema.
fn by_name(name: &str) -> Option<Rule> {
    match name {
        "at" | "not_after" | "breaker_until" | "held_since" | "older_than" | "until" => Some(Rule::Instant),
        "effective_date" | "due_date" | "expired_date" => Some(Rule::Form(RULE_DATE)),
        name if name.ends_with("_at") => Some(Rule::Instant),
        _ => None,
    }
}

/// The properties of a schema, also of one that is made of several; of one that is either, `text` and `number`.
pub fn each_property(schema: &mut RefOr<Schema>, act: &mut dyn FnMut(&str, &mut RefOr<Schema>)) {
    match schema {
        RefOr::T(Schema::Object(object)) => object.properties.iter_mut().for_each(|(name, value)| act(name, value)),
        RefOr::T(Schema::OneOf(kinds)) => {
            for kind in &mut kinds.items {
                match kind {
                    RefOr::T(Schema::Object(Object { schema_type: SchemaType::Type(Type::String), .. })) => {
                        act("text", kind);
                    }
                    RefOr::T(Schema::Object(Object { schema_type: SchemaType::Type(Type::Number), .. })) => {
                        act("number", kind);
                    }
                    RefOr::T(_) | RefOr::Ref(_) => {}
                }
            }
        }
        RefOr::T(Schema::AllOf(parts)) => parts.items.iter_mut().for_each(|part| each_property(part, act)),
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
}

/// The items of pages under their own names: they stand in each page as a copy, which would have to be ruled again.
fn name_items(document: &mut Document) {
    let components = document.components.get_or_insert_default();
    let mut named = Vec::new();
    for (page, schema) in &mut components.schemas {
        let Some(name) = page.strip_prefix("Page_") else { continue };
        each_property(schema, &mut |property, list| {
            let RefOr::T(Schema::Array(Array { items: ArrayItems::RefOrSchema(item), .. })) = list else { return };
            if property == "items" {
                let copy = std::mem::replace(item.as_mut(), Ref::from_schema_name(name).into());
                named.push((name.to_owned(), copy));
            }
        });
    }
    for (name, schema) in named {
        components.schemas.entry(name).or_insert(schema);
    }
}
