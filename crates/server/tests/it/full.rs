//! A server that may not write to its files any more, as on a full disk, and what it leaves on the disk.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use super::{PATIENCE, Place, Serving, mode, until, within};

/// The status of `GET /readyz` and the whole answer.
pub fn readiness(serving: &Serving) -> (u16, String) {
    asked(serving, "/readyz")
}

/// The same of another path of the operators' listener.
pub fn asked(serving: &Serving, path: &str) -> (u16, String) {
    asked_at(&serving.operator_listen, "GET", path, "")
}

/// The same of any listener, with further headers, each on its line.
pub fn asked_at(address: &str, method: &str, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connects");
    write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n").expect("is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("is answered");
    (answer[9..12].parse().expect("a status"), answer)
}

/// Waits until `/readyz` answers with this status; what it says.
pub fn becomes(serving: &Serving, status: u16) {
    becomes_since(serving, status, "");
}

/// The same with these words: for some other reason it may be so sooner.
pub fn becomes_since(serving: &Serving, status: u16, words: &str) -> String {
    let mut said = (0, String::new());
    let found = within(PATIENCE, || {
        said = readiness(serving);
        (said.0 == status && said.1.contains(words)).then_some(())
    });
    assert!(found.is_some(), "{status} {words:?} is wanted: {said:?}");
    said.1
}

fn limit_files_to(serving: &Serving, size: &str) {
    let told =
        Command::new("prlimit").args(["--pid", &serving.pid().to_string(), &format!("--fsize={size}:")]).status();
    assert!(told.expect("prlimit runs").success());
}

#[test]
fn a_node_that_nobody_asks_for_anything_notices_that_it_cannot_write_and_lives() {
    let place = Place::fresh();
    if place.has_database() {
        return;
    }
    place.init();
    let log = place.path("log");
    let serving = place.serve_logging(&[], &log);
    becomes(&serving, 200);
    // Beyond the limit the system sends a signal, which ends a process that does not expect it. The log goes on up to here.
    limit_files_to(&serving, "16384");
    let answer = becomes_since(&serving, 503, "the store takes no changes: ");
    assert!(answer.contains("may not grow"), "{answer}");
    limit_files_to(&serving, "unlimited");
    becomes(&serving, 200);
    assert_eq!(serving.terminate(), Some(0));
    let said = std::fs::read_to_string(&log).expect("a log");
    let told = said.lines().filter(|line| line.contains("could not")).count();
    assert!((1..6).contains(&told), "{said}");
}

/// Makes a merchant: the status of the answer.
pub fn make(serving: &Serving, token: &str, name: &str) -> u16 {
    try_to_make(&serving.operator_listen, token, name).expect("is answered")
}

