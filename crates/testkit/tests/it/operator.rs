//! The operator listener's router, in process, over a real store: every call, and each of its refusals.

mod applications;
mod callbacks;
mod calls;
mod convert_orders;
mod deployment;
mod documented;
mod doors;
mod endpoints;
mod events;
mod foretold;
mod identities;
pub mod listener;
mod lists;
mod nul;
mod payment_orders;
mod rates;
mod records;
mod redeliveries;
mod repeats;
mod retention;
mod retiring;
mod secrets;
mod statements;
mod tokens;
mod viewer;
mod what_if;
