//! A payment order as the contract tells it, played through from the first event to the last.
//!
//! Naive on purpose: the state is stored and flipped when its time comes, which the product never relies on. Nothing of the product is called
//! or even named here: times are numbers, figures and states are texts.

/// What became of a request for an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Making {
    /// It was made.
    Made,
    /// It was there, with the same content.
    There,
    /// It was there, with other content.
    Duplicate,
    /// Its expire time is over, or too far ahead.
    Refused,
}

/// What became of a wish to move or to close an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moving {
    /// It was moved.
    Moved,
    /// It was closed before, and stays so.
    Already,
    /// There is no such order.
    Nowhere,
    /// It may not go there.
    Refused,
}

/// A move: from, to, when.
pub type Move = (&'static str, &'static str, i64);

/// An order that was made.
#[derive(Clone, Debug)]
pub struct Order {
    /// What was asked for.
    pub amount: &'static str,
    /// When it was made.
    pub created: i64,
    /// When its time is over.
    pub expires: i64,
    /// Where it stands.
    pub state: &'static str,
    /// What was paid, if that was said.
    pub actual: Option<&'static str>,
    /// When, if that was said.
    pub transact: Option<i64>,
    /// Its moves, in order.
    pub moves: Vec<Move>,
    /// What its merchant was told, in order.
    pub told: Vec<&'static str>,
}

/// A trade number and what became of it.
#[derive(Clone, Debug, Default)]
pub struct TradeNo {
    /// Its order.
    pub order: Option<Order>,
}

const HOUR: i64 = 3_600_000;
const MONTH: i64 = 30 * 24 * HOUR;

fn may(from: &str, to: &str) -> bool {
    matches!((from, to), ("PENDING", "PROCESS" | "PAID" | "CLOSED") | ("PROCESS", "PAID" | "CLOSED"))
}

impl TradeNo {
    /// What the clock does by itself.
    pub fn time_comes(&mut self, clock: i64) {
        if let Some(order) = self.order.as_mut().filter(|order| order.state == "PENDING" && order.expires <= clock) {
            order.state = "EXPIRED";
        }
    }

    /// A request for an order of this amount.
    pub fn ask(&mut self, amount: &'static str, expires: Option<i64>, clock: i64) -> Making {
        self.time_comes(clock);
        if let Some(order) = &self.order {
            return if order.amount == amount { Making::There } else { Making::Duplicate };
        }
        let expires = expires.unwrap_or(clock + HOUR);
        if expires <= clock || expires > clock + MONTH {
            return Making::Refused;
        }
        let (moves, told) = (Vec::new(), Vec::new());
        let state = "PENDING";
        self.order = Some(Order { amount, created: clock, expires, state, actual: None, transact: None, moves, told });
        Making::Made
    }

    /// The merchant gives it up.
    pub fn close(&mut self, clock: i64) -> Moving {
        self.time_comes(clock);
        let Some(order) = &mut self.order else { return Moving::Nowhere };
        match order.state {
            "CLOSED" => Moving::Already,
            "PENDING" => {
                go(order, "CLOSED", "CLOSED", clock);
                Moving::Moved
            }
            _ => Moving::Refused,
        }
    }

    /// The back end moves it.
    pub fn advance(
        &mut self,
        to: &'static str,
        actual: Option<&'static str>,
        transact: Option<i64>,
        clock: i64,
    ) -> Moving {
        self.time_comes(clock);
        let Some(order) = &mut self.order else { return Moving::Nowhere };
        if !may(order.state, to) {
            return Moving::Refused;
        }
        order.actual = actual.or(order.actual);
        order.transact = transact.or(order.transact);
        if to == "PAID" {
            order.actual = order.actual.or(Some(order.amount));
            order.transact = order.transact.or(Some(clock));
        }
        go(order, to, if to == "PAID" { "SUCCESS" } else { to }, clock);
        Moving::Moved
    }

    /// Somebody looks for orders whose time is over: whether this one is to be told of.
    pub fn sweep(&mut self, clock: i64) -> bool {
        self.time_comes(clock);
        let Some(order) = &mut self.order else { return false };
        let is_new = order.state == "EXPIRED" && !order.told.contains(&"EXPIRED");
        if is_new {
            order.moves.push(("PENDING", "EXPIRED", order.expires));
            order.told.push("EXPIRED");
        }
        is_new
    }
}

fn go(order: &mut Order, to: &'static str, word: &'static str, clock: i64) {
    order.moves.push((order.state, to, clock));
    order.told.push(word);
    order.state = to;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oracle_tells_the_story_of_the_contract() {
        let mut no = TradeNo::default();
        assert_eq!((no.close(0), no.advance("PAID", None, None, 0)), (Moving::Nowhere, Moving::Nowhere));
        assert_eq!(no.ask("1", Some(0), 0), Making::Refused);
        assert_eq!(no.ask("1", Some(10), 0), Making::Made);
        assert_eq!((no.ask("1", Some(0), 5), no.ask("2", None, 5)), (Making::There, Making::Duplicate));
        assert!(!no.sweep(9));
        assert_eq!((no.advance("PAID", None, None, 10), no.close(10)), (Moving::Refused, Moving::Refused));
        assert!(no.sweep(11) && !no.sweep(12));
        assert_eq!(no.order.expect("it is there").moves, [("PENDING", "EXPIRED", 10)]);
    }
}
