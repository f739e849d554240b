//! Whether the entries of a file tell one story: of one order, by its own state machine, with a fee that follows.
//!
//! The signature says that the deployment wrote the file; this says that what it wrote is possible.

use aws_lc_rs::digest;
use countersign_domain::delivery::{DeliveryState, Outcome};
use countersign_domain::fees::MarkupUnit;
use countersign_domain::money::{Amount, Currency};
use countersign_domain::payment_order::{PaymentKind, PaymentStatus, PrepayId, status_at};
use countersign_protocol::callback::CallbackBody;
use countersign_protocol::endpoint::payment_order::Request as Asked;
use countersign_protocol::endpoint::{order_create, order_native};
use countersign_store::contract::{MerchantKind, Vocabulary};
use hyper::Uri;

use super::chain::Head;
use super::entry::{Attempt, Callback, Entry, Fee, Header, Kind, Move, Octets, Order, Request, RuleVersion, Sum, Wire};
use super::key::PublicKey;
use super::sums::amount;
use super::words::{CallbackSummary, Verified};
use super::{CALLBACKS_MAX, FORMAT, VERSION};
use crate::app::identity::kind_name;
use crate::app::payment_orders::callback_words;
use crate::chance::hex;

/// The kind of merchants that have rules, and so fees.
const SUB_ACCOUNT: &str = kind_name(MerchantKind::SubAccount);

/// What has been told so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    last: Option<Kind>,
    header: Option<Header>,
    order: Option<Order>,
    rule: Option<RuleVersion>,
    sum: Option<Sum>,
    moves: Vec<Move>,
    freed: i64,
    freed_is_least: bool,
    callbacks: Vec<CallbackSummary>,
    /// Moves that have been told of, or are taken to have been by a callback that was freed; none was as long as no callback came.
    moves_told: Option<usize>,
}

fn demand(is_so: bool, else_what: &str) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(else_what.to_owned()) }
}

fn sha256_is(octets: &Octets, said: &str) -> Result<Vec<u8>, String> {
    let bytes = octets.bytes().ok_or("its bytes are not written as bytes are")?;
    demand(hex(digest::digest(&digest::SHA256, &bytes).as_ref()) == said, "its body_sha256 is not that of its body")?;
    Ok(bytes)
}

fn status(name: &str) -> Result<PaymentStatus, String> {
    PaymentStatus::from_name(name).ok_or_else(|| format!("{name:?} is no status"))
}

/// The request came to the operation that makes such orders, and in the name of the order's application: where its head says in whose.
fn came_so(head: &str, order: &Order) -> Result<(), String> {
    let mut lines = head.split('\n');
    let operation = match PaymentKind::from_name(&order.order_kind) {
        Some(PaymentKind::Native) => order_native::PATH,
        Some(PaymentKind::Order) | None => order_create::PATH,
    };
    // The target whole, as older programs kept it, may have a query, and over HTTP/2 a host.
    let target = lines.next().and_then(|line| line.strip_prefix("POST ")).and_then(|target| target.parse::<Uri>().ok());
    let is_it = target.is_some_and(|target| target.path() == operation);
    demand(is_it, "it came to another operation than the order's order_kind")?;
    // They kept what came under other prefixes than the deployment's, too: one that names it is enough.
    let names = |line: &str| {
        let (name, client_id) = line.split_once(": ")?;
        let is_name = name.ends_with("-certificate-clientid") || name.ends_with("-certificate-sn");
        is_name.then(|| client_id == order.client_id)
    };
    let named: Vec<bool> = lines.filter_map(names).collect();
    demand(named.is_empty() || named.contains(&true), "it came from another application than the order's")
}

/// How the name of an actor begins that is an operator's, or a back end's.
const BY_TOKEN: &str = "token:";

/// What came before each entry that is asked for: the order of kinds sees to it.
const IN_ORDER: &str = "kinds come in their order";

impl Story {
    pub(super) const fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    fn the_order(&self) -> &Order {
        self.order.as_ref().expect(IN_ORDER)
    }

