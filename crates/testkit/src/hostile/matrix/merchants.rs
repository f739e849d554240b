//! Every merchant route with every key, every combination of headers and every target, and what must come of each.

use anyhow::{Context as _, Result, bail};
use countersign_domain::time::RuleZone;
use serde_json::json;

use super::cast::{Cast, Key, Kind, Owner};
use crate::wire::{Answer, Draft};
use crate::world::World;

/// What `MerchantId` or `On-Behalf-Of` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// For people: `own sub-account`.
    pub what: &'static str,
    /// The header's value; none where it is left out.
    pub value: Option<String>,
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// For people: `foreign sub-account`.
    pub what: &'static str,
    /// Its id; empty where the route has none.
    pub id: String,
    /// Which merchant owns it; empty where there is none of this id.
    pub owner: String,
}

/// What must come of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It is let through: success, or a refusal that only somebody with a right to it gets.
    Through,
    /// Refused with this code.
    Refused(&'static str),
}

/// How a route is called, and who may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// By anybody, unsigned.
    Open,
    /// By an institution that names itself, about a sub-account.
    Rule(&'static str),
    /// The same, without a sub-account.
    RulesOfAll,
    /// By anybody who signs, about an order.
    Order,
    /// By anybody who signs, for whom he acts.
    Pay,
    /// By anybody who signs, about a payment order.
    Paid,
    /// The same, whose answer names no order.
    Close,
    /// By anybody who signs: all payment orders of him for whom he acts.
    Listed,
    /// The same of convert orders, which name no merchant.
    Converted,
    /// By anybody who signs, about nothing but himself.
    Events,
    /// By anybody who signs, for himself or a sub-account: with this body.
    Trade(&'static str),
}

const RULE: &str = "/rate/commission_rule";
/// What only somebody who was let through is told of: that this is no currency, and that there is no such quote.
const NO_PRICE: &str = r#"{"sellCurrency":"x","buyCurrency":"USDT","sellAmount":"1"}"#;
const NO_QUOTE: &str = r#"{"clientReqId":"r","quoteId":"PAY-00000000","sellCurrency":"GT","buyCurrency":"USDT","sellAmount":"1","buyAmount":"1"}"#;

/// A route that is not here fails the run: whoever adds one says here who may call it.
fn route(method: &str, path: &str) -> Result<Route> {
    Ok(match (method, path) {
        ("GET", "/v1/time") => Route::Open,
        ("GET", RULE) => Route::Rule("GET"),
        ("POST", RULE | "/rate/commission_rule/upgrade") => Route::Rule("POST"),
        ("POST", "/rate/commission_rule/list") => Route::RulesOfAll,
        ("GET", "/v1/pay/convert/order") => Route::Order,
        ("POST", "/v1/pay/order" | "/v1/pay/transactions/native") => Route::Pay,
        ("POST", "/v1/pay/order/query") => Route::Paid,
        ("POST", "/v1/pay/order/close") => Route::Close,
        ("POST", "/v1/pay/order/list") => Route::Listed,
        ("POST", "/v1/pay/convert/order/list") => Route::Converted,
        ("GET", "/v1/pay/events") => Route::Events,
        ("GET", "/v1/pay/convert/currency" | "/v1/pay/convert/pair") => Route::Trade(""),
        ("POST", "/v1/pay/convert/preview") => Route::Trade(NO_PRICE),
        ("POST", "/v1/pay/convert") => Route::Trade(NO_QUOTE),
        _ => bail!(
            "the matrix does not know {method} {path}: say in hostile/matrix/merchants.rs how it is called and by whom"
        ),
    })
}

/// One route with one key and one combination of headers: a group, whose targets are compared.
#[derive(Clone, Debug)]
pub struct Group {
    /// The method.
    pub method: String,
    /// The path.
    pub path: String,
    /// Which key of the cast.
    pub key: usize,
    /// `MerchantId`.
    pub merchant_id: Said,
    /// `On-Behalf-Of`.
    pub on_behalf_of: Said,
    /// What it is tried on.
    pub targets: Vec<Target>,
}

impl Group {
    /// Whether at most one of the two headers is wrong: a lack of a check shows here, where no other one hides it.
    pub fn is_telling(&self) -> bool {
        self.on_behalf_of.value.is_none() || matches!(self.merchant_id.what, "absent" | "own")
    }
}

fn said(what: &'static str, value: impl Into<String>) -> Said {
    Said { what, value: Some(value.into()) }
}

/// What a key may say in the two headers: all of them once.
fn headers(cast: &Cast, key: &Key) -> (Vec<Said>, Vec<Said>) {
    let (own, foreign) = (&cast.houses[key.house], &cast.houses[(key.house + 1) % cast.houses.len()]);
    let none = Said { what: "absent", value: None };
    let mut merchant_ids = vec![
        none.clone(),
        said("own", &key.merchant),
        said("own institution", &own.institution.merchant),
        said("own sub-account", &own.subs[0].merchant),
        said("other merchant of the house", &own.plain.merchant),
        said("foreign institution", &foreign.institution.merchant),
        said("foreign sub-account", &foreign.subs[0].merchant),
        said("foreign merchant", &foreign.plain.merchant),
        said("nobody", "zq9q-bank"),
    ];
    let mut seen = Vec::new();
    merchant_ids.retain(|one| {
        !seen.contains(&one.value) && {
            seen.push(one.value.clone());
            true
        }
    });
    let on_behalf_of = vec![
        none,
        said("first own sub-account", &own.subs[0].merchant),
        said("second own sub-account", &own.subs[1].merchant),
        said("own institution", &own.institution.merchant),
        said("foreign sub-account", &foreign.subs[0].merchant),
        said("foreign merchant", &foreign.plain.merchant),
        said("nobody", "zq9q-bank-1"),
    ];
    (merchant_ids, on_behalf_of)
}

/// Targets of every owner: the caller's own house, and another.
fn targets(route: Route, cast: &Cast, key: &Key) -> Vec<Target> {
    let (own, foreign) = (&cast.houses[key.house], &cast.houses[(key.house + 1) % cast.houses.len()]);
    let owners = [
        ("own institution", &own.institution),
        ("first own sub-account", &own.subs[0]),
        ("second own sub-account", &own.subs[1]),
        ("own house's merchant", &own.plain),
        ("foreign institution", &foreign.institution),
        ("foreign sub-account", &foreign.subs[0]),
        ("foreign merchant", &foreign.plain),
    ];
    let of = |id: fn(&Owner) -> &String, absent: &str| {
        let mut all: Vec<Target> =
            owners.iter().map(|(what, o)| Target { what, id: id(o).clone(), owner: o.merchant.clone() }).collect();
        all.push(Target { what: "nobody", id: absent.to_owned(), owner: String::new() });
        all
    };
    match route {
        Route::Open
        | Route::RulesOfAll
        | Route::Events
        | Route::Trade(_)
        | Route::Pay
        | Route::Listed
        | Route::Converted => {
            vec![Target { what: "none", id: String::new(), owner: String::new() }]
        }
        Route::Rule(_) => of(|owner| &owner.merchant, "zq9q-bank-1"),
        Route::Order => of(|owner| &owner.order, "999999999999999999"),
        Route::Paid | Route::Close => of(|owner| &owner.payment, "999999999999999999000000"),
    }
}

/// Every group of these routes, in an order that does not change.
pub fn groups(cast: &Cast, routes: &[(String, String)]) -> Result<Vec<Group>> {
    let mut groups = Vec::new();
    for (method, path) in routes {
        let route = route(method, path)?;
        for (number, key) in cast.keys.iter().enumerate() {
            let (merchant_ids, on_behalf_of) = headers(cast, key);
            for merchant_id in &merchant_ids {
                for other in &on_behalf_of {
                    groups.push(Group {
                        method: method.clone(),
                        path: path.clone(),
                        key: number,
                        merchant_id: merchant_id.clone(),
                        on_behalf_of: other.clone(),
                        targets: targets(route, cast, key),
                    });
                }
            }
        }
    }
    Ok(groups)
}

/// The signed request for a target.
pub fn draft(world: &World, cast: &Cast, group: &Group, target: &Target) -> Result<Draft> {
    let date = RuleZone::utc().format(world.clock.now());
    let (path, id) = (&group.path, &target.id);
    let (target, body) = match route(&group.method, path)? {
        Route::Rule("GET") => (format!("{path}?sub_merchant_id={id}"), String::new()),
        Route::Rule(_) => {
            (path.clone(), json!({"sub_merchant_id": id, "r_markup": 0.3, "effective_date": date}).to_string())
        }
        Route::RulesOfAll | Route::Listed | Route::Converted => (path.clone(), "{}".to_owned()),
        Route::Order => (format!("{path}?orderId={id}"), String::new()),
        Route::Trade(body) => (format!("{path}?currency=x"), body.to_owned()),
        Route::Pay => {
            // One order for each operation and whoever it is for.
            let trade_no = path.replace('/', "-");
            (path.clone(), json!({"merchantTradeNo": trade_no, "currency": "USDT", "orderAmount": "1"}).to_string())
        }
        Route::Paid | Route::Close => (path.clone(), json!({"prepayId": id}).to_string()),
        Route::Open | Route::Events => (path.clone(), String::new()),
    };
    let mut draft = world.draft(&cast.keys[group.key].signer, &group.method, &target, &body);
    for (name, said) in [("X-Service-MerchantId", &group.merchant_id), ("X-Service-On-Behalf-Of", &group.on_behalf_of)]
    {
        if let Some(value) = &said.value {
            draft = draft.with(name, value);
        }
    }
    Ok(draft)
}

/// What the contract says must come of it, worked out without a line of the server's.
pub fn due(cast: &Cast, group: &Group, target: &Target) -> Result<Due> {
    const NOT_ALLOWED: Due = Due::Refused("400203");
    let key = &cast.keys[group.key];
    let house = &cast.houses[key.house];
    let is_own_sub = |id: &str| house.subs.iter().any(|sub| sub.merchant == id) || house.victim.merchant == id;
    let route = route(&group.method, &group.path)?;
    let named = group.merchant_id.value.as_deref();
    match route {
        Route::Open => return Ok(Due::Through),
        Route::Rule(_) | Route::RulesOfAll => {
            let Some(named) = named else { return Ok(Due::Refused("400001")) };
            if key.kind != Kind::Institution || named != key.merchant {
                return Ok(NOT_ALLOWED);
            }
            let is_through = route == Route::RulesOfAll || is_own_sub(&target.id);
            return Ok(if is_through { Due::Through } else { Due::Refused("400702") });
        }
        Route::Order
        | Route::Events
        | Route::Trade(_)
        | Route::Pay
        | Route::Paid
        | Route::Close
        | Route::Listed
        | Route::Converted => {}
    }
    let is_of_house = key.kind == Kind::SubAccount && named == Some(house.institution.merchant.as_str());
    if named.is_some_and(|named| named != key.merchant) && !is_of_house {
        return Ok(NOT_ALLOWED);
    }
    let owner = match group.on_behalf_of.value.as_deref() {
        None => key.merchant.as_str(),
        Some(sub) if key.kind == Kind::Institution && is_own_sub(sub) && route != Route::Events => sub,
        Some(_) => return Ok(NOT_ALLOWED),
    };
    let is_through = !matches!(route, Route::Order | Route::Paid | Route::Close) || target.owner == owner;
    Ok(if is_through { Due::Through } else { Due::Refused("400202") })
}

/// For whom the caller acts.
fn acting<'a>(cast: &'a Cast, group: &Group) -> Result<&'a Owner> {
    let key = &cast.keys[group.key];
    let owner = group.on_behalf_of.value.as_ref().unwrap_or(&key.merchant);
    let house = &cast.houses[key.house];
    let of_house = [&house.institution, &house.subs[0], &house.subs[1], &house.plain];
    of_house.into_iter().find(|one| one.merchant == *owner).context("somebody of the house")
}

