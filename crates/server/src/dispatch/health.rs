//! How an endpoint fares: how many attempts at once it may have, and when it is left alone. No IO and no clock.
//!
//! - **Attempts at once.** Each good attempt raises the endpoint's limit by one, each bad one halves it.
//! - **Breaker.** It opens after ten attempts in a row without an answer, or with one of 429, 502, 503 or 504, while more events wait for the
//!   endpoint. The endpoint is left alone for a pause; then one attempt goes, and how that one ends decides. The pause doubles where nothing
//!   answers, and stays as it is where something does. It never outlasts the schedule of the event that failed.
//! - **Recovery.** A recovered endpoint begins with one attempt at once, so what waits for it drains at a rate that rises while it stands it.
//! - **An endpoint that hangs at some events and takes others.** Once it has taken an event lately, an attempt that takes long no longer counts
//!   against its present limit, only against the most that it may have. Whether it has taken one or not, one first attempt goes beside those that
//!   are repeated, however few it may have by now: an event that was never tried does not wait for one that hangs again.
//! - **Errors of one event.** A 500 never opens the breaker: a handler that breaks at some orders gets the others without a pause.
//! - **A single event** is left to its schedule alone.
//! - **An endpoint that is away** was tried for half an hour, and nobody was there: what has waited for as long as its whole schedule takes ends there.
//! - **What is sent again by hand** and fails counts for nothing here. After as many outages in a row as open the breaker what tries the endpoint in vain
//!   is tried again, and another one follows each minute only: each event has one attempt in it, and an endpoint that is down would use all of them up.
//!   Another one, since it may be certain events alone that it does not answer.

use countersign_domain::delivery::Outcome;
use countersign_domain::time::UnixMillis;

/// Attempts in a row that an endpoint as a whole has failed, and that open the breaker.
const OUTAGES_OPEN: u32 = 10;
/// As many failed ones without a good one between make an endpoint suspect that was good before.
const STRIKES_SUSPECT: u32 = 3;
/// An endpoint takes others where it has taken one so long ago at the most, in ms: a deadline, and half of one.
const TAKEN_LATELY_MS: i64 = 22_500;
/// First and longest pause, in ms.
const PAUSE_MS_MIN: i64 = 1_000;
pub(super) const PAUSE_MS_MAX: i64 = 10_000;
/// After so many attempts in a row that were to try it and that nobody answered an endpoint is away: half an hour at least. They are counted, since a clock
/// may go ahead, and those that follow each other sooner than in the longest pause count as one.
const AWAY: u32 = 200;
/// What was counted longer ago than this, in ms, says nothing any more: the clock has gone ahead, the process stood still, or nothing was due.
const VAIN_MS: i64 = 600_000;
/// After so many ms another event is sent again to an endpoint that has answered none of the last ones.
const ANOTHER_MS: i64 = 60_000;

/// What an attempt says of its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// It answered as one that works.
    Good,
    /// It answered with an error, maybe at this event alone.
    Failed,
    /// It, or who answers in its place, said that it has too much to do or is not there.
    Ill,
    /// It could not be reached, or did not answer in time.
    Bad,
    /// Nothing but that it is there: it refuses what it gets.
    Neutral,
    /// Nothing at all.
    None,
}

impl Sign {
    /// Of an attempt that ended so. `reused`: over a kept connection; an endpoint that works may close one at the very moment it is used.
    pub(super) const fn of(outcome: Outcome, http_status: Option<u16>, reused: bool) -> Self {
        match outcome {
            Outcome::ConnectFailed if reused => Self::None,
            Outcome::Delivered | Outcome::Fail => Self::Good,
            Outcome::HttpStatus => match http_status {
                Some(429 | 502..=504) => Self::Ill,
                Some(500..=599) => Self::Failed,
                Some(_) | None => Self::Neutral,
            },
            Outcome::Unreadable => Self::Neutral,
            Outcome::RefusedAddress
            | Outcome::DnsFailed
            | Outcome::ConnectFailed
            | Outcome::TlsFailed
            | Outcome::Timeout => Self::Bad,
        }
    }
}

/// Who shares permits with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It has answered, and does not fail.
    Proven,
    /// Nothing is known of it.
    New,
    /// It fails.
    Suspect,
}

impl Class {
    /// In the order of their turns.
    pub(super) const ALL: [Self; 3] = [Self::Proven, Self::New, Self::Suspect];
}

