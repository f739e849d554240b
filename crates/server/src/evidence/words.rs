//! What a file shows, for people.

use std::fmt;

use serde::Serialize;

use super::entry::{Header, Move, Order, RuleVersion, Sum};

/// A callback in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallbackSummary {
    /// Its event.
    pub event_id: String,
    /// Its number among those of the order.
    pub sequence: i64,
    /// What it said.
    pub biz_status: String,
    /// Where it stood.
    pub state: String,
    /// Attempts at it.
    pub attempts: i64,
    #[serde(skip)]
    pub(super) tried: i64,
    /// Whether one of them delivered it.
    pub(super) was_delivered: bool,
    /// How the last one ended; null: there was none.
    pub outcome: Option<String>,
}

/// A file whose chain, signature and story are good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Where it comes from.
    pub header: Header,
    /// The order.
    pub order: Order,
    /// The rule version of its fee.
    pub rule: Option<RuleVersion>,
    /// Its fee, worked out anew and found right.
    pub sum: Option<Sum>,
    /// Its life.
    pub moves: Vec<Move>,
    /// Callbacks up to this number were freed when they were old enough.
    pub callbacks_freed: i64,
    /// Whether there may have been more.
    pub callbacks_freed_is_at_least: bool,
    /// The others.
    pub callbacks: Vec<CallbackSummary>,
    /// Entries.
    pub entries: u64,
    /// The hash of the last one: it names the whole file.
    pub hash: String,
    /// The key.
    pub key_id: String,
}

/// Of a text that a merchant chose, what a terminal may see.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

impl Verified {
    fn order_in_words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Order { prepay_id, trade_no, merchant_id, amount, currency, status, .. } = &self.order;
        writeln!(
            f,
            "order      {prepay_id} ({}) of {}: {amount} {currency}, {status}",
            shown(trade_no),
            shown(merchant_id)
        )
    }

    fn fee_in_words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(sum) = &self.sum else { return writeln!(f, "fee        none") };
        let rule = match (&sum.config_id, sum.version_no) {
            (Some(id), Some(no)) => format!("version {no} ({id})"),
            (_, _) => "no rule in force".to_owned(),
        };
        writeln!(f, "fee        {} [{rule}]", sum.worked_sum)
    }

    fn callbacks_in_words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.callbacks_freed > 0 {
            let least = if self.callbacks_freed_is_at_least { " or more" } else { "" };
            writeln!(f, "callbacks  the first {}{least} are no longer kept", self.callbacks_freed)?;
        }
        for CallbackSummary { event_id, sequence, biz_status, state, attempts, .. } in &self.callbacks {
            writeln!(f, "callback   {sequence} {} {event_id}: {state}, attempts: {attempts}", shown(biz_status))?;
        }
        Ok(())
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.order_in_words(f)?;
        for Move { at, to, actor, .. } in &self.moves {
            let at = countersign_domain::time::rfc3339(at.0);
            writeln!(f, "life       {at} {to} by {}", shown(actor))?;
        }
        self.fee_in_words(f)?;
        self.callbacks_in_words(f)?;
        let made_at = countersign_domain::time::rfc3339(self.header.made_at.0);
        writeln!(f, "made       {made_at} by {}", shown(&self.header.made_by))?;
        writeln!(f, "good       {} entries, hash {}, signed by the key {}", self.entries, self.hash, self.key_id)
    }
}
