//! What Countersign decides, as pure functions over plain values.
//!
//! Invariant: nothing here reads a clock, an environment or a random number; time and chance are arguments.
//! Invariant: nothing here knows HTTP, SQL or JSON. Refusals are enums in order of precedence.

pub mod conversion;
pub mod convert_order;
pub mod delivery;
pub mod fees;
pub mod ids;
pub mod lanes;
pub mod money;
pub mod payment_order;
pub mod rules;
pub mod time;
pub mod what_if;
