//! Names of things: numbers inside, opaque texts outside.

use std::fmt;

use crate::time::UnixMillis;

/// A merchant inside the deployment: an institution, a plain merchant or a sub-account. Never shown to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MerchantNo(pub i64);

/// The tenant that a row belongs to: the number of a plain merchant, or of the institution over a sub-account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantNo(pub i64);

/// An application inside the deployment. Never shown to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationNo(pub i64);

/// A callback event inside the deployment, in time order. Never shown to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventNo(pub i64);

/// A convert order's number: 1 to 18 digits, no leading zero, time-ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(i64);

/// Largest number that has 18 digits.
pub const ORDER_ID_MAX: i64 = 999_999_999_999_999_999;

impl OrderId {
    /// An order id from its number, 1 to 999,999,999,999,999,999.
    pub fn new(number: i64) -> Option<Self> {
        (1..=ORDER_ID_MAX).contains(&number).then_some(Self(number))
    }

    /// Reads 1 to 18 ASCII digits without a leading zero.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.is_empty() || digits.len() > 18 || digits[0] == b'0' || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        text.parse().ok().and_then(Self::new)
    }

    /// The number.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// 2025-01-01T00:00:00Z, where time-ordered numbers begin.
const NUMBER_EPOCH_MS: i64 = 1_735_689_600_000;
const NUMBER_CHANCE_BITS: u32 = 19;

/// A number that grows with time: milliseconds since 2025 and 19 bits of chance; under 18 digits until 2085.
/// Two in one millisecond may be equal: whoever stores it guards its newness. With chance 0 it is the first of its millisecond.
/// Before 2025 and from 2582 on time stands still.
pub const fn time_ordered(now: UnixMillis, chance: u64) -> i64 {
    const SINCE_MAX: i64 = i64::MAX >> NUMBER_CHANCE_BITS;
    let since = match now.0.saturating_sub(NUMBER_EPOCH_MS) {
        ..0 => 0,
        SINCE_MAX.. => SINCE_MAX,
        since => since,
    };
    #[expect(clippy::cast_possible_wrap, reason = "19 bits are left")]
    let low = (chance & ((1 << NUMBER_CHANCE_BITS) - 1)) as i64;
    (since << NUMBER_CHANCE_BITS) | low
}

/// 128 bits, the first 48 of them the milliseconds of creation: 26 characters of Crockford's base 32 that sort by creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SortedId(pub u128);

const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

impl SortedId {
    /// Made of the instant and 80 bits of chance.
    pub const fn new(now: UnixMillis, chance: u128) -> Self {
        #[expect(clippy::cast_sign_loss, reason = "clamped at 0")]
        let ms = (if now.0 > 0 { now.0 } else { 0 }) as u128 & 0xffff_ffff_ffff;
        Self((ms << 80) | (chance & ((1 << 80) - 1)))
    }

    /// Reads 26 characters of Crockford's base 32, upper case only.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 26 || text.as_bytes()[0] > b'7' {
            return None;
        }
        text.bytes()
            .try_fold(0u128, |value, byte| {
                let digit = CROCKFORD.iter().position(|&c| c == byte)?;
                Some((value << 5) | digit as u128)
            })
            .map(Self)
    }
}

impl fmt::Display for SortedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; 26];
        for (i, slot) in text.iter_mut().enumerate() {
            *slot = CROCKFORD[((self.0 >> (125 - 5 * i)) & 31) as usize];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Shape of the texts that name merchants, sub-accounts and applications: 1 to 64 of `A-Z a-z 0-9 _ -`.
pub fn is_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The public id of a fee rule version.
pub fn config_id(id: SortedId) -> String {
    format!("{}{id}", prefix::CONFIG)
}

/// Prefixes of opaque ids.
pub mod prefix {
    /// A fee rule version.
    pub const CONFIG: &str = "cfg_";
    /// A callback event.
    pub const EVENT: &str = "evt_";
    /// A redelivery of many events.
    pub const REDELIVERY: &str = "rdl_";
    /// An application: its ClientId.
    pub const CLIENT: &str = "app_";
    /// A Payment API Secret.
    pub const SECRET: &str = "sec_";
    /// An operator token.
    pub const TOKEN: &str = "tok_";
}
