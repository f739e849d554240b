//! Runs cargo as a person would, from the root of the project, and reads what it prints.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

/// The stream that is read while it is passed on.
#[derive(Clone, Copy, Debug)]
pub enum Watch {
    /// `cargo test` prints its results here.
    Stdout,
    /// `cargo nextest` prints its summary here.
    Stderr,
}

/// `cargo ARGUMENTS` in the root of the project; whoever started us decides about the target folder.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root());
    command
}

/// Whether `cargo NAME` is installed.
pub fn has(name: &str) -> bool {
    let quiet = cargo(&[name, "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

/// Says what is run, runs it, and says whether it held.
pub fn holds(arguments: &[&str]) -> anyhow::Result<bool> {
    announce(arguments);
    let status = cargo(arguments).status().context("cargo could not be started")?;
    Ok(status.success())
}

/// The same with a variable of its own.
pub fn holds_with(arguments: &[&str], (name, value): (&str, &str)) -> anyhow::Result<bool> {
    eprintln!("--> {name}='{value}' cargo {}", arguments.join(" "));
    let status = cargo(arguments).env(name, value).status().context("cargo could not be started")?;
    Ok(status.success())
}

/// Runs it, passes on what it prints, and hands each line of one stream to `line`. Returns whether it held.
pub fn watch(arguments: &[&str], stream: Watch, line: impl FnMut(&str)) -> anyhow::Result<bool> {
    watch_with(arguments, None, stream, line)
}

/// The same with a variable of its own.
pub fn watch_with(
    arguments: &[&str],
    variable: Option<(&str, &str)>,
    stream: Watch,
    mut line: impl FnMut(&str),
) -> anyhow::Result<bool> {
    let mut command = cargo(arguments);
    match variable {
        Some((name, value)) => {
            eprintln!("--> {name}={value} cargo {}", arguments.join(" "));
            command.env(name, value);
        }
        None => announce(arguments),
    }
    let colour = if std::io::stderr().is_terminal() { "always" } else { "never" };
    command.env("CARGO_TERM_COLOR", colour);
    match stream {
        Watch::Stdout => command.stdout(Stdio::piped()),
        Watch::Stderr => command.stderr(Stdio::piped()),
    };
    let mut child = command.spawn().context("cargo could not be started")?;
    let (mut from, mut to): (Box<dyn BufRead>, Box<dyn Write>) = match stream {
        Watch::Stdout => {
            (Box::new(BufReader::new(child.stdout.take().expect("it was piped"))), Box::new(std::io::stdout()))
        }
        Watch::Stderr => {
            (Box::new(BufReader::new(child.stderr.take().expect("it was piped"))), Box::new(std::io::stderr()))
        }
    };
    let mut bytes = Vec::new();
    while from.read_until(b'\n', &mut bytes)? > 0 {
        to.write_all(&bytes)?;
        line(&plain(&String::from_utf8_lossy(&bytes)));
        bytes.clear();
    }
    Ok(child.wait()?.success())
}

fn announce(arguments: &[&str]) {
    eprintln!("--> cargo {}", arguments.join(" "));
}

/// The line without its colours.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        text.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root of the project")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_taken_out_of_a_line() {
        assert_eq!(
            plain("\u{1b}[32;1m  Summary\u{1b}[0m [ 1s] \u{1b}[1m2\u{1b}[0m tests\n"),
            "  Summary [ 1s] 2 tests\n"
        );
        assert_eq!(plain("no colour"), "no colour");
    }
}
