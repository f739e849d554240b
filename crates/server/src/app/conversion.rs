//! Conversions of merchants: what can be converted, at what price, and an order made of such a price.

use std::collections::BTreeSet;

use countersign_domain::conversion::{
    Direction, Given, Limits, Pair, PriceRefused, Quote, QuoteRefused, Terms, possible, price,
};
use countersign_domain::convert_order::{ConvertOrder, ConvertStatus};
use countersign_domain::ids::OrderId;
use countersign_domain::money::{Amount, Currency};
use countersign_domain::time::UnixMillis;
use countersign_protocol::sentence::of_field;
use countersign_store::batch::{Batch, Conflict, Guard, Key, Write};
use countersign_store::contract::{ClaimKey, CommitError, MerchantRow};
use countersign_store::conversion::{ConvertWrite, RateRow};
use countersign_store::{ConvertStore as _, Store as _};

use super::convert_orders::describe_whole;
use super::error::AppError;
use super::late_changes::{LOOKS_MAX, nothing_comes};
use super::rates;
use super::turns::TurnKey;
use super::{Actor, App, Deed};

#[cfg(test)]
mod tests;

/// How long a quote is kept after its end, so that no node whose clock is a little behind misses one that it thinks good.
const QUOTE_KEPT_MS: i64 = 60_000;

/// A pair, and which way it is gone.
#[derive(Clone, Debug)]
pub struct Way {
    /// The pair, its rate and limits.
    pub rate: RateRow,
    /// Which way it is gone.
    pub direction: Direction,
}

/// Every way to convert, whether its rate is fresh or not: by pair, sales of the base coin first. Where a pair is quoted both ways around, each
/// direction goes by the rate that is quoted for it; see [`way`].
pub async fn ways(app: &App) -> Result<Vec<Way>, AppError> {
    let rates = rates::all(app).await?;
    let pairs: BTreeSet<Pair> = rates.iter().map(|rate| rate.pair.clone()).collect();
    let both = |rate: RateRow| {
        let back = Way { rate: rate.clone(), direction: Direction::SellsQuote };
        let back = (!pairs.contains(&rate.pair.inverse())).then_some(back);
        std::iter::once(Way { rate, direction: Direction::SellsBase }).chain(back)
    };
    Ok(rates.into_iter().flat_map(both).collect())
}

/// A price that a merchant asks for.
#[derive(Clone, Debug)]
pub struct PriceAsk {
    /// What is sold.
    pub sell: Currency,
    /// What is bought.
    pub buy: Currency,
    /// How much of one of them.
    pub given: Given,
}

