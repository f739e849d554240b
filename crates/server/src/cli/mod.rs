//! The command line: translates words into calls, and outcomes into exit codes.
//!
//! 0: done. 1: refused or failed, with one sentence on stderr. 2: wrong usage, said by clap.
//! Invariant: a secret is printed only by the command that makes it, once.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};
use thiserror::Error;

use out::{UNWRITTEN, say, say_bytes, say_more, say_once};

use crate::visible::for_terminals;

mod audit;
mod authorities;
mod backup;
mod certify;
mod completions;
mod config;
mod courier;
pub mod demo;
mod doctor;
mod evidence;
mod explain;
mod http;
mod init;
mod input;
mod listen;
mod master_key;
mod moving;
mod node;
mod numbers;
mod operator;
mod out;
mod pretty;
mod provision;
mod recover;
mod retention;
mod serve;
mod settings;
mod sign;
mod signed_call;
mod statement;
mod tables;
mod what_if;

pub use operator::OperatorArgs;
pub use settings::{DataArgs, SettingsArgs};

/// What the shell gives: the words after the program's name are read by clap.
#[derive(Debug, Parser)]
#[command(
    name = "countersign",
    version,
    about = "The merchant-facing edge of a payment platform: signed API, fee rules, payment orders, convert orders, callbacks.",
    propagate_version = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the whole system on this machine, walk through it once, then go on serving
    Demo(demo::DemoArgs),
    /// Make a data folder: master key, database, first operator token (shown once)
    Init(init::InitArgs),
    /// Run the merchant API, the operator API and the delivery of callbacks
    Serve(SettingsArgs),
    /// Bring the database's schema up to this program's
    Migrate(DataArgs),
    /// Move a stopped deployment from its folder into a PostgreSQL database, and prove the copy
    Move(moving::MoveArgs),
    /// Copy the deployment into a file, while it runs
    Backup(backup::BackupArgs),
    /// Make a deployment of a backup: verified, and with callbacks held until `delivery release`
    ///
    /// The data folder must be new, or hold at most a master.key and what a node notes there: node.id, audit.chain, database.timeline, backup.last, lock. With
    /// --database-url the database must be empty, too.
    Restore(backup::RestoreArgs),
    /// Delivery of callbacks as a whole: held after a restore
    Delivery(operator::Group<backup::Delivery>),
    /// Nodes that share a database
    Node(operator::Group<node::Node>),
    /// Check what `serve` needs, without starting it
    Doctor(SettingsArgs),
    /// Print the settings that `serve` would take here, and who has set them
    Config(config::ConfigArgs),
    /// Say why a request was refused, more than its answer may
    Explain(explain::ExplainArgs),
    /// Sign a body: prints the headers of a request
    Sign(sign::SignArgs),
    /// Make one signed call and show the answer
    Call(signed_call::CallArgs),
    /// Verify a captured callback
    Verify(sign::VerifyArgs),
    /// Fire good and bad callbacks at a receiver, and say what it does not check and why that matters
    Certify(certify::CertifyArgs),
    /// Bring an application's events to a handler on this machine, as callbacks, from where it left off
    Listen(listen::ListenArgs),
    /// Institutions: main merchants with sub-accounts
    Institution(operator::Group<provision::Institution>),
    /// Merchants: plain ones are made here, every kind is listed, shown and changed
    Merchant(operator::Group<provision::Merchant>),
    /// Sub-accounts of institutions
    SubAccount(operator::Group<provision::SubAccount>),
    /// Applications: holders of a ClientId
    Application(operator::Group<provision::Application>),
    /// Payment API Secrets of an application
    Secret(operator::Group<provision::Secret>),
    /// Bearer tokens of operators
    Token(operator::Group<provision::Token>),
    /// Callback events and their deliveries
    Event(operator::Group<provision::Event>),
    /// Fee rules of a sub-account
    FeeRule(operator::Group<provision::FeeRule>),
    /// Convert orders: create and move, as the platform's back end does
    ConvertOrder(operator::Group<provision::ConvertOrder>),
    /// Rates of pairs: set, list, show
    Rate(operator::Group<provision::Rate>),
    /// Payment orders
    PaymentOrder(operator::Group<provision::PaymentOrder>),
    /// Evidence of a payment order: exported into a file, and checked without a server
    Evidence(evidence::Evidence),
    /// A month's orders and fees of a merchant, a sub-account or a whole institution
    Statement(statement::StatementArgs),
    /// What is old enough to be freed now, and how much that is
    Retention(retention::Retention),
    /// The audit log
    Audit(audit::Audit),
    /// The master key: which one seals, and sealing every secret again under another one
    MasterKey(master_key::MasterKey),
    /// Print what a shell needs to complete words of this command line
    Completions(completions::CompletionsArgs),
}

/// An argument that is wrong by itself, whatever the server or the machine say: exit code 2, as where no command can be read.
#[derive(Debug, Error)]
#[error("{0}")]
struct Usage(String);

