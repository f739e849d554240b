//! The tasks that a running server is made of. One that panics takes the process with it: the others would serve on without it and nobody
//! would notice, as where callbacks do not go out any more. Whoever supervises the process starts it again, and a start goes on from the store.

use std::future::Future;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The tasks, and whether one of them has broken.
#[derive(Debug)]
pub(super) struct ServerTasks {
    handles: Vec<JoinHandle<()>>,
    broken: watch::Sender<Option<&'static str>>,
}

/// Lies in a task; a panic that passes it is told.
struct Alarm {
    name: &'static str,
    broken: watch::Sender<Option<&'static str>>,
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.broken.send_replace(Some(self.name));
        }
    }
}

impl ServerTasks {
    pub(super) fn new() -> Self {
        Self { handles: Vec::new(), broken: watch::Sender::new(None) }
    }

    /// Starts one; it may end when it has nothing more to do.
    pub(super) fn start(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let alarm = Alarm { name, broken: self.broken.clone() };
        self.handles.push(tokio::spawn(async move {
            let _alarm = alarm;
            task.await;
        }));
    }

    /// Waits until one of them has panicked: its name.
    pub(super) async fn broken(&self) -> &'static str {
        let mut broken = self.broken.subscribe();
        let named = broken.wait_for(Option::is_some).await.ok().and_then(|name| *name);
        match named {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }

    pub(super) fn into_handles(self) -> Vec<JoinHandle<()>> {
        self.handles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_panics_is_named_and_one_that_ends_is_not() {
        let mut tasks = ServerTasks::new();
        tasks.start("one that has nothing to do", async {});
        let (go, may_go) = tokio::sync::oneshot::channel::<()>();
        tasks.start("one that breaks", async {
            let _told = may_go.await;
            panic!("as by a fault of ours");
        });
        tokio::task::yield_now().await;
        assert!(tasks.broken.borrow().is_none(), "it has ended, and that is fine");
        drop(go);
        assert_eq!(tasks.broken().await, "one that breaks");
        let [ended, broke] = &mut tasks.into_handles()[..] else { panic!("two") };
        assert!(ended.await.is_ok() && broke.await.is_err());
    }
}
