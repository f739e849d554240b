//! The testkit's own programs, built for release beside the server that they start.

use std::process::ExitCode;

use anyhow::{Context, ensure};

use crate::cargo::holds;

const BUILD: &[&str] =
    &["build", "--release", "--locked", "--package", "countersign", "--package", "countersign-testkit", "--bins"];
const RUN: &[&str] = &["run", "--release", "--locked", "--quiet", "--package", "countersign-testkit", "--bin"];

/// The word for one of a run's stores.
const STORE: &str = "STORE";
/// The stores that most runs can be told to use.
pub const LASTING: [&str; 2] = ["sqlite", "postgres"];
/// The same, and the model of one in memory.
pub const EVERY: [&str; 3] = ["model", "sqlite", "postgres"];

/// Builds everything for release and runs one program of the testkit. Its failure is ours.
pub fn run(program: &str, arguments: &[&str]) -> anyhow::Result<ExitCode> {
    if !holds(BUILD)? || !holds(&[RUN, &[program, "--"], arguments].concat())? {
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// A run whose arguments are whole numbers and, where that makes a difference, the name of a store.
#[derive(Clone, Copy, Debug)]
pub struct Numbered {
    /// The program.
    pub program: &'static str,
    /// The first number where none is given.
    pub default: &'static str,
    /// The names of stores of which one may come last; which are meant where none does is the program's.
    pub stores: &'static [&'static str],
}

impl Numbered {
    /// What a person gave after the command's name, in the order that the program wants: as many numbers as the words of the usage name,
    /// then the store.
    pub fn in_order<'a>(&self, name: &str, words: &str, given: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
        let usage = format!("usage: cargo xtask {name} {}", words.replace(STORE, &self.stores.join("|")));
        let most = words.split(' ').filter(|word| !word.contains(STORE)).count();
        let (numbers, store) = match given.split_last() {
            Some((last, numbers)) if self.stores.contains(last) => (numbers, Some(*last)),
            _ => (given, None),
        };
        ensure!(numbers.len() <= most, "{usage}");
        for number in numbers {
            number.parse::<u64>().with_context(|| format!("{number} is no number; {usage}"))?;
        }
        let first = if numbers.is_empty() { vec![self.default] } else { numbers.to_vec() };
        Ok(first.into_iter().chain(store).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Numbered = Numbered { program: "kill", default: "200", stores: &LASTING };

    fn in_order<'a>(run: Numbered, given: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
        run.in_order("kill", "[ROUNDS] [SEED] [STORE]", given)
    }

    #[test]
    fn numbers_come_first_and_the_first_has_a_default() {
        for (given, wanted) in [
            (&[][..], &["200"][..]),
            (&["7"], &["7"]),
            (&["7", "8"], &["7", "8"]),
            (&["postgres"], &["200", "postgres"]),
            (&["7", "sqlite"], &["7", "sqlite"]),
        ] {
            assert_eq!(in_order(RUN, given).expect("this is how it is called"), wanted);
        }
    }

    #[test]
    fn other_words_are_refused_with_the_usage() {
        let silent = Numbered { stores: &[], ..RUN };
        for (run, given) in
            [(RUN, &["mysql"][..]), (RUN, &["1", "2", "3"]), (RUN, &["postgres", "7"]), (silent, &["postgres"])]
        {
            let refused = in_order(run, given).expect_err("refused").to_string();
            assert!(refused.contains("usage: cargo xtask kill"), "{refused}");
        }
    }
}