/// What an answer of success must hold and does not: the order, the sub-account or the event that was meant, and no other's.
pub fn missing(cast: &Cast, group: &Group, target: &Target, answer: &Answer) -> Result<Option<String>> {
    let said = answer.json();
    if said["code"] != "000000" {
        return Ok(None);
    }
    let (is_there, wanted) = match route(&group.method, &group.path)? {
        Route::Open | Route::RulesOfAll | Route::Trade(_) | Route::Pay | Route::Close => return Ok(None),
        Route::Paid => (said["data"]["prepayId"] == target.id.as_str(), &target.id),
        Route::Converted => {
            let own = acting(cast, group)?;
            let orders = said["data"]["orders"].as_array().context("orders")?;
            let is_alone = orders.iter().all(|order| order["order_id"] == own.order.as_str());
            (is_alone && !orders.is_empty(), &own.order)
        }
        Route::Listed => {
            let own = acting(cast, group)?;
            let orders = said["data"]["orders"].as_array().context("orders")?;
            let is_own = orders.iter().all(|order| order["merchantId"] == own.merchant.as_str());
            (is_own && orders.iter().any(|order| order["prepayId"] == own.payment.as_str()), &own.payment)
        }
        Route::Order => (said["data"]["order_id"] == target.id.as_str(), &target.id),
        Route::Rule(_) => (said["data"]["sub_merchant_id"] == target.id.as_str(), &target.id),
        Route::Events => {
            let event = &cast.keys[group.key].event;
            (said["data"].to_string().contains(event.as_str()), event)
        }
    };
    Ok((!is_there).then(|| wanted.clone()))
}

/// Codes that only somebody gets who was let through.
pub const BEHIND: [&str; 4] = ["000000", "400701", "400205", "400622"];
