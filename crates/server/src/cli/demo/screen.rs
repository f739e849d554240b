//! What the demo shows: what is sent, what came back, what that proves. In colour on a terminal, plain in a pipe.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::IsTerminal as _;

use crate::cli::pretty::{Layout, pretty};
use crate::cli::say;

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "1;31";
const GREEN: &str = "32";
const CYAN: &str = "36";

const TEXT_WIDTH: usize = 100;

/// Where the page goes.
#[derive(Debug)]
enum Out {
    Stdout,
    #[cfg(test)]
    Kept(RefCell<Vec<String>>),
}

/// The demo's page, and the count of what held.
#[derive(Debug)]
pub struct Screen {
    out: Out,
    colour: bool,
    chapter: usize,
    /// Whether the last line was a chapter's introduction.
    after_about: Cell<bool>,
    held: usize,
    failed: Vec<String>,
    /// Why a line of the page could not be written: the first.
    unwritten: RefCell<Option<anyhow::Error>>,
}

impl Screen {
    /// For this process's stdout. `NO_COLOR` in the environment, if not empty, means plain.
    pub fn stdout(environment: &BTreeMap<String, String>) -> Self {
        let wanted = environment.get("NO_COLOR").is_none_or(String::is_empty);
        let able = environment.get("TERM").is_none_or(|term| term != "dumb");
        Self {
            out: Out::Stdout,
            colour: wanted && able && std::io::stdout().is_terminal(),
            chapter: 0,
            after_about: Cell::new(false),
            held: 0,
            failed: Vec::new(),
            unwritten: RefCell::default(),
        }
    }

    fn paint(&self, style: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// A line as it is.
    pub fn line(&self, text: &str) {
        match &self.out {
            Out::Stdout => {
                // The walk goes on all the same, and what it made is taken away at its end.
                if let Err(error) = say(&format!("{text}\n")) {
                    self.unwritten.borrow_mut().get_or_insert(error);
                }
            }
            #[cfg(test)]
            Out::Kept(lines) => lines.borrow_mut().push(text.to_owned()),
        }
    }

    /// The first line of all.
    pub fn title(&self, text: &str) {
        self.line(&self.paint(BOLD, text));
        self.line("");
    }

    /// A named value.
    pub fn fact(&self, name: &str, value: &str) {
        self.line(&format!("  {}{value}", self.paint(DIM, &format!("{name:<15}"))));
    }

    /// The next chapter, and what it is about.
    pub fn chapter(&mut self, title: &str, about: &str) {
        self.chapter += 1;
        self.line("");
        self.line(&self.paint(BOLD, &format!("{}. {title}", self.chapter)));
        self.text(about, 3, DIM);
        self.after_about.set(true);
    }

    /// What comes next, in words.
    pub fn say(&self, text: &str) {
        self.after_about.set(false);
        self.line("");
        self.text(text, 3, "");
    }

    /// A request.
    pub fn sent(&self, what: &str, body: Option<&str>) {
        if self.after_about.replace(false) {
            self.line("");
        }
        self.line(&format!("   {} {}", self.paint(CYAN, "→"), self.paint(CYAN, what)));
        if let Some(body) = body {
            self.line(&format!("     {}", pretty(body, 5, Layout::Filled)));
        }
    }

    /// A detail of a request or an answer: a header, a clock.
    pub fn detail(&self, text: &str) {
        self.line(&format!("     {}", self.paint(DIM, text)));
    }

    /// An answer.
    pub fn got(&self, status: &str, body: &str) {
        self.line(&format!("   {} {}", self.paint(CYAN, "←"), self.paint(CYAN, status)));
        if !body.is_empty() {
            self.line(&format!("     {}", pretty(body, 5, Layout::Filled)));
        }
    }

    /// What the exchange proves, if `holds`.
    pub fn proves(&mut self, holds: bool, what: &str) {
        if holds {
            self.held += 1;
            let mark = self.paint(GREEN, "✓");
            self.marked(&mark, what);
        } else {
            self.failed.push(format!("{}. {what}", self.chapter));
            let mark = self.paint(RED, "✗ NOT SO:");
            self.marked(&mark, what);
        }
    }

    fn marked(&self, mark: &str, text: &str) {
        for (at, line) in wrapped(text, TEXT_WIDTH - 5).iter().enumerate() {
            if at == 0 { self.line(&format!("   {mark} {line}")) } else { self.line(&format!("     {line}")) }
        }
    }

    fn text(&self, text: &str, margin: usize, style: &str) {
        for line in wrapped(text, TEXT_WIDTH - margin) {
            let line = if style.is_empty() { line } else { self.paint(style, &line) };
            self.line(&format!("{:margin$}{line}", ""));
        }
    }

    /// A step that could not be walked to its end.
    pub fn broke(&mut self, what: &str, error: &anyhow::Error) {
        self.proves(false, &format!("{what}: {error:#}"));
    }

    /// Fails where a part of the page could not be written, but for a reader that went away.
    pub fn demand_written(&self) -> anyhow::Result<()> {
        self.unwritten.take().map_or(Ok(()), Err)
    }

    /// How it went; true only if everything held, and something did.
    pub fn summary(&self) -> bool {
        self.line("");
        if self.failed.is_empty() && self.held > 0 {
            self.line(&self.paint(GREEN, &format!("All {} claims held.", self.held)));
            return true;
        }
        self.line(&self.paint(RED, &format!("{} claims held, {} did not:", self.held, self.failed.len())));
        for failed in &self.failed {
            self.line(&format!("  ✗ {failed}"));
        }
        false
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the beginning");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Screen {
        Screen {
            out: Out::Kept(RefCell::default()),
            colour: false,
            chapter: 0,
            after_about: Cell::new(false),
            held: 0,
            failed: Vec::new(),
            unwritten: RefCell::default(),
        }
    }

    #[test]
    fn one_claim_that_does_not_hold_is_a_failure_of_all() {
        let mut screen = plain();
        assert!(!screen.summary(), "a demo that shows nothing proves nothing");
        screen.proves(true, "a");
        assert!(screen.summary());
        screen.proves(false, "b");
        screen.proves(true, "c");
        assert!(!screen.summary());
        assert_eq!((screen.held, screen.failed.len()), (2, 1));
    }

    #[test]
    fn a_step_is_shown_with_what_was_sent_what_came_back_and_what_that_proves() {
        let mut screen = plain();
        screen.chapter("Title", "about");
        screen.sent("GET /x", None);
        screen.got("HTTP 200 OK", r#"{"a":1}"#);
        screen.proves(true, "it works");
        let Out::Kept(lines) = &screen.out else { panic!("it is kept") };
        assert_eq!(
            *lines.borrow(),
            ["", "1. Title", "   about", "", "   → GET /x", "   ← HTTP 200 OK", r#"     {"a": 1}"#, "   ✓ it works"]
        );
    }

    #[test]
    fn colour_is_only_where_it_is_wanted() {
        assert_eq!(plain().paint(GREEN, "x"), "x");
        assert_eq!(Screen { colour: true, ..plain() }.paint(GREEN, "x"), "\x1b[32mx\x1b[0m");
        assert!(!Screen::stdout(&BTreeMap::from([("NO_COLOR".to_owned(), "1".to_owned())])).colour);
    }

    #[test]
    fn long_text_is_wrapped_between_words() {
        assert_eq!(wrapped("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("abcdefgh i", 5), ["abcdefgh", "i"]);
    }
}
