//! Fee rules against a naive simulation that stores states and flips them as time passes: all that the domain never does.

use countersign_domain::ids::SortedId;
use countersign_domain::rules::{self, Markup, RuleAsk, RuleHead, RuleRefused, RuleState, RuleVersion};
use countersign_domain::time::UnixMillis;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rust_decimal::Decimal;

use crate::trials::trials;

/// The oracle. It calls nothing of the domain.
mod oracle {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Status {
        Pending,
        Effective,
        Invalidated,
        Superseded,
        Expired,
    }

    #[derive(Clone, Copy, Debug)]
    pub struct Row {
        pub effective: i64,
        pub due: Option<i64>,
        pub created: i64,
        pub status: Status,
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Refused {
        Period,
        Exists,
    }

    #[derive(Clone, Debug, Default)]
    pub struct World {
        pub rows: Vec<Row>,
        clock: i64,
    }

    impl World {
        fn find(&self, status: Status) -> Option<usize> {
            let mut found = (0..self.rows.len()).filter(|i| self.rows[*i].status == status);
            let first = found.next();
            assert!(found.next().is_none(), "at most one version is {status:?}");
            first
        }

        pub fn effective(&self) -> Option<usize> {
            self.find(Status::Effective)
        }

        pub fn pending(&self) -> Option<usize> {
            self.find(Status::Pending)
        }

        /// Lets time pass, one millisecond after the other.
        pub fn pass_to(&mut self, until: i64) {
            while self.clock < until {
                self.clock += 1;
                if let Some(current) =
                    self.effective().filter(|c| self.rows[*c].due.is_some_and(|due| due <= self.clock))
                {
                    self.rows[current].status = Status::Expired;
                }
                if let Some(next) = self.pending().filter(|p| self.rows[*p].effective <= self.clock) {
                    if let Some(current) = self.effective() {
                        self.rows[current].status = Status::Superseded;
                    }
                    self.rows[next].status = Status::Effective;
                }
            }
        }

        /// An upgrade, or a creation, at the clock's time.
        pub fn ask(&mut self, only_new: bool, effective: i64, due: Option<i64>) -> Result<(), Refused> {
            if due.is_some_and(|due| due <= effective || due <= self.clock) {
                return Err(Refused::Period);
            }
            if only_new && (self.effective().is_some() || self.pending().is_some()) {
                return Err(Refused::Exists);
            }
            if let Some(waiting) = self.pending() {
                self.rows[waiting].status = Status::Invalidated;
            }
            let at_once = effective <= self.clock;
            if let Some(current) = self.effective().filter(|_| at_once) {
                self.rows[current].status = Status::Superseded;
            }
            let status = if at_once { Status::Effective } else { Status::Pending };
            self.rows.push(Row { effective, due, created: self.clock, status });
            Ok(())
        }

