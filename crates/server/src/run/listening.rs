//! Until when somebody may be answered by this node: longer than it takes new connections.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

/// Held by each listener. When the last one has ended, nobody is answered any more, and that is told.
#[derive(Clone, Debug)]
pub(super) struct Listening(Arc<Told>);

#[derive(Debug)]
struct Told(watch::Sender<bool>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Listening {
    /// And what turns true when nobody is answered any more.
    pub(super) fn begin() -> (Self, watch::Receiver<bool>) {
        let (told, silent) = watch::channel(false);
        (Self(Arc::new(Told(told))), silent)
    }

    /// A listener, which answers until it ends or is cut off.
    pub(super) async fn while_it_runs(self, listener: impl Future<Output = ()>) {
        let told = self.0;
        listener.await;
        drop(told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_listener_to_end_tells_even_one_that_is_cut_off() {
        let (listening, mut silent) = Listening::begin();
        let ends = tokio::spawn(listening.clone().while_it_runs(async {}));
        let hangs = tokio::spawn(listening.while_it_runs(std::future::pending()));
        ends.await.expect("it ends");
        assert!(!*silent.borrow());
        hangs.abort();
        silent.wait_for(|silent| *silent).await.expect("it is told");
    }
}