/// Whether attempts go to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breaker {
    Closed,
    /// None until then; then one.
    Open {
        until: UnixMillis,
        pause_ms: i64,
    },
    /// That one is under way.
    HalfOpen {
        pause_ms: i64,
    },
}

/// How the breaker of an endpoint stands, as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Attempts go.
    Closed,
    /// None goes before this instant.
    Open {
        /// When one may.
        until: UnixMillis,
    },
    /// One may go, or is under way; how it ends decides.
    HalfOpen,
}

impl BreakerState {
    /// Its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// Whether one more attempt may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    Begin,
    /// When one of its own has landed.
    WhenLanded,
    /// Not before.
    At(UnixMillis),
}

/// What is known of an endpoint.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// Attempts at once, at the most.
    most: usize,
    /// Attempts at once by now.
    limit: usize,
    /// Failed attempts since the last good one.
    strikes: u32,
    /// Those in a row at which it failed as a whole.
    outages: u32,
    is_proven: bool,
    /// Attempts in a row, at what is sent again by hand, at which it failed as a whole.
    resent_outages: u32,
    /// When another one may be made pending, while they come to nothing; none: at once.
    resent_next: Option<UnixMillis>,
    /// When it took one last.
    taken_at: Option<UnixMillis>,
    /// Attempts in a row that were to try it while it was left alone, and that nobody answered.
    vain: u32,
    /// When the last of these was counted.
    vain_at: Option<UnixMillis>,
    /// Whether something waits for fewer attempts at once than it might have, or for one that decides.
    keeps: bool,
    /// Until when it kept something waiting last.
    kept_until: Option<UnixMillis>,
    breaker: Breaker,
}

