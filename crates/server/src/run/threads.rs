//! The threads that serve.

use std::num::NonZero;
use std::thread::available_parallelism;

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// A runtime with so many threads that serve; 0 is one for each processor that the process may use. One alone has nobody to share its work
/// with, and does without what sharing costs: 8 % of the CPU of a queued callback.
pub fn runtime(worker_threads: usize) -> anyhow::Result<Runtime> {
    let processors = || available_parallelism().map_or(1, NonZero::get);
    let threads = if worker_threads == 0 { processors() } else { worker_threads };
    let mut builder = if threads == 1 { Builder::new_current_thread() } else { Builder::new_multi_thread() };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_all().build().context("the runtime cannot be started")
}

#[cfg(test)]
mod tests {
    use tokio::runtime::RuntimeFlavor::{CurrentThread, MultiThread};

    use super::*;

    #[test]
    fn one_thread_shares_with_nobody_and_more_share() {
        let flavour = |threads| runtime(threads).expect("starts").handle().runtime_flavor();
        assert_eq!((flavour(1), flavour(2)), (CurrentThread, MultiThread));
        assert_eq!(flavour(0), flavour(available_parallelism().map_or(1, NonZero::get)));
    }
}
