//! The project's files as the rules see them, and just enough of Rust's grammar to tell code from words.
//!
//! Invariant: nothing here parses Rust. The code is formatted by rustfmt, and the rules ask simple questions.

use std::path::Path;
use std::sync::LazyLock;

/// One text file of the project.
#[derive(Clone, Debug)]
pub struct Source {
    /// From the root, with `/` between the parts.
    pub path: String,
    /// As it stands.
    pub text: String,
    /// Comments, strings and character literals blanked; every line keeps its number.
    pub code: String,
    /// Only comments blanked.
    pub code_and_strings: String,
}

/// A function and how many lines it has, signature and closing brace included.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
    /// At the top of its file, and `pub async`: what a router can be given.
    pub is_pub_async: bool,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let (path, text) = (path.to_owned(), text.to_owned());
        let mut source = Self { path, code: text.clone(), code_and_strings: text.clone(), text };
        if source.is_rust() {
            (source.code, source.code_and_strings) = blanked(&source.text);
        }
        source
    }

    /// Whether the file has this extension.
    pub fn is_a(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == extension)
    }

    pub fn is_rust(&self) -> bool {
        self.is_a("rs")
    }

    /// The file's name without folders and `.rs`.
    pub fn stem(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.strip_suffix(".rs").unwrap_or(name)
    }

    /// Whether the file belongs to module `name` of the folder `sources`: `name.rs`, or anything under `name/`.
    pub fn is_of_module(&self, sources: &str, name: &str) -> bool {
        let Some(rest) = self.path.strip_prefix(sources) else { return false };
        rest.strip_prefix(name).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
    }

    /// Every function with a body. A function of a trait without one has no length.
    pub fn functions(&self) -> Vec<Function> {
        let words = positions(&self.code, "fn");
        words.filter_map(|at| function_at(&self.code, at)).collect()
    }
}

/// Every text file of the project, by path; read once for each process. Folders that builds and tools make are left out.
pub static PROJECT: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    collect(&root, "", &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
});

fn collect(folder: &Path, prefix: &str, found: &mut Vec<Source>) {
    for entry in std::fs::read_dir(folder).expect("the project's folders can be read") {
        let entry = entry.expect("the project's folders can be read");
        let name = entry.file_name().to_string_lossy().into_owned();
        if matches!(name.as_str(), ".git" | "target") {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type().expect("a file has a type").is_dir() {
            collect(&entry.path(), &format!("{path}/"), found);
        } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
            found.push(Source::new(&path, &text));
        }
    }
}

/// Where `word` stands as a whole word. A word with punctuation at an end, such as `http::`, needs no boundary there.
pub fn positions<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = text[..at].chars().next_back().is_some_and(is_part) && word.starts_with(is_part);
        let after = text[at + word.len()..].chars().next().is_some_and(is_part) && word.ends_with(is_part);
        !before && !after
    })
}

/// The number of the line that holds the byte at `at`, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn function_at(code: &str, at: usize) -> Option<Function> {
    let name: String =
        code[at..].strip_prefix("fn ")?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let start = code[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let mut depth = 0_i32;
    let mut open = None;
    for (offset, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => {
                open = Some(at + offset);
                break;
            }
            _ => {}
        }
    }
    let end = closing_brace(code, open?)?;
    let lines = line_of(code, end) - line_of(code, start) + 1;
    let is_pub_async = code[start..at].starts_with("pub async ");
    Some(Function { name, line: line_of(code, at), lines, is_pub_async }).filter(|f| !f.name.is_empty())
}

fn closing_brace(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return Some(open + offset);
        }
    }
    None
}

/// The text without comments and strings, and the text without comments. Line breaks stay.
fn blanked(text: &str) -> (String, String) {
    let (mut code, mut strings) = (String::with_capacity(text.len()), String::with_capacity(text.len()));
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (kind, length) = token(rest, code.chars().next_back());
        // Code is taken to the next place where something else can begin: a character at a time takes seconds.
        let length = if kind == Kind::Code { length + plain(&rest[length..]) } else { length };
        let (token, after) = rest.split_at(length.max(c.len_utf8()));
        rest = after;
        if kind == Kind::Code {
            code.push_str(token);
            strings.push_str(token);
            continue;
        }
        let blank: String = token.chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        code.push_str(&blank);
        strings.push_str(if kind == Kind::Comment { &blank } else { token });
    }
    (code, strings)
}

/// How many bytes of `rest` are surely code.
fn plain(rest: &str) -> usize {
    rest.bytes().position(|b| matches!(b, b'/' | b'"' | b'\'' | b'r' | b'b')).unwrap_or(rest.len())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// What `rest` begins with and how long that is in bytes. `before` tells the `r` of `r"..."` from the end of a name.
fn token(rest: &str, before: Option<char>) -> (Kind, usize) {
    let bytes = rest.as_bytes();
    let in_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment(rest));
    }
    if !in_name && let Some(length) = raw_string(rest) {
        return (Kind::Literal, length);
    }
    match bytes[0] {
        b'"' => (Kind::Literal, quoted(rest, b'"')),
        // A lifetime has no quote behind its first character: 'a, but 'x' and '\n'.
        b'\'' if bytes.get(1) == Some(&b'\\') => (Kind::Literal, quoted(rest, b'\'')),
        b'\'' => match rest[1..].char_indices().nth(1) {
            Some((at, '\'')) => (Kind::Literal, at + 2),
            Some(_) | None => (Kind::Code, 1),
        },
        _ => (Kind::Code, 0),
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_i32;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        let step = if here.starts_with(b"/*") {
            depth += 1;
            2
        } else if here.starts_with(b"*/") {
            depth -= 1;
            2
        } else {
            1
        };
        at += step;
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of `r"..."`, `r#"..."#`, `br#"..."#`, if `rest` begins with one.
fn raw_string(rest: &str) -> Option<usize> {
    let prefix = if rest.starts_with("br") { 2 } else { usize::from(rest.starts_with('r')) };
    let hashes = rest[prefix..].bytes().take_while(|b| *b == b'#').count();
    if prefix == 0 || rest.as_bytes().get(prefix + hashes) != Some(&b'"') {
        return None;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let inside = prefix + hashes + 1;
    Some(rest[inside..].find(&end).map_or(rest.len(), |at| inside + at + end.len()))
}

fn quoted(rest: &str, quote: u8) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}
