//! The operator listener's router, in process, over a real store: every call, and each of its refusals.

/// Calls until it is served: where a turn does not come soon nothing was done, and the caller is told to say it again.
macro_rules! said_again {
    ($call:expr) => {
        loop {
            let answer = $call.await;
            if answer.status != 503 {
                break answer;
            }
        }
    };
}

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
