//! Several nodes of one deployment behind a real proxy, seen from outside: sockets, and the clock on the wall.

mod journeys;
mod runs;
