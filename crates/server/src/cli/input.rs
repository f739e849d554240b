//! A file that a command reads, or standard input where `-` is its name.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;

/// One of the two.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a Path);

impl<'a> Input<'a> {
    /// What the command line names.
    pub fn named(path: &'a Path) -> Self {
        Self(path)
    }

    fn is_standard(self) -> bool {
        self.0 == Path::new("-")
    }

    /// Opens it.
    pub fn open(self) -> io::Result<Box<dyn BufRead>> {
        Ok(if self.is_standard() {
            Box::new(io::stdin().lock())
        } else {
            Box::new(BufReader::new(File::open(self.0)?))
        })
    }

    /// All of it; none where it is longer than `max` bytes. It is never cut.
    pub fn whole(self, max: u64) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.open()?.take(max + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= max))
    }
}

impl fmt::Display for Input<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_standard() { f.write_str("standard input") } else { self.0.display().fmt(f) }
    }
}