/// Reads the process's arguments, does what they say, and gives the exit code.
pub fn main() -> ExitCode {
    let environment = crate::config::environment().map_err(anyhow::Error::from);
    let outcome = match Cli::try_parse() {
        Ok(cli) => close_memory(&cli.command).and_then(|()| run(cli.command, &environment?)),
        Err(error) => match environment {
            // clap reads some of the variables itself, and does not say which one it cannot read.
            Err(refused) if error.kind() == clap::error::ErrorKind::InvalidUtf8 => Err(refused),
            Ok(_) | Err(_) => return told(&with_plain_usage(error)),
        },
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            let _ = std::io::stderr().write_all(last_line(&error).as_bytes());
            code_of(&error)
        }
    }
}

/// What is said of an error: causes after colons, on one line. What was asked for may be in it, and stays from the terminal what it is not in a
/// table.
fn last_line(error: &anyhow::Error) -> String {
    format!("countersign: {}\n", for_terminals(&format!("{error:#}")))
}

fn code_of(error: &anyhow::Error) -> ExitCode {
    if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Flags that the environment may give in their place. A usage line would show them as if they were wanted wherever it does.
const FROM_ENVIRONMENT: [&str; 2] = [" --operator-url <URL>", " --url <URL>"];

/// An error whose usage line has only what is wanted.
fn with_plain_usage(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        let usage = usage.to_string();
        let plain = FROM_ENVIRONMENT.iter().fold(usage.clone(), |usage, flag| usage.replace(flag, ""));
        if plain != usage {
            error.insert(ContextKind::Usage, ContextValue::StyledStr(plain.into()));
        }
    }
    error
}

/// Help and the version, which are asked for, or what is wrong with the words.
fn told(error: &clap::Error) -> ExitCode {
    match error.print() {
        Err(unwritten) if !error.use_stderr() && unwritten.kind() != ErrorKind::BrokenPipe => {
            let _ = writeln!(std::io::stderr(), "countersign: {UNWRITTEN}: {unwritten}");
            ExitCode::FAILURE
        }
        Ok(()) | Err(_) => u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from),
    }
}

/// Keys and secrets are in the memory of most commands. `serve` does the same when it has read whether developers want it otherwise.
fn close_memory(command: &Command) -> anyhow::Result<()> {
    if matches!(command, Command::Serve(_)) {
        return Ok(());
    }
    crate::process::forbid_dumps().context("core dumps cannot be forbidden")
}

/// Does one command. `environment` is the process's.
pub fn run(command: Command, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(&args, environment),
        Command::Init(args) => init::init(&args, environment),
        Command::Serve(args) => serve::serve(&args, environment),
        Command::Migrate(args) => init::migrate(&args, environment),
        Command::Move(args) => moving::run(&args, environment),
        Command::Backup(args) => backup::backup(&args, environment),
        Command::Restore(args) => backup::restore(&args, environment),
        Command::Delivery(group) => group.run(environment),
        Command::Node(group) => group.run(environment),
        Command::Doctor(args) => doctor::doctor(&args, environment),
        Command::Config(args) => config::config(&args, environment),
        Command::Explain(args) => explain::run(&args, environment),
        Command::Sign(args) => sign::sign(&args, environment),
        Command::Call(args) => signed_call::call(&args, environment),
        Command::Verify(args) => sign::verify(&args, environment),
        Command::Certify(args) => certify::run(&args, environment),
        Command::Listen(args) => listen::run(&args, environment),
        Command::Institution(group) => group.run(environment),
        Command::Merchant(group) => group.run(environment),
        Command::SubAccount(group) => group.run(environment),
        Command::Application(group) => group.run(environment),
        Command::Secret(group) => group.run(environment),
        Command::Token(group) => recover::token(&group, environment),
        Command::Event(group) => group.run(environment),
        Command::FeeRule(group) => what_if::fee_rule(&group, environment),
        Command::ConvertOrder(group) => group.run(environment),
        Command::Rate(group) => group.run(environment),
        Command::PaymentOrder(group) => group.run(environment),
        Command::Evidence(evidence) => evidence.run(environment),
        Command::Statement(args) => statement::run(&args, environment),
        Command::Retention(retention) => retention.run(environment),
        Command::Audit(audit) => audit.run(environment),
        Command::MasterKey(master_key) => master_key.run(environment),
        Command::Completions(args) => completions::completions(&args),
    }
}

/// A runtime for commands that make a call or two.
fn small_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let entered = runtime.enter();
    crate::process::outlive_file_size_limit()?;
    drop(entered);
    Ok(runtime)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn clap_finds_no_fault_with_the_command_line() {
        Cli::command().debug_assert();
    }

    #[test]
    fn wrong_usage_is_exit_code_2() {
        for words in [
            vec!["countersign"],
            vec!["countersign", "sreve"],
            vec!["countersign", "serve", "--listen"],
            vec!["countersign", "event", "show"],
        ] {
            let error = Cli::try_parse_from(words.clone()).expect_err("it is refused");
            assert_eq!(error.exit_code(), 2, "{words:?}");
        }
    }
}