/// Promises a merchant a price until the quote's end. The nonce is used up in the same batch.
pub async fn preview(app: &App, owner: &MerchantRow, ask: &PriceAsk, claim: &ClaimKey) -> Result<Quote, AppError> {
    let arrived = app.clock.now();
    loop {
        // Before the rate is read: whatever holds this up, a quote never looks younger than a rate that came after its own.
        let asked = app.clock.now();
        let (way, sold, bought) = priced(app, ask).await?;
        let expires_at = asked.plus_ms(app.policy.prices.quote_life_ms());
        let rate_ends = way.rate.updated_at.plus_ms(app.policy.prices.rate_max_age_ms());
        let is_good = Guard::Before { instant: expires_at.min(rate_ends), time: app.clock.source() };
        let quote = Quote {
            quote_id: app.chance.quote_id(),
            pair: way.rate.pair.clone(),
            sell_currency: ask.sell.clone(),
            buy_currency: ask.buy.clone(),
            sell_amount: sold,
            buy_amount: bought,
            rate: way.rate.rate,
            created_at: asked,
            expires_at,
            order: None,
        };
        let write = ConvertWrite::AddQuote {
            tenant: owner.tenant,
            merchant: owner.no,
            quote: quote.clone(),
            ended_before: asked.plus_ms(-QUOTE_KEPT_MS),
        };
        let writes = vec![Write::ClaimNonce(claim.clone()), Write::Convert(Box::new(write)), Write::Guard(is_good)];
        match app.store.commit(Batch(writes)).await {
            Ok(_) => return Ok(quote),
            Err(CommitError::Conflict(Conflict::NonceUsed)) => return Err(AppError::NonceReused),
            Err(CommitError::Conflict(Conflict::Crowded)) => return Err(crowded()),
            // A kept quote of this merchant has this id, and another id is drawn; or the rate that was read does not hold any more.
            Err(CommitError::Conflict(Conflict::Taken(Key::Quote(_)) | Conflict::Late(_)))
                if app.may_decide_anew(arrived) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn crowded() -> AppError {
    AppError::Crowded(
        "other conversions of this merchant wait for their turn; send fewer at once, and repeat this one soon"
            .to_owned(),
    )
}

/// By what a price is made now, what is sold and what is bought.
async fn priced(app: &App, ask: &PriceAsk) -> Result<(Way, Amount, Amount), AppError> {
    let found = way(app, &ask.sell, &ask.buy).await?;
    let refuse = |refused: PriceRefused| AppError::InvalidAmount(of_field(refused.field(), refused));
    // What no rate could make right is refused whether there is one or not.
    let (direction, limits) =
        found.as_ref().map_or((Direction::SellsBase, Limits::default()), |way| (way.direction, way.rate.limits));
    possible(direction, &limits, ask.given).map_err(refuse)?;
    let is_fresh = |way: &Way| !app.policy.prices.is_stale(&way.rate, app.clock.now());
    let way = found.filter(is_fresh).ok_or(AppError::NoRate)?;
    let (sold, bought) = price(way.rate.rate, way.direction, &way.rate.limits, ask.given).map_err(refuse)?;
    Ok((way, sold, bought))
}

/// The way from one currency to the other, whether its rate is fresh or not; none: there is no pair. Where the back end has put two pairs of
/// them, that whose base is sold counts, also when its rate is too old: the other one has another price.
async fn way(app: &App, sell: &Currency, buy: &Currency) -> Result<Option<Way>, AppError> {
    let Some(pair) = Pair::of(sell.clone(), buy.clone()) else {
        return Err(AppError::InvalidCurrency(of_field("buyCurrency", "must be another currency than sellCurrency")));
    };
    let back = pair.inverse();
    for (pair, direction) in [(pair, Direction::SellsBase), (back, Direction::SellsQuote)] {
        if let Some(rate) = app.store.rate(&pair).await? {
            return Ok(Some(Way { rate, direction }));
        }
    }
    Ok(None)
}

/// A conversion that a merchant asks for.
#[derive(Clone, Debug)]
pub struct Conversion {
    /// What names it for ever.
    pub client_req_id: String,
    /// What it is.
    pub terms: Terms,
}

/// Makes an order of a quote; or, where the request was made before, answers with the order that it made, as it is now. The nonce is used up
/// in either case.
pub async fn convert(
    app: &App,
    owner: &MerchantRow,
    asked: &Conversion,
    claim: &ClaimKey,
    actor: &Actor,
) -> Result<ConvertOrder, AppError> {
    let _turn = app.turns.take_soon(TurnKey::ConvertRequest(owner.no, asked.client_req_id.clone())).await?;
    let arrived = app.clock.now();
    loop {
        actor.may_still(app).await?;
        if let Some(order) = made_before(app, owner, asked, claim).await? {
            return Ok(order);
        }
        // Before the quote: that one may be over, which another amount does not change.
        for given in [Given::Sell(asked.terms.sell_amount), Given::Buy(asked.terms.buy_amount)] {
            possible(Direction::SellsBase, &Limits::default(), given)
                .map_err(|refused| AppError::InvalidAmount(of_field(refused.field(), refused)))?;
        }
        let quote = app.store.quote(owner.tenant, owner.no, &asked.terms.quote_id).await?;
        let now = app.clock.now();
        let accepted = quote.as_ref().map_or(Err(QuoteRefused::Expired), |quote| quote.accepts(&asked.terms, now));
        let quote = match (accepted, quote) {
            (Ok(()), Some(quote)) => quote,
            (refused, quote) => {
                let refused = refused.err().unwrap_or(QuoteRefused::Expired);
                return made_meanwhile(app, owner, asked, claim, quote, now).await?.ok_or_else(|| refused.into());
            }
        };
        let in_time = Guard::Before { instant: quote.expires_at, time: app.clock.source() };
        let order = order_of(app, owner, quote, now)?;
        let mut writes = writes(owner, asked, &order, claim, actor);
        writes.push(Write::Guard(in_time));
        match app.store.commit(actor.batch(writes)).await {
            Ok(_) => return Ok(order),
            Err(lost) if actor.has_lost(&lost) => return Err(lost.into()),
            Err(CommitError::Conflict(Conflict::NonceUsed)) => return Err(AppError::NonceReused),
            Err(CommitError::Conflict(Conflict::Crowded)) => return Err(crowded()),
            // Another node was first with this request, or with this quote; or the quote has ended; or an order has this number: look again.
            Err(CommitError::Conflict(_)) if app.may_decide_anew(arrived) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The order that this request has made since it was looked up, on another node or in a batch that its caller did not wait for; none where it made
/// none by this quote, and none is on its way: so the caller may take another one.
async fn made_meanwhile(
    app: &App,
    owner: &MerchantRow,
    asked: &Conversion,
    claim: &ClaimKey,
    mut quote: Option<Quote>,
    now: UnixMillis,
) -> Result<Option<ConvertOrder>, AppError> {
    let (tenant, merchant) = (owner.tenant, owner.no);
    for look in 1..=LOOKS_MAX {
        // One that is used, or not kept any more, is used by nobody from now on: its order can be seen.
        let Some(Quote { quote_id, expires_at, .. }) = quote.filter(|quote| quote.order.is_none()) else {
            return made_before(app, owner, asked, claim).await;
        };
        let unused = Guard::UnusedQuote { tenant, merchant, quote_id };
        if now < expires_at || nothing_comes(app, [unused], expires_at, look).await? {
            return Ok(None);
        }
        quote = app.store.quote(tenant, merchant, &asked.terms.quote_id).await?;
    }
    Err(AppError::Busy)
}

/// The order that this request made before; none where it is new. The same name with other content is refused.
async fn made_before(
    app: &App,
    owner: &MerchantRow,
    asked: &Conversion,
    claim: &ClaimKey,
) -> Result<Option<ConvertOrder>, AppError> {
    let found = app.store.convert_request(owner.tenant, owner.no, &asked.client_req_id).await?;
    let Some(order) = found else { return Ok(None) };
    if let Some(differs) = first_difference(&order, &asked.terms) {
        return Err(AppError::DuplicateTradeNo { name: "clientReqId", differs });
    }
    match app.store.commit(Batch(vec![Write::ClaimNonce(claim.clone())])).await {
        Ok(_) => Ok(Some(order)),
        Err(CommitError::Conflict(_)) => Err(AppError::NonceReused),
        Err(error) => Err(error.into()),
    }
}

/// The first field in which an order is not what is asked for; none where it is.
fn first_difference(order: &ConvertOrder, asked: &Terms) -> Option<&'static str> {
    let Terms { quote_id, sell_currency, buy_currency, sell_amount, buy_amount } = asked;
    [
        (*quote_id == order.quote_id, "quoteId"),
        (*sell_currency == order.sell_currency, "sellCurrency"),
        (*buy_currency == order.buy_currency, "buyCurrency"),
        (*sell_amount == order.sell_amount, "sellAmount"),
        (*buy_amount == order.buy_amount, "buyAmount"),
    ]
    .into_iter()
    .find_map(|(is_same, name)| (!is_same).then_some(name))
}

fn order_of(app: &App, owner: &MerchantRow, quote: Quote, now: UnixMillis) -> Result<ConvertOrder, AppError> {
    Ok(ConvertOrder {
        order_id: OrderId::new(app.chance.order_number(now)).ok_or(AppError::Busy)?,
        user_id: owner.user_id,
        sell_currency: quote.sell_currency,
        buy_currency: quote.buy_currency,
        sell_amount: quote.sell_amount,
        buy_amount: quote.buy_amount,
        status: ConvertStatus::Created,
        rate: quote.rate,
        quote_id: quote.quote_id,
        created_at: now,
        revision: 1,
    })
}

fn writes(
    owner: &MerchantRow,
    asked: &Conversion,
    order: &ConvertOrder,
    claim: &ClaimKey,
    actor: &Actor,
) -> Vec<Write> {
    let (tenant, merchant) = (owner.tenant, owner.no);
    let subject = order.order_id.to_string();
    let audit = actor.records(Deed {
        tenant: Some(tenant),
        at: order.created_at,
        action: "convert_order.create",
        subject: &subject,
        before: String::new(),
        after: describe_whole(owner, order),
    });
    let (client_req_id, order) = (asked.client_req_id.clone(), order.clone());
    vec![
        Write::ClaimNonce(claim.clone()),
        Write::Convert(Box::new(ConvertWrite::Execute { tenant, merchant, client_req_id, order })),
        audit,
    ]
}
