//! Fee rules: versions that only grow in number, and what is in force at an instant.
//!
//! Invariant: a state is never stored and flipped; it is computed from the rows and the time (`state`, `in_force`).
//! Invariant: each version remembers the version it found in force when it was made (`base`), so two rows answer every question about now.

use rust_decimal::Decimal;
use thiserror::Error;

use crate::fees::MarkupUnit;
use crate::ids::SortedId;
use crate::money::Amount;
use crate::time::UnixMillis;

/// What a rule adds to the institution's base rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Markup {
    r: Decimal,
    f: Amount,
}

/// Decimal places that `r_markup` may have.
pub const MARKUP_R_SCALE_MAX: u32 = 8;

/// Why a markup is refused, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MarkupRefused {
    /// `r_markup` outside 0 to 100, or finer than 8 decimals.
    #[error("r_markup {}", self.must(MarkupUnit::Percent))]
    Percentage,
    /// `f_markup` outside 0 to 5,000,000, or finer than 6 decimals.
    #[error("f_markup {}", self.must(MarkupUnit::Percent))]
    Fixed,
}

impl MarkupRefused {
    /// The field whose number it is.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Percentage => "r_markup",
            Self::Fixed => "f_markup",
        }
    }

    /// What the field must be, in a deployment of this unit.
    pub const fn must(self, unit: MarkupUnit) -> &'static str {
        match (self, unit) {
            (Self::Percentage, MarkupUnit::Percent) => "must be from 0 to 100 with at most 8 decimals",
            (Self::Percentage, MarkupUnit::Fraction) => {
                "must be from 0 to 1 with at most 8 decimals: this deployment reads it as a fraction, and 0.3 is 30 %"
            }
            (Self::Fixed, MarkupUnit::Percent | MarkupUnit::Fraction) => {
                "must be from 0 to 5000000 with at most 6 decimals"
            }
        }
    }
}

impl Markup {
    /// None: nothing is added.
    pub const NONE: Self = Self { r: Decimal::ZERO, f: Amount::ZERO };

    /// A markup of `r` percent and `f` USDT. Trailing zeros do not count as decimals.
    pub fn new(r: Decimal, f: Decimal) -> Result<Self, MarkupRefused> {
        let r = r.normalize();
        if (r.is_sign_negative() && !r.is_zero()) || r > Decimal::ONE_HUNDRED || r.scale() > MARKUP_R_SCALE_MAX {
            return Err(MarkupRefused::Percentage);
        }
        let f = Amount::from_decimal(f).ok_or(MarkupRefused::Fixed)?;
        if f < Amount::ZERO || f > crate::money::TRANSACTION_MAX {
            return Err(MarkupRefused::Fixed);
        }
        // -0 is 0: it would be written with its sign.
        Ok(Self { r: if r.is_zero() { Decimal::ZERO } else { r }, f })
    }

    /// Percent (or a fraction, where the deployment says so).
    pub const fn r(&self) -> Decimal {
        self.r
    }

    /// Fixed, in USDT.
    pub const fn f(&self) -> Amount {
        self.f
    }
}

/// One version of a sub-account's rule. Written once, never changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleVersion {
    /// 1, 2, 3 ... per sub-account, no gaps.
    pub version_no: i64,
    /// Its public id is `cfg_` + this.
    pub config_id: SortedId,
    /// The version made just before, whatever its state; none for version 1.
    pub previous: Option<SortedId>,
    /// The version that had started and was not yet replaced when this one was made, whether or not it was due since.
    pub base_version_no: Option<i64>,
    /// What it adds.
    pub markup: Markup,
    /// As asked for; may lie before `created_at`.
    pub effective_at: UnixMillis,
    /// Exclusive end; none is open-ended.
    pub due_at: Option<UnixMillis>,
    /// When it was decided.
    pub created_at: UnixMillis,
}

impl RuleVersion {
    /// The instant from which it can be in force: its effective time, but never before it was made.
    pub fn starts_at(&self) -> UnixMillis {
        self.effective_at.max(self.created_at)
    }
}