/// The same where an answer may not come.
pub fn try_to_make(operator_listen: &str, token: &str, name: &str) -> std::io::Result<u16> {
    let body = format!(r#"{{"name":"m","merchant_id":"{name}"}}"#);
    let mut stream = TcpStream::connect(operator_listen)?;
    let head =
        format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    write!(stream, "POST /operator/v1/merchants HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{head}\r\n\r\n{body}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.get(9..12).ok_or(ErrorKind::UnexpectedEof)?;
    Ok(status.parse().expect("a status"))
}

#[test]
fn a_node_whose_folder_takes_changes_of_the_database_and_no_new_file_is_not_ready() {
    let place = Place::fresh();
    if place.has_database() {
        return;
    }
    place.init();
    // The name of the first file of the nonce journal, which signed queries need.
    let taken = place.path("data/nonces-000000000001.journal");
    std::fs::create_dir(&taken).expect("made");
    let log = place.path("log");
    let serving = place.serve_logging(&[], &log);
    becomes_since(&serving, 503, "the nonce journal cannot be written");
    let line = "The nonce journal takes no records, so this node is not ready: the store cannot answer: the nonce journal cannot be begun: \
                data/nonces-000000000001.journal: File exists";
    until("the log says so", || std::fs::read_to_string(&log).expect("is read").contains(line));
    std::fs::remove_dir(&taken).expect("removed");
    becomes(&serving, 200);
    assert!(taken.is_file());
    assert_eq!(serving.terminate(), Some(0));
}

#[test]
fn a_change_for_which_a_file_would_become_too_large_is_503_and_not_done() {
    let place = Place::fresh();
    if place.has_database() {
        return;
    }
    let token = place.init()["operator_token"].as_str().expect("a token").to_owned();
    let serving = place.serve(&[]);
    let wal = std::fs::metadata(place.data().join("countersign.db-wal")).expect("is there").len();
    // Room for some changes more, so that what is refused is a commit of which parts are written.
    limit_files_to(&serving, &(wal.max(65_536) + 30_000).to_string());
    let refused = (0..200).map(|n| format!("m{n}")).find_map(|name| {
        let status = make(&serving, &token, &name);
        (status != 200).then_some((name, status))
    });
    let (name, status) = refused.expect("the file is full");
    assert_eq!(status, 503, "it is known that it was not done");
    limit_files_to(&serving, "unlimited");
    assert_eq!(make(&serving, &token, &name), 200, "{name} is still free");
}

#[test]
fn a_backup_that_would_be_too_large_a_file_is_refused_in_words() {
    let place = Place::fresh();
    if place.has_database() {
        return;
    }
    place.init();
    let script = format!("ulimit -f 64; exec {} backup b --data data", super::BINARY);
    let out = Command::new("sh").args(["-c", &script]).current_dir(place.path("")).output().expect("runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.starts_with("countersign: ") && !place.path("b").exists(), "{said}");
}

#[test]
fn every_file_of_a_deployment_is_its_owners_alone() {
    let place = Place::fresh();
    place.init();
    let _serving = place.serve(&[]);
    for entry in std::fs::read_dir(place.data()).expect("is read") {
        let path = entry.expect("is read").path();
        // What is not finished has another name a moment later.
        if path.extension().is_none_or(|end| end != "unfinished") {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

#[test]
fn a_deployment_that_is_made_on_a_disk_that_is_full_by_then_shows_its_token() {
    let place = Place::fresh();
    if place.has_database() {
        return;
    }
    std::fs::create_dir(place.path("small")).expect("made");
    // Room for what is made, and none for its copy into the database's file at the end.
    let script = "mount -t tmpfs -o size=500k tmpfs small && \"$0\" init --data small/data --json; echo $?
        mount -o remount,size=8m small && \"$0\" init --data small/data && exit 1; \"$0\" token recover --data small/data";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    command.arg(env!("CARGO_BIN_EXE_countersign")).current_dir(place.path("."));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("COUNTERSIGN_")) {
        command.env_remove(name);
    }
    let (shown, said, code) = super::desk::told(&command.output().expect("runs"));
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines[0].starts_with(r#"{"data":"small/data","operator_token":"cso_"#) && lines[1] == "1", "{shown}{said}");
    let wanted = "countersign: the deployment is made, and its operator token is shown above: the database could not be closed in order: ";
    assert!(said.starts_with(wanted) && said.contains("is initialised already"), "{said}");
    assert!(lines[2].starts_with("Operator token ") && code == Some(0), "{shown}{said}");
}

/// The binary with arguments where no file may grow beyond `bytes`; a write beyond it is refused and ends nothing.
fn with_files_up_to(place: &Place, bytes: u32, arguments: &[&str]) -> std::process::Output {
    let inner = place.command(arguments);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("trap '' XFSZ; exec prlimit --fsize={bytes} \"$@\""), "sh"]);
    command.arg(inner.get_program()).args(inner.get_args()).current_dir(place.path(""));
    command.output().expect("sh runs")
}

#[test]
fn what_an_audit_log_comes_to_is_told_where_the_database_cannot_be_closed_in_order() {
    let place = Place::fresh();
    if place.has_database() {
        return;
    }
    let token = place.init()["operator_token"].as_str().expect("a token").to_owned();
    let mut serving = place.serve(&[]);
    for n in 0..20 {
        assert_eq!(make(&serving, &token, &format!("m{n}")), 200);
    }
    // What it has written stands in the log beside the database.
    serving.signal("-KILL");
    serving.ends_within(PATIENCE);
    drop(serving);
    let bytes = |name: &str| std::fs::metadata(place.data().join(name)).expect("is there").len();
    assert!(bytes("countersign.db-wal") > 0);
    let out = with_files_up_to(&place, 32_768, &["audit", "verify", "--data", "data"]);
    let (said, told) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(told.contains("the database could not be closed in order"), "{said}\n{told}");
    assert!(said.contains("holds") && out.status.success(), "{said}\n{told}");
}

#[test]
fn a_link_in_the_place_of_a_backups_lock_leads_nowhere() {
    let place = Place::fresh();
    place.init();
    std::os::unix::fs::symlink("elsewhere", place.path("copy.lock")).expect("is made");
    let (_, told) = place.ends(&["backup", "copy", "--data", "data"], 1);
    assert!(told.contains("copy.lock cannot be locked"), "{told}");
    assert!(!place.path("elsewhere").exists() && !place.path("copy").exists());
}
