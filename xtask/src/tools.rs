//! The testkit's own programs, built for release beside the server that they start.

use std::process::ExitCode;

use anyhow::{Context, ensure};

use crate::cargo::holds;

const BUILD: &[&str] =
    &["build", "--release", "--locked", "--package", "countersign", "--package", "countersign-testkit", "--bins"];
const RUN: &[&str] = &["run", "--release", "--locked", "--quiet", "--package", "countersign-testkit", "--bin"];

/// The stores that most runs can be told to use.
pub const LASTING: [&str; 2] = ["sqlite", "postgres"];

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
    /// How many numbers it takes at most.
    pub most: usize,
    /// The first one where none is given.
    pub default: &'static str,
    /// The names of stores of which one may come last.
    pub stores: &'static [&'static str],
    /// What comes after `cargo xtask`.
    pub usage: &'static str,
}

impl Numbered {
    /// Runs it with what a person gave, in the order that the program wants: numbers, then the store.
    pub fn run(&self, arguments: &[String]) -> anyhow::Result<ExitCode> {
        let given: Vec<&str> = arguments.iter().map(String::as_str).collect();
        run(self.program, &self.in_order(&given)?)
    }

    fn in_order<'a>(&self, given: &[&'a str]) -> anyhow::Result<Vec<&'a str>> {
        let Self { most, usage, .. } = self;
        let (numbers, store) = match given.split_last() {
            Some((last, numbers)) if self.stores.contains(last) => (numbers, Some(*last)),
            _ => (given, None),
        };
        ensure!(numbers.len() <= *most, "usage: cargo xtask {usage}");
        for number in numbers {
            number.parse::<u64>().with_context(|| format!("{number} is no number; usage: cargo xtask {usage}"))?;
        }
        let first = if numbers.is_empty() { vec![self.default] } else { numbers.to_vec() };
        Ok(first.into_iter().chain(store).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Numbered =
        Numbered { program: "kill", most: 2, default: "200", stores: &LASTING, usage: "kill [ROUNDS] [SEED] [STORE]" };

    #[test]
    fn numbers_come_first_and_the_first_has_a_default() {
        for (given, wanted) in [
            (&[][..], &["200"][..]),
            (&["7"], &["7"]),
            (&["7", "8"], &["7", "8"]),
            (&["postgres"], &["200", "postgres"]),
            (&["7", "sqlite"], &["7", "sqlite"]),
        ] {
            assert_eq!(RUN.in_order(given).expect("this is how it is called"), wanted);
        }
    }

    #[test]
    fn other_words_are_refused_with_the_usage() {
        let silent = Numbered { stores: &[], ..RUN };
        for (run, given) in
            [(RUN, &["mysql"][..]), (RUN, &["1", "2", "3"]), (RUN, &["postgres", "7"]), (silent, &["postgres"])]
        {
            let refused = run.in_order(given).expect_err("refused").to_string();
            assert!(refused.contains("usage: cargo xtask kill"), "{refused}");
        }
    }
}