        /// The world as it was, or will be, at `at` if nobody asks for anything more.
        pub fn as_of(&self, at: i64) -> Self {
            let mut world = Self::default();
            for row in self.rows.iter().filter(|row| row.created <= at) {
                world.pass_to(row.created);
                world.ask(false, row.effective, row.due).expect("it was accepted before");
            }
            world.pass_to(at);
            world
        }
    }
}

/// One ask: how far the clock moves first, what is asked, and where its dates lie.
#[derive(Clone, Debug)]
struct Step {
    clock_moves: i64,
    only_new: bool,
    effective_in: i64,
    due_after: Option<i64>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (-3i64..12, proptest::bool::weighted(0.25), -6i64..16, proptest::option::of(-2i64..20)).prop_map(
        |(clock_moves, only_new, effective_in, due_after)| Step { clock_moves, only_new, effective_in, due_after },
    );
    prop::collection::vec(step, 1..10)
}

/// The rows as a store keeps them, and the head as it reads it.
#[derive(Default)]
struct Rows(Vec<RuleVersion>);

impl Rows {
    fn head(&self, made_by: i64) -> Option<RuleHead> {
        let last = self.0.iter().rfind(|v| v.created_at.0 <= made_by)?.clone();
        let base =
            last.base_version_no.map(|no| self.0.iter().find(|v| v.version_no == no).expect("it was made").clone());
        Some(RuleHead { last, base })
    }
}

fn same_state(ours: RuleState, theirs: oracle::Status) -> bool {
    use oracle::Status;
    match ours {
        RuleState::Effective => theirs == Status::Effective,
        RuleState::PendingEffective => theirs == Status::Pending,
        RuleState::Invalidated => theirs == Status::Invalidated,
        RuleState::Superseded => theirs == Status::Superseded,
        RuleState::Expired => theirs == Status::Expired,
    }
}

/// Everything that can be seen at `at` is the same in both.
fn compare(rows: &Rows, world: &oracle::World, at: i64) {
    let seen = world.as_of(at);
    let made_by: Vec<_> = rows.0.iter().rev().filter(|v| v.created_at.0 <= at).cloned().collect();
    let states = rules::states(&made_by, UnixMillis(at));
    assert_eq!(states.len(), seen.rows.len());
    for (ours, theirs) in states.iter().rev().zip(&seen.rows) {
        assert!(same_state(*ours, theirs.status), "at {at}: {ours:?}, but {theirs:?}");
    }
    let head = rows.head(at);
    let number = |index: Option<usize>| index.map(|i| i64::try_from(i).expect("few") + 1);
    let in_force = head.as_ref().and_then(|h| rules::in_force(h, UnixMillis(at)));
    assert_eq!(in_force.map(|v| v.version_no), number(seen.effective()), "in force at {at}");
    let pending = head.as_ref().and_then(|h| rules::pending(h, UnixMillis(at)));
    assert_eq!(pending.map(|v| v.version_no), number(seen.pending()), "pending at {at}");

    // Of all versions, also those made later: what is not made yet changes no state.
    let all: Vec<_> = rows.0.iter().rev().cloned().collect();
    let later = all.len() - made_by.len();
    assert_eq!(rules::states(&all, UnixMillis(at))[later..], states[..], "at {at}, told of later versions");
}

fn one_ask(rows: &mut Rows, world: &mut oracle::World, step: &Step, clock: i64) {
    let (effective, last_made) = (clock + step.effective_in, rows.0.last().map_or(i64::MIN, |v| v.created_at.0));
    let due = step.due_after.map(|after| effective + after);
    let now = clock.max(last_made);
    *world = world.as_of(now); // A refused ask leaves nothing behind, not even its time.
    let wanted = world.ask(step.only_new, effective, due);

    let ask = RuleAsk {
        markup: Markup::new(Decimal::ONE, Decimal::ZERO).expect("within bounds"),
        effective_at: UnixMillis(effective),
        due_at: due.map(UnixMillis),
    };
    let head = rows.head(i64::MAX);
    let decide = if step.only_new { rules::create } else { rules::upgrade };
    let made = decide(head.as_ref(), &ask, UnixMillis(clock), 0);
    assert_eq!(
        made.as_ref().err(),
        wanted
            .err()
            .map(|refused| match refused {
                oracle::Refused::Period => RuleRefused::Period,
                oracle::Refused::Exists => RuleRefused::Exists,
            })
            .as_ref()
    );
    let Ok(made) = made else { return };
    let last: Option<&RuleVersion> = rows.0.last();
    assert_eq!(made.version_no, i64::try_from(world.rows.len()).expect("few"), "no gaps");
    assert_eq!(made.previous, last.map(|v| v.config_id));
    assert!(last.is_none_or(|v| v.config_id < made.config_id) && made.config_id >= SortedId::new(UnixMillis(clock), 0));
    assert_eq!(made.created_at, UnixMillis(now));
    rows.0.push(made);
}

fn one_history(history: &[Step]) {
    let (mut rows, mut world, mut clock) = (Rows::default(), oracle::World::default(), 20);
    for step in history {
        clock = (clock + step.clock_moves).max(1);
        one_ask(&mut rows, &mut world, step, clock);
        let now = clock.max(rows.0.last().map_or(0, |v| v.created_at.0));
        compare(&rows, &world, now);
        compare(&rows, &world, now + 7); // The future, as it would be from here.
    }
    let edges = rows.0.iter().flat_map(|v| [v.created_at.0, v.effective_at.0, v.due_at.map_or(0, |d| d.0)]);
    let probes: std::collections::BTreeSet<_> = edges.flat_map(|t| [t - 1, t, t + 1]).filter(|t| *t > 0).collect();
    let mut before: Option<(i64, Vec<RuleState>)> = None;
    for at in probes {
        compare(&rows, &world, at);
        let made_by: Vec<_> = rows.0.iter().rev().filter(|v| v.created_at.0 <= at).cloned().collect();
        let states: Vec<_> = rules::states(&made_by, UnixMillis(at)).into_iter().rev().collect();
        if let Some((earlier, before)) = &before {
            for (from, to) in before.iter().zip(&states) {
                assert!(from == to || from.may_become(*to), "from {from:?} at {earlier} to {to:?} at {at}");
            }
        }
        before = Some((at, states));
    }
}

#[test]
fn random_histories_look_the_same_as_in_a_simulation_that_flips_states() {
    let config = Config { cases: trials(2_000), failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&steps(), |history| {
        one_history(&history);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
