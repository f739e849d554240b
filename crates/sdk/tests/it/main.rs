//! The SDK against a small server of its own, over real sockets.

mod callback;
mod client;
mod clock;
mod event_data;
mod institution;
mod pull;
mod receiver;
mod refusals;
mod stub;
mod till;
mod transport;
