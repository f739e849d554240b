//! `measure hmac|query sqlite|query postgres|tls|callbacks|ways|upgrades|orders|flat FEW MANY|postgres`: prints its tables. The others it starts itself: `measure bare BODY [CERTIFICATE KEY]`,
//! the yardstick server of `query` and `tls`; `measure post ADDRESS [CERTIFICATE]` and `measure outbox URL DATA [CERTIFICATE]`, who send for `callbacks` and `ways`, and
//! `measure least FILE`, a yardstick of the former; `measure node URL DATA`, a node of `postgres`.

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
        ["bare", body] => one_thread()?.block_on(measure::bare::serve(body.as_bytes().to_vec(), None))?,
        ["bare", body, certificate, key] => {
            let certified = Some((certificate.as_ref(), key.as_ref()));
            one_thread()?.block_on(measure::bare::serve(body.as_bytes().to_vec(), certified))?;
        }
        ["query", store] => {
            let store = StoreKind::lasting(store)?;
            tokio::task::LocalSet::new().block_on(&one_thread()?, measure::query::run(store))?;
        }
        ["tls"] => tokio::task::LocalSet::new().block_on(&one_thread()?, measure::tls::run())?,
        ["callbacks"] => tokio::task::LocalSet::new().block_on(&one_thread()?, measure::callbacks::run())?,
        ["ways"] => tokio::task::LocalSet::new().block_on(&one_thread()?, measure::callbacks::ways::run())?,
        ["outbox", url, data] => measure::callbacks::outbox::serve(url, data.into(), None)?,
        ["outbox", url, data, certificate] => {
            measure::callbacks::outbox::serve(url, data.into(), Some(certificate.as_ref()))?;
        }
        ["least", path] => measure::callbacks::least::serve(path.as_ref())?,
        ["post", address] => measure::callbacks::raw::serve(address.parse()?, None)?,
        ["post", address, certificate] => {
            measure::callbacks::raw::serve(address.parse()?, Some(certificate.as_ref()))?;
        }
        ["upgrades"] => tokio::runtime::Runtime::new()?.block_on(measure::upgrades::run())?,
        ["orders"] => tokio::runtime::Runtime::new()?.block_on(measure::orders::run())?,
        ["flat", few, many] => {
            let (few, many) = (few.parse()?, many.parse()?);
            tokio::runtime::Runtime::new()?.block_on(measure::orders::flat::run(few, many))?;
        }
        ["node", url, data] => tokio::runtime::Runtime::new()?.block_on(measure::postgres::node(url, data.into()))?,
        ["postgres"] => tokio::runtime::Runtime::new()?.block_on(measure::postgres::run())?,
        _ => bail!(
            "usage: measure hmac|query sqlite|query postgres|tls|callbacks|ways|upgrades|orders|flat FEW MANY|postgres"
        ),
    }
    Ok(())
}
