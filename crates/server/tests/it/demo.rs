//! A demo whose page cannot be written, and one whose server breaks after the walk.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use super::desk::told;
use super::{PATIENCE, Place, database, within};

#[test]
fn a_demo_whose_page_cannot_be_written_fails_and_one_whose_reader_went_away_does_not() {
    let place = Place::fresh();
    let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
    let mut demo = place.command(&["demo", "--once", "--fast", "--data", "full"]);
    let (_, stderr, code) = told(&demo.stdout(full).output().expect("runs"));
    assert_eq!(code, Some(1), "{stderr}");
    let wanted = "countersign: what was to be printed could not be written: ";
    assert!(stderr.starts_with(wanted) && stderr.lines().count() == 1, "{stderr}");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut demo = place.command(&["demo", "--once", "--fast", "--data", "unread"]);
    let (_, stderr, code) = told(&demo.stdout(writer).output().expect("runs"));
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
}

#[test]
fn a_demo_whose_database_gives_way_to_another_after_the_walk_ends_as_a_server_does() {
    let (place, one, other) = (Place::fresh(), database(), database());
    place.ends(&["init", "--data", "other", "--database-url", &other.url()], 0);
    let mut demo = place.command(&["demo", "--fast", "--database-url", &one.url()]);
    let mut demo = demo.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut page = BufReader::new(demo.stdout.take().expect("is piped"));
    let mut line = String::new();
    while !line.contains("claims held") {
        line.clear();
        assert!(page.read_line(&mut line).expect("is read") > 0, "it has ended in the walk");
    }
    let rest = std::thread::spawn(move || page.read_to_string(&mut line));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(one.give_way_to(other));
    within(PATIENCE, || demo.try_wait().expect("it is ours"));
    // It has ended, or never would.
    let _ = demo.kill();
    let (_, stderr, code) = told(&demo.wait_with_output().expect("it ends"));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("a part of the server broke: database, which was replaced"), "{stderr}");
    rest.join().expect("it is read").expect("to its end");
}
