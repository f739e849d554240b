//! A disk that takes writes and does not sync them: changes wait, and whoever asks for readiness hears of it.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::full::{becomes, becomes_since, make};
use super::{PATIENCE, Place, Serving};

/// Stands before the system's own: a sync waits for as long as the file of `HANGS_WHILE` is there, and fails where that of `FAILS_WHILE` is.
const SYNC: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int synced(const char *name, int fd) {
    const char *file = getenv("HANGS_WHILE");
    while (file && access(file, F_OK) == 0) usleep(5000);
    file = getenv("FAILS_WHILE");
    if (file && access(file, F_OK) == 0) { errno = EIO; return -1; }
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return next(fd);
}
int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }
"#;
/// A server on such a disk.
struct Hanging {
    place: Place,
    token: String,
}

impl Hanging {
    /// None where the disk is that of another program.
    fn made() -> Option<Self> {
        let place = Place::fresh();
        if place.has_database() {
            return None;
        }
        let token = place.init()["operator_token"].as_str().expect("a token").to_owned();
        std::fs::write(place.path("sync.c"), SYNC).expect("is written");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-o", "sync.so", "sync.c", "-ldl"])
            .current_dir(place.path(""))
            .status();
        assert!(made.expect("a C compiler").success());
        Some(Self { place, token })
    }

    fn serve(&self) -> Serving {
        let log = std::fs::File::options().create(true).append(true).open(self.log()).expect("a log");
        let arguments = ["serve", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
        let mut command = self.place.command(&arguments);
        command
            .env("LD_PRELOAD", self.place.path("sync.so"))
            .env("HANGS_WHILE", self.file())
            .env("FAILS_WHILE", self.failing())
            .env("COUNTERSIGN_LIMITS__DRAIN_TIMEOUT", "1s")
            .stdout(Stdio::piped())
            .stderr(log);
        Serving::started(command)
    }

    fn log(&self) -> PathBuf {
        self.place.path("log")
    }

    fn file(&self) -> PathBuf {
        self.place.path("hangs")
    }

    fn failing(&self) -> PathBuf {
        self.place.path("fails")
    }

    fn hang(&self) {
        std::fs::write(self.file(), "").expect("is written");
    }

    fn go_on(&self) {
        std::fs::remove_file(self.file()).expect("is there");
    }

    /// So many lines of the log at this level hold these words.
    fn said(&self, level: &str, words: &str) -> usize {
        let log = std::fs::read_to_string(self.log()).expect("a log");
        log.lines().filter(|line| line.contains(&format!(r#""level":"{level}""#)) && line.contains(words)).count()
    }
}

/// Whether `/metrics` says that it is ready.
fn counted_ready(serving: &Serving) -> bool {
    let said = super::full::asked(serving, "/metrics").1;
    said.lines().any(|line| line == "countersign_ready 1")
}

#[test]
fn a_node_whose_changes_wait_for_a_disk_that_hangs_is_not_ready_until_it_answers() {
    let Some(hanging) = Hanging::made() else { return };
    let serving = hanging.serve();
    assert_eq!(make(&serving, &hanging.token, "before"), 200);
    becomes(&serving, 200);
    assert!(counted_ready(&serving));
    hanging.hang();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| make(&serving, &hanging.token, "waiting"));
        becomes_since(&serving, 503, "the store does not answer changes: look whether its disk hangs");
        assert!(!counted_ready(&serving) && !waiting.is_finished());
        hanging.go_on();
        assert_eq!(waiting.join().expect("is answered"), 200);
    });
    becomes(&serving, 200);
    assert!(counted_ready(&serving));
    assert_eq!(make(&serving, &hanging.token, "after"), 200);
    assert_eq!(serving.terminate(), Some(0));
    assert_eq!(hanging.said("WARN", "The store does not answer changes, so this node is not ready"), 1);
    assert_eq!(hanging.said("INFO", "The store takes changes again: this node is ready"), 1);
}

#[test]
fn a_stop_ends_in_time_although_the_disk_hangs_and_loses_nothing_that_was_acknowledged() {
    let Some(hanging) = Hanging::made() else { return };
    let mut serving = hanging.serve();
    assert_eq!(make(&serving, &hanging.token, "acknowledged"), 200);
    hanging.hang();
    let (address, token) = (serving.operator_listen.clone(), hanging.token.clone());
    let waiting = std::thread::spawn(move || super::full::try_to_make(&address, &token, "waiting"));
    becomes(&serving, 503);
    serving.signal("-TERM");
    // One that waited for the disk would never end.
    assert_eq!(serving.ends_within(PATIENCE), Some(1), "it was not closed in order");
    assert!(waiting.join().expect("ends").is_err(), "what waits is not acknowledged");
    assert_eq!(hanging.said("ERROR", "The database was left open, since it did not answer in time"), 1);
    hanging.go_on();
    let serving = hanging.serve();
    assert_eq!(make(&serving, &hanging.token, "acknowledged"), 409, "it is there");
    assert_eq!(serving.terminate(), Some(0));
}

#[test]
fn what_is_not_seen_after_a_sync_that_failed_is_not_there_after_a_kill() {
    let Some(hanging) = Hanging::made() else { return };
    for name in ["first", "second", "third"] {
        let serving = hanging.serve();
        assert_eq!(make(&serving, &hanging.token, &format!("before-{name}")), 200);
        std::fs::write(hanging.failing(), "").expect("is written");
        assert_eq!(make(&serving, &hanging.token, name), 500, "the outcome is unknown");
        serving.signal("-KILL");
        assert!(serving.ended_by(9));
        std::fs::remove_file(hanging.failing()).expect("is there");
        let serving = hanging.serve();
        assert_eq!(make(&serving, &hanging.token, &format!("before-{name}")), 409, "it is there");
        assert_eq!(make(&serving, &hanging.token, name), 200, "it was not seen, and is not there");
        assert_eq!(serving.terminate(), Some(0));
    }
}