    /// Takes the next entry; an error says what is wrong with it.
    pub(super) fn take(&mut self, entry: &Entry) -> Result<(), String> {
        let kind = entry.kind();
        self.comes_next(kind)?;
        match entry {
            Entry::Header(header) => self.begins(header),
            Entry::Order(order) => self.is_of(order),
            Entry::Request(request) => self.was_asked(request),
            Entry::RuleVersion(rule) => {
                self.rule = Some(rule.clone());
                Ok(())
            }
            Entry::Fee(fee) => self.costs(fee),
            Entry::Move(step) => self.moves(step),
            Entry::CallbacksFreed { through_sequence, is_at_least } => {
                (self.freed, self.freed_is_least) = (*through_sequence, *is_at_least);
                demand(*through_sequence >= 1, "it says that nothing was freed")
            }
            Entry::Callback(callback) => self.tells(callback),
            Entry::Attempt(attempt) => self.tries(attempt),
        }?;
        self.last = Some(kind);
        Ok(())
    }

    fn comes_next(&self, kind: Kind) -> Result<(), String> {
        if !kind.may_follow(self.last) {
            let before = self.last.map_or("nothing", Kind::name);
            return Err(format!("a {} cannot come behind {before}", kind.name()));
        }
        if self.last == Some(Kind::Move) && kind != Kind::Move {
            self.has_moved()?;
        }
        if matches!(kind, Kind::Callback | Kind::Head) {
            self.was_tried()?;
        }
        Ok(())
    }

    fn begins(&mut self, header: &Header) -> Result<(), String> {
        demand(header.format == FORMAT, "its format is none of ours")?;
        demand(header.version == VERSION, "its version is another than this program knows: use a newer one")?;
        demand(MarkupUnit::from_name(&header.markup_unit).is_some(), "its markup_unit is none")?;
        let key = PublicKey::parse(&header.public_key).filter(|key| key.to_hex() == header.public_key);
        demand(key.is_some(), "its public_key is none")?;
        self.header = Some(header.clone());
        Ok(())
    }

    fn is_of(&mut self, order: &Order) -> Result<(), String> {
        let header = self.header.as_ref().expect(IN_ORDER);
        demand(order.prepay_id == header.prepay_id, "it is another order than the header says")?;
        demand(PrepayId::parse(&order.prepay_id).is_some(), "its prepayId is none")?;
        demand(Currency::parse(&order.currency).is_some(), "its currency is none")?;
        demand(PaymentKind::from_name(&order.order_kind).is_some(), "its order_kind is none")?;
        let kinds = [MerchantKind::Institution, MerchantKind::Merchant, MerchantKind::SubAccount];
        demand(kinds.into_iter().any(|kind| kind_name(kind) == order.merchant_kind), "its merchant_kind is none")?;
        amount("orderAmount", &order.amount)?;
        order.actual_amount.as_deref().map(|text| amount("actualAmount", text)).transpose()?;
        let is_paid = status(&order.status)? == PaymentStatus::Paid;
        demand(is_paid == order.paid_at.is_some(), "paid_at does not go with its status")?;
        demand(!is_paid || order.actual_amount.is_some(), "it is paid, and has no actualAmount")?;
        self.order = Some(order.clone());
        Ok(())
    }

    /// The request, which asks for this very order.
    fn was_asked(&self, request: &Request) -> Result<(), String> {
        let order = self.the_order();
        let body = sha256_is(&request.body, &request.body_sha256)?;
        let asked = Asked::parse(&body).map_err(|_| "its body asks for no order")?;
        let goods = asked.goods.unwrap_or_default();
        let terminal_type = asked.env.and_then(|env| env.terminal_type);
        let is_it = asked.merchant_trade_no == order.trade_no
            && asked.currency == order.currency
            && Amount::parse(&asked.order_amount).is_ok_and(|amount| amount.to_string() == order.amount)
            && asked.merchant_user_id == order.merchant_user_id
            && asked.channel_id == order.channel_id
            && (goods.goods_name, goods.goods_detail) == (order.goods_name.clone(), order.goods_detail.clone())
            && terminal_type == order.terminal_type
            && (asked.return_url, asked.cancel_url) == (order.return_url.clone(), order.cancel_url.clone());
        let is_then = asked.order_expire_time.is_none_or(|wanted| order.expire_at.0.0 == wanted);
        demand(is_it && is_then, "its body asks for something else than the order is")?;
        came_so(&request.head, order)
    }

