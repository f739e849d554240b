//! How a listener ends: first its answers say so, and whoever still comes is let in; then nobody is, and connections end behind what they were asked.
//!
//! A request that is on its way when the process is told to stop is answered like this: whoever asks again and again learns from an answer that the
//! connection ends, and not from a connection that breaks. What the system has accepted for us by then would be broken off with the listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use super::connection_state::ConnectionState;

/// How long a request that is on its way may take to come: more than a way there and back over the internet takes, as a rule.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(250);

/// The end of a listener, as its connections see it.
#[derive(Debug, Default)]
pub(super) struct Ending {
    is_near: AtomicBool,
    is_here: watch::Sender<bool>,
}

/// One connection's part in it. The listener waits for as long as it is there.
#[derive(Debug)]
pub(super) struct Guest(watch::Receiver<bool>);

impl Ending {
    /// From now on each answer is the last one of its connection.
    pub(super) fn draw_near(&self) {
        self.is_near.store(true, Ordering::Relaxed);
    }

    /// Whether an answer is the last one of its connection.
    pub(super) fn is_last_answer(&self) -> bool {
        self.is_near.load(Ordering::Relaxed)
    }

    /// Lets every connection go, and waits until all are gone.
    pub(super) async fn come(&self) {
        self.is_here.send_replace(true);
        self.is_here.closed().await;
    }

    pub(super) fn has_guests(&self) -> bool {
        self.is_here.receiver_count() > 0
    }

    pub(super) fn guest(self: &Arc<Self>) -> Guest {
        Guest(self.is_here.subscribe())
    }
}

impl Guest {
    /// Waits until the listener lets its connections go.
    pub(super) async fn is_let_go(&mut self) {
        // Where nobody can say so any more, the listener is gone.
        let _ = self.0.wait_for(|is_here| *is_here).await;
    }

    /// The same, and where nothing was asked yet, until what was on its way has had the time to come.
    pub(super) async fn is_let_go_after(&mut self, state: &ConnectionState) {
        self.is_let_go().await;
        if state.asked() == 0 {
            tokio::time::sleep(LAST_WORDS).await;
        }
    }
}
