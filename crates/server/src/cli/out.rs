//! What commands print.

use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::ExitCode;

use anyhow::Context as _;
use rustix::fs::{OFlags, fcntl_getfl};

/// What is said of output that could not be written.
pub(super) const UNWRITTEN: &str = "what was to be printed could not be written";

/// Writes to stdout. A reader that went away (`| head`) is no failure of ours; a full disk is.
pub(super) fn say(text: &str) -> anyhow::Result<()> {
    say_more(text).map(|_| ())
}

/// The same for what is said in many parts: whether somebody reads on.
pub(super) fn say_more(text: &str) -> anyhow::Result<bool> {
    say_bytes(text.as_bytes())
}

/// The same for what is passed on as it came.
pub(super) fn say_bytes(bytes: &[u8]) -> anyhow::Result<bool> {
    match write(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context(UNWRITTEN),
    }
}

/// Writes what is shown this once, so that a reader that went away is a failure, too. `lost` says what is made, and what to do where nobody saw it.
pub(super) fn say_once(text: &str, lost: impl FnOnce() -> String) -> anyhow::Result<()> {
    let unread = || io::Error::from(ErrorKind::BrokenPipe);
    let said = match is_closed() {
        Ok(false) => say_more(text).and_then(|is_read| is_read.then_some(()).ok_or_else(unread).context(UNWRITTEN)),
        Ok(true) => Err(io::Error::other("standard output is closed, or goes nowhere")).context(UNWRITTEN),
        Err(error) => Err(error).context(UNWRITTEN),
    };
    said.with_context(lost)
}

/// How a command ends that has shown what it made: a database that could not be closed in order is a failure, and loses nothing.
pub(super) fn shown(unclosed: Option<anyhow::Error>, made: &'static str) -> anyhow::Result<ExitCode> {
    unclosed.map_or(Ok(ExitCode::SUCCESS), |error| Err(error.context(made)))
}

/// The library's own stdout takes whatever it cannot write for written, where the descriptor is not one to write to.
fn write(bytes: &[u8]) -> io::Result<()> {
    let out = io::stdout().lock();
    File::from(out.as_fd().try_clone_to_owned()?).write_all(bytes)
}

/// Whether the process was started without a stdout (`>&-`). The library opens `/dev/null` in its place, for reading and writing, as some programs do for
/// what they start and do not listen to; `>/dev/null`, which somebody has written, is for writing alone.
fn is_closed() -> io::Result<bool> {
    let out = io::stdout();
    let is_both = fcntl_getfl(out.as_fd())?.contains(OFlags::RDWR);
    let opened = File::from(out.as_fd().try_clone_to_owned()?).metadata()?;
    Ok(is_both && std::fs::metadata("/dev/null").is_ok_and(|null| null.rdev() == opened.rdev()))
}