    fn costs(&mut self, fee: &Fee) -> Result<(), String> {
        let order = self.order.as_ref().expect(IN_ORDER);
        let has_rules = order.merchant_kind == SUB_ACCOUNT;
        let why_none = if has_rules { "not_paid" } else { "no_rules" };
        match (&fee.sum, order.paid_at.filter(|_| has_rules)) {
            (Some(sum), Some(paid)) => {
                demand(fee.none_because.is_none(), "it has a sum and says why it has none")?;
                demand(Some(&sum.amount) == order.actual_amount.as_ref(), "it is not on what was paid")?;
                demand(sum.currency == order.currency, "it is in another currency than the order")?;
                let unit = self.header.as_ref().map(|header| &header.markup_unit);
                demand(Some(&sum.markup_unit) == unit, "it reads the markup otherwise than the header says")?;
                sum.rests_on(self.rule.as_ref(), paid)?;
                sum.check()?;
            }
            (None, None) => {
                demand(fee.none_because.as_deref() == Some(why_none), "it does not say why there is no fee")?;
                demand(self.rule.is_none(), "there is a rule version and no fee")?;
            }
            (Some(_), None) => {
                return Err("an order that is not paid, or whose merchant has no rules, has no fee".to_owned());
            }
            (None, Some(_)) => return Err("a paid order of a sub-account has a fee".to_owned()),
        }
        self.sum.clone_from(&fee.sum);
        Ok(())
    }

    fn moves(&mut self, step: &Move) -> Result<(), String> {
        let order = self.order.as_ref().expect(IN_ORDER);
        let next = i64::try_from(self.moves.len()).unwrap_or(i64::MAX) + 1;
        demand(step.revision == next, &format!("its revision is {}, and {next} comes next", step.revision))?;
        let to = status(&step.to)?;
        let stood = self.moves.last().map(|before| before.to.as_str());
        demand(step.from.as_deref() == stood, "it does not begin where the move before it ended")?;
        match stood {
            None => {
                demand(to == PaymentStatus::Pending, "an order begins as PENDING")?;
                demand(step.at == order.created_at, "the order was made at another time")?;
            }
            Some(from) => {
                let from = status(from)?;
                demand(from.may_become(to), &format!("{} cannot become {}", from.name(), to.name()))?;
                let in_time = match (from, to) {
                    (PaymentStatus::Pending, PaymentStatus::Expired) => step.at == order.expire_at,
                    // By the back end of a restored deployment, which has lost what was said in time. No other deployment lets a token do so.
                    (PaymentStatus::Pending, _) if step.actor.starts_with(BY_TOKEN) => true,
                    (PaymentStatus::Pending, _) => step.at < order.expire_at,
                    (_, _) => true,
                };
                demand(in_time, "an order expires at its expire time, and then only")?;
            }
        }
        // Of a sub-account's order it is later where its newest rule version was made later, by a clock that was ahead.
        let may_be_later = order.merchant_kind == SUB_ACCOUNT;
        let is_then = order.paid_at.is_some_and(|paid| paid == step.at || (may_be_later && paid > step.at));
        demand(to != PaymentStatus::Paid || is_then, "the order was paid at another time")?;
        self.moves.push(step.clone());
        Ok(())
    }

    /// The moves are over: they lead to the order.
    fn has_moved(&self) -> Result<(), String> {
        let (order, header) = (self.the_order(), self.header.as_ref().expect(IN_ORDER));
        let last = self.moves.last().expect(IN_ORDER);
        demand(last.revision == order.revision, "moves are missing before it: the order has another revision")?;
        let stands = status_at(status(&last.to)?, order.expire_at.0, header.made_at.0);
        demand(stands.name() == order.status, "the moves before it lead to another status than the order's")
    }

    fn tells(&mut self, callback: &Callback) -> Result<(), String> {
        let order = self.the_order();
        demand(self.callbacks.len() < CALLBACKS_MAX, "there are more callbacks than a file may hold")?;
        let before = self.callbacks.last().map_or(self.freed, |before| before.sequence);
        let next = before.checked_add(1).ok_or("no sequence comes next")?;
        demand(callback.sequence == next, &format!("its sequence is {}, and {next} comes next", callback.sequence))?;
        demand(DeliveryState::from_name(&callback.state).is_some(), "its state is none")?;
        demand(callback.attempts >= 0, "it has less than no attempts")?;
        let body = sha256_is(&callback.body, &callback.body_sha256)?;
        let said: CallbackBody = serde_json::from_slice(&body).map_err(|_| "its body is no callback's")?;
        let is_it = said.biz_id == order.prepay_id
            && said.client_id == order.client_id
            && (&said.biz_type, &said.biz_status) == (&callback.biz_type, &callback.biz_status);
        demand(is_it, "its body is about something else")?;
        self.tells_of_a_move(callback);
        self.callbacks.push(CallbackSummary {
            event_id: callback.event_id.clone(),
            sequence: callback.sequence,
            biz_status: callback.biz_status.clone(),
            state: callback.state.clone(),
            attempts: callback.attempts,
            tried: 0,
            was_delivered: false,
            outcome: None,
        });
        Ok(())
    }

