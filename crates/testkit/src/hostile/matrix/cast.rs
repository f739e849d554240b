//! Everybody in the matrix: houses that share nothing, each with an institution, its sub-accounts and a plain merchant.

use anyhow::{Context, Result};
use countersign_domain::time::RuleZone;
use countersign_protocol::signing::SigningKey;
use serde_json::json;

use crate::wire::Signer;
use crate::world::World;

/// The kinds of merchant that have a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An institution's own application.
    Institution,
    /// A sub-account's.
    SubAccount,
    /// A merchant's that belongs to no institution.
    Plain,
}

/// An application and the merchant that it belongs to.
#[derive(Debug)]
pub struct Key {
    /// Of which kind the merchant is.
    pub kind: Kind,
    /// Which house, from 0.
    pub house: usize,
    /// The merchant's id.
    pub merchant: String,
    /// Signs, and sends no `MerchantId` of itself.
    pub signer: Signer,
    /// An event of its own, which no other key may see: not even that of its institution.
    pub event: String,
}

/// A merchant and what it owns.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Its id.
    pub merchant: String,
    /// A convert order of its own.
    pub order: String,
    /// A payment order of its own.
    pub payment: String,
}

/// One house: two tenants, the institution with its sub-accounts, and the plain merchant.
#[derive(Debug)]
pub struct House {
    /// Stands in every name and text of this house and of no other.
    pub mark: String,
    /// The institution.
    pub institution: Owner,
    /// Its sub-accounts: with a key, without one.
    pub subs: [Owner; 2],
    /// The plain merchant.
    pub plain: Owner,
    /// Ids that the server made for this house: whoever is of another one must never see them.
    pub made: Vec<String>,
    /// What operators may break without breaking a key of the matrix.
    pub victim: Victim,
}

/// An application of a house and its secret, for operators to try their hands on.
#[derive(Clone, Debug)]
pub struct Victim {
    /// The merchant.
    pub merchant: String,
    /// Its application.
    pub client_id: String,
    /// Its secret's id.
    pub secret_id: String,
    /// An order of its own.
    pub order: String,
    /// A payment order of its own.
    pub payment: String,
    /// An event of the application.
    pub event: String,
    /// An operator token that nobody uses.
    pub token_id: String,
    /// A request in its name that was refused.
    pub request_id: String,
}

/// All of them.
#[derive(Debug)]
pub struct Cast {
    /// The houses.
    pub houses: Vec<House>,
    /// Three for each house.
    pub keys: Vec<Key>,
}

impl Cast {
    /// Makes `houses` houses in a world.
    pub async fn make(world: &World, houses: usize) -> Result<Self> {
        let mut cast = Self { houses: Vec::new(), keys: Vec::new() };
        for number in 0..houses {
            let mark = format!("zq{number}q");
            let (house, keys) = house(world, number, mark).await?;
            cast.houses.push(house);
            cast.keys.extend(keys);
        }
        Ok(cast)
    }

    /// Whether `text` holds anything that this key must not see; what. Of its own house it sees its own events, and, if it is an institution's, the
    /// orders and rules of its sub-accounts.
    pub fn leak(&self, key: usize, text: &str) -> Option<String> {
        let own = &self.keys[key];
        let houses = self.houses.iter().enumerate().filter(|(number, _)| *number != own.house);
        let theirs = houses.flat_map(|(_, other)| other.made.iter().chain([&other.mark]));
        let events = self.keys.iter().enumerate().filter(|(number, _)| *number != key).map(|(_, other)| &other.event);
        let house = &self.houses[own.house];
        let owners = [&house.institution, &house.subs[0], &house.subs[1], &house.plain];
        let is_seen = |owner: &Owner| match own.kind {
            Kind::Institution => owner.merchant != house.plain.merchant,
            Kind::SubAccount | Kind::Plain => owner.merchant == own.merchant,
        };
        let unseen = owners.into_iter().filter(|owner| !is_seen(owner));
        let orders = unseen.flat_map(|owner| [&owner.order, &owner.payment]);
        theirs.chain(events).chain(orders).find(|word| text.contains(word.as_str())).cloned()
    }
}

