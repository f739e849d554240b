//! `client-req-ids ROUNDS [sqlite|postgres]`: one `clientReqId` by 64 clients at once, and answers that are lost after the commit.

use anyhow::{Context, Result};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::client_req_ids;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let rounds = words
        .next()
        .context("usage: client_req_ids ROUNDS [sqlite|postgres]")?
        .parse()
        .context("ROUNDS is a number")?;
    let kind = words.next().map_or(Ok(StoreKind::Sqlite), |word| StoreKind::lasting(&word))?;
    let report = tokio::runtime::Runtime::new()?.block_on(client_req_ids::run(kind, rounds))?;
    client_req_ids::print(kind, &report);
    Ok(())
}
