//! The project's own commands, run as `cargo xtask COMMAND`: one file per command, listed in [`COMMANDS`].

use std::process::ExitCode;

mod backups;
mod behaviours;
mod bench;
mod cargo;
mod check;
mod decimals;
mod egress;
mod evidence;
mod fees;
mod fleet;
mod histories;
mod hostile;
mod idle;
mod kill;
mod moves;
mod neighbours;
mod one_order;
mod packages;
mod queued;
mod rewrap;
mod rotation;
mod strace;
mod test;
mod tools;
mod victim;

/// One command of this program.
struct Command {
    name: &'static str,
    summary: &'static str,
    run: fn(&[String]) -> anyhow::Result<ExitCode>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        summary: "everything that must hold: formatting, lints, all tests (what CI runs)",
        run: test::run,
    },
    Command { name: "check", summary: "the quick part: formatting, lints, the rules of the house", run: check::run },
    Command {
        name: "kill",
        summary: "[ROUNDS] [STORE] kill -9 under load, 200 times, nothing lost or doubled",
        run: kill::run,
    },
    Command {
        name: "fleet",
        summary: "RUN [N] several nodes on one PostgreSQL: replay, kills, failover, control, pauses, restarts, rolling",
        run: fleet::run,
    },
    Command {
        name: "histories",
        summary: "[N] [SEED] [STORE] 100,000 random histories of fee rules, conversions and payment orders on each store, against oracles",
        run: histories::run,
    },
    Command {
        name: "one-order",
        summary: "[ROUNDS] [STORE] one trade number, one clientReqId by 64 clients at once, and lost answers: one order each",
        run: one_order::run,
    },
    Command {
        name: "evidence",
        summary: "[TRIALS] [STORE] 1,000 spoiled files of evidence of each kind, each place named; forgers without the key",
        run: evidence::run,
    },
    Command {
        name: "fees",
        summary: "[ORDERS] [STORE] 100,000 orders under 20 rules: fees beside paper, a what-if beside running the rule, statements",
        run: fees::run,
    },
    Command {
        name: "decimals",
        summary: "[N] [SEED] 100,000 random figures from end to end, beside sums on paper",
        run: decimals::run,
    },
    Command {
        name: "move",
        summary: "[ROWS] 1,000,000 rows from SQLite to PostgreSQL, killed 20 times midway, every row compared",
        run: moves::run,
    },
    Command {
        name: "rotation",
        summary: "[ROUNDS] [STORE] secrets rotated under load: no request refused, no callback failing",
        run: rotation::run,
    },
    Command {
        name: "neighbours",
        summary: "[HUNG] [STORE] endpoints that hang beside one that works",
        run: neighbours::run,
    },
    Command {
        name: "queued",
        summary: "[EVENTS] [STORE] a start with very many events queued, whose endpoints then come back",
        run: queued::run,
    },
    Command {
        name: "victim",
        summary: "[SECONDS] [STORE] bad signatures in a merchant's name, which is served all the same",
        run: victim::run,
    },
    Command {
        name: "rewrap",
        summary: "[N] [STORE] 50 changes of the master key, killed at a random point each, every secret used",
        run: rewrap::run,
    },
    Command {
        name: "backups",
        summary: "[N] [STORE] 20 backups under load, restored elsewhere: a prefix, and nothing sent until told",
        run: backups::run,
    },
    Command {
        name: "matrix",
        summary: "[ONE_IN] [STORE] every route with every kind of key and header, on both stores: nobody reaches what is another's",
        run: hostile::matrix,
    },
    Command {
        name: "canaries",
        summary: "[N] [STORE] 1,000 secrets made, used, rotated and shown to a crash, and looked for everywhere",
        run: hostile::canaries,
    },
    Command {
        name: "timing",
        summary: "[N] [STORE] 100,000 refusals of each kind: whether their time tells anything",
        run: hostile::timing,
    },
    Command {
        name: "slow",
        summary: "[CONNECTIONS] [SECONDS] slowhttptest's four modes beside honest traffic",
        run: hostile::slow,
    },
    Command { name: "tls-scan", summary: "testssl.sh on the TLS listener", run: hostile::tls_scan },
    Command {
        name: "behaviours",
        summary: "endpoints that misbehave in every way: outcome, time and memory of each attempt",
        run: behaviours::run,
    },
    Command {
        name: "egress",
        summary: "[control] hostile URLs and names that flip: no connection to a forbidden address; control: with the guard off",
        run: egress::run,
    },
    Command { name: "strace", summary: "what is on disk before an answer leaves, from system calls", run: strace::run },
    Command { name: "idle", summary: "start-up time and memory of the real server", run: idle::run },
    Command {
        name: "bench",
        summary: "[hmac|query|tls|callbacks|ways|upgrades|orders|flat|query-postgres|postgres] figures, each beside its yardstick",
        run: bench::run,
    },
];

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
    (command.run)(rest).unwrap_or_else(|error| {
        eprintln!("cargo xtask {name}: {error:#}");
        ExitCode::FAILURE
    })
}

fn usage() -> String {
    let lines: Vec<String> = COMMANDS.iter().map(|c| format!("  {:<14} {}\n", c.name, c.summary)).collect();
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
