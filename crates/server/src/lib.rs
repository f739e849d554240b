//! Countersign: the merchant-facing edge of a payment platform.
//!
//! Edges (`merchant`, `operator`, `cli`) translate and call `app`; `app` reads, decides with `countersign_domain` and commits one
//! batch to `countersign_store`; `dispatch` delivers callbacks; `listen` owns sockets.

pub mod app;
pub mod chance;
pub mod cli;
pub mod clock;
pub mod config;
pub mod datadir;
pub mod digest;
pub mod dispatch;
pub mod edges;
pub mod evidence;
pub mod explain;
pub mod keys;
pub mod listen;
pub mod log;
pub mod merchant;
pub mod meters;
pub mod openapi;
pub mod operator;
pub mod process;
mod repeated_warning;
pub mod run;
mod small_file;
pub mod source;
mod tls_fault;
pub mod vault;
mod visible;
mod whole_file;
