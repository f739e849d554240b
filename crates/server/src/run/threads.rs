//! The threads that serve.

use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// What a thread that serves may still take to end, after everything that was waited for has ended.
const LAST_THREADS_FOR: Duration = Duration::from_millis(100);

/// How many threads serve: so many, or one for each processor where the setting is 0.
pub fn threads(worker_threads: usize) -> usize {
    let processors = || available_parallelism().map_or(1, NonZero::get);
    if worker_threads == 0 { processors() } else { worker_threads }
}

/// A runtime with so many threads that serve; 0 is one for each processor that the process may use. One alone has nobody to share its work
/// with, and does without what sharing costs: 8 % of the CPU of a queued callback.
pub fn runtime(worker_threads: usize) -> anyhow::Result<Runtime> {
    let threads = threads(worker_threads);
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().context("the runtime cannot be started")
}

/// Ends a runtime and does not wait for threads that are busy: a look-up of a name, or a disk, may keep one for minutes, and there is nothing
/// that whatever it finds would be for.
pub fn end(runtime: Runtime) {
    runtime.shutdown_timeout(LAST_THREADS_FOR);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::runtime::RuntimeFlavor::{CurrentThread, MultiThread};

    use super::*;

    #[test]
    fn one_thread_shares_with_nobody_and_more_share() {
        let flavour = |threads| runtime(threads).expect("starts").handle().runtime_flavor();
        assert_eq!((flavour(1), flavour(2)), (CurrentThread, MultiThread));
        assert_eq!(flavour(0), flavour(available_parallelism().map_or(1, NonZero::get)));
    }

    #[test]
    fn a_thread_that_is_busy_holds_up_no_end() {
        for threads in [1, 2] {
            let ((answer, answered), (said, heard)) = (channel::<()>(), channel());
            std::thread::spawn(move || {
                let runtime = runtime(threads).expect("starts");
                let (begun, has_begun) = channel();
                runtime.spawn_blocking(move || {
                    begun.send(()).expect("somebody listens");
                    answered.recv()
                });
                has_begun.recv().expect("it begins");
                end(runtime);
                said.send(())
            });
            heard.recv_timeout(Duration::from_secs(20)).expect("it has ended, and nobody has answered");
            drop(answer);
        }
    }
}