impl Health {
    /// Of an endpoint that nothing is known of.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self {
            most,
            limit: most,
            strikes: 0,
            outages: 0,
            is_proven: false,
            resent_outages: 0,
            resent_next: None,
            taken_at: None,
            vain: 0,
            vain_at: None,
            keeps: false,
            kept_until: None,
            breaker: Breaker::Closed,
        }
    }

    /// From here on it may have so many attempts at once.
    pub(super) fn allow(&mut self, most: usize) {
        let most = most.max(1);
        if self.limit == self.most {
            self.limit = most;
        }
        self.most = most;
        self.limit = self.limit.min(most);
    }

    /// How the breaker stands.
    pub(super) fn breaker(&self, now: UnixMillis) -> BreakerState {
        match self.breaker {
            Breaker::Closed => BreakerState::Closed,
            Breaker::Open { until, .. } if rests(until, now) => BreakerState::Open { until },
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Attempts at once that may be under way now, and at the most.
    pub(super) fn at_once(&self, now: UnixMillis) -> (usize, usize) {
        let by_now = match self.breaker(now) {
            BreakerState::Closed => self.limit,
            BreakerState::Open { .. } => 0,
            BreakerState::HalfOpen => 1,
        };
        (by_now, self.most)
    }

    /// Attempts at once where it does not fail.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// Attempts at once by now.
    #[cfg(test)]
    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    /// Whether nothing is known of it.
    pub(super) fn is_unknown(&self) -> bool {
        self.strikes == 0 && !self.is_proven && self.breaker == Breaker::Closed
    }

    /// Whether it is as a new one.
    pub(super) fn is_as_new(&self) -> bool {
        self.is_unknown() && self.resent_outages == 0
    }

    /// Whether the breaker is not closed.
    pub(super) fn is_open(&self) -> bool {
        self.breaker != Breaker::Closed
    }

    /// Whether it is by itself that what was due then has waited: it was left alone meanwhile, or had fewer attempts at once than it might. An instant to come was
    /// noted by a clock that was ahead.
    pub(super) fn has_kept_waiting(&self, due_at: UnixMillis, now: UnixMillis) -> bool {
        self.kept_until.is_some_and(|kept_until| (due_at..=now).contains(&kept_until))
    }

    /// Whether it has been left alone for long, and nobody was there whenever it was tried. One that answers that it has too much to do is there.
    pub(super) fn is_away(&self, now: UnixMillis) -> bool {
        let since = self.vain_at.map(|at| now.0.saturating_sub(at.0));
        self.is_open() && self.vain >= AWAY && since.is_some_and(|since| (0..=VAIN_MS).contains(&since))
    }

    /// Somebody is there, whatever they answer.
    pub(super) const fn is_there(&mut self) {
        (self.vain, self.vain_at) = (0, None);
    }

    /// An attempt that was to try it was not answered.
    fn is_tried_in_vain(&mut self, now: UnixMillis) {
        match self.vain_at.map(|at| now.0.saturating_sub(at.0)) {
            Some(0..PAUSE_MS_MAX) => {}
            Some(PAUSE_MS_MAX..=VAIN_MS) => (self.vain, self.vain_at) = (self.vain.saturating_add(1), Some(now)),
            Some(_) | None => (self.vain, self.vain_at) = (1, Some(now)),
        }
    }

    pub(super) const fn class(&self) -> Class {
        match (self.breaker, self.is_proven, self.strikes) {
            (Breaker::Closed, true, strikes) if strikes < STRIKES_SUSPECT => Class::Proven,
            (Breaker::Closed, false, 0) => Class::New,
            (Breaker::Closed | Breaker::Open { .. } | Breaker::HalfOpen { .. }, _, _) => Class::Suspect,
        }
    }

    /// Whether an attempt may begin beside so many, of which some are slow. Where it takes others, those do not use up what it may have by now, only
    /// what it may have at the most.
    pub(super) fn may(&mut self, in_flight: usize, slow: usize, now: UnixMillis) -> May {
        let may = match self.breaker {
            Breaker::Open { until, .. } if rests(until, now) => {
                self.kept_until = Some(until);
                return May::At(until);
            }
            Breaker::Open { .. } | Breaker::HalfOpen { .. } => in_flight == 0,
            Breaker::Closed => {
                let slow = if self.takes_others(now) { slow } else { 0 };
                in_flight < self.most && in_flight.saturating_sub(slow) < self.limit
            }
        };
        // At the most that it may have it is the settings that keep something waiting.
        self.keeps |= !may && in_flight < self.most;
        if may { May::Begin } else { May::WhenLanded }
    }

    /// Whether one more may begin beside so many, whatever it may have by now.
    pub(super) fn has_room_at_the_most(&self, in_flight: usize) -> bool {
        self.breaker == Breaker::Closed && in_flight < self.most
    }

    /// Whether one more may begin as soon as one that is under way is slow.
    pub(super) fn waits_for_slow(&self, in_flight: usize, now: UnixMillis) -> bool {
        self.has_room_at_the_most(in_flight) && self.takes_others(now)
    }

    /// Whether it has taken one lately. An instant to come was noted by a clock that was ahead.
    fn takes_others(&self, now: UnixMillis) -> bool {
        self.taken_at.is_some_and(|at| (0..=TAKEN_LATELY_MS).contains(&now.0.saturating_sub(at.0)))
    }

    /// Whether it failed as a whole when it was last asked.
    pub(super) fn is_failing(&self) -> bool {
        self.outages > 0 || self.is_open()
    }

    /// An attempt begins.
    pub(super) const fn begins(&mut self) {
        if let Breaker::Open { pause_ms, .. } = self.breaker {
            self.breaker = Breaker::HalfOpen { pause_ms };
        }
    }

    /// An attempt at what is sent again by hand has ended, and does not count otherwise.
    pub(super) const fn resent(&mut self, sign: Sign) {
        match sign {
            Sign::Ill | Sign::Bad => self.resent_outages = self.resent_outages.saturating_add(1),
            Sign::Good | Sign::Failed | Sign::Neutral => self.is_resent_well(),
            Sign::None => {}
        }
    }

    const fn is_resent_well(&mut self) {
        (self.resent_outages, self.resent_next) = (0, None);
    }

    /// One more that is to be sent again was made pending.
    pub(super) const fn has_another(&mut self, now: UnixMillis) {
        if self.is_resent_in_vain() {
            self.resent_next = Some(now.plus_ms(ANOTHER_MS));
        }
    }

    /// Whether one more may follow, where they come to nothing. An instant that lies farther ahead was noted by a clock that was.
    pub(super) fn may_have_another(&self, now: UnixMillis) -> bool {
        !self.resent_next.is_some_and(|next| (1..=ANOTHER_MS).contains(&next.0.saturating_sub(now.0)))
    }

    /// Whether what was sent again by hand lately has come to nothing.
    pub(super) const fn is_resent_in_vain(&self) -> bool {
        self.resent_outages >= OUTAGES_OPEN
    }

    /// An attempt has ended. `next`: when its event is due again. `waiting`: whether more of its events are due.
    pub(super) fn ended(&mut self, sign: Sign, now: UnixMillis, next: Option<UnixMillis>, waiting: bool) {
        if std::mem::take(&mut self.keeps) {
            self.kept_until = Some(now);
        }
        match sign {
            Sign::Good => {
                self.taken_at = Some(now);
                self.is_resent_well();
            }
            Sign::Failed | Sign::Neutral => self.is_resent_well(),
            Sign::Ill | Sign::Bad | Sign::None => {}
        }
        match sign {
            Sign::Bad if matches!(self.breaker, Breaker::HalfOpen { .. }) => self.is_tried_in_vain(now),
            Sign::Good | Sign::Failed | Sign::Neutral | Sign::Ill => self.is_there(),
            Sign::Bad | Sign::None => {}
        }
        match sign {
            Sign::None => {
                if let Breaker::HalfOpen { pause_ms } = self.breaker {
                    // Another one is to decide, at once.
                    self.breaker = Breaker::Open { until: now, pause_ms };
                }
            }
            Sign::Good | Sign::Neutral | Sign::Failed if self.is_open() => {
                (self.breaker, self.limit, self.outages) = (Breaker::Closed, 1, 0);
                self.strikes = u32::from(sign == Sign::Failed);
                self.is_proven = sign == Sign::Good;
            }
            Sign::Good => {
                (self.strikes, self.outages, self.is_proven) = (0, 0, true);
                self.limit = self.most.min(self.limit + 1);
            }
            Sign::Neutral => self.outages = 0,
            Sign::Failed => {
                (self.strikes, self.outages) = (self.strikes.saturating_add(1), 0);
                self.limit = (self.limit / 2).max(1);
            }
            Sign::Ill | Sign::Bad => {
                self.strikes = self.strikes.saturating_add(1);
                self.outages = self.outages.saturating_add(1);
                self.limit = (self.limit / 2).max(1);
                let pause_ms = match self.breaker {
                    Breaker::Closed if self.outages < OUTAGES_OPEN || !waiting => return,
                    Breaker::Open { .. } => return,
                    Breaker::HalfOpen { pause_ms } if sign == Sign::Bad => PAUSE_MS_MAX.min(pause_ms * 2),
                    Breaker::Closed | Breaker::HalfOpen { .. } => PAUSE_MS_MIN,
                };
                let until = next.into_iter().chain([now.plus_ms(pause_ms)]).min().unwrap_or(now);
                self.breaker = Breaker::Open { until, pause_ms };
            }
        }
    }
}

/// Whether a pause goes on. One that would take longer than any does was begun by a clock that was ahead.
fn rests(until: UnixMillis, now: UnixMillis) -> bool {
    (1..=PAUSE_MS_MAX).contains(&until.0.saturating_sub(now.0))
}

/// So many attempts in a second, evenly spread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// None: as many as there are.
    per_s: Option<u32>,
    /// When the next one may begin, in microseconds since 1970.
    free_us: i64,
}

