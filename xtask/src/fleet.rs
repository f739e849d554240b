//! `cargo xtask fleet RUN [N]`: several real nodes on one PostgreSQL, behind haproxy: what they must hold, in large. `control` is the
//! failover to a standby that lags, which must lose some.

use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::{packages, tools};

/// The runs, and how many rounds each has unless told otherwise.
const RUNS: [(&str, &str); 7] = [
    ("replay", "1000"),
    ("kills", "100"),
    ("failover", "20"),
    ("control", "3"),
    ("pauses", "50"),
    ("restarts", "50"),
    ("rolling", "20"),
];

/// One run.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, rounds) = read(&given)?;
    packages::provide()?;
    tools::run("fleet", &[name, rounds])
}

fn read<'a>(given: &[&'a str]) -> anyhow::Result<(&'static str, &'a str)> {
    let names: Vec<&str> = RUNS.iter().map(|(name, _)| *name).collect();
    let usage = format!("usage: cargo xtask fleet {} [N]", names.join("|"));
    let (Some(asked), true) = (given.first(), given.len() <= 2) else { bail!(usage) };
    let (name, default) = RUNS.iter().find(|(name, _)| name == asked).context(usage.clone())?;
    let rounds = given.get(1).copied().unwrap_or(default);
    rounds.parse::<u64>().with_context(|| format!("{rounds} is no number; {usage}"))?;
    Ok((*name, rounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_name_and_its_own_number_of_rounds() {
        assert_eq!(read(&["replay"]).expect("a run"), ("replay", "1000"));
        assert_eq!(read(&["replay", "7"]).expect("a run"), ("replay", "7"));
        for given in [&[][..], &["nothing"], &["replay", "x"], &["replay", "1", "2"]] {
            assert!(
                read(given).expect_err("refused").to_string().contains("usage: cargo xtask fleet replay"),
                "{given:?}"
            );
        }
    }
}
