//! What the domain decides, as tables and against small independent models.

mod conversion;
mod convert_order;
mod delivery;
mod fees;
mod ids;
mod lanes;
mod money;
mod payment_order;
mod rules;
mod rules_model;
mod time;
mod trials;
mod what_if;
