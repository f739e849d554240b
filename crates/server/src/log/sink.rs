//! Where lines go: a thread that writes them, and what is lost where it cannot.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::kept;

/// Counts lines that could not be written, or that nobody took.
pub const LOST: &str = "countersign_log_lines_lost_total";
/// How long lines are gathered before they are written together.
const LINGER_MS: u64 = 10;
/// More than this waiting to be written, and lines are dropped and counted.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long the end of the process waits for its last lines to be taken: they say why it ended, also where the machine is busy.
const LAST_LINES_FOR: Duration = Duration::from_secs(5);

#[derive(Default)]
struct PendingLines {
    bytes: Vec<u8>,
    dropped: u64,
    ended: bool,
    /// Whether the thread has written what there was when it was told to end.
    written: bool,
}

#[derive(Default)]
pub(super) struct Shared {
    waiting: Mutex<PendingLines>,
    filled: Condvar,
    done: Condvar,
    /// Lines of the last requests that were refused, oldest first.
    pub(super) refused: Mutex<kept::Lines>,
}

/// Where lines go. Cheap to clone.
#[derive(Clone)]
pub struct LogSink {
    pub(super) shared: Arc<Shared>,
}

impl std::fmt::Debug for LogSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogSink").finish_non_exhaustive()
    }
}

/// Writes what is left when it is dropped, if somebody takes it.
#[derive(Debug)]
pub struct LogGuard {
    sink: LogSink,
    /// How long it waits for that.
    patience: Duration,
}

impl LogSink {
    /// A sink whose thread writes to `out`.
    pub fn start(mut out: impl Write + Send + 'static) -> io::Result<(Self, LogGuard)> {
        let sink = Self { shared: Arc::default() };
        let shared = sink.shared.clone();
        std::thread::Builder::new().name("log".to_owned()).spawn(move || drain(&shared, &mut out))?;
        Ok((sink.clone(), LogGuard { sink, patience: LAST_LINES_FOR }))
    }

    /// Hands a whole line over, its newline included. Never waits for the writer.
    pub fn push(&self, line: &[u8]) {
        let mut waiting = self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.bytes.len() + line.len() > WAITING_BYTES_MAX {
            waiting.dropped += 1;
            drop(waiting);
            // Here, since the thread may stand still for as long as nobody reads.
            metrics::counter!(LOST).increment(1);
            return;
        }
        let was_empty = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        drop(waiting);
        if was_empty {
            self.shared.filled.notify_one();
        }
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let Shared { waiting, filled, done, .. } = &*self.sink.shared;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.ended = true;
        filled.notify_one();
        // Who has the other end of the pipe and does not read from it must not keep the process alive.
        drop(done.wait_timeout_while(waiting, self.patience, |waiting| !waiting.written));
    }
}

/// Lines that could not be written, told when writing works again.
#[derive(Debug, Default)]
struct Lost {
    lines: u64,
    /// Whether the end of the last line that was written is missing.
    is_torn: bool,
}

impl Lost {
    fn write(&mut self, out: &mut impl Write, batch: &[u8]) {
        if (self.lines > 0 || self.is_torn) && self.tell(out).is_err() {
            return self.count(batch);
        }
        if out.write_all(batch).is_err() {
            self.is_torn = true;
            self.count(batch);
        }
    }

    fn tell(&mut self, out: &mut impl Write) -> io::Result<()> {
        let lines = self.lines;
        let end = if self.is_torn { "\n" } else { "" };
        writeln!(
            out,
            r#"{end}{{"level":"WARN","message":"{lines} log lines or more were lost: the log could not be written"}}"#
        )?;
        *self = Self::default();
        Ok(())
    }

    fn count(&mut self, batch: &[u8]) {
        let lines = batch.split(|byte| *byte == b'\n').skip(1).count() as u64;
        self.lines += lines;
        metrics::counter!(LOST).increment(lines);
    }
}

fn drain(shared: &Shared, out: &mut impl Write) {
    let mut batch = Vec::new();
    let mut lost = Lost::default();
    loop {
        let mut waiting = shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.bytes.is_empty() && !waiting.ended {
            waiting = shared.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if !waiting.ended {
            drop(waiting);
            // Gather: under load this thread wakes a hundred times a second and not with every line.
            std::thread::park_timeout(Duration::from_millis(LINGER_MS));
            waiting = shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut batch, &mut waiting.bytes);
        let (dropped, ended) = (std::mem::take(&mut waiting.dropped), waiting.ended);
        drop(waiting);
        // Nobody is left to tell while the log itself cannot be written: a full disk, a reader that went away.
        lost.write(out, &batch);
        if dropped > 0 {
            let _ = writeln!(
                out,
                r#"{{"level":"WARN","message":"{dropped} log lines were dropped: the log is written too slowly"}}"#
            );
        }
        let _ = out.flush();
        batch.clear();
        if batch.capacity() > 256 * 1024 {
            batch = Vec::new();
        }
        if ended {
            shared.waiting.lock().unwrap_or_else(PoisonError::into_inner).written = true;
            shared.done.notify_all();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    #[test]
    fn lines_that_could_not_be_written_are_told_when_they_can() {
        /// A disk with so much room.
        struct Disk(Vec<u8>, usize);
        impl Write for Disk {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let count = bytes.len().min(self.1);
                if count == 0 {
                    return Err(ErrorKind::StorageFull.into());
                }
                self.1 -= count;
                self.0.extend_from_slice(&bytes[..count]);
                Ok(count)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (mut disk, mut lost) = (Disk(Vec::new(), 7), Lost::default());
        lost.write(&mut disk, b"one\n");
        lost.write(&mut disk, b"two, torn\nthree\n");
        lost.write(&mut disk, b"four\n");
        disk.1 = 1000;
        lost.write(&mut disk, b"five\n");
        lost.write(&mut disk, b"six\n");
        let text = String::from_utf8(disk.0).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[1], &lines[3..]), ("one", "two", &["five", "six"][..]), "{text}");
        let told: serde_json::Value = serde_json::from_str(lines[2]).expect("a JSON line");
        assert!(told["message"].as_str().is_some_and(|m| m.starts_with("3 log lines or more")), "{told}");
    }

    #[test]
    fn dropping_the_guard_writes_what_is_left() {
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<u8>>>);
        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().expect("not poisoned").extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let kept = Kept::default();
        let (sink, mut guard) = LogSink::start(kept.clone()).expect("a thread starts");
        // For as long as the thread may take to have its turn.
        guard.patience = Duration::from_secs(60);
        for _ in 0..1000 {
            sink.push(b"line\n");
        }
        drop(guard);
        assert_eq!(kept.0.lock().expect("not poisoned").len(), 5000);
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_that_does_not_read() {
        /// A pipe from which nobody reads.
        struct Stuck(Receiver<()>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.recv().map_err(|_| ErrorKind::BrokenPipe)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (reader, stuck) = channel();
        let (sink, mut guard) = LogSink::start(Stuck(stuck)).expect("a thread starts");
        guard.patience = Duration::from_millis(50);
        sink.push(b"line\n");
        drop(guard);
        let is_written = || sink.shared.waiting.lock().expect("not poisoned").written;
        assert!(!is_written(), "the thread stands still, and nobody waits for it");
        drop(reader);
        let waiting = sink.shared.waiting.lock().expect("not poisoned");
        drop(sink.shared.done.wait_while(waiting, |waiting| !waiting.written));
        assert!(is_written());
    }
}