/// The last version of a sub-account that was made by some instant, and that version's base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleHead {
    /// The last one made.
    pub last: RuleVersion,
    /// What `last.base_version_no` points to.
    pub base: Option<RuleVersion>,
}

impl RuleHead {
    /// The head once `next`, which was decided on `before`, is stored.
    pub fn moved(before: Option<Self>, next: RuleVersion) -> Self {
        let older = before.into_iter().flat_map(|head| [Some(head.last), head.base]).flatten();
        let base = older.into_iter().find(|older| Some(older.version_no) == next.base_version_no);
        Self { last: next, base }
    }
}

/// What merchants see of a version's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleState {
    /// In force.
    Effective,
    /// Its time has not come, and nothing newer was made.
    PendingEffective,
    /// Operators only: a newer version was made before this one started.
    Invalidated,
    /// Operators only: a newer version started before this one was due.
    Superseded,
    /// Operators only: its due date came, and no newer version had started before it.
    Expired,
}

impl RuleState {
    /// Every state.
    pub const ALL: [Self; 5] =
        [Self::Effective, Self::PendingEffective, Self::Invalidated, Self::Superseded, Self::Expired];

    /// Its name in answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Effective => "EFFECTIVE",
            Self::PendingEffective => "PENDING_EFFECTIVE",
            Self::Invalidated => "INVALIDATED",
            Self::Superseded => "SUPERSEDED",
            Self::Expired => "EXPIRED",
        }
    }

    /// By its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Whether time may lead from here to `next`: INVALIDATED, SUPERSEDED and EXPIRED are final.
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::PendingEffective => match next {
                Self::Effective | Self::Invalidated | Self::Superseded | Self::Expired => true,
                Self::PendingEffective => false,
            },
            Self::Effective => match next {
                Self::Superseded | Self::Expired => true,
                Self::Effective | Self::PendingEffective | Self::Invalidated => false,
            },
            Self::Invalidated | Self::Superseded | Self::Expired => false,
        }
    }
}

/// What is asked of an upgrade or a creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleAsk {
    /// The new markup.
    pub markup: Markup,
    /// When it shall take effect; the past means now.
    pub effective_at: UnixMillis,
    /// Exclusive end, if any.
    pub due_at: Option<UnixMillis>,
}

/// Why a version is refused. In order of precedence: the first that applies is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RuleRefused {
    /// `due_date`, which the text is about, is not after `effective_date`, or not after now.
    #[error("must be after effective_date and after now")]
    Period,
    /// Creation where a rule is effective or pending.
    #[error("a fee rule is effective or pending for this sub-account")]
    Exists,
}

/// The version that an upgrade makes. `config_chance`: 80 bits of chance.
pub fn upgrade(
    head: Option<&RuleHead>,
    ask: &RuleAsk,
    now: UnixMillis,
    config_chance: u128,
) -> Result<RuleVersion, RuleRefused> {
    let now = head.map_or(now, |h| now.max(h.last.created_at));
    if ask.due_at.is_some_and(|due| due <= ask.effective_at || due <= now) {
        return Err(RuleRefused::Period);
    }
    let base = head.and_then(|h| started(h, now));
    Ok(RuleVersion {
        version_no: head.map_or(1, |h| h.last.version_no + 1),
        config_id: after(head, SortedId::new(now, config_chance)),
        previous: head.map(|h| h.last.config_id),
        base_version_no: base.map(|b| b.version_no),
        markup: ask.markup,
        effective_at: ask.effective_at,
        due_at: ask.due_at,
        created_at: now,
    })
}

/// The version that a creation makes: as an upgrade, but refused where a rule is effective or pending.
pub fn create(
    head: Option<&RuleHead>,
    ask: &RuleAsk,
    now: UnixMillis,
    config_chance: u128,
) -> Result<RuleVersion, RuleRefused> {
    let version = upgrade(head, ask, now, config_chance)?;
    let exists =
        head.is_some_and(|h| pending(h, version.created_at).is_some() || in_force(h, version.created_at).is_some());
    if exists { Err(RuleRefused::Exists) } else { Ok(version) }
}

