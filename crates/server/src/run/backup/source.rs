//! The file that a restore reads: one that it opens by its name, or standard input.
//!
//! Standard input is read through the descriptor that the process was given, never opened anew by its name in `/dev`: whoever runs the restore need
//! not be allowed to open the file, as the user of a systemd unit is not allowed to open a backup that root made.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail, ensure};

use super::{FORMAT, FORMAT_WITHOUT_SUM, MAGIC, TRAILER_BYTES_MAX, Trailer, parts, sum, sum_of};

/// What standard input is called: by our commands, and by the kernel.
const STANDARD: [&str; 4] = ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
const ADVICE: &str = "name the file that `countersign backup` made";

/// An open file that may be a backup.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    name: String,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Source {
    /// Opens what the command line names.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        if STANDARD.iter().any(|name| path == Path::new(name)) { Self::standard() } else { Self::named(path) }
    }

    fn standard() -> anyhow::Result<Self> {
        let given = std::io::stdin().as_fd().try_clone_to_owned();
        let source =
            Self { file: given.context("standard input cannot be read")?.into(), name: "standard input".to_owned() };
        let metadata = source.file.metadata().context("standard input cannot be read")?;
        ensure!(
            metadata.is_file(),
            "standard input is no regular file, and a backup is read from its end: give it the file itself, as in `restore - < FILE`"
        );
        Ok(source)
    }

    fn named(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let unreadable = |error: std::io::Error| {
            let is_denied = error.kind() == ErrorKind::PermissionDenied;
            let then =
                if is_denied { "; who may read it can hand it over as standard input: `restore - < FILE`" } else { "" };
            anyhow!("{name} cannot be read: {error}{then}")
        };
        // Before it is opened: a pipe would wait for whoever writes into it.
        let metadata = match std::fs::metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!("{name} is not there: {ADVICE}"),
            found => found.map_err(unreadable)?,
        };
        ensure!(!metadata.is_dir(), "{name} is a folder: {ADVICE}");
        ensure!(
            metadata.is_file(),
            "{name} is no regular file, and a backup is read from its end: write it to a file first"
        );
        let file = File::open(path).map_err(unreadable)?;
        Ok(Self { file, name })
    }

    /// The file from its first byte on, wherever it was read to before.
    fn rewound(&self) -> std::io::Result<&File> {
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }

    /// SHA-256 of the database in it, in hexadecimal; each chunk is handed on, too. Whoever takes chunks says by itself what it could not do.
    pub(super) fn unpack(
        &self,
        bytes: u64,
        mut take: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<String> {
        let mut untaken = None;
        let hand_on = |chunk: &[u8]| {
            take(chunk).map_err(|error| {
                untaken = Some(error);
                std::io::Error::from(ErrorKind::Other)
            })
        };
        let found = self.rewound().and_then(|file| sum(&mut BufReader::new(file), bytes, hand_on));
        match untaken {
            Some(error) => Err(error),
            None => found.with_context(|| format!("{self} cannot be read")),
        }
    }

    /// What a backup says of itself.
    pub(super) fn trailer(&self) -> anyhow::Result<Trailer> {
        let none = || format!("{self} is no backup of Countersign, or its end is missing or damaged: {ADVICE}");
        let unreadable = || format!("{self} cannot be read");
        let length = self.file.metadata().with_context(unreadable)?.len();
        let mut from = &self.file;
        from.seek(SeekFrom::Start(length.saturating_sub(TRAILER_BYTES_MAX))).with_context(unreadable)?;
        let mut end = Vec::new();
        from.take(TRAILER_BYTES_MAX).read_to_end(&mut end).with_context(unreadable)?;
        let start = format!("\n{MAGIC}");
        let at = end.windows(start.len()).rposition(|window| window == start.as_bytes()).with_context(none)?;
        let line = &end[at + start.len()..];
        let line_bytes = line.iter().position(|byte| *byte == b'\n').map_or(line.len(), |end| end + 1);
        let more = line.len() - line_bytes;
        ensure!(
            more == 0,
            "{self} has {more} bytes behind the end of the backup: cut them off, or bring the file as `countersign backup` made it"
        );
        // Where in the line it breaks off says nothing to whoever has the file.
        let (said, own) = parts(line);
        let is_damaged = own.is_some_and(|own| own != sum_of(said).as_bytes());
        ensure!(
            !is_damaged,
            "{self} is damaged in its last line, which is not what was written: take another copy of it"
        );
        let trailer: Trailer = serde_json::from_slice(said).map_err(|_| anyhow!(none()))?;
        ensure!(trailer.format != FORMAT || own.is_some(), none());
        ensure!(
            matches!(trailer.format, FORMAT | FORMAT_WITHOUT_SUM),
            "{self} is a backup of form {}, this program reads form {FORMAT} and older: use the program that wrote it ({})",
            trailer.format,
            trailer.version
        );
        let whole = trailer.bytes.checked_add((end.len() - at) as u64) == Some(length) && line.ends_with(b"\n");
        ensure!(whole, "{self} has not the length that it says");
        Ok(trailer)
    }
}
