//! Whether something that writes has ended by a panic: what it was to do is never done then, and only a new start mends that.

use tokio::sync::watch;

/// Told by the [`Alarm`]s of those that write.
#[derive(Debug)]
pub(crate) struct Panicked(watch::Sender<bool>);

/// Lies in a task or a thread; a panic that passes it is told.
#[derive(Debug)]
pub(crate) struct Alarm(watch::Sender<bool>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.send_replace(true);
        }
    }
}

impl Panicked {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn alarm(&self) -> Alarm {
        Alarm(self.0.clone())
    }

    /// Runs it under an alarm of its own.
    pub(crate) fn watched<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        let alarm = self.alarm();
        async move {
            let _alarm = alarm;
            work.await
        }
    }

    /// Waits until one has.
    pub(crate) async fn told(&self) {
        // The sender lives as long as this does.
        let mut told = self.0.subscribe();
        let _told = told.wait_for(|is_so| *is_so).await;
    }

    pub(crate) fn is_so(&self) -> bool {
        *self.0.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_panics_is_told_of_and_one_that_ends_is_not() {
        let panicked = Panicked::new();
        tokio::spawn(panicked.watched(async {})).await.expect("ends");
        assert!(!panicked.is_so());
        let broke = tokio::spawn(panicked.watched(async { panic!("as by a fault of ours") })).await;
        assert!(broke.is_err() && panicked.is_so());
        panicked.told().await;
    }
}
