//! What becomes of SQLite's file where it is not whole, or none.

use std::process::Command;

use countersign::clock::Clock;
use countersign_store::testing::Tampering;

use super::{Place, full};

#[test]
fn an_init_that_was_begun_and_not_finished_is_gone_on_with() {
    let place = Place::fresh();
    let (_, stderr) = place.ends(&["init", "--data", "data", "--master-key", "nokey"], 1);
    assert!(stderr.contains("nokey"), "{stderr}");
    assert!(!place.path("data/countersign.db").exists(), "it leaves no database without a deployment");
    place.init();
    // As after a cut between the schema and the first rows.
    let begun = Place::fresh();
    std::fs::create_dir(begun.data()).expect("made");
    std::fs::write(begun.path("data/countersign.db"), "").expect("made");
    begun.init();
    std::fs::remove_file(begun.path("data/master.key")).expect("removed");
    let (_, stderr) = begun.ends(&["init", "--data", "data"], 1);
    assert!(stderr.contains("holds a database but no master key"), "{stderr}");
}

#[test]
fn a_database_that_is_none_is_named() {
    let place = Place::fresh();
    place.init();
    std::fs::write(
        place.path("data/countersign.db"),
        "not a database, and long enough to be looked at as one".repeat(99),
    )
    .expect("written");
    for arguments in
        [&["serve", "--data", "data"][..], &["migrate", "--data", "data"], &["backup", "b", "--data", "data"]]
    {
        let (_, stderr) = place.ends(arguments, 1);
        assert!(stderr.contains("data/countersign.db cannot be"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn what_dangles_is_summed_up_by_its_table_and_a_backup_of_it_says_that_a_restore_refuses_it() {
    let place = Place::fresh();
    place.init();
    Tampering::Dangle(5_000).of_file(&place.path("data/countersign.db"));
    let (said, _) = place.ends(&["doctor", "--data", "data"], 1);
    let of_database: Vec<&str> = said.lines().filter(|line| line.contains("is damaged")).collect();
    assert_eq!(of_database.len(), 1, "{said}");
    let what = "5000 rows of convert_order_move refer to rows of convert_order that are not there";
    assert!(of_database[0].contains(what), "{said}");
    let (said, why) = place.ends(&["backup", "broken", "--data", "data"], 1);
    assert!(said.contains("Wrote broken") && why.contains("`restore` refuses it") && why.contains(what), "{said}{why}");
    let (_, why) = place.ends(&["restore", "broken", "--data", "other"], 1);
    assert!(why.contains("was broken when it was taken"), "{why}");
}

#[test]
fn a_backup_that_finds_no_room_names_the_file_that_it_could_not_write() {
    let place = Place::fresh();
    place.init();
    let limited = "ulimit -f 128; exec \"$0\" backup small --data data";
    let mut command = Command::new("sh");
    command
        .args(["-c", limited, place.command(&[]).get_program().to_str().expect("UTF-8")])
        .current_dir(place.path(""));
    let out = command.output().expect("runs");
    let why = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{why}");
    assert!(why.contains("countersign.db cannot be copied into small.unfinished"), "{why}");
    let left = std::fs::read_dir(place.path("")).expect("reads").map(|entry| entry.expect("reads").file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["data"], "nothing is left of it");
}

#[test]
fn a_damaged_nonce_journal_is_told_by_doctor_and_stays_so_until_a_start_has_told_it_too() {
    let place = Place::fresh();
    place.init();
    let journal = place.path("data/nonces-000000000001.journal");
    let damaged = [7; 64];
    std::fs::write(&journal, damaged).expect("written");
    for _ in 0..2 {
        let (said, _) = place.ends(&["doctor", "--data", "data"], 0);
        let line = said.lines().find(|line| line.contains("warn  nonces")).unwrap_or_else(|| panic!("{said}"));
        assert!(line.contains("nonces-000000000001.journal is damaged: 2 of its records"), "{line}");
        assert!(line.contains("A damaged nonce journal"), "{line}");
        place.ends(&["audit", "verify", "--data", "data"], 0);
        place.ends(&["token", "recover", "--data", "data"], 0);
        assert_eq!(std::fs::read(&journal).expect("it is there"), damaged, "nobody has told it in the log yet");
    }
    let log = place.path("log");
    assert_eq!(place.serve_logging(&[], &log).terminate(), Some(0));
    let log = std::fs::read_to_string(log).expect("reads");
    assert!(log.contains("nonces-000000000001.journal is damaged: 2 of its records"), "{log}");
    let (said, _) = place.ends(&["doctor", "--data", "data"], 0);
    assert!(!said.contains("journal is damaged"), "{said}");
}

#[test]
fn a_crash_after_the_clock_was_ahead_is_told_by_doctor_and_the_node_is_not_ready() {
    let place = Place::fresh();
    place.init();
    let hour = Clock::System.now().plus_ms(3_600_000);
    Tampering::Crash(hour).of_file(&place.path("data/countersign.db"));
    let (said, _) = place.ends(&["doctor", "--data", "data"], 1);
    assert!(said.contains("every signed request is answered 503 until"), "{said}");
    let log = place.path("log");
    let serving = place.serve_logging(&[], &log);
    let (status, answer) = full::readiness(&serving);
    assert!(status == 503 && answer.contains("every signed request is answered 503 until"), "{answer}");
    assert_eq!(serving.terminate(), Some(0));
    let log = std::fs::read_to_string(log).expect("reads");
    assert!(log.contains("This node is not ready: every signed request is answered 503 until"), "{log}");
}

#[test]
fn doctor_is_not_ended_by_the_size_limit_of_files() {
    let place = Place::fresh();
    if place.has_database() {
        return;
    }
    place.init();
    let limited = "ulimit -f 1; exec \"$0\" doctor --data data";
    let out =
        Command::new("sh").args(["-c", limited, super::BINARY]).current_dir(place.path("")).output().expect("runs");
    assert!(matches!(out.status.code(), Some(0 | 1)), "{:?}", out.status);
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("  schema  "), "it says what it found: {out:?}");
    assert!(said.contains("fail  data folder  data takes no files"), "a file without content would go: {out:?}");
}
