//! The one place that draws random numbers, and the numbers that grow with time.

use std::sync::atomic::{AtomicI64, Ordering};

use countersign_domain::ids::{SortedId, time_ordered};
use countersign_domain::time::UnixMillis;

/// Chance from the operating system.
#[derive(Debug, Default)]
pub struct Chance {
    last_number: AtomicI64,
}

impl Chance {
    /// Random bytes. The operating system's source does not fail on the platforms we run on; if it does, we must not go on.
    pub fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives random bytes");
    }

    /// 64 random bits.
    pub fn bits64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// 128 random bits.
    pub fn bits128(&self) -> u128 {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        u128::from_le_bytes(bytes)
    }

    /// A number that grows with time and with each call of this process, 1 to 18 digits.
    pub fn number(&self, now: UnixMillis) -> i64 {
        let fresh = time_ordered(now, self.bits64());
        let before = self
            .last_number
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(fresh.max(last + 1)))
            .unwrap_or_else(|last| last);
        fresh.max(before + 1)
    }

    /// An id that sorts by creation.
    pub fn sorted_id(&self, now: UnixMillis) -> SortedId {
        SortedId::new(now, self.bits128())
    }

    /// `bytes` random bytes as lowercase hex.
    pub fn hex(&self, bytes: usize) -> String {
        let mut raw = vec![0; bytes];
        self.fill(&mut raw);
        hex(&raw)
    }
}

/// The bytes that hex digits say; none where they are no pairs of digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

/// Bytes as lowercase hex.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}
