//! `measure hmac|query sqlite|query postgres|upgrades|postgres`: prints its tables. `measure bare BODY`: the yardstick server, started by `query`;
//! `measure node URL DATA`: a node, started by `postgres`.

use anyhow::{Result, bail};
use countersign_testkit::backing::StoreKind;
use countersign_testkit::measure;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let one_thread = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    match words.as_slice() {
        ["hmac"] => measure::hmac::run(),
        ["bare", body] => one_thread()?.block_on(measure::bare::serve(body.as_bytes().to_vec()))?,
        ["query", store] => {
            let store = StoreKind::lasting(store)?;
            tokio::task::LocalSet::new().block_on(&one_thread()?, measure::query::run(store))?;
        }
        ["upgrades"] => tokio::runtime::Runtime::new()?.block_on(measure::upgrades::run())?,
        ["node", url, data] => tokio::runtime::Runtime::new()?.block_on(measure::postgres::node(url, data.into()))?,
        ["postgres"] => tokio::runtime::Runtime::new()?.block_on(measure::postgres::run())?,
        _ => bail!("usage: measure hmac|query sqlite|query postgres|upgrades|postgres"),
    }
    Ok(())
}
