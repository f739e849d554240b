//! `behaviours [NUMBER]`: what an attempt makes of endpoints of every kind, with the time and the memory that it takes. Each is tried in a
//! process of its own, so that none grows into what another has left behind.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use countersign_testkit::behaviours;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    if let Some(number) = std::env::args().nth(1) {
        let number = number.parse().context("NUMBER is a number")?;
        return tokio::runtime::Runtime::new()?.block_on(behaviours::run(number));
    }
    let own = std::env::current_exe()?;
    println!("{:<36} {:<15} {:>6} {:>9} {:>10}  detail", "endpoint", "outcome", "status", "took", "grew");
    let (count, mut wrong) = (behaviours::all().len(), 0);
    for number in 0..count {
        let status = Command::new(&own).arg(number.to_string()).status()?;
        wrong += usize::from(!status.success());
    }
    println!("{count} behaviours, {wrong} wrong");
    ensure!(wrong == 0, "not every attempt is what it must be");
    Ok(())
}
