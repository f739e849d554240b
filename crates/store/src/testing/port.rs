//! Ports for programs that cannot be told to take any.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below those that systems give to whoever asks for any, or another test could be given it before the program has it.
const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;
/// Tests are processes that are started one after the other: each has some ports of its own.
const OF_ONE_PROCESS: u32 = 37;

/// A port of 127.0.0.1 that nobody uses now and nobody is given by chance.
///
/// # Panics
///
/// Where all of them are in use.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let own = std::process::id() % COUNT * OF_ONE_PROCESS;
    (0..COUNT)
        .filter_map(|_| u16::try_from(FIRST + (own + GIVEN.fetch_add(1, Ordering::Relaxed)) % COUNT).ok())
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("there is a free port")
}
