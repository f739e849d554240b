//! What the name server says: names with addresses that stay, names that never answer, and names that flip, whose answer to each question is
//! thrown with dice between public addresses, forbidden ones, both, and faults.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::wire::{Code, Kind, Question, Record, Reply};
use crate::dice::Dice;

/// By which way a question came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A datagram: its answer may be cut.
    Udp,
    /// A connection.
    Tcp,
}

/// What becomes of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// This.
    Answer(Reply),
    /// The asker waits in vain.
    Nothing,
}

/// What flips: addresses of both sides.
#[derive(Clone, Debug, Default)]
pub struct Sides {
    /// Anybody may be called there.
    pub public_v4: Vec<Ipv4Addr>,
    /// The same of IPv6.
    pub public_v6: Vec<Ipv6Addr>,
    /// Nobody may.
    pub forbidden_v4: Vec<Ipv4Addr>,
    /// The same of IPv6, with those that carry IPv4.
    pub forbidden_v6: Vec<Ipv6Addr>,
}

/// What was said of one name last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// All addresses, of both families.
    pub addresses: Vec<IpAddr>,
    /// One of the two questions got no good answer.
    pub had_fault: bool,
}

/// Figures of the names that flip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Questions for IPv4, which each look-up asks once, answered.
    pub look_ups: usize,
    /// Answers of both families that are not cut.
    pub answers: usize,
    /// How many of them had a forbidden address.
    pub hostile: usize,
    /// How many of them were on the other side than the one before, of the same name and family.
    pub flips: usize,
}

#[derive(Debug, Default)]
struct Last {
    addresses: Vec<IpAddr>,
    had_fault: bool,
    was_hostile: Option<bool>,
    times: usize,
}

#[derive(Debug)]
struct Inside {
    dice: Dice,
    fixed: HashMap<String, IpAddr>,
    last: HashMap<(String, Kind), Last>,
    tally: Tally,
}

/// Names and what is said of them. What it does not know does not exist.
#[derive(Debug)]
pub struct Zone {
    /// Names that flip end so.
    flipping: String,
    /// The name that is never answered.
    silent: String,
    sides: Sides,
    inside: Mutex<Inside>,
}

/// What one question about a name that flips is answered with.
struct Dish {
    code: Code,
    addresses: Vec<IpAddr>,
    is_hostile: bool,
}

