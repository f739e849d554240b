//! `cargo xtask test`: everything that must hold. CI calls this and nothing else.

use std::process::ExitCode;

use anyhow::ensure;

use crate::cargo::{Watch, has, watch, watch_with};
use crate::check::{before_tests, verdict};
use crate::packages;

const NEXTEST: &[&str] = &["nextest", "run", "--locked", "--workspace"];
const PLAIN: &[&str] =
    &["test", "--locked", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests", "--examples"];

/// The tests that start whole servers run once more, on PostgreSQL: those of these binaries.
const ON_POSTGRES: (&str, &str) = ("TESTKIT_STORE", "postgres");
const WHOLE_SERVERS: &[&str] =
    &["--locked", "--package", "countersign", "--package", "countersign-testkit", "--test", "it"];

/// The one list of what the run on PostgreSQL leaves out, by parts of names, and why: nothing else is skipped anywhere.
const NOT_AGAIN: [(&str, &str); 25] = [
    ("tidy::", "reads source text, starts nothing"),
    ("egress::", "what goes out is not the store's; its network has no PostgreSQL"),
    ("histories::", "each of these names its store, and some name PostgreSQL"),
    ("the_demo_holds_every_claim", "one for each store"),
    ("fleet::", "always on PostgreSQL"),
    ("remembered_rules::", "always on PostgreSQL"),
    ("nodes::", "always on PostgreSQL"),
    ("moving::", "from SQLite to PostgreSQL"),
    ("moves::", "from SQLite to PostgreSQL"),
    ("sqlite_file::", "about SQLite's file"),
    ("shared::", "always on PostgreSQL"),
    ("failover::", "always on PostgreSQL"),
    ("certify::", "a command that sends by itself: no store"),
    ("node_settings::", "always on PostgreSQL"),
    ("words::a_database_without_a_deployment_", "always on PostgreSQL"),
    ("words::a_data_folder_that_is_not_there_", "always on PostgreSQL"),
    ("words::a_database_with_somebody_elses_tables_", "always on PostgreSQL"),
    ("words::an_address_that_the_server_refuses_", "always on PostgreSQL"),
    ("addresses::", "what is refused before anything is sent, or reaches nobody: no store"),
    ("strangers::", "what commands say of somebody else's answers: no store"),
    ("hostile::slow::", "what a connection may do before its request is read whole: no store"),
    ("hostile::floods::", "the same"),
    ("hostile::smuggling::", "the same"),
    ("http_2::", "the same"),
    ("tls::", "what a listener does with certificates: no store"),
];

const EXAMPLES_IN_DOCS: &[&str] = &["test", "--locked", "--workspace", "--no-fail-fast", "--doc"];

/// How many tests ran, and how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

/// Formatting, lints, dependencies, then every test; the last line counts them. All parts run, so that one run shows all that is wrong.
pub fn run(arguments: &[String]) -> anyhow::Result<ExitCode> {
    ensure!(arguments.is_empty(), "test takes no arguments; for some tests only, use `cargo nextest run FILTER`");
    packages::provide()?;
    let mut failed = before_tests()?;
    let mut count = Count::default();
    if !all_tests(&mut count)? {
        failed.push("a test failed, or the tests could not be built");
    }
    if !whole_servers_on_postgres(&mut count)? {
        failed.push("a test failed on PostgreSQL (TESTKIT_STORE=postgres)");
    }
    if !watch(EXAMPLES_IN_DOCS, Watch::Stdout, |line| count.add(from_cargo_test(line)))? {
        failed.push("an example in the documentation of a crate does not hold");
    }
    if count.passed + count.failed == 0 {
        failed.push("no test ran");
    }
    let code = verdict(&failed);
    println!("{} passed, {} failed", count.passed, count.failed);
    Ok(code)
}

fn all_tests(count: &mut Count) -> anyhow::Result<bool> {
    if has("nextest") {
        return watch(NEXTEST, Watch::Stderr, |line| count.add(from_nextest(line)));
    }
    eprintln!(
        "cargo-nextest is not installed, so `cargo test` runs the same tests, slower and without a time limit for each"
    );
    watch(PLAIN, Watch::Stdout, |line| count.add(from_cargo_test(line)))
}

fn whole_servers_on_postgres(count: &mut Count) -> anyhow::Result<bool> {
    let left_out = NOT_AGAIN.iter().flat_map(|(part, _)| ["--skip", part]);
    let with_nextest = has("nextest");
    let runner: &[&str] = if with_nextest { &["nextest", "run"] } else { &["test", "--no-fail-fast"] };
    let arguments: Vec<&str> = runner.iter().chain(WHOLE_SERVERS).copied().chain(["--"]).chain(left_out).collect();
    if with_nextest {
        watch_with(&arguments, Some(ON_POSTGRES), Watch::Stderr, |line| count.add(from_nextest(line)))
    } else {
        watch_with(&arguments, Some(ON_POSTGRES), Watch::Stdout, |line| count.add(from_cargo_test(line)))
    }
}

impl Count {
    fn add(&mut self, other: Option<Self>) {
        let other = other.unwrap_or_default();
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// `     Summary [   0.010s] 3 tests run: 2 passed (1 slow), 1 failed, 0 skipped`
fn from_nextest(line: &str) -> Option<Count> {
    let (_, tallies) = line.trim_start().strip_prefix("Summary [")?.split_once(" run: ")?;
    let of = |name| tallied(tallies, ',', name);
    // A test that ran out of time or could not be started has failed, whatever the runner calls it.
    Some(Count { passed: of("passed"), failed: of("failed") + of("timed out") + of("exec failed") })
}

/// `test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s`
fn from_cargo_test(line: &str) -> Option<Count> {
    let (_, tallies) = line.strip_prefix("test result: ")?.split_once(". ")?;
    Some(Count { passed: tallied(tallies, ';', "passed"), failed: tallied(tallies, ';', "failed") })
}

/// The number before `name` in a list such as `2 passed (1 slow), 1 failed`; 0 where the list has none.
fn tallied(list: &str, separator: char, name: &str) -> u64 {
    let numbered = list.split(separator).filter_map(|entry| entry.trim().split_once(' '));
    numbered
        .filter(|(_, what)| what.split(" (").next() == Some(name))
        .find_map(|(number, _)| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// A name that nothing has any more would leave nothing out, and nobody would know.
    #[test]
    fn what_is_left_out_on_postgresql_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        for (part, _) in NOT_AGAIN {
            let (modules, name) = part.rsplit_once("::").unwrap_or(("", part));
            let is_there = |of: &str| {
                let tests = root.join("crates").join(of).join("tests/it");
                if modules.is_empty() {
                    return std::fs::read_dir(&tests)
                        .expect("tests")
                        .any(|file| has_test(&file.expect("a file").path(), name));
                }
                has_test(&tests.join(modules.replace("::", "/")).with_extension("rs"), name)
            };
            assert!(is_there("server") || is_there("testkit"), "{part}");
        }
    }

    /// Whether there is such a module, and in it a test whose name begins so.
    fn has_test(file: &Path, name: &str) -> bool {
        name.is_empty() && file.exists()
            || std::fs::read_to_string(file).is_ok_and(|text| text.contains(&format!("fn {name}")))
    }

    #[test]
    fn the_summary_of_nextest_is_counted() {
        let line = "     Summary [   0.010s] 6 tests run: 3 passed (1 slow), 1 failed, 1 timed out, 1 exec failed, 7 skipped\n";
        assert_eq!(from_nextest(line), Some(Count { passed: 3, failed: 3 }));
        let line = "     Summary [   2.5s] 312/400 tests run: 312 passed, 0 skipped";
        assert_eq!(from_nextest(line), Some(Count { passed: 312, failed: 0 }));
    }

    #[test]
    fn the_result_line_of_cargo_test_is_counted() {
        let line =
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        assert_eq!(from_cargo_test(line), Some(Count { passed: 2, failed: 1 }));
    }

    #[test]
    fn other_lines_count_nothing() {
        for line in ["        PASS [   0.004s] xtask tests::x", "running 3 tests", "", "Summary", "test result: "] {
            assert_eq!((from_nextest(line), from_cargo_test(line)), (None, None), "{line:?}");
        }
    }
}
