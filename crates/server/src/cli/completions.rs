//! Prints the script by which a shell completes the words of this command line.

use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, say};

/// For which shell.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell that reads the script
    shell: Shell,
}

/// Prints the script: `source <(countersign completions bash)`.
pub(super) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    say(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}
