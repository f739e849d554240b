//! Which node delivers: applications are spread over a fixed number of lanes, and a lane is one node's at a time.
//!
//! Invariant: an application's lane never changes, so the callbacks of one application are one node's to send.

use crate::ids::ApplicationNo;

/// How many lanes there are.
pub const LANES: u8 = 64;

/// One of the lanes, 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(u8);

impl Lane {
    /// A lane by its number; none from 64 on.
    pub const fn new(number: u8) -> Option<Self> {
        if number < LANES { Some(Self(number)) } else { None }
    }

    /// The lane of an application: the last six bits of its number.
    pub const fn of(application: ApplicationNo) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "six bits are left")]
        let number = (application.0 & (LANES as i64 - 1)) as u8;
        Self(number)
    }

    /// Every lane, by number.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..LANES).map(Self)
    }

    /// Its number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// How often a lane has changed hands: what is written under an older one is refused. 0: nobody ever took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(pub i64);

/// A set of lanes, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneSet(pub u64);

impl LaneSet {
    /// No lane.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(u64::MAX);

    /// The set with this lane in it.
    #[must_use]
    pub const fn with(self, lane: Lane) -> Self {
        Self(self.0 | 1 << lane.0)
    }

    /// The set without this lane.
    #[must_use]
    pub const fn without(self, lane: Lane) -> Self {
        Self(self.0 & !(1 << lane.0))
    }

    /// The lanes of either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The lanes of both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The lanes of this set that are not in the other one.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the lane is in it.
    pub const fn contains(self, lane: Lane) -> bool {
        self.0 & 1 << lane.0 != 0
    }

    /// Whether some lane is in both.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether no lane is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many lanes are in it.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Its lanes, by number.
    pub fn lanes(self) -> impl DoubleEndedIterator<Item = Lane> {
        Lane::all().filter(move |lane| self.contains(*lane))
    }
}

impl FromIterator<Lane> for LaneSet {
    fn from_iter<I: IntoIterator<Item = Lane>>(lanes: I) -> Self {
        lanes.into_iter().fold(Self::NONE, Self::with)
    }
}

/// How many lanes a node may hold while so many nodes are alive: as equal as it goes, and all lanes together are taken.
pub fn fair_share(nodes_alive: u32) -> u32 {
    u32::from(LANES).div_ceil(nodes_alive.max(1))
}
