//! Kinds of setting that TOML does not have: periods, settings that may be absent, keys that nobody may see.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use countersign_domain::delivery::Schedule;
use countersign_domain::fees::MarkupUnit;
use serde::de::{Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer};
use toml::Value;
use zeroize::Zeroizing;

/// A period of time, written `250ms`, `5s`, `10m`, `24h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period(pub Duration);

const PERIOD_MS_MAX: u64 = 366 * 86_400_000;

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match period_ms(text) {
            Some(ms) if ms <= PERIOD_MS_MAX => Ok(Self(Duration::from_millis(ms))),
            Some(_) => Err(format!("{text:?} is longer than a year")),
            None => Err(format!("{text:?} is no period: write a whole number and ms, s, m, h or d, such as \"30s\"")),
        }
    }
}

/// A period in ms, at most what a number holds; none: it is no period.
fn period_ms(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let count: u64 = text[..digits].parse().ok()?;
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(count.saturating_mul(unit_ms))
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// How long something is kept: a period of up to a hundred years, or `off`, which is for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(pub Option<Duration>);

/// Shorter, and a mistake would free what somebody is looking at.
const LIFE_MS_MIN: u64 = 3_600_000;
const LIFE_MS_MAX: u64 = 100 * PERIOD_MS_MAX;

impl<'de> Deserialize<'de> for Life {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "off" {
            return Ok(Self(None));
        }
        match period_ms(&text) {
            Some(ms) if (LIFE_MS_MIN..=LIFE_MS_MAX).contains(&ms) => Ok(Self(Some(Duration::from_millis(ms)))),
            Some(_) | None => Err(D::Error::custom(format!(
                "{text:?} is neither \"off\" nor a period of 1h to 36600d, such as \"30d\""
            ))),
        }
    }
}

/// A setting that may be absent; written as an empty text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optional<T>(pub Option<T>);

impl<T> Optional<T> {
    /// The value, if there is one.
    pub const fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

impl<'de, T: From<String>> Deserialize<'de> for Optional<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self((!text.is_empty()).then(|| T::from(text))))
    }
}

/// The text of a key: never shown, wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(Zeroizing<String>);

impl KeyText {
    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for KeyText {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(..)")
    }
}

/// Reads an address and a port, or nothing.
pub(super) fn optional_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    // Refused in the words of the addresses that may not be left out.
    if text.is_empty() { Ok(None) } else { SocketAddr::deserialize(text.into_deserializer()).map(Some) }
}

/// Reads what `r_markup` means.
pub(super) fn markup_unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<MarkupUnit, D::Error> {
    let name = String::deserialize(deserializer)?;
    MarkupUnit::from_name(&name)
        .ok_or_else(|| D::Error::custom(format!("{name:?} is neither \"percent\" nor \"fraction\"")))
}

/// Reads the schedule of callbacks.
pub(super) fn schedule<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Schedule, D::Error> {
    let text = |delay: Value| match delay {
        Value::String(text) => text,
        // It is refused as the text that it looks like is: in words about delays.
        other => other.to_string(),
    };
    let delays: Vec<String> = Vec::deserialize(deserializer)?.into_iter().map(text).collect();
    Schedule::parse(&delays).map_err(D::Error::custom)
}
