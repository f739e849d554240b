//! How many random cases a property is tried with, and chance that is the same in every run.

/// `default`, or what `COUNTERSIGN_TRIALS` says.
#[expect(clippy::disallowed_methods, reason = "a test's own size is no configuration of the product")]
pub fn trials(default: u32) -> u32 {
    match std::env::var("COUNTERSIGN_TRIALS") {
        Ok(text) => text.parse().expect("COUNTERSIGN_TRIALS is a number of cases"),
        Err(_) => default,
    }
}

/// SplitMix64: good enough for cases, the same in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `end` - 1.
    pub fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.bits() % u64::from(end)).expect("less than a u32")
    }

    /// One of them.
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.bits()).expect("64-bit tests") % of.len()]
    }
}
