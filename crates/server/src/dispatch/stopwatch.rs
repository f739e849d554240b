//! How far an attempt has come, and how long each phase took.

use std::time::Duration;

use countersign_store::attempt_log::Phases;
use tokio::time::Instant;

use super::faults::Stage;

pub(super) fn micros(took: Duration) -> i64 {
    i64::try_from(took.as_micros()).unwrap_or(i64::MAX)
}

/// Runs while an attempt is made. A phase that the deadline cuts off has lasted until then.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    stage: Stage,
    since: Option<Instant>,
    pub(super) phases: Phases,
}

impl Stopwatch {
    /// One phase is over, where one had begun, and another begins.
    pub(super) fn enter(&mut self, stage: Stage) {
        self.stop();
        self.stage = stage;
        self.since = match stage {
            Stage::LookUp | Stage::Connect | Stage::Tls => Some(Instant::now()),
            // The tape knows when the first byte came, and the attempt when all was over.
            Stage::Head | Stage::Body => None,
        };
    }

    /// The phase that it was in is over.
    pub(super) fn stop(&mut self) {
        let Some(since) = self.since.take() else { return };
        let took = Some(micros(since.elapsed()));
        match self.stage {
            Stage::LookUp => self.phases.dns_us = took,
            Stage::Connect => self.phases.connect_us = took,
            Stage::Tls => self.phases.tls_us = took,
            Stage::Head | Stage::Body => {}
        }
    }

    /// What it is, or was last, about.
    pub(super) const fn stage(&self) -> Stage {
        self.stage
    }
}