impl Zone {
    /// The same seed throws the same answers to the same questions. `fixed` are names with one address each.
    pub fn new(seed: u64, sides: Sides, fixed: impl IntoIterator<Item = (String, IpAddr)>) -> Self {
        let inside = Inside {
            dice: Dice::new(seed),
            fixed: fixed.into_iter().collect(),
            last: HashMap::new(),
            tally: Tally::default(),
        };
        Self {
            flipping: ".flip.example".to_owned(),
            silent: "silent.example".to_owned(),
            sides,
            inside: Mutex::new(inside),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The figures so far.
    pub fn tally(&self) -> Tally {
        self.inside().tally
    }

    /// What the last look-up of a name that flips was told; both of its questions count.
    pub fn given(&self, name: &str) -> Given {
        let inside = self.inside();
        let mut given = Given::default();
        for kind in [Kind::A, Kind::Aaaa] {
            if let Some(last) = inside.last.get(&(name.to_owned(), kind)) {
                given.addresses.extend(&last.addresses);
                given.had_fault |= last.had_fault;
            }
        }
        given
    }

    /// How often a name that flips was looked up, so far as an answer was given.
    pub fn asked(&self, name: &str) -> usize {
        self.inside().last.get(&(name.to_owned(), Kind::A)).map_or(0, |last| last.times)
    }

    /// Answers one question.
    pub fn say(&self, question: &Question, over: Over) -> Said {
        let name = &question.name;
        if *name == self.silent {
            return Said::Nothing;
        }
        if matches!(question.kind, Kind::Other(_)) {
            return Said::Answer(Reply::default());
        }
        if name.ends_with(&self.flipping) {
            return Said::Answer(self.flip(question, over));
        }
        let Some(address) = self.inside().fixed.get(name).copied() else {
            return Said::Answer(Reply { code: Code::NxDomain, ..Reply::default() });
        };
        let fits = address.is_ipv4() == (question.kind == Kind::A);
        let records = if fits { vec![Record::Address(name.clone(), address)] } else { Vec::new() };
        Said::Answer(Reply { records, ..Reply::default() })
    }

    fn flip(&self, question: &Question, over: Over) -> Reply {
        let inside = &mut *self.inside();
        if over == Over::Udp && inside.dice.once_in(16) {
            return Reply { truncated: true, ..Reply::default() };
        }
        let dish = match question.kind {
            Kind::A => self.dish_v4(&mut inside.dice),
            Kind::Aaaa | Kind::Other(_) => self.dish_v6(&mut inside.dice),
        };
        let key = (question.name.clone(), question.kind);
        let last = inside.last.entry(key).or_default();
        inside.tally.look_ups += usize::from(question.kind == Kind::A);
        inside.tally.answers += 1;
        inside.tally.hostile += usize::from(dish.is_hostile);
        inside.tally.flips += usize::from(last.was_hostile.is_some_and(|was| was != dish.is_hostile));
        last.addresses.clone_from(&dish.addresses);
        last.had_fault = dish.code != Code::NoError;
        last.was_hostile = Some(dish.is_hostile);
        last.times += 1;
        Reply { code: dish.code, truncated: false, records: records(&mut inside.dice, &question.name, &dish.addresses) }
    }

    fn dish_v4(&self, dice: &mut Dice) -> Dish {
        let public = some(dice, &self.sides.public_v4, 3);
        let forbidden = some(dice, &self.sides.forbidden_v4, 1);
        dish(dice, public, forbidden, 14)
    }

    fn dish_v6(&self, dice: &mut Dice) -> Dish {
        let public = some(dice, &self.sides.public_v6, 2);
        let forbidden = some(dice, &self.sides.forbidden_v6, 1);
        dish(dice, public, forbidden, 8)
    }
}

/// Of 32 answers so many hold public addresses alone, 8 have a forbidden one, alone or among others; few are faults and the rest is empty.
fn dish(dice: &mut Dice, public: Vec<IpAddr>, forbidden: Vec<IpAddr>, open: usize) -> Dish {
    let throw = dice.below(32);
    let (code, addresses, is_hostile) = if throw < 4 {
        (Code::NoError, forbidden, true)
    } else if throw < 8 {
        let mut both = public;
        let at = dice.below(both.len() + 1);
        both.splice(at..at, forbidden);
        (Code::NoError, both, true)
    } else if throw < 8 + open {
        (Code::NoError, public, false)
    } else if throw == 30 {
        (Code::NxDomain, Vec::new(), false)
    } else if throw == 31 {
        (Code::ServFail, Vec::new(), false)
    } else {
        (Code::NoError, Vec::new(), false)
    };
    Dish { code, addresses, is_hostile }
}

/// One to `most` of them.
fn some<T: Copy + Into<IpAddr>>(dice: &mut Dice, of: &[T], most: usize) -> Vec<IpAddr> {
    let count = 1 + dice.below(most);
    (0..count).filter_map(|_| dice.one_of(of).copied().map(Into::into)).collect()
}

/// Now and then the addresses belong to another name, at the end of a chain of them.
fn records(dice: &mut Dice, name: &str, addresses: &[IpAddr]) -> Vec<Record> {
    let (mut records, mut owner) = (Vec::new(), name.to_owned());
    let hops = if dice.once_in(4) { 1 + dice.below(4) } else { 0 };
    for hop in 1..=hops {
        let to = format!("hop{hop}.{name}");
        records.push(Record::Alias(owner, to.clone()));
        owner = to;
    }
    records.extend(addresses.iter().map(|address| Record::Address(owner.clone(), *address)));
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::wire::read_question;

    fn question(name: &str, kind: u8) -> Question {
        let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).expect("short"));
            message.extend(label.bytes());
        }
        message.extend([0, 0, kind, 0, 1]);
        read_question(&message).expect("a question")
    }

    fn zone() -> Zone {
        let sides = Sides {
            public_v4: vec![Ipv4Addr::new(8, 8, 8, 8)],
            public_v6: vec![Ipv6Addr::new(0x2606, 0, 0, 0, 0, 0, 0, 1)],
            forbidden_v4: vec![Ipv4Addr::new(10, 0, 0, 1)],
            forbidden_v6: vec![Ipv6Addr::LOCALHOST],
        };
        Zone::new(1, sides, [("fixed.example".to_owned(), IpAddr::from([10, 1, 1, 1]))])
    }

    #[test]
    fn a_name_that_flips_has_public_addresses_forbidden_ones_both_and_none_in_turn() {
        let (zone, mut seen) = (zone(), [0; 4]);
        for _ in 0..400 {
            let Said::Answer(reply) = zone.say(&question("a.flip.example", 1), Over::Tcp) else { panic!("an answer") };
            let has = |text: &str| {
                let wanted: IpAddr = text.parse().expect("an address");
                reply.records.iter().any(|record| matches!(record, Record::Address(_, it) if *it == wanted))
            };
            seen[usize::from(has("8.8.8.8")) + 2 * usize::from(has("10.0.0.1"))] += 1;
            let told = zone.given("a.flip.example").addresses.contains(&IpAddr::from([10, 0, 0, 1]));
            assert_eq!(told, has("10.0.0.1"), "what was given is what is told of it");
        }
        assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
        let tally = zone.tally();
        assert_eq!((tally.look_ups, tally.answers, tally.hostile), (400, 400, seen[2] + seen[3]));
        assert!(tally.flips > 100, "{tally:?}");
    }

    #[test]
    fn names_that_stay_answer_for_their_family_others_do_not_exist_and_one_is_silent() {
        let zone = zone();
        let said = |name: &str, kind| zone.say(&question(name, kind), Over::Udp);
        let address = Record::Address("fixed.example".to_owned(), IpAddr::from([10, 1, 1, 1]));
        assert_eq!(said("fixed.example", 1), Said::Answer(Reply { records: vec![address], ..Reply::default() }));
        assert_eq!(said("fixed.example", 28), Said::Answer(Reply::default()));
        assert_eq!(said("none.example", 1), Said::Answer(Reply { code: Code::NxDomain, ..Reply::default() }));
        assert_eq!(said("silent.example", 1), Said::Nothing);
        assert_eq!(zone.tally(), Tally::default());
    }
}