    /// A back end may have emitted others about the order in between; those that a move has made come in the order of the moves.
    fn tells_of_a_move(&mut self, callback: &Callback) {
        let told = self.moves_told();
        let is_told = self.moves.get(told + 1).is_some_and(|step| {
            PaymentStatus::from_name(&step.to).is_some_and(|to| {
                [Vocabulary::Standard, Vocabulary::Family]
                    .into_iter()
                    .any(|vocabulary| callback_words(to, vocabulary) == (&callback.biz_type, &callback.biz_status))
            })
        });
        self.moves_told = Some(told + usize::from(is_told));
    }

    /// Of the moves behind the first. Any callback that was freed may have been of one.
    fn moves_told(&self) -> usize {
        self.moves_told.unwrap_or_else(|| usize::try_from(self.freed).unwrap_or(usize::MAX).min(self.moves.len() - 1))
    }

    fn tries(&mut self, attempt: &Attempt) -> Result<(), String> {
        let told = self.callbacks.last_mut().expect(IN_ORDER);
        demand(attempt.event_id == told.event_id, "it is of another event than the callback before it")?;
        let next = told.tried + 1;
        demand(attempt.attempt == next, &format!("it is attempt {}, and {next} comes next", attempt.attempt))?;
        demand(next <= told.attempts, "the callback has fewer attempts")?;
        demand(Outcome::from_name(&attempt.outcome).is_some(), "its outcome is none")?;
        let parts = [&attempt.sent_head, &attempt.answer_head, &attempt.answer_body];
        let is_plain = parts.iter().all(|part| part.as_ref().is_none_or(|octets| octets.bytes().is_some()));
        demand(is_plain, "its bytes are not written as bytes are")?;
        let has_bytes = parts.iter().any(|part| part.is_some());
        demand(attempt.wire == Wire::Kept || !has_bytes, "it has bytes that it says are not there")?;
        told.tried = next;
        told.was_delivered |= attempt.outcome == Outcome::Delivered.name();
        told.outcome = Some(attempt.outcome.clone());
        Ok(())
    }

    /// The callback before is over: every attempt was told.
    fn was_tried(&self) -> Result<(), String> {
        let Some(told) = self.callbacks.last() else { return Ok(()) };
        demand(told.tried == told.attempts, "attempts are missing before it: the callback has more")?;
        let is_delivered = told.state == DeliveryState::Delivered.name();
        // Not by its last attempt alone: what was delivered stays so where it is sent again in vain.
        demand(!is_delivered || told.was_delivered, "the callback before it is delivered, and no attempt delivered it")
    }

    /// The head: what the whole shows.
    pub(super) fn end(&self, head: &Head, key: PublicKey) -> Result<Verified, String> {
        self.comes_next(Kind::Head)?;
        let (header, order) = (self.header.as_ref().expect(IN_ORDER), self.the_order());
        let is_it = head.prepay_id == header.prepay_id && head.deployment == header.deployment;
        demand(
            is_it && head.key_id == key.id() && header.public_key == key.to_hex(),
            "it is not the head of this file",
        )?;
        if let Some(untold) = self.moves.get(self.moves_told() + 1) {
            return Err(format!("each move behind the first has a callback, and none tells of {}", untold.to));
        }
        Ok(Verified {
            header: header.clone(),
            order: order.clone(),
            rule: self.rule.clone(),
            sum: self.sum.clone(),
            moves: self.moves.clone(),
            callbacks_freed: self.freed,
            callbacks_freed_is_at_least: self.freed_is_least,
            callbacks: self.callbacks.clone(),
            entries: head.entries,
            hash: head.hash.clone(),
            key_id: head.key_id.clone(),
        })
    }
}
