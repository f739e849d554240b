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

/// What `backup --into series --keep KEEP` says of other files: those that it removed, and those that it left alone with why.
fn thinned(place: &Place, keep: &str) -> (String, Vec<String>, Vec<(String, String)>) {
    let (said, _) = place.ends(&["backup", "--into", "series", "--keep", keep, "--data", "data", "--json"], 0);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let name = |path: &Value| path.as_str().expect("a path").replace("series/", "");
    let removed = said["removed"].as_array().expect("a list").iter().map(name).collect();
    let left_alone = said["left_alone"].as_array().expect("a list").iter();
    let left_alone = left_alone.map(|left| (name(&left["file"]), name(&left["why"]))).collect();
    (name(&said["file"]), removed, left_alone)
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
    // By a clock that was ahead.
    let ahead = "countersign-2999-01-01T00-00-00Z.backup";
    place.ends(&["backup", &format!("series/{ahead}"), "--data", "data"], 0);

    let (new, removed, left_alone) = thinned(&place, "3");
    assert_eq!(removed, [named(3), named(2), named(1)], "with the new one there are three");
    let why = |name: &str| left_alone.iter().find(|(file, _)| file == name).map(|(_, why)| why.as_str());
    assert_eq!(left_alone.len(), 3, "{left_alone:?}");
    assert!(why(ahead).is_some_and(|why| why.starts_with("its name is later")), "{left_alone:?}");
    assert_eq!(why(&named(7)), Some("it is no backup that can be read"));
    assert_eq!(why(&named(6)), Some("it is under another master key"));
    let mut left = [4, 5, 6, 7, 8].map(named).to_vec();
    left.extend([ahead, "countersign-latest.backup", "countersign.lock", &new].map(str::to_owned));
    left.sort();
    assert_eq!(in_series(&place), left);
    assert_eq!(mode(&place.path(&format!("series/{new}"))), 0o600);
    if !place.has_database() {
        let (file, key) = (format!("series/{new}"), "data/master.key");
        // A node's folder, as where its database was lost.
        fs::create_dir(place.path("again")).expect("made");
        fs::write(place.path("again/backup.last"), "2026-01-05T03:17:00.000Z\n").expect("written");
        place.ends(&["restore", &file, "--data", "again", "--master-key", key], 0);
        assert!(!place.path("again/backup.last").exists(), "of what was restored no backup is known");
    }
}

#[test]
fn a_backup_that_is_no_longer_what_was_written_does_not_count() {
    let place = with_backups(&[1, 2, 3]);
    let newest = place.path(&format!("series/{}", named(3)));
    let mut bytes = fs::read(&newest).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&newest, bytes).expect("written");
    let (_, removed, left_alone) = thinned(&place, "2");
    assert_eq!(removed, [named(1)], "the one before it stays in its place");
    assert_eq!(left_alone, [(named(3), "it is not what was written".to_owned())]);
}

#[test]
fn what_a_backup_that_was_cut_off_has_left_is_cleared_away_and_one_under_way_is_not() {
    let place = with_backups(&[1]);
    let left = |day: u32, what: &str| place.path(&format!("series/{}.{what}", named(day)));
    for what in ["unfinished", "unfinished-wal", "lock"] {
        fs::write(left(2, what), "half").expect("written");
        fs::write(left(3, what), "half").expect("written");
    }
    let under_way = fs::File::open(left(3, "lock")).expect("opens");
    under_way.lock().expect("is taken");
    let (new, removed, left_alone) = thinned(&place, "1");
    assert_eq!((removed.len(), left_alone), (2, Vec::new()));
    assert!(removed.contains(&named(1)) && removed.contains(&format!("{}.unfinished", named(2))), "{removed:?}");
    let under_way = ["lock", "unfinished", "unfinished-wal"].map(|what| format!("{}.{what}", named(3)));
    let mut stay: Vec<String> = under_way.into_iter().chain(["countersign.lock".to_owned(), new]).collect();
    stay.sort();
    assert_eq!(in_series(&place), stay);
}

#[test]
fn of_backups_at_once_the_newest_stays_whatever_the_others_remove() {
    let place = with_backups(&[1, 2]);
    let words = ["backup", "--into", "series", "--keep", "1", "--data", "data"];
    let running: Vec<_> = (0..4).map(|_| place.command(&words).spawn().expect("the binary starts")).collect();
    let ended = running.into_iter().map(|mut child| child.wait().expect("it ends").code());
    // Two of one second may meet at one name: then one is refused.
    assert!(ended.filter(|code| *code == Some(0)).count() > 0, "one went well");
    let names = in_series(&place);
    let newest = names.iter().rfind(|name| name.ends_with("Z.backup")).unwrap_or_else(|| panic!("none: {names:?}"));
    assert!(*newest > named(2), "{names:?}");
    assert!(!names.contains(&named(1)) && !names.contains(&named(2)), "{names:?}");
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
    assert_eq!(in_series(&place).len(), 3, "the good ones stay, and nothing was locked");
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
