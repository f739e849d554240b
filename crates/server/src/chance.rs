//! The one place that draws random numbers, and the numbers that grow with time.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, Ordering};

use countersign_domain::ids::{SortedId, time_ordered};
use countersign_domain::time::UnixMillis;

/// What a thread asks the operating system for at once, in bytes.
const STOCK_BYTES: usize = 512;

/// Random bytes that a thread has asked for and not used: a system call for each id would cost more than the id. Each is used once.
struct Stock {
    bytes: [u8; STOCK_BYTES],
    left: usize,
}

thread_local! {
    static STOCK: RefCell<Stock> = const { RefCell::new(Stock { bytes: [0; STOCK_BYTES], left: 0 }) };
}

/// So many of this thread's bytes. For what becomes public only: ids, nonces, spreads.
fn draw<const N: usize>() -> [u8; N] {
    STOCK.with_borrow_mut(|stock| {
        if stock.left < N {
            getrandom::fill(&mut stock.bytes).expect("the operating system gives random bytes");
            stock.left = STOCK_BYTES;
        }
        stock.left -= N;
        let mut drawn = [0; N];
        drawn.copy_from_slice(&stock.bytes[stock.left..stock.left + N]);
        drawn
    })
}

/// Chance from the operating system.
#[derive(Debug, Default)]
pub struct Chance {
    last_number: AtomicI64,
}

impl Chance {
    /// Random bytes, for secrets too. The operating system's source does not fail on the platforms we run on; if it does, we must not go on.
    pub fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives random bytes");
    }

    /// 64 random bits, for what is no secret.
    pub fn bits64(&self) -> u64 {
        u64::from_le_bytes(draw())
    }

    /// 128 random bits, for what is no secret.
    pub fn bits128(&self) -> u128 {
        u128::from_le_bytes(draw())
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_draws_of_any_size_share_bytes() {
        let chance = Chance::default();
        let mut seen = HashSet::new();
        for _ in 0..1_000 {
            let (wide, narrow) = (chance.bits128(), chance.bits64());
            let low = u64::try_from(wide & u128::from(u64::MAX)).expect("half");
            let high = u64::try_from(wide >> 64).expect("half");
            assert!([low, high, narrow].into_iter().all(|part| seen.insert(part)));
        }
        let other = std::thread::spawn(|| Chance::default().bits64()).join().expect("a thread draws");
        assert!(seen.insert(other), "each thread has bytes of its own");
    }
}
