//! The project's own commands, run as `cargo xtask COMMAND`: listed in [`COMMANDS`]; most are programs of the testkit.

use std::process::ExitCode;

use anyhow::ensure;

mod bench;
mod cargo;
mod check;
mod egress;
mod fleet;
mod packages;
mod test;
mod tools;

use packages::Needs;
use tools::{EVERY, LASTING, Numbered};

/// One command of this program.
struct Command {
    name: &'static str,
    /// What may follow the name.
    words: &'static str,
    summary: &'static str,
    run: Run,
}

/// What a command does.
enum Run {
    /// A function of its own, which looks at its arguments and sees to what it needs.
    Own(fn(&[String]) -> anyhow::Result<ExitCode>),
    /// A program of the testkit with numbers and a store.
    Numbered(Numbered, Needs),
    /// A program of the testkit without arguments.
    Bare(&'static str, Needs),
}

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        words: "",
        summary: "everything that must hold: formatting, lints, all tests (what CI runs)",
        run: Run::Own(test::run),
    },
    Command {
        name: "check",
        words: "",
        summary: "the quick part: formatting, lints, the rules of the house",
        run: Run::Own(check::run),
    },
    Command {
        name: "kill",
        words: "[ROUNDS] [STORE]",
        summary: "kill -9 under load, 200 times, nothing lost or doubled",
        run: Run::Numbered(Numbered { program: "kill", default: "200", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "fleet",
        words: "RUN [N]",
        summary: "several nodes on one PostgreSQL: replay, kills, failover, control, pauses, restarts, rolling",
        run: Run::Own(fleet::run),
    },
    Command {
        name: "histories",
        words: "[N] [SEED] [STORE]",
        summary: "100,000 random histories of fee rules, conversions and payment orders on each store, against oracles",
        run: Run::Numbered(Numbered { program: "histories", default: "100000", stores: &EVERY }, Needs::Nothing),
    },
    Command {
        name: "one-order",
        words: "[ROUNDS] [STORE]",
        summary: "one trade number, one clientReqId by 64 clients at once, and lost answers: one order each",
        run: Run::Numbered(Numbered { program: "one_order", default: "1000", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "evidence",
        words: "[TRIALS] [STORE]",
        summary: "1,000 spoiled files of evidence of each kind, each place named; forgers without the key",
        run: Run::Numbered(Numbered { program: "evidence", default: "1000", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "fees",
        words: "[ORDERS] [STORE]",
        summary: "100,000 orders under 20 rules: fees beside paper, a what-if beside running the rule, statements",
        run: Run::Numbered(Numbered { program: "fees", default: "100000", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "decimals",
        words: "[N] [SEED]",
        summary: "100,000 random figures from end to end, beside sums on paper",
        run: Run::Numbered(Numbered { program: "decimals", default: "100000", stores: &[] }, Needs::Nothing),
    },
    Command {
        name: "move",
        words: "[ROWS]",
        summary: "1,000,000 rows from SQLite to PostgreSQL, killed 20 times midway, every row compared",
        run: Run::Numbered(Numbered { program: "moves", default: "1000000", stores: &[] }, Needs::Tests),
    },
    Command {
        name: "rotation",
        words: "[ROUNDS] [STORE]",
        summary: "secrets rotated under load: no request refused, no callback failing",
        run: Run::Numbered(Numbered { program: "rotation", default: "20", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "neighbours",
        words: "[HUNG] [STORE]",
        summary: "endpoints that hang beside one that works",
        run: Run::Numbered(Numbered { program: "neighbours", default: "10000", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "queued",
        words: "[EVENTS] [STORE]",
        summary: "a start with very many events queued, whose endpoints then come back",
        run: Run::Numbered(Numbered { program: "queued", default: "1000000", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "victim",
        words: "[SECONDS] [STORE]",
        summary: "bad signatures in a merchant's name, which is served all the same",
        run: Run::Numbered(Numbered { program: "victim", default: "30", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "rewrap",
        words: "[N] [STORE]",
        summary: "50 changes of the master key, killed at a random point each, every secret used",
        run: Run::Numbered(Numbered { program: "rewrap", default: "50", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "backups",
        words: "[N] [STORE]",
        summary: "20 backups under load, restored elsewhere: a prefix, and nothing sent until told",
        run: Run::Numbered(Numbered { program: "backups", default: "20", stores: &LASTING }, Needs::Nothing),
    },
    Command {
        name: "matrix",
        words: "[ONE_IN] [STORE]",
        summary: "every route with every kind of key and header, on both stores: nobody reaches what is another's",
        run: Run::Numbered(Numbered { program: "matrix", default: "1", stores: &LASTING }, Needs::Tests),
    },
    Command {
        name: "canaries",
        words: "[N] [STORE]",
        summary: "1,000 secrets made, used, rotated and shown to a crash, and looked for everywhere",
        run: Run::Numbered(Numbered { program: "canaries", default: "1000", stores: &LASTING }, Needs::Tests),
    },
    Command {
        name: "timing",
        words: "[N] [STORE]",
        summary: "100,000 refusals of each kind: whether their time tells anything",
        run: Run::Numbered(Numbered { program: "timing", default: "100000", stores: &LASTING }, Needs::Tests),
    },
    Command {
        name: "slow",
        words: "[CONNECTIONS] [SECONDS]",
        summary: "slowhttptest's four modes beside honest traffic",
        run: Run::Numbered(
            Numbered { program: "slow", default: "2000", stores: &[] },
            Needs::TestsAnd(&packages::SLOWHTTPTEST),
        ),
    },
    Command {
        name: "tls-scan",
        words: "",
        summary: "testssl.sh on the TLS listener",
        run: Run::Bare("tls_scan", Needs::TestsAnd(&packages::TESTSSL)),
    },
    Command {
        name: "behaviours",
        words: "",
        summary: "endpoints that misbehave in every way: outcome, time and memory of each attempt",
        run: Run::Bare("behaviours", Needs::Nothing),
    },
    Command {
        name: "egress",
        words: "[control]",
        summary: "hostile URLs and names that flip: no connection to a forbidden address; control: with the guard off",
        run: Run::Own(egress::run),
    },
    Command {
        name: "strace",
        words: "",
        summary: "what is on disk before an answer leaves, from system calls",
        run: Run::Bare("strace", Needs::Nothing),
    },
    Command {
        name: "idle",
        words: "",
        summary: "start-up time and memory of the real server",
        run: Run::Bare("idle", Needs::Nothing),
    },
    Command {
        name: "bench",
        words: "[hmac|query|tls|callbacks|ways|upgrades|orders|flat|query-postgres|postgres]",
        summary: "figures, each beside its yardstick",
        run: Run::Own(bench::run),
    },
];

impl Command {
    fn run(&self, arguments: &[String]) -> anyhow::Result<ExitCode> {
        let (name, given) = (self.name, arguments.iter().map(String::as_str).collect::<Vec<_>>());
        match &self.run {
            Run::Own(run) => run(arguments),
            Run::Numbered(numbered, needs) => {
                let wanted = numbered.in_order(name, self.words, &given)?;
                needs.provide()?;
                tools::run(numbered.program, &wanted)
            }
            Run::Bare(program, needs) => {
                ensure!(given.is_empty(), "{name} takes no arguments");
                needs.provide()?;
                tools::run(program, &[])
            }
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprint!("there is no command {name:?}\n\n{}", usage());
        return ExitCode::from(2);
    };
    command.run(rest).unwrap_or_else(|error| {
        eprintln!("cargo xtask {name}: {error:#}");
        ExitCode::FAILURE
    })
}

fn usage() -> String {
    let line = |c: &Command| {
        let gap = if c.words.is_empty() { "" } else { " " };
        format!("  {:<14} {}{gap}{}\n", c.name, c.words, c.summary)
    };
    let lines: Vec<String> = COMMANDS.iter().map(line).collect();
    format!("usage: cargo xtask COMMAND\n\n{}", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_names_every_command() {
        for command in COMMANDS {
            assert!(usage().contains(&format!("  {} ", command.name)), "{} is missing from the usage", command.name);
        }
    }
}
