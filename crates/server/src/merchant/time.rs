//! `GET /v1/time`: the server's clock, unsigned.

use countersign_protocol::endpoint::time::Response;

use super::answer::{Failure, success};
use crate::app::App;

/// Answers with the clock that judges timestamps.
pub fn handle(app: &App) -> Result<Vec<u8>, Failure> {
    success(&Response { server_time: app.clock.now().0 })
}