async fn house(world: &World, number: usize, mark: String) -> Result<(House, Vec<Key>)> {
    let access = &world.access;
    let (bank, shop) = (format!("{mark}-bank"), format!("{mark}-shop"));
    let mut made = Vec::new();
    let institution = access.institution(&bank, 3, None).await?;
    access.provision("POST", "/merchants", json!({"name": shop, "merchant_id": shop})).await?;
    let sub = access.application(&format!("{bank}-1"), None).await?;
    let plain = access.application(&shop, None).await?;
    let mut keys = Vec::new();
    for (kind, signer) in [(Kind::Institution, institution), (Kind::SubAccount, sub), (Kind::Plain, plain)] {
        let merchant = signer.merchant_id.clone().context("a signer knows its merchant")?;
        made.push(signer.client_id.clone());
        let event = emit(world, &signer.client_id, &mark).await?;
        made.push(event.clone());
        keys.push(Key { kind, house: number, merchant, signer: Signer { merchant_id: None, ..signer }, event });
    }
    rules(world, &keys[0], &bank, &mut made).await?;
    let mut owners = Vec::new();
    for merchant in [bank.clone(), format!("{bank}-1"), format!("{bank}-2"), shop] {
        let order = access.convert_order(&merchant).await?;
        let key = keys.iter().find(|key| key.merchant == merchant).unwrap_or(&keys[0]);
        let payment = pay(world, &key.signer, (key.merchant != merchant).then_some(merchant.as_str())).await?;
        made.extend([order.clone(), payment.clone()]);
        owners.push(Owner { merchant, order, payment });
    }
    let victim = victim(world, format!("{bank}-3"), &mark).await?;
    let [institution, one, two, plain] = <[Owner; 4]>::try_from(owners).ok().context("four owners")?;
    Ok((House { mark, institution, subs: [one, two], plain, made, victim }, keys))
}

/// An event of an application; its id.
async fn emit(world: &World, client_id: &str, mark: &str) -> Result<String> {
    let body = json!({
        "client_id": client_id, "bizType": "PAYMENT_ORDER", "bizId": format!("{mark}-1"), "bizStatus": "SUCCESS", "data": {"of": mark}
    });
    let made = world.access.provision("POST", "/events", body).await?;
    Ok(made["event_id"].as_str().context("an event id")?.to_owned())
}

/// A payment order of whoever signs, or of the sub-account that is acted for; its number.
async fn pay(world: &World, signer: &Signer, acts_for: Option<&str>) -> Result<String> {
    let body = json!({"merchantTradeNo": "made", "currency": "USDT", "orderAmount": "1"}).to_string();
    let mut draft = world.draft(signer, "POST", "/v1/pay/order", &body);
    if let Some(sub) = acts_for {
        draft = draft.with("X-Service-On-Behalf-Of", sub);
    }
    let answer = world.send(&draft).await?.json();
    Ok(answer["data"]["prepayId"].as_str().with_context(|| format!("a payment order: {answer}"))?.to_owned())
}

/// A rule for each of the first two sub-accounts.
async fn rules(world: &World, key: &Key, bank: &str, made: &mut Vec<String>) -> Result<()> {
    let date = RuleZone::utc().format(world.clock.now().plus_ms(-60_000));
    for n in 1..=2 {
        let body =
            json!({"sub_merchant_id": format!("{bank}-{n}"), "r_markup": 0.3, "effective_date": date}).to_string();
        let draft = world.draft(&key.signer, "POST", "/rate/commission_rule/upgrade", &body);
        let answer = world.send(&draft.with("X-Service-MerchantId", bank)).await?.json();
        made.push(answer["data"]["config_id"].as_str().with_context(|| format!("a rule: {answer}"))?.to_owned());
    }
    Ok(())
}

async fn victim(world: &World, merchant: String, mark: &str) -> Result<Victim> {
    let access = &world.access;
    let made =
        access.provision("POST", &format!("/merchants/{merchant}/applications"), json!({"name": "victim"})).await?;
    let text = |name: &str| made[name].as_str().map(str::to_owned).with_context(|| format!("an application's {name}"));
    let (client_id, secret_id) = (text("client_id")?, text("secret_id")?);
    let secret = text("payment_api_secret")?;
    let signer = Signer { client_id: client_id.clone(), key: SigningKey::new(secret.as_bytes()), merchant_id: None };
    let token = access.provision("POST", "/tokens", json!({"name": "victim", "role": "viewer"})).await?;
    let forger = Signer { client_id: client_id.clone(), key: SigningKey::new(b"a guess"), merchant_id: None };
    let refused = world.send(&world.draft(&forger, "GET", "/v1/pay/events", "")).await?;
    Ok(Victim {
        request_id: refused.header("X-Service-Request-Id").context("an answer has its id")?.to_owned(),
        order: access.convert_order(&merchant).await?,
        payment: pay(world, &signer, None).await?,
        event: emit(world, &client_id, mark).await?,
        token_id: token["token_id"].as_str().context("a token's id")?.to_owned(),
        merchant,
        client_id,
        secret_id,
    })
}
