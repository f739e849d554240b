//! Backups in a folder of their own: what is removed, what is not, and who is told that there is one.

use std::fs;
use std::os::unix::fs::symlink;

use countersign_store::testing::Tampering;
use serde_json::Value;

use super::full::asked_at;
use super::{Place, mode, until};

/// Names of the series, oldest first.
fn named(day: u32) -> String {
    format!("countersign-2026-01-{day:02}T03-17-00Z.backup")
}

/// A deployment and a folder `series` with backups of these days of January.
fn with_backups(days: &[u32]) -> Place {
    let place = Place::fresh();
    place.init();
    fs::create_dir(place.path("series")).expect("made");
    for day in days {
        place.ends(&["backup", &format!("series/{}", named(*day)), "--data", "data"], 0);
    }
    place
}

fn in_series(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.path("series")).expect("it is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn good_backups_that_are_older_go_and_whatever_else_is_there_stays() {
    let place = with_backups(&[1, 2, 3, 4, 5]);
    let stranger = with_backups(&[]);
    let of_another = format!("series/{}", named(6));
    stranger.ends(&["backup", place.path(&of_another).to_str().expect("UTF-8"), "--data", "data"], 0);
    fs::write(place.path(&format!("series/{}", named(7))), "no backup").expect("written");
    fs::write(place.path("series/countersign-latest.backup"), "by hand").expect("written");
    symlink(place.path(&format!("series/{}", named(1))), place.path(&format!("series/{}", named(8)))).expect("linked");

    let (said, _) = place.ends(&["backup", "--into", "series", "--keep", "3", "--data", "data", "--json"], 0);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let listed = |name: &str| -> Vec<String> {
        let paths = said[name].as_array().expect("a list");
        paths.iter().map(|path| path.as_str().expect("a path").replace("series/", "")).collect()
    };
    assert_eq!(listed("removed"), [named(3), named(2), named(1)], "with the new one there are three");
    assert_eq!(listed("left_alone"), [named(7), named(6)]);
    let new = said["file"].as_str().expect("a path").replace("series/", "");
    let mut left =
        vec![named(4), named(5), named(6), named(7), named(8), "countersign-latest.backup".to_owned(), new.clone()];
    left.sort();
    assert_eq!(in_series(&place), left);
    assert_eq!(mode(&place.path(&format!("series/{new}"))), 0o600);
    if !place.has_database() {
        let (file, key) = (format!("series/{new}"), "data/master.key");
        place.ends(&["restore", &file, "--data", "again", "--master-key", key], 0);
    }
}

#[test]
fn without_a_number_nothing_is_removed_and_a_number_needs_a_folder_of_backups() {
    let place = with_backups(&[1, 2]);
    place.ends(&["backup", "--into", "series", "--data", "data"], 0);
    assert_eq!(in_series(&place).len(), 3);
    let before = in_series(&place);
    for (words, wanted) in [
        (&["backup", "one", "--keep", "1", "--data", "data"][..], "cannot be used with"),
        (&["backup", "one", "--into", "series", "--data", "data"], "cannot be used with"),
        (&["backup", "--into", "series", "--keep", "0", "--data", "data"], "--keep <N>"),
        (&["backup", "--data", "data"], "<FILE>"),
    ] {
        let (_, refused) = place.ends(words, 2);
        assert!(refused.contains(wanted), "{words:?}: {refused}");
    }
    let (_, refused) = place.ends(&["backup", "--into", "nowhere", "--keep", "1", "--data", "data"], 1);
    assert!(refused.contains("nowhere/countersign-") && refused.contains("cannot be made"), "{refused}");
    assert_eq!(in_series(&place), before);
}

#[test]
fn a_broken_backup_takes_the_place_of_none_and_is_not_noted() {
    let place = with_backups(&[1, 2]);
    if place.has_database() {
        return;
    }
    let noted = || fs::read_to_string(place.path("data/backup.last")).expect("it is noted");
    let before = noted();
    place.tamper(Tampering::Dangle(1));
    let (_, refused) = place.ends(&["backup", "--into", "series", "--keep", "1", "--data", "data"], 1);
    assert!(refused.contains("`restore` refuses it"), "{refused}");
    assert_eq!(in_series(&place).len(), 3, "the good ones stay");
    assert_eq!(noted(), before);
}

#[test]
fn a_backup_is_known_to_metrics_and_to_doctor() {
    let place = Place::fresh();
    place.init();
    let metric = |serving: &super::Serving| {
        let (_, said) = asked_at(&serving.operator_listen, "GET", "/metrics", "");
        let line = said.lines().find_map(|line| line.strip_prefix("countersign_last_backup_timestamp_seconds "));
        line.and_then(|value| value.parse::<i64>().ok()).expect("a number")
    };
    let serving = place.serve(&[]);
    assert_eq!(metric(&serving), 0, "none is known");
    assert_eq!(serving.terminate(), Some(0));
    assert!(place.ends(&["doctor", "--data", "data"], 0).0.contains("ok    backup       none is noted"));

    let before = countersign::clock::Clock::System.now().0 / 1_000;
    place.ends(&["backup", "one", "--data", "data"], 0);
    let serving = place.serve(&[]);
    until("it is known", || metric(&serving) >= before);
    let said = place.ends(&["doctor", "--data", "data"], 0).0;
    assert!(said.contains("ok    backup       the last good one noted in this folder was begun at 20"), "{said}");
}
