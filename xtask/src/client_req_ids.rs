//! `cargo xtask client-req-ids [ROUNDS] [STORE]`: one `clientReqId` by 64 clients at once, and answers that are lost after the commit.

use std::process::ExitCode;

use crate::tools::Numbered;

const RUN: Numbered = Numbered {
    program: "client_req_ids",
    most: 1,
    default: "1000",
    on_a_store: true,
    usage: "client-req-ids [ROUNDS] [sqlite|postgres]",
};

/// 1,000 rounds on SQLite unless told otherwise.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    RUN.run(arguments)
}
