//! `strace`: proves from system calls what is on disk before an answer leaves.

use anyhow::Result;

fn main() -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(countersign_testkit::strace::run())
}
