//! Fee rules as the contract tells them, played through from the first event to the last.
//!
//! Naive on purpose: states are stored and flipped as time passes, for every question anew from the beginning, which is all that
//! the product never does. Nothing of the product is called or even named here: times are numbers, figures are texts.

/// What an operator sees of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its time has not come.
    Pending,
    /// In force.
    Effective,
    /// Another version was made before its time came.
    Invalidated,
    /// Another version took its place.
    Superseded,
    /// Its due date came first.
    Expired,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Effective, Self::Invalidated, Self::Superseded, Self::Expired];

    /// Its name in the contract.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING_EFFECTIVE",
            Self::Effective => "EFFECTIVE",
            Self::Invalidated => "INVALIDATED",
            Self::Superseded => "SUPERSEDED",
            Self::Expired => "EXPIRED",
        }
    }
}

/// One version, as it was made. Times in Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// 1, 2, 3 ...
    pub no: i64,
    /// `r_markup`, every digit.
    pub r: String,
    /// `f_markup`, every digit.
    pub f: String,
    /// As asked for.
    pub effective: i64,
    /// Exclusive end.
    pub due: Option<i64>,
    /// When it was made.
    pub created: i64,
}

/// Why nothing was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// INVALID_RULE_PERIOD.
    Period,
    /// FEE_RULE_EXISTS.
    Exists,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// A creation, else an upgrade.
    pub creation: bool,
    /// `r_markup`.
    pub r: String,
    /// `f_markup`.
    pub f: String,
    /// `effective_date`.
    pub effective: i64,
    /// `due_date`.
    pub due: Option<i64>,
}

/// A sub-account: all that was ever made for it, oldest first.
#[derive(Clone, Debug, Default)]
pub struct SubAccount {
    /// Its versions.
    pub versions: Vec<Version>,
}

impl SubAccount {
    /// The instant at which something is decided: what was made cannot lie in the future, whatever a clock says.
    pub fn now(&self, clock: i64) -> i64 {
        self.versions.last().map_or(clock, |last| clock.max(last.created))
    }

    /// Makes a version, or says why not.
    pub fn ask(&mut self, ask: &Ask, clock: i64) -> Result<&Version, Refusal> {
        let now = self.now(clock);
        if ask.due.is_some_and(|due| due <= ask.effective || due <= now) {
            return Err(Refusal::Period);
        }
        let there = self.states_at(now);
        if ask.creation && (there.contains(&State::Effective) || there.contains(&State::Pending)) {
            return Err(Refusal::Exists);
        }
        self.versions.push(Version {
            no: i64::try_from(self.versions.len()).expect("few versions") + 1,
            r: ask.r.clone(),
            f: ask.f.clone(),
            effective: ask.effective,
            due: ask.due,
            created: now,
        });
        Ok(self.versions.last().expect("it was just made"))
    }

    /// The versions made by `at`, oldest first, with the states they have at `at`.
    pub fn states_at(&self, at: i64) -> Vec<State> {
        let made: Vec<&Version> = self.versions.iter().filter(|version| version.created <= at).collect();
        let mut instants: Vec<i64> =
            made.iter().flat_map(|v| [Some(v.created), Some(v.effective), v.due]).flatten().collect();
        instants.retain(|instant| *instant <= at);
        instants.sort_unstable();
        instants.dedup();
        let mut states: Vec<State> = Vec::new();
        for instant in instants {
            time_comes(&made, &mut states, instant);
            while let Some(next) = made.get(states.len()).filter(|version| version.created == instant) {
                is_made(next, &mut states);
            }
        }
        states
    }

    /// The version in force at `at`, as far as is known by then.
    pub fn in_force(&self, at: i64) -> Option<&Version> {
        self.with_state(at, State::Effective)
    }

    /// The version that waits at `at`.
    pub fn pending(&self, at: i64) -> Option<&Version> {
        self.with_state(at, State::Pending)
    }

    fn with_state(&self, at: i64, wanted: State) -> Option<&Version> {
        let states = self.states_at(at);
        let found: Vec<usize> = (0..states.len()).filter(|index| states[*index] == wanted).collect();
        assert!(found.len() <= 1, "the oracle itself has {} versions {wanted:?}", found.len());
        // By number: versions made later do not push earlier ones aside.
        found.first().and_then(|index| self.versions.iter().filter(|v| v.created <= at).nth(*index))
    }
}

/// What an instant does by itself: what is due ends, and what has waited for it replaces what is left.
fn time_comes(made: &[&Version], states: &mut [State], instant: i64) {
    for (version, state) in made.iter().zip(states.iter_mut()) {
        if *state == State::Effective && version.due.is_some_and(|due| due <= instant) {
            *state = State::Expired;
        }
    }
    let waiting = (0..states.len()).find(|index| states[*index] == State::Pending && made[*index].effective <= instant);
    if let Some(waiting) = waiting {
        replace(states, State::Effective, State::Superseded);
        states[waiting] = State::Effective;
    }
}

/// What a new version does: it invalidates what waits, and if its time is reached already it takes the place of what is in force.
fn is_made(version: &Version, states: &mut Vec<State>) {
    replace(states, State::Pending, State::Invalidated);
    if version.effective <= version.created {
        replace(states, State::Effective, State::Superseded);
        states.push(State::Effective);
    } else {
        states.push(State::Pending);
    }
}

fn replace(states: &mut [State], from: State, to: State) {
    for state in states.iter_mut().filter(|state| **state == from) {
        *state = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(creation: bool, effective: i64, due: Option<i64>) -> Ask {
        Ask { creation, r: "1".to_owned(), f: "0".to_owned(), effective, due }
    }

    #[test]
    fn the_oracle_tells_the_story_of_the_contract() {
        use State::{Effective, Expired, Invalidated, Pending, Superseded};
        let mut sub = SubAccount::default();
        assert!(sub.ask(&ask(true, -50, Some(200)), 0).is_ok());
        assert_eq!(sub.ask(&ask(true, 10, None), 5), Err(Refusal::Exists));
        assert_eq!(sub.ask(&ask(true, 10, Some(10)), 5), Err(Refusal::Period));
        assert!(sub.ask(&ask(false, 50, None), 10).is_ok());
        assert!(sub.ask(&ask(false, 100, Some(150)), 20).is_ok());
        assert_eq!(sub.states_at(-1), []);
        assert_eq!(sub.states_at(0), [Effective]);
        assert_eq!(sub.states_at(10), [Effective, Pending]);
        assert_eq!(sub.states_at(99), [Effective, Invalidated, Pending]);
        assert_eq!(sub.states_at(100), [Superseded, Invalidated, Effective]);
        assert_eq!(sub.states_at(150), [Superseded, Invalidated, Expired], "an older rule never comes back");
        assert!(sub.ask(&ask(true, 0, None), 150).is_ok());
        assert_eq!(sub.in_force(150).map(|version| version.no), Some(4));
    }
}
