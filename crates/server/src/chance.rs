//! The one place that draws random numbers, and the numbers that grow with time.

use std::cell::RefCell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use countersign_domain::ids::{SortedId, time_ordered};
use countersign_domain::time::UnixMillis;
pub use countersign_protocol::signing::to_hex as hex;

/// What a thread asks the operating system for at once, in bytes.
const STOCK_BYTES: usize = 512;
/// How far the number of an order may be ahead of its making, in ms. Lists by that instant allow for twice as much.
const ORDER_LEAD_MS_MAX: i64 = 5_000;

/// Bytes of chance in a quote id.
const QUOTE_ID_BYTES: usize = 4;

/// Lowest bits of a number. They are of chance: the lane of an application is made of them.
const LOW_BITS: u32 = 6;
const LOW: i64 = (1 << LOW_BITS) - 1;
/// The bits above say who drew it; above them there is some chance, and then the time.
const SLOT_BITS: u32 = 7;
const SLOT_END: u32 = LOW_BITS + SLOT_BITS;
/// Slots that there are.
pub const SLOTS: u64 = 1 << SLOT_BITS;

/// Where the random bits of a version's id begin: one less than an id has, so that many steps fit above.
const CONFIG_BITS: u128 = (1 << 79) - 1;
/// A step from one id to the next has 48 bits.
const STEP_SHIFT: u32 = 80;

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
    last_order: AtomicI64,
    last_config: Mutex<(i64, u128)>,
    /// Which start of a process of the deployment this one is, for its numbers.
    slot: AtomicU64,
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

    /// From here on numbers are of this slot; they repeat after [`SLOTS`].
    pub fn has_slot(&self, slot: u64) {
        self.slot.store(slot, Ordering::Relaxed);
    }

    /// The slot of its numbers.
    pub fn slot(&self) -> u64 {
        self.slot.load(Ordering::Relaxed)
    }

    /// A number that grows with time and, while the slot is the same, with each call of this process, 1 to 18 digits. No process of another slot draws it.
    pub fn number(&self, now: UnixMillis) -> i64 {
        self.following(&self.last_number, now, i64::MAX)
    }

    /// The same for orders, which are found by the instant of their making: the number of one is never farther ahead of that than
    /// [`ORDER_LEAD_MS_MAX`], so that it goes back with a clock that was ahead.
    pub fn order_number(&self, now: UnixMillis) -> i64 {
        self.following(&self.last_order, now, time_ordered(now.plus_ms(ORDER_LEAD_MS_MAX), 0))
    }

    /// A number of now, or what follows `last` where that is not smaller and not beyond `most`.
    fn following(&self, last: &AtomicI64, now: UnixMillis, most: i64) -> i64 {
        #[expect(clippy::cast_possible_wrap, reason = "a few bits")]
        let slot = (self.slot() % SLOTS) as i64;
        let in_slot = |number| (count(number) >> LOW_BITS << SLOT_END) | (slot << LOW_BITS) | (number & LOW);
        let fresh = in_slot(time_ordered(now, self.bits64()));
        let after = |last| {
            let next = count(last) + 1;
            in_slot((next >> LOW_BITS << SLOT_END) | (next & LOW))
        };
        let next = |last: i64| if (fresh..most).contains(&last) { after(last) } else { fresh };
        let before = last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(next(last)));
        next(before.unwrap_or_else(|last| last))
    }

    /// Random bits for the id of a rule version, which sorts by creation: more than those before it of the same millisecond, by a step that
    /// nobody guesses.
    pub fn config_bits(&self, now: UnixMillis) -> u128 {
        let fresh = self.bits128();
        let mut last = self.last_config.lock().unwrap_or_else(PoisonError::into_inner);
        let bits = if last.0 == now.0 { last.1 + 1 + (fresh >> STEP_SHIFT) } else { fresh & CONFIG_BITS };
        *last = (now.0, bits);
        bits
    }

    /// An id that sorts by creation.
    pub fn sorted_id(&self, now: UnixMillis) -> SortedId {
        SortedId::new(now, self.bits128())
    }

    /// The id of a quote, as it is shown and given back.
    pub fn quote_id(&self) -> String {
        format!("PAY-{}", self.hex(QUOTE_ID_BYTES))
    }

    /// `bytes` random bytes as lowercase hex.
    pub fn hex(&self, bytes: usize) -> String {
        let mut raw = vec![0; bytes];
        self.fill(&mut raw);
        hex(&raw)
    }
}

/// A number without its slot.
const fn count(number: i64) -> i64 {
    (number >> SLOT_END << LOW_BITS) | (number & LOW)
}

/// The bytes that hex digits say; none where they are no pairs of digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    if rest.is_empty() { bytes.collect() } else { None }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_grow_with_each_draw_and_those_of_orders_go_back_with_a_clock_that_was_ahead() {
        let (chance, now) = (Chance::default(), UnixMillis(1_800_000_000_000));
        for (ahead_ms, goes_back) in [(4_000, false), (6_000, true), (86_400_000, true)] {
            let later = now.plus_ms(ahead_ms);
            assert!(chance.number(later) < chance.number(now), "numbers of what is told in order never go back");
            let (before, after) = (chance.order_number(later), chance.order_number(now));
            assert_eq!(after < before, goes_back, "{ahead_ms}");
            assert!(after < time_ordered(now.plus_ms(10_000), 0), "found by the instant of its making");
            let next = chance.order_number(now);
            assert!(next != after && next < time_ordered(now.plus_ms(10_000), 0), "{ahead_ms}");
        }
    }

    #[test]
    fn numbers_of_a_slot_grow_are_of_all_lanes_and_of_no_other_slot() {
        let now = UnixMillis(1_800_000_000_000);
        let drawn = |slot| {
            let chance = Chance::default();
            chance.has_slot(slot);
            (0..500).map(|_| chance.number(now)).collect::<Vec<i64>>()
        };
        let all: Vec<Vec<i64>> = (0..SLOTS + 2).map(drawn).collect();
        for (slot, numbers) in all.iter().enumerate() {
            assert!(numbers.is_sorted_by(|one, next| one < next), "{slot}");
            assert!(
                numbers.iter().all(|number| (number >> LOW_BITS) % 128 == i64::try_from(slot).expect("small") % 128)
            );
            assert_eq!(numbers.iter().map(|number| number & 63).collect::<HashSet<_>>().len(), 64, "{slot}");
        }
        let ms = |number: i64| number >> 19;
        let ahead = all.iter().flatten().map(|number| ms(*number) - ms(time_ordered(now, 0)));
        assert!(ahead.into_iter().all(|ahead| (0..=1).contains(&ahead)), "numbers follow time");
    }

    #[test]
    fn ids_of_rule_versions_grow_within_a_millisecond() {
        let chance = Chance::default();
        for ms in [1_800_000_000_000, 1_800_000_000_001] {
            let now = UnixMillis(ms);
            let ids: Vec<SortedId> = (0..10_000).map(|_| SortedId::new(now, chance.config_bits(now))).collect();
            assert!(ids.is_sorted_by(|one, next| one < next), "{ms}");
            let steps: HashSet<u128> = ids.iter().zip(ids.iter().skip(1)).map(|(one, next)| next.0 - one.0).collect();
            assert!(steps.len() > 9_000, "nobody guesses the next one");
        }
    }

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
