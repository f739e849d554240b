//! Chance that a seed repeats: for random cases, never for secrets.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same seed gives the same throws.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `end` - 1.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.bits() % end as u64).expect("less than a usize")
    }

    /// `from` to `to`, both included.
    pub fn between(&mut self, from: i64, to: i64) -> i64 {
        let width = u64::try_from(to - from).expect("from is not after to") + 1;
        from + i64::try_from(self.bits() % width).expect("less than the width")
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of them; none of an empty list.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { of.get(self.below(of.len())) }
    }

    /// Dice of its own for somebody else.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.bits())
    }

    /// A number as JSON and amounts write it: `whole` digits at most before the point, `fraction` after it, each length as likely.
    /// It may end in zeros that say nothing, and begins with none.
    pub fn number(&mut self, whole: usize, fraction: usize) -> String {
        let length = 1 + self.below(whole);
        let before = self.digits(length);
        let before = before.trim_start_matches('0');
        let before = if before.is_empty() { "0" } else { before };
        match self.below(fraction + 1) {
            0 => before.to_owned(),
            after => format!("{before}.{}", self.digits(after)),
        }
    }

    fn digits(&mut self, count: usize) -> String {
        (0..count).map(|_| char::from(b"0123456789"[self.below(10)])).collect()
    }
}
