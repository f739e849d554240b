//! The program `countersign`. All of it is in the library, so that tests and the demo run the same code.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    countersign::cli::main()
}