impl Pace {
    /// From here on.
    pub(super) const fn set(&mut self, per_s: Option<u32>) {
        self.per_s = per_s;
    }

    /// When the next attempt may begin; none: now.
    pub(super) fn wait(&self, now: UnixMillis) -> Option<UnixMillis> {
        let per_s = self.per_s?;
        // The clock tells milliseconds: within one all of its microseconds have come.
        let free_us = self.free_from(per_s, now);
        (free_us > now.0.saturating_mul(1_000).saturating_add(999)).then(|| UnixMillis(free_us.div_euclid(1_000)))
    }

    /// No attempt is put off by more than its share of a second and the millisecond that it began in: where it seems so, the clock was ahead.
    fn free_from(&self, per_s: u32, now: UnixMillis) -> i64 {
        let now_us = now.0.saturating_mul(1_000);
        let latest = now_us.saturating_add(1_000 + share_us(per_s));
        if self.free_us <= latest { self.free_us } else { now_us }
    }

    /// An attempt begins.
    pub(super) fn begins(&mut self, now: UnixMillis) {
        if let Some(per_s) = self.per_s {
            let from = self.free_from(per_s, now).max(now.0.saturating_mul(1_000));
            self.free_us = from + share_us(per_s);
        }
    }
}

/// How long after one attempt the next may begin.
fn share_us(per_s: u32) -> i64 {
    1_000_000 / i64::from(per_s.max(1))
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