/// Ids sort by creation also within one millisecond.
fn after(head: Option<&RuleHead>, id: SortedId) -> SortedId {
    match head {
        Some(h) if id <= h.last.config_id => SortedId(h.last.config_id.0 + 1),
        Some(_) | None => id,
    }
}

/// The newest version that has started by `at` and was not invalidated. `head` must be the head as of `at` or, for a future `at`, as of now.
fn started(head: &RuleHead, at: UnixMillis) -> Option<&RuleVersion> {
    if head.last.starts_at() <= at { Some(&head.last) } else { head.base.as_ref() }
}

/// The version in force at `at`: `starts_at <= at < due_at`.
pub fn in_force(head: &RuleHead, at: UnixMillis) -> Option<&RuleVersion> {
    started(head, at).filter(|v| v.due_at.is_none_or(|due| at < due))
}

/// The version that waits for its time at `now`, if any: always the last one made.
pub fn pending(head: &RuleHead, now: UnixMillis) -> Option<&RuleVersion> {
    (head.last.starts_at() > now).then_some(&head.last)
}

/// What a version's state depends on besides itself: the versions made after it.
///
/// The next one made is not enough: it may have been invalidated itself, and then a later one ends this version.
/// Walk from the newest version to the oldest: begin with [`Newer::NONE`], go on with [`Newer::and`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newer {
    /// When the next version was made.
    next_made_at: Option<UnixMillis>,
    /// When the first newer version that is not invalidated starts.
    next_starts_at: Option<UnixMillis>,
}

impl Newer {
    /// Nothing newer was made.
    pub const NONE: Self = Self { next_made_at: None, next_starts_at: None };

    /// What the version made just before `version` must know, where `self` is what `version` must know.
    #[must_use]
    pub fn and(self, version: &RuleVersion) -> Self {
        let starts_at = if self.invalidates(version) { self.next_starts_at } else { Some(version.starts_at()) };
        Self { next_made_at: Some(version.created_at), next_starts_at: starts_at }
    }

    /// The two instants: when the next version was made, and when the first newer one starts that is not invalidated. None where nothing newer was made.
    pub fn instants(self) -> Option<(UnixMillis, UnixMillis)> {
        self.next_made_at.zip(self.next_starts_at)
    }

    /// Of what [`Self::instants`] gave.
    pub const fn of_instants((next_made_at, next_starts_at): (UnixMillis, UnixMillis)) -> Self {
        Self { next_made_at: Some(next_made_at), next_starts_at: Some(next_starts_at) }
    }

    fn invalidates(self, version: &RuleVersion) -> bool {
        self.next_made_at.is_some_and(|made| made < version.starts_at())
    }
}

/// The state of any version at `now`, given what was made after it. What was made after `now` does not count.
/// Asked about the present, `now` must be at least the newest version's `created_at` (another node's clock may be ahead).
pub fn state(version: &RuleVersion, newer: Newer, now: UnixMillis) -> RuleState {
    if newer.invalidates(version) && newer.next_made_at.is_some_and(|made| made <= now) {
        return RuleState::Invalidated;
    }
    if now < version.starts_at() {
        return RuleState::PendingEffective;
    }
    let replaced_at = newer.next_starts_at.filter(|at| *at <= now);
    let due_at = version.due_at.filter(|at| *at <= now);
    match (replaced_at, due_at) {
        (None, None) => RuleState::Effective,
        (Some(replaced), Some(due)) if due <= replaced => RuleState::Expired,
        (Some(_), _) => RuleState::Superseded,
        (None, Some(_)) => RuleState::Expired,
    }
}

/// The states of versions at `now`, one for each. `newest_first` must begin with the newest of all and leave none out.
pub fn states(newest_first: &[RuleVersion], now: UnixMillis) -> Vec<RuleState> {
    let mut newer = Newer::NONE;
    newest_first
        .iter()
        .map(|version| {
            let state = state(version, newer, now);
            newer = newer.and(version);
            state
        })
        .collect()
}
